"""New tensors: values and types as torch has them; random ones drawn from the same laws."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402  # torch first: it may not be there

TYPES = "bool uint8 int8 int64 float16 float32 float64 complex64 complex128"


def same(function):
    mine, theirs = function(tp), function(torch)
    assert str(mine.dtype) == str(theirs.dtype).removeprefix("torch.")
    assert mine.shape == tuple(theirs.shape)
    assert mine.requires_grad == theirs.requires_grad
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "function",
    [
        lambda library: library.arange(5),
        lambda library: library.arange(2, 9, 3),
        lambda library: library.arange(5, 0, -2),
        lambda library: library.arange(0.5, 3, 0.5, dtype=library.float64),
        lambda library: library.arange(3, dtype=library.float32, device="cpu", requires_grad=True),
        lambda library: library.linspace(0, 1, 7),
        lambda library: library.linspace(-3, 5, 1, dtype=library.float64),
        lambda library: library.logspace(0, 3, 4),
        lambda library: library.logspace(-1, 1, 5, base=2, dtype=library.float64),
        lambda library: library.eye(3),
        lambda library: library.eye(2, 4, dtype=library.int64),
        lambda library: library.full((2, 3), 7),
        lambda library: library.full((), 2.5),
        lambda library: library.full((2,), True),
        lambda library: library.zeros(2, 3, dtype=library.int32),
        lambda library: library.ones((2, 3), device="cpu"),
        lambda library: library.zeros_like(library.ones(2, dtype=library.int64)),
        lambda library: library.ones_like(library.ones(2), dtype=library.float64, device="cpu"),
        lambda library: library.full_like(library.ones(2, dtype=library.int64), 3),
        lambda library: library.ones(1, dtype=library.float64).new_zeros(2, 3),
        lambda library: library.ones(1, dtype=library.float64).new_zeros((2, 3)),
        lambda library: library.ones(1, dtype=library.int64).new_ones(2, requires_grad=False),
        lambda library: library.ones(1, dtype=library.float64).new_full((2,), 3),
        lambda library: library.ones(1, dtype=library.float64).new_full(
            (2,), 3, dtype=library.int8
        ),
        lambda library: library.ones(1, dtype=library.float64).new_tensor([1, 2]),
        lambda library: library.ones(1).new_tensor([1, 2], dtype=library.int64),
        lambda library: library.ones(1).new_ones(2, requires_grad=True),
        lambda library: library.tensor([[1, 2], [3, 4]]),
        lambda library: library.tensor([1.5, 2]),
        lambda library: library.tensor([True, False]),
        lambda library: library.tensor([]),
        lambda library: library.tensor(3),
        lambda library: library.as_tensor(np.arange(3.0)),
        lambda library: library.from_numpy(np.arange(3)),
    ],
)
def test_filled(function):
    same(function)


@pytest.mark.parametrize(
    "name", ["byte", "char", "short", "int", "long", "half", "float", "double"]
)
def test_conversions(name):
    same(lambda library: getattr(library.tensor([1.7, 2.0, 100.0]), name)())
    same(lambda library: getattr(library.tensor([1, 0, 3]), name)())
    typed = getattr(tp.tensor([1.0]), name)(), getattr(torch.tensor([1.0]), name)()
    assert typed[0].type() == typed[1].type()
    same(lambda library: library.tensor([1.5]).type(typed[1].type()))
    assert typed[0].element_size() == typed[1].element_size()


def test_numbers_as_text():
    for specification in (".3f", "", "e", ">10.2f"):
        mine = format(tp.tensor(1.5), specification)
        assert mine == format(torch.tensor(1.5), specification)
    with pytest.raises(TypeError):
        format(tp.ones(2), ".2f")


def test_which_types_convert():
    names = TYPES.split()
    for a in names:
        for b in names:
            mine = tp.can_cast(getattr(tp, a), getattr(tp, b))
            assert mine == torch.can_cast(getattr(torch, a), getattr(torch, b)), (a, b)
            if a != "float16" or b != "bool":
                mine = tp.promote_types(getattr(tp, a), getattr(tp, b))
                theirs = torch.promote_types(getattr(torch, a), getattr(torch, b))
                assert str(mine) == str(theirs).removeprefix("torch."), (a, b)


def near(mine, theirs, spread):
    """Means and spreads agree as those of so many draws do."""
    limit = 6 * spread / np.sqrt(mine.size)
    assert abs(mine.mean() - theirs.mean()) < 2 * limit
    assert abs(mine.std() - theirs.std()) < 2 * limit


@pytest.mark.parametrize(
    "function",
    [
        lambda library: library.rand(20000),
        lambda library: library.randn(20000, dtype=library.float64),
        lambda library: library.randint(2, 9, (20000,)).double(),
        lambda library: library.randint_like(library.zeros(20000), 5),
        lambda library: library.normal(2.0, 3.0, (20000,)),
        lambda library: library.normal(library.full((20000,), 2.0), 3.0),
        lambda library: library.normal(1.0, library.full((20000,), 3.0)),
        lambda library: library.normal(library.zeros(20000), library.ones(20000)),
        lambda library: library.bernoulli(library.full((20000,), 0.3)),
        lambda library: library.ones(20000).bernoulli(0.2),
        lambda library: library.zeros(20000).uniform_(-1, 3),
        lambda library: library.zeros(20000).normal_(1, 2),
        lambda library: library.zeros(20000).exponential_(0.5),
        lambda library: library.zeros(20000).bernoulli_(0.7),
        lambda library: library.zeros(20000).random_(2, 9),
        lambda library: library.zeros(20000).random_(9),
        lambda library: library.multinomial(
            library.tensor([0.1, 0.0, 0.7, 2.0]), 20000, True
        ).float(),
        lambda library: library.multinomial(library.rand(5000, 6), 4).float(),
    ],
)
def test_random(function):
    tp.manual_seed(0)
    torch.manual_seed(0)
    mine, theirs = function(tp), function(torch)
    assert str(mine.dtype) == str(theirs.dtype).removeprefix("torch.")
    assert mine.shape == tuple(theirs.shape)
    near(mine.numpy(), theirs.numpy(), max(1.0, float(theirs.double().std())))


def test_frequencies_of_multinomial():
    tp.manual_seed(0)
    weights = np.array([[1.0, 0.0, 2.0, 5.0], [0.0, 3.0, 3.0, 0.0]])
    again = tp.multinomial(tp.tensor(weights), 40000, replacement=True).numpy()
    for row, weight in zip(again, weights, strict=True):
        frequencies = np.bincount(row, minlength=4) / 40000
        assert np.abs(frequencies - weight / weight.sum()).max() < 0.02
        assert not frequencies[weight == 0].any()
    # Without replacement the first ones follow the weights, and all of a row differ.
    once = tp.multinomial(tp.tensor(np.tile(weights[0], (40000, 1))), 3).numpy()
    assert np.abs(np.bincount(once[:, 0], minlength=4) / 40000 - weights[0] / 8).max() < 0.02
    assert (np.diff(np.sort(once, 1), axis=1) > 0).all()
    assert not (once == 1).any()


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda library: library.multinomial(library.ones(2), 3), "cannot sample n_sample"),
        (lambda library: library.multinomial(library.ones(2), 0), "cannot sample n_sample <= 0"),
        (lambda library: library.multinomial(-library.ones(2), 1), "element < 0"),
        (lambda library: library.multinomial(library.zeros(2), 1), "invalid multinomial"),
        (lambda library: library.multinomial(library.ones(2, 2, 2), 1), "must be 1 or 2 dim"),
        (lambda library: library.bernoulli(library.full((2,), 1.5)), "p_in <= 1"),
        (lambda library: library.bernoulli(library.ones(2).long()), "not implemented for"),
        (lambda library: library.zeros(2).uniform_(1, 0), "uniform_ expects"),
        (lambda library: library.zeros(2).normal_(0, -1), "normal expects std >= 0.0"),
        (lambda library: library.zeros(2).exponential_(0.0), "exponential_ expects lambda > 0.0"),
        (lambda library: library.zeros(2).bernoulli_(2.0), "bernoulli_ expects p"),
        (lambda library: library.zeros(2).random_(5, 5), "random_ expects 'from' to be less"),
        (lambda library: library.randint(3, 3, (2,)), "random_ expects 'from' to be less"),
        (lambda library: library.normal(library.zeros(2), -1.0), "normal expects"),
    ],
)
def test_bad_distributions_are_refused(function, text):
    for library in (torch, tp):
        with pytest.raises(RuntimeError, match=text):
            function(library)


@pytest.mark.parametrize("classes", [-1, 6])
def test_one_hot(classes):
    index = np.random.default_rng(0).integers(0, 5, (3, 4))
    mine = tp.nn.functional.one_hot(tp.tensor(index), classes)
    theirs = torch.nn.functional.one_hot(torch.tensor(index), classes)
    assert mine.dtype is tp.int64
    assert np.array_equal(mine.numpy(), theirs.numpy())


def test_to():
    for arguments in (
        lambda library: (library.float64,),
        lambda library: ("cpu",),
        lambda library: ("cpu", library.int64),
        lambda library: (library.ones(1, dtype=library.float64),),
    ):
        same(lambda library, a=arguments: library.tensor([1.5, -2.5]).to(*a(library)))
    same(lambda library: library.tensor([1.5]).to(device="cpu", dtype=library.int8))
    same(lambda library: library.tensor([1.5]).type_as(library.tensor([1])).cpu())
    for library in (tp, torch):
        x = library.ones(2)
        assert x.to(library.float32) is x
        assert x.to(library.float32, copy=True) is not x
        assert x.cpu() is x
