"""Calls and results in flat form and in any other, and who may hold a result's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tensorplay as tp
from distributed.rpc.called import LONG, add, arguments, identity
from tensorplay.distributed.rpc.payloads import (
    pack_call,
    pack_flat,
    pack_result,
    unpack_call,
    unpack_result,
)
from tensorplay.distributed.rpc.serialization import Packed
from tensorplay.distributed.transport import memory
from tensorplay.nn import Parameter

ATOMS = [None, True, -1, 2**80, 1.5, float("inf"), 1j, "", "ä\n", b"", b"\0\1"]


def leaf(*shape: int) -> tp.Tensor:
    array = np.arange(float(np.prod(shape, dtype=int))).reshape(shape)
    return tp.from_numpy(array).requires_grad_()


def zeros(*shape: int) -> tp.Tensor:
    return tp.zeros(*shape, dtype=tp.float64)


def check_same(got: Any, sent: Any) -> None:
    if isinstance(sent, tp.Tensor):
        assert type(got) is tp.Tensor
        assert got.requires_grad == sent.requires_grad
        assert got.dtype == sent.dtype
        assert np.array_equal(got.detach().numpy(), sent.detach().numpy(), equal_nan=True)
        assert not np.shares_memory(got.detach().numpy(), sent.detach().numpy())
    else:
        assert type(got) is type(sent)
        assert got == sent


def through_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    packed = pack_call(function, args, kwargs, copy=True)
    buffers = [memoryview(bytearray(buffer)) for buffer in packed.buffers]
    got_function, got_args, got_kwargs, tensors = unpack_call(b"head" + packed.body, buffers, 4)
    assert got_function == function
    assert len(tensors) == len(packed.tensors)
    return list(got_args), got_kwargs, tensors


def through_result(value: Any) -> Any:
    packed = pack_result([value])
    buffers = [memoryview(bytearray(buffer)) for buffer in packed.buffers]
    got, tensors = unpack_result(packed.body, buffers)
    assert len(tensors) == len(packed.tensors)
    return got


TENSORS = [
    lambda: tp.tensor(3.0),
    lambda: tp.zeros(0, 2),
    lambda: leaf(3),
    lambda: leaf(100, 2),
    lambda: leaf(LONG),
    lambda: Parameter(tp.ones(2)),
    lambda: tp.from_numpy(np.arange(12).reshape(3, 4).T),
    lambda: tp.from_numpy(np.arange(4000.0)[::-3]),
    lambda: tp.from_numpy(np.asfortranarray(np.ones((60, 60)))),
    lambda: tp.from_numpy(np.ones(3, np.float16)),
    lambda: tp.from_numpy(np.array([True, False])),
]


@pytest.mark.parametrize("make", TENSORS)
def test_tensors_in_calls_and_results(make: Callable[[], tp.Tensor]) -> None:
    tensor = make()
    for args in ((tensor,), (1, tensor, "x"), (make(), None, tensor)):
        got, kwargs, _ = through_call(add, args, {})
        assert kwargs == {}
        for one, other in zip(got, args, strict=True):
            check_same(one, other)
    check_same(through_result(make()), tensor)


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(ATOMS),
            hnp.arrays(
                st.sampled_from(["f4", "f8", "i8", "c16", "?"]),
                hnp.array_shapes(min_dims=0, min_side=0, max_side=40),
                fill=st.nothing(),
            ).map(tp.from_numpy),
        ),
        max_size=6,
    )
)
def test_any_mixture_of_values_and_tensors(values: list[Any]) -> None:
    got, _, _ = through_call(arguments, tuple(values), {})
    for one, other in zip(got, values, strict=True):
        check_same(one, other)


@pytest.mark.parametrize("value", [*ATOMS, [], (1, 2), {"a": [1]}, {1, 2}, range(3), add])
def test_values_of_all_kinds_as_results(value: Any) -> None:
    check_same(through_result(value), value)


@pytest.mark.parametrize(
    "args", [(), (1,), ([1, 2], {"a": 3}), (tp.ones(2), [tp.ones(2)])], ids=repr
)
@pytest.mark.parametrize("kwargs", [{}, {"b": 1}, {"x": tp.ones(3)}], ids=repr)
@pytest.mark.parametrize("function", [add, dict, "".join])
def test_calls_of_all_kinds(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    got, got_kwargs, _ = through_call(function, args, kwargs)
    assert repr(got) == repr(list(args))
    assert repr(got_kwargs) == repr(kwargs)


def test_the_same_tensor_twice_stays_one_object() -> None:
    tensor = leaf(3)
    (one, two), _, tensors = through_call(add, (tensor, tensor), {})
    assert one is two
    assert tensors == [one]


def test_tensors_that_require_grad_are_numbered_in_their_order() -> None:
    args = (leaf(2), tp.ones(2), leaf(300), 5, leaf(LONG))
    packed = pack_call(add, args, {}, copy=True)
    assert packed.tensors == [args[0], args[2], args[4]]
    got, _, tensors = through_call(add, args, {})
    assert tensors == [got[0], got[2], got[4]]


def test_flat_form_is_for_values_and_tensors_alone() -> None:
    for values in ([[1]], [(1,)], [np.ones(2)], [np.float64(1)], [tp.ones(1), {}]):
        assert not pack_flat(values, Packed(), copy=True)


# -- value semantics -----------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [True, False])
def test_arguments_are_copied_unless_the_caller_waits(copy: bool) -> None:
    tensor = zeros(LONG)
    packed = pack_call(add, (tensor,), {}, copy=copy)
    assert np.shares_memory(packed.buffers[0], tensor.numpy()) is not copy


def received() -> Any:
    """A tensor as one that has come in a message."""
    length = 1 << 20
    lease = memory.take(length)
    return tp.from_numpy(np.ndarray((length // 8,), np.float64, lease))


MADE: dict[str, Callable[[], Any]] = {
    "tensor": lambda: zeros(LONG),
    "array": lambda: np.zeros(LONG),
    "view": lambda: zeros(2, LONG)[0],
    "reshaped": lambda: np.zeros(2 * LONG).reshape(2, LONG),
    "transposed": lambda: np.zeros((2, LONG)).T,
    "list": lambda: [np.zeros(LONG), zeros(LONG)],
    "received": received,
}


def address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])


def arrays_of(value: Any) -> list[np.ndarray[Any, Any]]:
    values = value if isinstance(value, list) else [value]
    return [value.numpy() if isinstance(value, tp.Tensor) else value for value in values]


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_result_that_nobody_else_holds_is_not_copied(make: Callable[[], Any]) -> None:
    box = [make()]
    places = [array.__array_interface__["data"][0] for array in arrays_of(box[0])]
    packed = pack_result(box)
    assert [address(buffer) for buffer in packed.buffers] == places


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "itself": identity,
    "in a list": lambda value: [value],
    "its array": lambda value: arrays_of(value)[0],
    "part of its array": lambda value: arrays_of(value)[0][:1],
    "a memoryview": lambda value: memoryview(arrays_of(value)[0]),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_result_that_somebody_holds_is_copied(
    make: Callable[[], Any], hold: Callable[[Any], Any]
) -> None:
    box = [make()]
    held = hold(box[0])
    place = arrays_of(box[0])[0].__array_interface__["data"][0]
    packed = pack_result(box)
    assert address(packed.buffers[0]) != place
    assert held is not None


def test_a_view_of_memory_that_is_not_numpys_is_copied() -> None:
    block = bytearray(8 * LONG)
    packed = pack_result([np.frombuffer(block)])
    block[0] = 1
    assert packed.buffers[0][0] == 0


def test_a_view_of_an_array_that_somebody_holds_is_copied() -> None:
    array = np.zeros((2, LONG))
    packed = pack_result([array[1]])
    array[:] = 1
    assert not np.frombuffer(packed.buffers[0]).any()
