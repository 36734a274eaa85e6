"""Sequences of different lengths: padded to one length, or packed without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorplay.ops.creation import full
from tensorplay.ops.gathering import index_select
from tensorplay.ops.shape import transpose
from tensorplay.tensor import Tensor, wrap


class PackedSequence(NamedTuple):
    """Sequences of different lengths without padding, as recurrent layers take them.

    Attributes:
        data: ``(rows, *)``: the first elements of all sequences, then the second ones, and so on;
            the longest sequence comes first.
        batch_sizes: ``(longest,)``, int64: how many sequences have an element at each place.
        sorted_indices: The number of each packed sequence before they were sorted; None if they
            were sorted already.
        unsorted_indices: Where each of the original sequences is among the packed.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    @property
    def is_cuda(self) -> bool:
        """Always False."""
        return False

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with its data converted; arguments as for `Tensor.to`."""
        return self._replace(data=self.data.to(*args, **kwargs))


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of different lengths as one tensor, the shorter ones filled up.

    Args:
        sequences: Each ``(length, *)``, alike but for their lengths.
        batch_first: The result is ``(sequences, longest, *)`` rather than
            ``(longest, sequences, *)``.
        padding_value: What the shorter ones are filled up with.
        padding_side: Where: ``"right"`` or ``"left"``.

    Raises:
        ValueError: There are no sequences, or `padding_side` is another word.
        RuntimeError: The sequences differ in more than their lengths.

    >>> import tensorplay as tp
    >>> tp.nn.utils.rnn.pad_sequence([tp.ones(2), tp.ones(1)], batch_first=True)
    tensor([[1., 1.],
            [1., 0.]])
    """
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side should be either 'right' or 'left', got {padding_side!r}")
    parts = list(sequences)
    if not parts:
        raise ValueError("expected at least one sequence")
    trailing = parts[0]._array.shape[1:]
    for part in parts:
        if not part._array.ndim or part._array.shape[1:] != trailing:
            raise RuntimeError(
                "sequences must be alike but for their first size, got the shapes "
                f"{[one._array.shape for one in parts]}"
            )
    longest = max(len(part._array) for part in parts)
    shape = (len(parts), longest, *trailing) if batch_first else (longest, len(parts), *trailing)
    out = full(shape, padding_value, dtype=parts[0]._array.dtype)
    for i, part in enumerate(parts):
        length = len(part._array)
        place = slice(0, length) if padding_side == "right" else slice(longest - length, longest)
        out[(i, place) if batch_first else (place, i)] = part
    return out


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences that `pad_sequence` put together, each with its own length again."""
    if not batch_first:
        padded_sequences = transpose(padded_sequences, 0, 1)
    return [padded_sequences[i, : int(n)] for i, n in enumerate(lengths._array)]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Padded sequences without their padding.

    Args:
        input: ``(longest, sequences, *)``; with `batch_first`, ``(sequences, longest, *)``.
        lengths: Of the sequences: a list, or a tensor of one dimension.
        enforce_sorted: The longest must come first.  If False, they are sorted here, and what a
            recurrent layer gives for them is put back in the given order.

    Raises:
        RuntimeError: A length is not positive, or the order or the number is not as it must be.
    """
    counts = np.asarray(lengths._array if isinstance(lengths, Tensor) else lengths, np.int64)
    if batch_first:
        input = transpose(input, 0, 1)
    if counts.shape != (input._array.shape[1],):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} (batch_size="
            f"{input._array.shape[1]})"
        )
    if counts.size and not 0 < counts.min() <= counts.max() <= len(input._array):
        raise RuntimeError(
            "Length of all samples has to be greater than 0, and not more than that of the padded "
            f"sequences, {len(input._array)}"
        )
    order = back = None
    if enforce_sorted:
        if (counts[1:] > counts[:-1]).any():
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
                "You can pass `enforce_sorted=False` to have them sorted."
            )
    else:
        places = np.argsort(-counts, kind="stable")
        order, back = wrap(places), wrap(np.argsort(places))
        input = index_select(input, 1, order)
        counts = counts[places]
    there = np.arange(counts.max(initial=0))[:, None] < counts
    # True row by row: that is just the packed order.
    data = input[: len(there)][wrap(there)]
    return PackedSequence(data, wrap(there.sum(1)), order, back)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Packed sequences with padding, in their original order; and their lengths.

    Args:
        batch_first: The result is ``(sequences, longest, *)`` rather than
            ``(longest, sequences, *)``.
        padding_value: What the shorter ones are filled up with.
        total_length: Fill up to this length rather than to that of the longest.

    Raises:
        ValueError: `total_length` is less than the length of the longest.
    """
    sizes = sequence.batch_sizes._array
    longest = len(sizes)
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, "
                f"but got total_length={total_length} and max sequence length being {longest}"
            )
        longest = total_length
    count = int(sizes[0]) if len(sizes) else 0
    there = np.arange(count) < np.append(sizes, [0] * (longest - len(sizes)))[:, None]
    data = sequence.data
    shape = (longest, count, *data._array.shape[1:])
    out = full(shape, padding_value, dtype=data._array.dtype)
    out[wrap(there)] = data
    lengths = wrap(there.sum(0))
    if sequence.unsorted_indices is not None:
        out = index_select(out, 1, sequence.unsorted_indices)
        lengths = index_select(lengths, 0, sequence.unsorted_indices)
    return (transpose(out, 0, 1) if batch_first else out), lengths


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences of different lengths, packed; see `pack_padded_sequence`."""
    lengths = [len(one._array) for one in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, in their original order."""
    padded, lengths = pad_packed_sequence(packed_sequences)
    return unpad_sequence(padded, lengths)


__all__ = [
    "PackedSequence",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]
