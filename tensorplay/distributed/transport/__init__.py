"""Bytes between workers: frames, the transports that carry them, and who polls.

Knows nothing of calls, pickles' contents or gradients.
"""

from tensorplay.distributed.transport.base import Transport, TransportClosedError
from tensorplay.distributed.transport.parking import Completion
from tensorplay.distributed.transport.progress import Progress
from tensorplay.distributed.transport.wire import Message

__all__ = ["Completion", "Message", "Progress", "Transport", "TransportClosedError"]
