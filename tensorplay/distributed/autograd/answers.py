"""What the messages look like in which answers travel.

In flat form (see `rpc.payloads`): the pass, what it keeps, the ranks that a report names (their
number, -1 if it is no report), and for each answer its autograd message id, how many gradients
there are, and these.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from tensorplay.distributed.autograd.backward_pass import Answer
from tensorplay.distributed.rpc.payloads import array_of, flat_array, pack_flat, unpack_flat
from tensorplay.distributed.rpc.serialization import Packed
from tensorplay.tensor import Tensor

#: Whether a pass retains the graph, whether it is recorded itself, and which pass was the latest of
#: the same worker in this context that came to a good end (0 for none).
Keep = tuple[bool, bool, int]


class Parcel(NamedTuple):
    """What a message of a pass brings.

    Attributes:
        pass_id: The pass.
        keep: What it keeps.
        known: If it is a report, the ranks that it names.
        answers: The answers.
        tensors: Those gradients that require grad.
    """

    pass_id: int
    keep: Keep
    known: Sequence[int] | None
    answers: Sequence[Answer]
    tensors: Sequence[Tensor]


def pack_answers(
    pass_id: int, keep: Keep, answers: Sequence[Answer], known: Collection[int] | None = None
) -> Packed:
    """Pickle answers, and a report that goes with them, for a message.

    Gradients are arrays; in a pass that is recorded they are tensors, and those that require grad
    are among the `tensors` of the result.

    Raises:
        TypeError: A gradient is not made of numbers.
    """
    packed = Packed()
    values: list[Any] = [pass_id, *keep, -1]
    if known is not None:
        values[4] = len(known)
        values += known
    recorded = keep[1]
    buffers: list[Any] = []
    seen: set[int] = set()
    for message_id, grads in answers:
        if grads is None:
            values += (message_id, None)
            continue
        values += (message_id, len(grads))
        for grad in grads:
            if grad is None:
                values.append(None)
            elif not recorded:
                entry = flat_array(grad, buffers)
                if entry is None:
                    raise _not_numbers(grad)
                values.append(entry)
            else:
                # Flat form has no object twice, and each gradient an edge of its own.
                values.append(grad.reshape(grad.shape) if id(grad) in seen else grad)
                seen.add(id(grad))
    if not recorded:
        packed.body = pickle.dumps(values, 5)
        packed.buffers = buffers
    elif not pack_flat(values, packed, copy=False):
        raise _not_numbers(*[value for value in values if isinstance(value, Tensor)])
    return packed


def _not_numbers(*grads: Any) -> TypeError:
    return TypeError(
        "gradients that cross workers must be numbers, got dtypes "
        f"{[str(grad.dtype) for grad in grads]}"
    )


def unpack_answers(body: Any, buffers: Sequence[Any]) -> Parcel:
    """What `pack_answers` has packed."""
    tensors: Sequence[Tensor] = ()
    # A recorded pass has tensors in the places of arrays; ranks and ids are the same in both.
    values = pickle.loads(body)
    pass_id, retain_graph, create_graph, good, named = values[:5]
    if create_graph:
        values, tensors = unpack_flat(body, buffers)
    known = None
    position = 5
    if named >= 0:
        position += named
        known = values[5:position]
    rest = iter(buffers)
    answers: list[Answer] = []
    while position < len(values):
        message_id, count = values[position : position + 2]
        position += 2
        grads = None
        if count is not None:
            grads = values[position : position + count]
            if not create_graph:
                grads = [None if entry is None else array_of(entry, rest) for entry in grads]
            position += count
        answers.append((message_id, grads))
    return Parcel(pass_id, (retain_graph, create_graph, good), known, answers, tensors)
