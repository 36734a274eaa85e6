"""Tables of rows, as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tensorplay.nn import functional, init
from tensorplay.nn.arguments import check_integers
from tensorplay.nn.module import Module
from tensorplay.nn.parameter import Parameter
from tensorplay.ops.creation import empty
from tensorplay.ops.embedding import refuse_unsupported
from tensorplay.tensor import Tensor

_Self = TypeVar("_Self", bound="_Table")


class _Table(Module):
    """Has a table of rows, drawn from the normal distribution; that of the padding is zero."""

    weight: Parameter

    def _make(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        given: Tensor | None,
        frozen: bool,
        device: Any,
        dtype: Any,
    ) -> None:
        check_integers(num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            check_integers(padding_idx=padding_idx)
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        if given is None:
            table = empty(num_embeddings, embedding_dim, dtype=dtype, device=device)
            self.weight = Parameter(table, requires_grad=not frozen)
            self.reset_parameters()
            return
        if given.shape != (num_embeddings, embedding_dim):
            raise ValueError(
                f"expected a weight of shape {(num_embeddings, embedding_dim)}, not {given.shape}"
            )
        self.weight = Parameter(given, requires_grad=not frozen)

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight._array[self.padding_idx] = 0

    @classmethod
    def from_pretrained(
        cls: type[_Self], embeddings: Tensor, freeze: bool = True, **options: Any
    ) -> _Self:
        """A module on a given table.

        Args:
            embeddings: ``(rows, width)``; the module's weight is on the same memory.
            freeze: Do not train it.
            options: The other arguments of the class, by name.

        Raises:
            ValueError: The table is no matrix.
        """
        if embeddings.ndim != 2:
            raise ValueError("Embeddings parameter is expected to be 2-dimensional")
        rows, width = embeddings.shape
        make: Callable[..., _Self] = cls
        return make(rows, width, _weight=embeddings, _freeze=freeze, **options)

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        return shown if self.padding_idx is None else f"{shown}, padding_idx={self.padding_idx}"


class Embedding(_Table):
    """The rows of a table that numbers name: `tensorplay.nn.functional.embedding`.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Their width.
        padding_idx: This row is zero at first, and gets no gradient.
        max_norm: Not supported, like `norm_type`, `scale_grad_by_freq` and `sparse`.
        dtype: Element type of the table.

    Raises:
        NotImplementedError: An option is not supported.
        ValueError: `padding_idx` lies outside the table.

    >>> import tensorplay as tp
    >>> tp.nn.Embedding(10, 3)(tp.tensor([[1, 2], [4, 9]])).shape
    (2, 2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        refuse_unsupported("Embedding", max_norm, scale_grad_by_freq, sparse)
        self._make(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """The rows: ``(*, embedding_dim)``."""
        return functional.embedding(input, self.weight, self.padding_idx)


class EmbeddingBag(_Table):
    """For each bag of numbers the sum, mean or maximum of the rows that they name.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Their width.
        max_norm: Not supported, like `norm_type`, `scale_grad_by_freq` and `sparse`.
        mode: ``"sum"``, ``"mean"`` or ``"max"``.
        include_last_offset: The offsets also say where the last bag ends.
        padding_idx: This number does not count; its row is zero at first.
        dtype: Element type of the table.

    Raises:
        NotImplementedError: An option is not supported.
        ValueError: `padding_idx` lies outside the table.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
        *,
        _freeze: bool = False,
    ) -> None:
        super().__init__()
        refuse_unsupported("EmbeddingBag", max_norm, scale_grad_by_freq, sparse)
        self.mode = mode
        self.include_last_offset = include_last_offset
        self._make(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """One row for each bag; arguments as for `tensorplay.nn.functional.embedding_bag`."""
        return functional.embedding_bag(
            input,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"
        return shown if self.padding_idx is None else f"{shown}, padding_idx={self.padding_idx}"
