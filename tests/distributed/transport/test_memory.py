"""Memory is used again when nobody refers to it any more, and not before."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tensorplay.distributed.transport import memory

LENGTH = 1 << 20


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    memory._left.clear()
    yield
    memory._left.clear()


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def whole(lease: np.ndarray[Any, Any]) -> Any:
    return np.ndarray((LENGTH // 8,), np.float64, lease)


def unpickled(lease: np.ndarray[Any, Any]) -> Any:
    body = pickle.dumps(np.zeros(LENGTH // 8), 5, buffer_callback=lambda _: None)
    return pickle.loads(body, buffers=[lease])


MAKERS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda lease: lease,
    "a part": lambda lease: lease[10:20],
    "an array": whole,
    "part of an array": lambda lease: whole(lease)[5:9],
    "reshaped": lambda lease: whole(lease).reshape(2, -1).T[3:],
    "from pickle": unpickled,
    "part from pickle": lambda lease: unpickled(lease)[::2],
    "a view of another type": lambda lease: whole(lease).view(np.int32),
    "a memoryview": lambda lease: memoryview(lease)[8:],
    "frombuffer": lambda lease: np.frombuffer(lease, np.float32)[1:],
}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_is_not_used_again_while_anything_looks_into_it(maker: Callable[[Any], Any]) -> None:
    lease = memory.take(LENGTH)
    place = address(lease)
    held = maker(lease)
    del lease
    other = memory.take(LENGTH)
    assert address(other) != place
    del held
    again = memory.take(LENGTH)
    assert address(again) == place


def test_parts_return_nothing_themselves() -> None:
    lease = memory.take(LENGTH)
    for _ in range(3):
        part = lease[1:]
        del part
    assert not memory._left


def test_serves_buffers_of_about_its_length() -> None:
    place = address(memory.take(LENGTH))
    assert address(memory.take(int(LENGTH * 0.8))) == place
    assert address(memory.take(LENGTH + 1)) != place
    assert address(memory.take(LENGTH // 2)) != place


def test_short_ones_are_numpys() -> None:
    assert memory.take(1000).base is None
    assert memory.take(0).size == 0


def test_keeps_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_KEPT", 4 * LENGTH)
    leases = [memory.take(LENGTH) for _ in range(10)]
    del leases
    assert sum(map(len, memory._left)) == 4 * LENGTH
    # A buffer that fits none of them drives out the oldest.
    del memory._left[0]
    longer = memory.take(2 * LENGTH)
    del longer
    assert sum(map(len, memory._left)) <= 4 * LENGTH


def test_is_writable_and_of_the_length_asked_for() -> None:
    for length in (0, 1, LENGTH - 1, LENGTH, LENGTH + 1):
        array = memory.take(length)
        assert array.shape == (length,)
        array[:] = 7
