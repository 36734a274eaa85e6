"""Where tensors live: in main memory.  For programs that ask, and that choose by what there is."""

from __future__ import annotations

from typing import Any

#: What programs may name; all but the first are not here.
_TYPES = ("cpu", "cuda", "mps", "xpu", "meta")


class device:
    """A place for tensors, of which there is one: main memory, ``device("cpu")``.

    It equals its string, and goes wherever that does.

    Args:
        type: ``"cpu"``, ``"cpu:0"``, or a device.
        index: 0 or None.

    Attributes:
        type: ``"cpu"``.
        index: What was given.

    Raises:
        RuntimeError: There is no such device.

    >>> import tensorplay as tp
    >>> place = tp.device("cuda" if tp.cuda.is_available() else "cpu")
    >>> tp.ones(2).to(place).device
    device(type='cpu')
    >>> place == "cpu", str(place)
    (True, 'cpu')
    """

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type: Any, index: int | None = None) -> None:
        kind, colon, number = str(type).partition(":")
        if colon:
            if index is not None or not number.isdecimal():
                raise RuntimeError(f"Invalid device string: {type!r}")
            index = int(number)
        if kind not in _TYPES:
            raise RuntimeError(f"Expected one of {', '.join(_TYPES)} as device, got {type!r}")
        if kind != "cpu" or index not in (None, 0):
            name = kind if index is None else f"{kind}:{index}"
            raise RuntimeError(f"there is no device {name!r}: tensors live in main memory ('cpu')")
        self.type = kind
        self.index = index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (device, str)):
            return str(self) == str(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (device, (self.type, self.index))


#: The one that tensors are on.
MAIN_MEMORY = device("cpu")


def check_device(place: Any) -> None:
    """Raise unless `place` is None or names the only device there is."""
    if place is not None and place is not MAIN_MEMORY:
        device(place)


def is_device(one: object) -> bool:
    """Whether `one` is a device, or a string that looks like one."""
    return isinstance(one, device) or (isinstance(one, str) and one.partition(":")[0] in _TYPES)
