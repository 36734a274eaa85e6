"""In-place forms: values, types, gradients and refusals as torch has them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402  # torch first: it may not be there

OF_TWO = "add sub mul div atan2 hypot remainder fmod copy pow clamp_min clamp_max"

OF_ONE = (
    "abs acos asin atan ceil cos cosh erf erfc exp exp2 expm1 floor frac log log10 log1p log2 "
    "logit nan_to_num neg reciprocal relu round rsqrt sigmoid sign sin sinc sinh sqrt square "
    "tan tanh trunc zero"
)


def numbers(seed, shape, low=-2.0, high=2.0, dtype=np.float64):
    return np.asarray(np.random.default_rng(seed).uniform(low, high, shape), dtype)


def written(name, *args, **kwargs):
    """A function of both libraries that writes into a copy of its input, and returns it."""

    def function(library, a, *others):
        copied = a * 1
        result = getattr(copied, f"{name}_")(*others, *args, **kwargs)
        assert result is copied
        return copied

    return function


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name",
    OF_ONE.split(),
)
def test_of_one_tensor(name, dtype):
    compare(written(name), numbers(0, (3, 4), 0.1, 0.9, dtype))


def test_of_one_tensor_that_torch_does_not_record():
    for name in ("acosh", "asinh", "atanh"):
        x = numbers(0, (5,), 0.2, 0.8) + (name == "acosh")
        with tp.no_grad(), torch.no_grad():
            mine = getattr(tp.tensor(x), f"{name}_")()
            np.testing.assert_allclose(mine, getattr(torch.tensor(x), f"{name}_")())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name",
    OF_TWO.split(),
)
@pytest.mark.parametrize("shape", [(3, 4), (4,), (3, 1)])
def test_of_two_tensors(name, shape, dtype):
    a, b = numbers(0, (3, 4), 0.2, 2.0, dtype), numbers(1, shape, 0.2, 2.0, dtype)
    compare(written(name), a, b)


def test_with_options():
    a, b, c = numbers(0, (3, 4)), numbers(1, (4,)), numbers(2, (3, 1))
    compare(written("add", alpha=2), a, b)
    compare(written("sub", alpha=0.5), a, b)
    compare(written("addcmul", value=3), a, b, c)
    compare(written("addcdiv", value=3), a, b, c)
    compare(written("lerp", 0.3), a, np.broadcast_to(b, (3, 4)).copy())
    compare(written("clamp", -1, 1), a)
    compare(written("clamp", max=0.5), a)
    compare(written("cumsum", 1), a)
    compare(written("cumprod", 0), a)
    compare(written("fill", 2.5), a)
    compare(written("round", decimals=1), a)
    compare(written("logit", 0.2), numbers(0, (5,), 0.1, 0.9))
    for mode in ("floor", "trunc", None):
        compare(written("div", rounding_mode=mode), a, b)


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "**", "%", "//"])
def test_operators(symbol):
    def function(library, a, b):
        copied = a * 1
        names = {"a": copied, "b": b}
        exec(f"a {symbol}= b", names)
        assert names["a"] is copied
        return copied

    a, b = numbers(0, (3, 4), 0.2, 2.0), numbers(1, (4,), 0.2, 2.0)
    if symbol == "//":
        with tp.no_grad(), torch.no_grad():
            compare(function, a, b)
        return
    compare(function, a, b)


@pytest.mark.parametrize("symbol", ["&", "|", "^", "<<", ">>", "//", "%"])
def test_operators_on_whole_numbers(symbol):
    def function(library, a, b):
        names = {"a": a, "b": b}
        exec(f"a {symbol}= b; c = a; a {symbol}= 2", names)
        return names["a"]

    a, b = np.array([[5, 9, 14], [0, 3, 7]]), np.array([1, 3, 2])
    compare(function, a, b)


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.exp_(),
        lambda t: t.div_(2),
        lambda t: t.addcmul_(t, t.double()),
        lambda t: t.remainder_(0.5),
        lambda t: t.atan2_(t.double()),
    ],
)
def test_types_that_do_not_fit_are_refused(write):
    for library in (tp, torch):
        with pytest.raises(RuntimeError, match=r"can't be cast|expected dtype|same dtype"):
            write(library.arange(1, 4))


def test_shapes_that_do_not_fit_are_refused():
    for library in (tp, torch):
        for write in (
            lambda t, other: t.hypot_(other),
            lambda t, other: t.addcmul_(other, other),
            lambda t, other: t.remainder_(other),
        ):
            with pytest.raises(RuntimeError, match=r"shape|size"):
                write(library.ones(3), library.ones(2, 3))


def test_writes_into_what_a_graph_saved_are_found():
    for library in (tp, torch):
        x = library.ones(3, requires_grad=True)
        y = x * 2
        z = y.sin()
        y.floor_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
        for write in (lambda t: t.sin_(), lambda t: t.uniform_(), lambda t: t.normal_()):
            with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
                write(x)


def test_random_writes_cut_the_gradient():
    for name in ("uniform_", "normal_", "bernoulli_", "exponential_", "random_"):
        gradients = []
        for library in (tp, torch):
            x = library.ones(3, requires_grad=True)
            y = x * 2
            getattr(y[:2], name)()
            y.sum().backward()
            gradients.append(x.grad.tolist())
        assert gradients[0] == gradients[1] == [0.0, 0.0, 2.0]
