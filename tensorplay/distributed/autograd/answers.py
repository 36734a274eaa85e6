"""What the messages look like in which answers travel.

In flat form (see `rpc.payloads`): the pass, what it keeps, and for each answer its autograd message
id, how many gradients there are, and these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorplay.distributed.autograd.backward_pass import Answer
from tensorplay.distributed.rpc.payloads import pack_flat, unpack_flat
from tensorplay.distributed.rpc.serialization import Packed
from tensorplay.tensor import Tensor, wrap

#: Whether a pass retains the graph, and whether it is recorded itself.
Keep = tuple[bool, bool]


def pack_answers(pass_id: int, keep: Keep, answers: Sequence[Answer]) -> Packed:
    """Pickle answers for a message.

    Gradients of a pass that is recorded are tensors, and those that require grad are among the
    `tensors` of the result.

    Raises:
        TypeError: A gradient is not made of numbers.
    """
    values: list[Any] = [pass_id, *keep]
    recorded: set[int] = set()
    for message_id, grads in answers:
        if grads is None:
            values += (message_id, None)
            continue
        values += (message_id, len(grads))
        for grad in grads:
            value = grad
            if isinstance(grad, Tensor):
                if id(grad) in recorded:
                    # Flat form has no object twice, and each gradient an edge of its own.
                    value = grad.reshape(grad.shape)
                recorded.add(id(grad))
            elif grad is not None:
                value = wrap(np.asarray(grad))
            values.append(value)
    packed = Packed()
    if not pack_flat(values, packed, copy=False):
        raise TypeError(
            "gradients that cross workers must be numbers, got dtypes "
            f"{[str(value.dtype) for value in values if isinstance(value, Tensor)]}"
        )
    return packed


def unpack_answers(
    body: Any, buffers: Sequence[Any]
) -> tuple[int, Keep, list[Answer], Sequence[Tensor]]:
    """The pass, what it keeps, the answers, and those gradients that require grad."""
    values, tensors = unpack_flat(body, buffers)
    pass_id, retain_graph, create_graph = values[:3]
    answers: list[Answer] = []
    position = 3
    while position < len(values):
        message_id, count = values[position : position + 2]
        position += 2
        grads = None
        if count is not None:
            grads = values[position : position + count]
            if not create_graph:
                grads = [None if grad is None else grad._array for grad in grads]
            position += count
        answers.append((message_id, grads))
    return pass_id, (retain_graph, create_graph), answers, tensors
