"""Random tensors, and the generators that they are drawn from."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.ops.creation import finished
from tensorplay.ops.shape import sizes
from tensorplay.tensor import Tensor


class Generator:
    """A source of random numbers: `numpy.random.Generator`, safe for use by several threads.

    It can be copied, pickled and sent to other workers: the copy draws what this one draws next.

    >>> import tensorplay as tp
    >>> a = tp.randn(2, generator=tp.Generator().manual_seed(1))
    >>> b = tp.randn(2, generator=tp.Generator().manual_seed(1))
    >>> tp.equal(a, b)
    True
    """

    def __init__(self, device: Any = None) -> None:
        self._lock = threading.Lock()
        # Made when first needed: NumPy's random module takes a while to import.
        self._source: np.random.Generator | None = None
        self._seed: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Copies, here or on another worker, go on from where this one stands, each by itself.
        return {"state": self.get_state(), "seed": self._seed}

    def __setstate__(self, held: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.set_state(held["state"])
        self._seed = held["seed"]

    def manual_seed(self, seed: int) -> Generator:
        """Start the sequence that belongs to `seed`; returns the generator itself."""
        with self._lock:
            self._seed = int(seed) & (2**64 - 1)
            self._source = np.random.default_rng(self._seed)
        return self

    def seed(self) -> int:
        """Start a sequence from a fresh seed, which is returned."""
        seed = np.random.SeedSequence().generate_state(1, np.uint64)[0]
        self.manual_seed(int(seed))
        return int(seed)

    def initial_seed(self) -> int:
        """The seed that the sequence was started from."""
        return self.seed() if self._seed is None else self._seed

    def get_state(self) -> dict[str, Any]:
        """Where the sequence stands, for `set_state`."""
        if self._source is None:
            self.seed()
        with self._lock:
            assert self._source is not None
            return dict(self._source.bit_generator.state)

    def set_state(self, state: dict[str, Any]) -> Generator:
        """Go on where `get_state` was called."""
        if self._source is None:
            self.seed()
        with self._lock:
            assert self._source is not None
            self._source.bit_generator.state = state
        return self

    def draw(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the `numpy.random.Generator` underneath."""
        if self._source is None:
            self.seed()
        with self._lock:
            return getattr(self._source, method)(*args, **kwargs)


#: Draws for every call that is not given a generator.
default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, from which every random function here draws."""
    return default_generator.manual_seed(seed)


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def seed() -> int:
    """Seed the default generator from fresh randomness; returns the seed."""
    return default_generator.seed()


def get_rng_state() -> dict[str, Any]:
    """Where the default generator's sequence stands, for `set_rng_state`."""
    return default_generator.get_state()


def set_rng_state(new_state: dict[str, Any]) -> None:
    """Let the default generator go on where `get_rng_state` was called."""
    default_generator.set_state(new_state)


def _drawn(method: str, shape: tuple[int, ...], dtype: Any, generator: Generator | None) -> Any:
    dtype = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if dtype.kind == "c":
        parts = _drawn(method, (*shape, 2), np.zeros((), dtype).real.dtype, generator)
        if method == "standard_normal":
            # So that the variance of the whole is 1.
            parts *= np.sqrt(0.5)
        return parts.view(dtype)[..., 0]
    if dtype.kind != "f":
        raise RuntimeError(f"random floating-point numbers cannot have the type {dtype}")
    drawn = dtypes.float32 if dtype == dtypes.float16 else dtype
    values = (generator or default_generator).draw(method, shape, dtype=drawn)
    return np.asarray(values, dtype)


def rand(
    *sizes_of_it: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers drawn evenly from [0, 1); sizes as arguments or as one sequence.

    With a complex `dtype`, real and imaginary parts are drawn so.
    """
    values = _drawn("random", sizes(sizes_of_it, size), dtype, generator)
    return finished(values, requires_grad, device)


def randn(
    *sizes_of_it: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from the normal distribution with mean 0 and variance 1; sizes as for `rand`.

    With a complex `dtype`, real and imaginary parts have a variance of 1/2 each.
    """
    values = _drawn("standard_normal", sizes(sizes_of_it, size), dtype, generator)
    return finished(values, requires_grad, device)


def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """As `rand`, in the input's shape and type."""
    dtype = input._array.dtype if dtype is None else dtype
    values = _drawn("random", input._array.shape, dtype, generator)
    return finished(values, requires_grad, device)


def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """As `randn`, in the input's shape and type."""
    dtype = input._array.dtype if dtype is None else dtype
    values = _drawn("standard_normal", input._array.shape, dtype, generator)
    return finished(values, requires_grad, device)


def randint(
    low: Any = 0,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Whole numbers from `low` (0 if ``randint(high, size)``) up to, not including, `high`."""
    if size is None:
        low, high, size = 0, low, high
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got {low} and {high}")
    values = (generator or default_generator).draw("integers", low, high, sizes((size,)))
    return finished(
        np.asarray(values, dtypes.as_dtype(dtype or dtypes.int64)), requires_grad, device
    )


def randint_like(
    input: Tensor,
    low: int,
    high: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """As `randint`, in the input's shape and type."""
    low, high = (0, low) if high is None else (low, high)
    dtype = input._array.dtype if dtype is None else dtype
    return randint(
        low, high, input._array.shape, dtype=dtype, device=device, requires_grad=requires_grad
    )


def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The whole numbers below `n` in random order."""
    if n < 0:
        raise RuntimeError(f"randperm(): n must not be negative: {n}")
    values = (generator or default_generator).draw("permutation", n)
    return finished(
        np.asarray(values, dtypes.as_dtype(dtype or dtypes.int64)), requires_grad, device
    )
