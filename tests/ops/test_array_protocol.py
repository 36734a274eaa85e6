"""Tensors where arrays go: NumPy's functions, arithmetic with arrays, DLPack."""

import numpy as np
import pytest

import tensorplay as tp


def leaf(*values):
    return tp.tensor(values, dtype=tp.float64, requires_grad=True)


@pytest.mark.parametrize(
    "ufunc",
    [np.sin, np.exp, np.log1p, np.arctan, np.floor, np.negative, np.absolute, np.cosh, np.sqrt],
)
def test_ufuncs_of_one_tensor_are_its_operations(ufunc):
    x = leaf(0.5, 1.5)
    out = ufunc(x)
    assert isinstance(out, tp.Tensor)
    assert np.array_equal(out.detach(), ufunc(np.array([0.5, 1.5])))
    assert out.requires_grad


@pytest.mark.parametrize(
    "ufunc",
    [np.add, np.subtract, np.multiply, np.divide, np.power, np.remainder, np.maximum, np.hypot],
)
def test_ufuncs_of_an_array_and_a_tensor(ufunc):
    array, x = np.array([1.5, 2.5]), leaf(0.5, 4.0)
    plain = x.detach().numpy()
    for out, expected in (
        (ufunc(array, x), ufunc(array, plain)),
        (ufunc(x, array), ufunc(plain, array)),
        (ufunc(x, 2.0), ufunc(plain, 2.0)),
        (ufunc(np.float64(2.0), x), ufunc(2.0, plain)),
    ):
        assert isinstance(out, tp.Tensor)
        assert np.allclose(out.detach(), expected)
        assert out.requires_grad


def test_operators_between_arrays_and_tensors():
    array, x = np.array([[1.0, 2.0], [3.0, 4.0]]), leaf(0.5, 4.0)
    total = (array * x + array / x - array % x + array @ x + np.float64(3) * x + array**x).sum()
    total.backward()
    y = leaf(0.5, 4.0)
    t = tp.tensor(array)
    (t * y + t / y - tp.remainder(t, y) + t @ y + 3.0 * y + t**y).sum().backward()
    assert np.allclose(x.grad, y.grad)
    assert (array < x).tolist() == (t < y).tolist()
    assert (array == x).tolist() == (t == y).tolist()
    assert (np.array([1, 2]) & tp.tensor([3, 3])).tolist() == [1, 2]
    assert (np.array([7, 9]) // tp.tensor([2, 2])).tolist() == [3, 4]


def test_types_are_those_of_tensors():
    assert np.add(np.ones(2, np.int64), tp.ones(2)).dtype == tp.float32
    assert np.sin(tp.tensor([1, 2])).dtype == tp.float32
    assert np.maximum(tp.ones(2), 2.0).dtype == tp.float32


def test_ufuncs_that_are_no_operations_are_computed_by_numpy():
    t = tp.tensor([1.5, -2.25])
    fraction, whole = np.modf(t)
    assert (fraction.tolist(), whole.tolist()) == ([0.5, -0.25], [1.0, -2.0])
    assert np.add.reduce(tp.ones(3)).item() == 3.0
    assert np.add.outer(tp.ones(2), np.ones(3)).shape == (2, 3)
    assert np.copysign(t, -1.0).tolist() == [-1.5, -2.25]
    assert np.add(t, 1, dtype=np.float64).dtype == tp.float64
    x = leaf(1.0)
    for call in (
        lambda: np.modf(x),
        lambda: np.add.reduce(x),
        lambda: np.add(x, 1.0, out=np.zeros(1)),
    ):
        with pytest.raises(RuntimeError, match=r"Use tensor.detach\(\).numpy\(\)"):
            call()


def test_results_are_written_where_out_says():
    t, array = tp.ones(2, dtype=tp.float64), np.zeros(2)
    assert np.add(t, 1, out=array) is array
    assert array.tolist() == [2.0, 2.0]
    array += t
    assert isinstance(array, np.ndarray)
    assert array.tolist() == [3.0, 3.0]
    version = t._version[0]
    assert np.multiply(array, 2, out=t) is t
    assert t.tolist() == [6.0, 6.0]
    np.add.at(t, [0, 0], 1.0)
    assert t.tolist() == [8.0, 6.0]
    assert t._version[0] == version + 2


def test_other_functions_take_tensors_as_arrays():
    t = tp.tensor([[1.0, 2.0], [3.0, 4.0]])
    array = t.numpy()
    for call in (
        lambda a: np.sum(a),
        lambda a: np.mean(a, axis=0),
        lambda a: np.max(a),
        lambda a: np.argmax(a, axis=1),
        lambda a: np.concatenate([a, a]),
        lambda a: np.stack((a, np.ones((2, 2)))),
        lambda a: np.where(a > 2, a, 0),
        lambda a: np.linalg.norm(a),
        lambda a: np.einsum("ij,jk->ik", a, a),
        lambda a: np.reshape(a, 4),
        lambda a: np.cumsum(a, axis=1),
        lambda a: np.percentile(a, 30),
        lambda a: np.round(a, decimals=1),
        lambda a: np.squeeze(a),
        lambda a: np.transpose(a),
        lambda a: np.any(a),
        lambda a: np.std(a, ddof=1),
        lambda a: np.clip(a, 2, 3),
    ):
        out = call(t)
        assert not isinstance(out, tp.Tensor)
        assert np.array_equal(out, call(array))
    assert np.array_equal(array[tp.tensor([1, 0])], array[::-1])
    np.testing.assert_allclose(t, array)
    with pytest.raises(RuntimeError, match=r"Use tensor.detach\(\).numpy\(\)"):
        np.sum(leaf(1.0))


def test_dlpack_shares_memory_both_ways():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = tp.from_dlpack(array)
    assert t.dtype is tp.float32
    array[0, 0] = 7.0
    assert t[0, 0].item() == 7.0
    back = np.from_dlpack(t.T)
    assert back.shape == (3, 2)
    array[1, 0] = 9.0
    assert back[0, 1] == 9.0
    assert t.__dlpack_device__() == (1, 0)
    again = tp.from_dlpack(t)
    again[0, 0] = 1.0
    assert array[0, 0] == 1.0
    assert tp.from_dlpack(t.__dlpack__()).tolist() == t.tolist()


@pytest.mark.parametrize(
    "dtype", [tp.bool, tp.uint8, tp.int64, tp.float16, tp.float64, tp.complex64, tp.complex128]
)
def test_dlpack_keeps_types(dtype):
    t = tp.ones(3, dtype=dtype)
    assert tp.from_dlpack(t).dtype is dtype
    assert np.from_dlpack(t).dtype == dtype


def test_dlpack_refuses_what_cannot_be_shared():
    with pytest.raises(BufferError, match="require gradient"):
        leaf(1.0).__dlpack__()
    with pytest.raises(BufferError, match="require gradient"):
        tp.from_dlpack(leaf(1.0))
    with pytest.raises(TypeError, match="not list"):
        tp.from_dlpack([1.0])


def test_tests_and_signs_of_tensors_that_require_grad():
    x = tp.tensor([1.5, -2.0, float("nan")], requires_grad=True)
    for ufunc in (np.isnan, np.isinf, np.isfinite, np.signbit, np.logical_not):
        found = ufunc(x)
        assert isinstance(found, tp.Tensor)
        assert not found.requires_grad
        np.testing.assert_array_equal(found.numpy(), ufunc(x.detach().numpy()))
    assert np.logical_and(x, True).tolist() == [True, True, True]
    for ufunc in (np.rint, np.positive, np.conjugate, np.fabs):
        assert ufunc(x).requires_grad
