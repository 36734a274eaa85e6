"""Element types of results: as PyTorch has them, which is not always as NumPy has."""

import numpy as np
import pytest

import tensorplay as tp


def a(dtype, *shape):
    return tp.ones(*shape, dtype=dtype)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (a(tp.float32, 2), 1.5, tp.float32),
        (a(tp.float32, 2), 2, tp.float32),
        (a(tp.float64, 2), 1.5, tp.float64),
        (a(tp.float16, 2), 1e-3, tp.float16),
        (a(tp.int64, 2), 2, tp.int64),
        (a(tp.int8, 2), 2, tp.int8),
        (a(tp.int64, 2), 1.5, tp.float32),
        (a(tp.bool, 2), 2, tp.int64),
        (a(tp.bool, 2), 1.5, tp.float32),
        (a(tp.int64), 1.5, tp.float32),
        (a(tp.int64, 2), a(tp.float32, 2), tp.float32),
        (a(tp.int64, 2), a(tp.float16, 2), tp.float16),
        (a(tp.float32, 2), a(tp.float64, 2), tp.float64),
        (a(tp.float32, 2), a(tp.float64), tp.float32),
        (a(tp.float16, 2), a(tp.float64), tp.float16),
        (a(tp.int8, 2), a(tp.int64), tp.int8),
        (a(tp.int64, 2), a(tp.float64), tp.float64),
        (a(tp.int32, 2), a(tp.uint8, 2), tp.int32),
        (a(tp.int8, 2), a(tp.uint8, 2), tp.int16),
        (a(tp.float32, 2), True, tp.float32),
        (a(tp.float32, 2), 1j, tp.complex64),
        (a(tp.complex64, 2), a(tp.float64, 2), tp.complex128),
        (a(tp.complex64, 2), a(tp.float64), tp.complex64),
    ],
)
def test_result_types(left, right, result):
    assert (left + right).dtype == result
    assert (right + left).dtype == result
    assert (left * right).dtype == result


def test_division_of_integers_gives_floating_point_numbers():
    whole = tp.tensor([1, 2])
    assert (whole / 2).dtype == tp.float32
    assert (whole / whole).dtype == tp.float32
    assert (1 / whole).tolist() == [1.0, 0.5]
    assert (tp.ones(2, dtype=tp.bool) / 2).dtype == tp.float32


def test_functions_of_integers_give_floating_point_numbers():
    for function in (tp.exp, tp.tanh, tp.sqrt, tp.sigmoid, lambda t: tp.softmax(t, 0)):
        assert function(tp.tensor([1, 2])).dtype == tp.float32
    assert tp.tensor([-1, 2]).relu().dtype == tp.int64


def test_numpy_operands_count_as_tensors_and_numbers():
    t = tp.ones(2)
    assert (np.ones(2) * t).dtype == tp.float64
    assert isinstance(np.ones(2) - t, tp.Tensor)
    assert (t * np.float64(2)).dtype == tp.float32
    assert (np.float64(2) * t).dtype == tp.float32
    with pytest.raises(TypeError):
        t + "text"
    with pytest.raises(TypeError):
        [1.0] - t


def test_python_numbers_keep_their_precision():
    assert (0.1 - tp.zeros(1, dtype=tp.float64)).item() == 0.1
    assert (tp.ones(1, dtype=tp.float64) * 0.1).item() == 0.1


def test_the_default_type_can_be_changed():
    try:
        tp.set_default_dtype(tp.float64)
        assert tp.tensor([1.0]).dtype == tp.zeros(1).dtype == tp.float64
        assert (tp.tensor([1, 2]) / 2).dtype == tp.float64
        assert tp.get_default_dtype() == tp.float64
    finally:
        tp.set_default_dtype(tp.float32)
    with pytest.raises(TypeError, match="floating-point"):
        tp.set_default_dtype(tp.int64)


def test_types_from_elsewhere_are_made_our_own():
    """NumPy has several objects for one type; operations compare them by identity."""
    import pickle

    array = pickle.loads(pickle.dumps(np.ones(2, np.float32)))
    assert array.dtype is not tp.float32
    t = tp.from_numpy(array)
    assert t.dtype is tp.float32
    t += 1
    assert array.tolist() == [2.0, 2.0]
    # A tensor that has the foreign type all the same computes rightly.
    t._array = array
    t.requires_grad_()
    (t * 2.0 + t * tp.ones(2) + 1 / t).sum().backward()
    assert t.grad.tolist() == [2.75, 2.75]
    assert tp.tensor(np.ones(2, ">f4")).dtype is tp.float32
    with pytest.raises(ValueError, match="byte order"):
        tp.from_numpy(np.ones(2, ">f4"))


def test_there_are_only_numbers():
    for array in (np.array(["a"]), np.array([None]), np.zeros(1, "M8[s]"), np.zeros(1, "f4,i4")):
        with pytest.raises(TypeError, match="tensors cannot hold"):
            tp.tensor(array)


def test_conversions():
    t = tp.tensor([1.5, -2.5])
    assert t.to(tp.float64).dtype == tp.float64
    assert t.to("float64").dtype == tp.float64
    assert t.to(np.int32).tolist() == [1, -2]
    assert t.to(tp.ones(1, dtype=tp.float16)).dtype == tp.float16
    assert t.to("cpu") is t
    assert t.to(tp.float32) is t
    assert t.to(tp.float32, copy=True) is not t
    assert t.int().dtype == tp.int32
    assert t.long().type_as(t).dtype == tp.float32
    assert t.bool().tolist() == [True, True]
    with pytest.raises(RuntimeError, match="there is no device 'cuda"):
        t.to("cuda:0")
