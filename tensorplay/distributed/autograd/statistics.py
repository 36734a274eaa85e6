"""Counters of the messages of backward passes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Statistics:
    """What a worker has sent for backward passes since `init_rpc`, its own passes and others'.

    Attributes:
        gradients_sent: Send/recv pairs with other workers that it has answered with gradients.
        answers_sent: All that it has answered, with gradients or with the word that none will come.
        answer_messages_sent: Messages that these answers travelled in.
        notices_sent: Messages that say no more than that a pass has begun.
        reports_sent: Messages to another worker that this one has done its part in its pass.
        late_answers_sent: Answers for messages that arrived here during a pass.
    """

    gradients_sent: int
    answers_sent: int
    answer_messages_sent: int
    notices_sent: int
    reports_sent: int
    late_answers_sent: int


class Counters:
    """Counts towards a `Statistics`; any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys([field.name for field in fields(Statistics)], 0)

    def add(self, **counts: int) -> None:
        """Add to the counters of those names."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def read(self) -> Statistics:
        """What has been counted so far."""
        with self._lock:
            return Statistics(**self._counts)
