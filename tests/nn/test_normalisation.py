"""Normalisation, embeddings and dropout: running averages, arguments that do not fit, chance."""

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.nn.functional as F  # noqa: N812  # as programs for PyTorch call it
from tensorplay import nn

TABLE = tp.ones(4, 2)

REFUSED = [
    (lambda: nn.BatchNorm2d(3)(tp.ones(2, 3)), ValueError, r"expected 4D input \(got 2D input\)"),
    (lambda: nn.BatchNorm1d(3)(tp.ones(2, 3, 1, 1)), ValueError, "expected 2D or 3D input"),
    (lambda: nn.BatchNorm1d(3)(tp.ones(1, 3)), ValueError, "more than 1 value per channel"),
    (lambda: nn.BatchNorm1d(3)(tp.ones(2, 4)), RuntimeError, "expected running_mean of shape"),
    (lambda: F.batch_norm(tp.ones(2, 3), None, None), RuntimeError, "to be defined when training"),
    (lambda: F.batch_norm(tp.ones(3), None, None), RuntimeError, "at least 2 dimensions"),
    (lambda: nn.InstanceNorm2d(3)(tp.ones(2, 3, 1, 1)), ValueError, "more than 1 spatial"),
    (lambda: nn.LayerNorm(3)(tp.ones(2, 4)), RuntimeError, r"expected input with shape \[\*, 3\]"),
    (lambda: nn.LayerNorm(3)(tp.ones(2, 3).double()), RuntimeError, "of the input's type"),
    (lambda: F.layer_norm(tp.ones(2, 3).long(), 3), RuntimeError, "floating-point"),
    (lambda: nn.GroupNorm(2, 3), ValueError, "must be divisible by num_groups"),
    (lambda: F.group_norm(tp.ones(2, 3), 2), RuntimeError, "divisible by num_groups"),
    (lambda: F.embedding(tp.tensor([4]), TABLE), IndexError, "index out of range in self"),
    (lambda: F.embedding(tp.tensor([-1]), TABLE), IndexError, "index out of range in self"),
    (lambda: F.embedding(tp.tensor([1.0]), TABLE), RuntimeError, "expected integers"),
    (lambda: F.embedding(tp.tensor([1]), tp.ones(4)), RuntimeError, "must be 2-D"),
    (lambda: F.embedding(tp.tensor([1]), TABLE, 4), ValueError, "Padding_idx must be within"),
    (lambda: nn.Embedding(4, 2, 4), ValueError, "Padding_idx must be within"),
    (lambda: nn.Embedding(4, 2, max_norm=1.0), NotImplementedError, "max_norm is not supported"),
    (lambda: nn.EmbeddingBag(4, 2, sparse=True), NotImplementedError, "sparse is not supported"),
    (lambda: nn.Embedding.from_pretrained(tp.ones(4)), ValueError, "2-dimensional"),
    (lambda: nn.Embedding(4, 2, _weight=tp.ones(3, 2)), ValueError, "expected a weight of shape"),
    (lambda: F.embedding_bag(tp.tensor([1]), TABLE), ValueError, "offsets has to be a 1D Tensor"),
    (
        lambda: F.embedding_bag(tp.tensor([[1]]), TABLE, tp.tensor([0])),
        ValueError,
        "offsets has to be None",
    ),
    (
        lambda: F.embedding_bag(tp.tensor([1]), TABLE, tp.tensor([1])),
        RuntimeError,
        r"offsets\[0\] has to be 0",
    ),
    (
        lambda: F.embedding_bag(tp.tensor([1, 2]), TABLE, tp.tensor([0, 3])),
        RuntimeError,
        "offsets must not fall",
    ),
    (lambda: F.embedding_bag(tp.tensor([[1]]), TABLE, mode="most"), ValueError, "sum, mean or max"),
    (
        lambda: F.embedding_bag(tp.tensor([[1]]), TABLE, per_sample_weights=tp.ones(1, 1)),
        NotImplementedError,
        "for mode='sum' only",
    ),
    (
        lambda: F.embedding_bag(tp.tensor([[1]]), TABLE, mode="sum", per_sample_weights=tp.ones(1)),
        ValueError,
        "same shape as the input",
    ),
    (lambda: F.dropout(TABLE, 1.5), ValueError, "between 0 and 1"),
    (lambda: nn.Dropout2d(-0.1), ValueError, "between 0 and 1"),
    (lambda: F.dropout2d(TABLE[0]), RuntimeError, "Expected 3D or 4D input"),
    (lambda: nn.Conv2d(3, 4, 2, groups=2), ValueError, "in_channels must be divisible"),
    (lambda: nn.Conv2d(4, 3, 2, groups=2), ValueError, "out_channels must be divisible"),
    (lambda: nn.Conv2d(1, 1, 2, padding="some"), ValueError, "Invalid padding string"),
    (lambda: nn.Conv2d(1, 1, 2, 2, "same"), ValueError, "not supported for strided"),
    (lambda: nn.Conv2d(1, 1, 2, padding_mode="some"), ValueError, "padding_mode must be one of"),
    (
        lambda: nn.Conv2d(1, 1, 2, padding=2, padding_mode="reflect")(tp.ones(1, 2, 2)),
        RuntimeError,
        "Padding size should be less",
    ),
    (lambda: nn.ZeroPad2d((1, 2)), ValueError, "one number or four"),
    (lambda: nn.ZeroPad2d(-2)(tp.ones(1, 3, 3)), RuntimeError, "leaves nothing"),
    (lambda: nn.Unflatten(1, (4, 4))(tp.ones(2, 6)), RuntimeError, "is invalid for input of size"),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_what_does_not_fit_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_running_averages_are_those_of_the_batches():
    layer = nn.BatchNorm1d(2, momentum=None)
    batches = np.random.default_rng(0).standard_normal((4, 6, 2)).astype(np.float32)
    for batch in batches:
        layer(tp.tensor(batch))
    assert np.allclose(layer.running_mean.numpy(), batches.mean((0, 1)), atol=1e-6)
    assert np.allclose(layer.running_var.numpy(), batches.var(1, ddof=1).mean(0), atol=1e-6)
    assert layer.num_batches_tracked.item() == 4
    before = layer.running_mean.numpy().copy()
    layer.eval()(tp.tensor(batches[0]))
    assert np.array_equal(layer.running_mean.numpy(), before)
    layer.reset_parameters()
    assert not layer.running_mean.numpy().any()


def test_layers_can_go_without_bias():
    for layer in (nn.BatchNorm2d(3, bias=False), nn.GroupNorm(1, 3, bias=False)):
        assert list(dict(layer.named_parameters())) == ["weight"]
        layer(tp.randn(2, 3, 4, 4)).sum().backward()
        assert layer.weight.grad.shape == (3,)


def test_pretrained_tables_are_frozen_unless_told_otherwise():
    layer = nn.Embedding.from_pretrained(TABLE, padding_idx=1)
    assert not layer.weight.requires_grad
    assert layer.padding_idx == 1
    assert np.shares_memory(layer.weight.detach().numpy(), TABLE.numpy())
    bags = nn.EmbeddingBag.from_pretrained(TABLE, freeze=False, mode="sum")
    assert bags.weight.requires_grad
    assert bags(tp.tensor([[0, 1]])).tolist() == [[2.0, 2.0]]


def test_rows_of_a_table_are_copies():
    table = TABLE.clone()
    F.embedding(tp.tensor(1), table).zero_()
    assert table.numpy().all()


@pytest.mark.parametrize(
    ("layer", "shape", "constant"),
    [
        (nn.Dropout(0.25), (40, 50, 4), ()),
        (nn.Dropout1d(0.25), (40, 50, 4), (2,)),
        (nn.Dropout2d(0.25), (40, 50, 4, 2), (2, 3)),
    ],
)
def test_dropout_zeroes_the_given_share(layer, shape, constant):
    tp.manual_seed(0)
    x = tp.ones(*shape, requires_grad=True)
    out = layer(x)
    values = out.detach().numpy()
    assert set(np.unique(values)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(values.mean() - 1) < 0.05
    assert (values.min(constant) == values.max(constant)).all()
    out.sum().backward()
    assert np.array_equal(x.grad.numpy(), values)
    tp.manual_seed(0)
    assert tp.equal(layer(x), out)
    assert layer.eval()(x) is x


def test_dropout_of_everything_and_in_place():
    x = tp.ones(3, 2, 4)
    assert not F.dropout1d(x, 1.0).numpy().any()
    assert not F.alpha_dropout(x, 1.0, True).numpy().any()
    same = F.dropout(x, 0.5, True, True)
    assert same is x
    assert set(np.unique(x.numpy())) <= {np.float32(0), np.float32(2)}


def test_alpha_dropout_keeps_mean_and_variance():
    tp.manual_seed(0)
    x = tp.randn(400, 500, dtype=tp.float64)
    out = nn.AlphaDropout(0.3)(x).numpy()
    assert abs(out.mean()) < 0.02
    assert abs(out.var() - 1) < 0.02
    assert nn.AlphaDropout(0.3).eval()(x) is x
