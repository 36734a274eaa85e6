"""The two ends of a message in the graph.

When tensors that require grad cross from one worker to another, the sender records a *send
function* whose edges lead into its graph, and the receiver a *recv function* that the received
tensors hang from.  Both carry the message's autograd id.  Gradients go the other way: the recv
function sends, the send function receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tensorplay.autograd.graph import MultiOutputNode, Node, OutputOf
from tensorplay.tensor import Tensor


class SendRpcBackward(Node):
    """Takes the gradients that come back for a message into the sender's graph.

    Attributes:
        message_id: Autograd id of the message.
        peer: Rank of the receiver.
    """

    __slots__ = ("message_id", "peer")

    def __init__(self, message_id: int, peer: int, tensors: Sequence[Tensor]) -> None:
        super().__init__(tuple([tensor._node or tensor for tensor in tensors]))
        self.message_id = message_id
        self.peer = peer

    def rule(self, grad: Any, *saved: Any) -> Sequence[Any]:
        grads: Sequence[Any] = grad
        return grads


class RecvRpcBackward(MultiOutputNode):
    """Ends the receiver's graph: what arrives here goes back to the sender.

    Attributes:
        message_id: Autograd id of the message.
        peer: Rank of the sender.
        context_id: The context that recorded it.
    """

    __slots__ = ("context_id", "message_id", "peer")
    special: ClassVar[bool] = True

    def __init__(self, message_id: int, peer: int, context_id: int, outputs: int) -> None:
        super().__init__(())
        self.message_id = message_id
        self.peer = peer
        self.context_id = context_id
        self.outputs = outputs

    def hang(self, tensors: Sequence[Tensor]) -> None:
        """Make `tensors`, in their order, the outputs of this function."""
        for index, tensor in enumerate(tensors):
            tensor._node = OutputOf(self, index)
