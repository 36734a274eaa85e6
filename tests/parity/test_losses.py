"""Loss functions and modules, against torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402

TYPES = [np.float32, np.float64]
REDUCTIONS = ["none", "mean", "sum"]
random = np.random.default_rng(5)


def normal(*shape):
    return random.normal(0, 2, shape)


def chances(*shape):
    values = random.uniform(0, 1, shape)
    values.reshape(-1)[:2] = 0, 1
    return values


def logs(*shape):
    values = normal(*shape)
    return values - np.log(np.exp(values).sum(-1, keepdims=True))


def signs(*shape):
    return random.choice([-1, 1], shape)


def distributions(*shape):
    return np.exp(logs(*shape))


#: (name, inputs, keyword arguments): the inputs all get gradients, if they are floating-point.
PLAIN = [
    ("mse_loss", (normal(3, 4), normal(3, 4)), {}),
    ("l1_loss", (normal(3, 4), normal(3, 4)), {}),
    ("smooth_l1_loss", (normal(3, 4), normal(3, 4)), {}),
    ("smooth_l1_loss", (normal(3, 4), normal(3, 4)), {"beta": 0.3}),
    ("smooth_l1_loss", (normal(3, 4), normal(3, 4)), {"beta": 0.0}),
    ("huber_loss", (normal(3, 4), normal(3, 4)), {}),
    ("huber_loss", (normal(3, 4), normal(3, 4)), {"delta": 2.5}),
    ("binary_cross_entropy_with_logits", (normal(3, 4) * 20, chances(3, 4)), {}),
    ("kl_div", (logs(3, 4), logs(3, 4)), {"log_target": True}),
    ("kl_div", (logs(3, 4), distributions(3, 4)), {}),
    ("poisson_nll_loss", (normal(3, 4), random.poisson(2, (3, 4)) * 1.0), {}),
    ("poisson_nll_loss", (normal(3, 4), random.poisson(2, (3, 4))), {"full": True}),
    ("poisson_nll_loss", (chances(3, 4), chances(3, 4) * 3), {"log_input": False}),
    ("gaussian_nll_loss", (normal(3, 4), normal(3, 4), chances(3, 4) + 0.1), {"full": True}),
    ("gaussian_nll_loss", (normal(3, 4), normal(3, 4), chances(3) + 0.1), {}),
    ("gaussian_nll_loss", (normal(3, 4), normal(3, 4), chances(3, 1)), {"eps": 0.5}),
    ("cosine_embedding_loss", (normal(5, 4), normal(5, 4), signs(5)), {"margin": 0.2}),
    ("cosine_embedding_loss", (normal(4), normal(4), signs()), {}),
    ("margin_ranking_loss", (normal(5), normal(5), signs(5)), {"margin": 0.5}),
    ("hinge_embedding_loss", (normal(5, 2), signs(5, 2)), {"margin": 0.7}),
    ("soft_margin_loss", (normal(5, 2) * 20, signs(5, 2)), {}),
    ("triplet_margin_loss", (normal(5, 3), normal(5, 3), normal(5, 3)), {}),
    ("triplet_margin_loss", (normal(5, 3), normal(5, 3), normal(5, 3)), {"swap": True, "p": 1.0}),
]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("name", "inputs", "options"), PLAIN)
def test_functions(name, inputs, options, reduction):
    for dtype in TYPES:
        own = [one.astype(dtype) if one.dtype.kind == "f" else one for one in inputs]
        compare(
            lambda library, *args: getattr(library.nn.functional, name)(
                *args, reduction=reduction, **options
            ),
            *own,
            tolerance=1e-4 if dtype is np.float32 else 1e-9,
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy(reduction, weighted):
    p, t, weight = chances(3, 4), chances(3, 4)[::-1].copy(), chances(4)
    t[0, 2:] = 0, 1
    for dtype in TYPES:
        compare(
            lambda library, a, b, w: library.nn.functional.binary_cross_entropy(
                a, b.detach(), w.detach() if weighted else None, reduction=reduction
            ),
            *[one.astype(dtype) for one in (p, t, weight)],
            tolerance=2e-5,
        )
        # Where the loss has its bound, so has its gradient for the target here, but not in torch.
        compare(
            lambda library, a, b: library.nn.functional.binary_cross_entropy(
                a, b, reduction=reduction
            ),
            *[one[1:].astype(dtype) for one in (p, t)],
            tolerance=2e-5,
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_with_weights(reduction):
    def loss(library, x, t, weight, positive):
        module = library.nn.BCEWithLogitsLoss(
            weight.detach(), reduction=reduction, pos_weight=positive.detach()
        )
        return module(x, t)

    for dtype in TYPES:
        inputs = (normal(3, 4) * 10, chances(3, 4), chances(4), chances(4) * 3)
        compare(loss, *[one.astype(dtype) for one in inputs])


SIMPLE = ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"]
SIMPLE += ["binary_cross_entropy", "binary_cross_entropy_with_logits", "poisson_nll_loss"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", SIMPLE)
def test_single_numbers(name, reduction):
    for dtype in TYPES:
        compare(
            lambda library, a, b: getattr(library.nn.functional, name)(a, b, reduction=reduction),
            np.array(0.3, dtype),
            np.array(0.6, dtype),
        )


@pytest.mark.parametrize("log_target", [False, True])
def test_kl_div_over_the_batch(log_target):
    target = logs(5, 4) if log_target else distributions(5, 4)
    compare(
        lambda library, a, b: library.nn.KLDivLoss(reduction="batchmean", log_target=log_target)(
            a, b.detach()
        ),
        logs(5, 4),
        target,
    )


def test_kl_div_with_impossible_targets():
    target = np.array([[0.0, 1.0], [0.5, 0.5]])
    compare(
        lambda library, a, b: library.nn.functional.kl_div(a, b.detach(), reduction="none"),
        logs(2, 2),
        target,
    )


#: (shape of the input, shape of the classes)
LAYOUTS = [((6, 4), (6,)), ((4,), ()), ((3, 4, 5), (3, 5)), ((2, 4, 3, 2), (2, 3, 2))]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("shape", "classes"), LAYOUTS)
def test_losses_of_classes(shape, classes, weighted, reduction):
    target = random.integers(0, 4, classes)
    ignored = target.copy()
    if ignored.ndim:
        ignored.reshape(-1)[1] = -100
    for dtype in TYPES:
        x, weight = normal(*shape).astype(dtype), chances(4).astype(dtype) + dtype(0.1)

        def arguments(weights, target):
            return (target, weights.detach() if weighted else None)

        compare(
            lambda library, a, w, t: library.nn.functional.nll_loss(
                a, *arguments(w, t), reduction=reduction
            ),
            x,
            weight,
            ignored,
        )
        for smoothing in (0.0, 0.2):
            compare(
                lambda library, a, w, t, smoothing=smoothing: library.nn.functional.cross_entropy(
                    a, *arguments(w, t), reduction=reduction, label_smoothing=smoothing
                ),
                x,
                weight,
                ignored,
            )
        compare(
            lambda library, a, w, t: library.nn.CrossEntropyLoss(
                w.detach() if weighted else None, ignore_index=2, reduction=reduction
            )(a, t),
            x,
            weight,
            target if target.ndim else np.array(1),
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(6, 4), (4,), (3, 4, 5), (2, 4, 3, 2)])
def test_cross_entropy_of_probabilities(shape, weighted, reduction):
    for smoothing in (0.0, 0.2):
        compare(
            lambda library, a, t, w, smoothing=smoothing: library.nn.functional.cross_entropy(
                a,
                t,
                w.detach() if weighted else None,
                reduction=reduction,
                label_smoothing=smoothing,
            ),
            normal(*shape),
            chances(*shape),
            chances(4),
        )


#: (name, keyword arguments, inputs)
MODULES = [
    ("MSELoss", {}, (normal(3), normal(3))),
    ("L1Loss", {"reduction": "sum"}, (normal(3), normal(3))),
    ("SmoothL1Loss", {"beta": 0.5}, (normal(3), normal(3))),
    ("HuberLoss", {"delta": 0.5}, (normal(3), normal(3))),
    ("NLLLoss", {}, (logs(3, 4), np.array([0, 3, 1]))),
    ("CrossEntropyLoss", {"label_smoothing": 0.1}, (normal(3, 4), np.array([0, 3, 1]))),
    ("BCELoss", {}, (chances(5)[2:], chances(3))),
    ("KLDivLoss", {"reduction": "sum"}, (logs(3, 2), distributions(3, 2))),
    ("PoissonNLLLoss", {}, (normal(3), chances(3))),
    ("GaussianNLLLoss", {"full": True}, (normal(3), normal(3), chances(3) + 1)),
    ("CosineEmbeddingLoss", {"margin": 0.1}, (normal(3, 2), normal(3, 2), signs(3))),
    ("MarginRankingLoss", {"margin": 0.1}, (normal(3), normal(3), signs(3))),
    ("HingeEmbeddingLoss", {"margin": 0.4}, (normal(3), signs(3))),
    ("SoftMarginLoss", {}, (normal(3), signs(3))),
    ("TripletMarginLoss", {"margin": 2.0}, (normal(3, 2), normal(3, 2), normal(3, 2))),
]


@pytest.mark.parametrize(("name", "options", "inputs"), MODULES)
def test_modules(name, options, inputs):
    compare(lambda library, *args: getattr(library.nn, name)(**options)(*args), *inputs)
    ours, theirs = (getattr(library.nn, name)(**options) for library in (tp, torch))
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_similarities_and_distances(dim):
    a, b = normal(3, 4), normal(3, 4)
    compare(lambda library, x, y: library.nn.functional.cosine_similarity(x, y, dim), a, b)
    compare(lambda library, x: library.nn.functional.normalize(x, dim=dim), a)
    compare(lambda library, x: library.nn.functional.normalize(x, 1.0, dim), a)
    compare(lambda library, x, y: library.nn.functional.pairwise_distance(x, y), a, b)


def test_bad_arguments():
    F = tp.nn.functional  # noqa: N806
    ones = tp.ones(3)
    for call in (
        lambda: F.mse_loss(ones, ones, reduction="average"),
        lambda: F.huber_loss(ones, ones, delta=0.0),
        lambda: F.smooth_l1_loss(ones, ones, beta=-1.0),
        lambda: F.binary_cross_entropy(ones, tp.ones(2)),
        lambda: F.binary_cross_entropy_with_logits(ones, tp.ones(2)),
        lambda: F.kl_div(ones, ones, "batch"),
        lambda: F.gaussian_nll_loss(ones, ones, -ones),
        lambda: F.gaussian_nll_loss(ones, ones, tp.ones(2)),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            call()
    for call in (
        lambda: F.binary_cross_entropy(ones * 2, ones),
        lambda: F.binary_cross_entropy(ones, ones.double()),
        lambda: F.cosine_embedding_loss(ones, tp.ones(1, 3), ones),
    ):
        with pytest.raises(RuntimeError, match=r"\w"):
            call()
