"""Distributions, against torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402

random = np.random.default_rng(31)
LOC, SCALE = random.normal(size=(3, 2)), random.uniform(0.2, 2, (3, 2))
LOC_2, SCALE_2 = random.normal(size=2), random.uniform(0.2, 2, (3, 1))
SCORES, SCORES_2 = random.normal(size=(3, 4)), random.normal(size=(3, 4))
CHANCES, CHANCES_2 = random.uniform(0.05, 0.95, (3, 4)), random.uniform(0.05, 0.95, (3, 4))


def kind(library, name):
    return getattr(library.distributions, name)


#: (name, names of the arguments, arguments, values)
KINDS = [
    ("Normal", ("loc", "scale"), (LOC, SCALE), random.normal(size=(5, 3, 2))),
    ("Uniform", ("low", "high"), (LOC, LOC + SCALE), LOC + SCALE * 0.3),
    ("Bernoulli", ("probs",), (CHANCES,), random.integers(0, 2, (2, 3, 4)) * 1.0),
    ("Bernoulli", ("logits",), (SCORES,), random.integers(0, 2, (3, 4)) * 1.0),
    ("Categorical", ("probs",), (CHANCES,), random.integers(0, 4, (5, 3))),
    ("Categorical", ("logits",), (SCORES,), random.integers(0, 4, (1, 3))),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "names", "arguments", "values"), KINDS)
def test_values_and_gradients(name, names, arguments, values, dtype):
    def functions(library, value, *own):
        made = kind(library, name)(**dict(zip(names, own, strict=True)))
        value = value.detach()
        found = [made.log_prob(value), made.entropy()]
        if name != "Categorical":
            found += [made.mean * 1, made.variance, made.stddev]
        else:
            found += [made.probs, made.logits]
        wide = made.expand((2, *made.batch_shape))
        assert tuple(wide.batch_shape) == (2, *made.batch_shape)
        return [*found, wide.log_prob(value[:1] if value.ndim == len(wide.batch_shape) else value)]

    inputs = [one.astype(dtype) for one in arguments]
    shown = values.astype(dtype) if values.dtype.kind == "f" else values
    compare(functions, shown, *inputs, tolerance=1e-5 if dtype is np.float32 else 1e-10)


@pytest.mark.parametrize(
    ("name", "names", "first", "second"),
    [
        ("Normal", ("loc", "scale"), (LOC, SCALE), (LOC_2, SCALE_2)),
        ("Categorical", ("logits",), (SCORES,), (SCORES_2,)),
        ("Categorical", ("probs",), (CHANCES,), (CHANCES_2,)),
        ("Bernoulli", ("probs",), (CHANCES,), (CHANCES_2,)),
        ("Bernoulli", ("logits",), (SCORES,), (SCORES_2,)),
        ("Uniform", ("low", "high"), (LOC, LOC + SCALE), (LOC - 1, LOC + 3)),
    ],
)
def test_divergence(name, names, first, second):
    def function(library, *own):
        half = len(own) // 2
        p = kind(library, name)(**dict(zip(names, own[:half], strict=True)))
        q = kind(library, name)(**dict(zip(names, own[half:], strict=True)))
        return library.distributions.kl_divergence(p, q)

    compare(function, *first, *second)


def test_divergence_at_the_edges():
    p, q = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.5, 0.5], [1.0, 0.0]])
    results = [
        library.distributions.kl_divergence(
            *[library.distributions.Categorical(library.tensor(one)) for one in (p, q)]
        ).numpy()
        for library in (tp, torch)
    ]
    np.testing.assert_allclose(*results)
    with pytest.raises(NotImplementedError, match="KL"):
        tp.distributions.kl_divergence(
            tp.distributions.Normal(0.0, 1.0), tp.distributions.Bernoulli(0.5)
        )


@pytest.mark.parametrize(("name", "names", "arguments", "values"), KINDS)
def test_samples(name, names, arguments, values):
    tp.manual_seed(0)
    own = [tp.tensor(one, requires_grad=True) for one in arguments]
    made = kind(tp, name)(**dict(zip(names, own, strict=True)))
    drawn = made.sample((4000,))
    assert drawn.shape == (4000, *made.batch_shape)
    assert not drawn.requires_grad
    if name == "Categorical":
        assert drawn.dtype == tp.int64
        counts = np.stack([(drawn.numpy() == i).mean(0) for i in range(4)], -1)
        np.testing.assert_allclose(counts, made.probs.detach(), atol=0.04)
    else:
        np.testing.assert_allclose(drawn.numpy().mean(0), made.mean.detach(), atol=0.12)
        np.testing.assert_allclose(drawn.numpy().std(0), made.stddev.detach(), atol=0.12)
    tp.manual_seed(0)
    assert tp.equal(made.sample((4000,)), drawn)
    if made.has_rsample:
        made.rsample((3,)).sum().backward()
        assert own[0].grad is not None
        assert own[1].grad is not None
    else:
        with pytest.raises(NotImplementedError, match="rsample"):
            made.rsample()


def test_a_class_without_a_chance_is_never_drawn():
    tp.manual_seed(0)
    drawn = tp.distributions.Categorical(tp.tensor([0.0, 1.0, 0.0])).sample((1000,))
    assert set(drawn.tolist()) == {1}


def test_texts_and_modes():
    assert repr(tp.distributions.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert tp.distributions.Categorical(tp.tensor([0.1, 0.7, 0.2])).mode.item() == 1
    assert tp.distributions.Bernoulli(tp.tensor([0.2, 0.8])).mode.tolist() == [0.0, 1.0]
    assert tp.distributions.Uniform(0.0, 2.0).cdf(tp.tensor(0.5)).item() == 0.25
    assert tp.distributions.Uniform(0.0, 2.0).log_prob(tp.tensor(3.0)).item() == -np.inf


def test_bad_arguments():
    d = tp.distributions
    for call in (
        lambda: d.Normal(0.0, 0.0),
        lambda: d.Normal("0", 1.0),
        lambda: d.Uniform(1.0, 1.0),
        lambda: d.Bernoulli(),
        lambda: d.Bernoulli(0.5, 0.0),
        lambda: d.Bernoulli(1.5),
        lambda: d.Bernoulli(0.5).log_prob(tp.tensor(0.5)),
        lambda: d.Categorical(),
        lambda: d.Categorical(tp.tensor(1.0)),
        lambda: d.Categorical(tp.tensor([-1.0, 2.0])),
        lambda: d.Categorical(tp.tensor([0.5, 0.5])).log_prob(tp.tensor(2)),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            call()
    assert d.Normal(0.0, 0.0, validate_args=False).sample().item() == 0.0
