"""Arguments of modules of the wrong type are refused by name."""

import numpy as np
import pytest

import tensorplay as tp
from tensorplay import nn

WRONG = [
    (lambda: nn.Linear("a", 2), "in_features must be an integer, not 'a'"),
    (lambda: nn.Linear(2, 2.5), "out_features"),
    (lambda: nn.Linear(None, 2), "in_features"),
    (lambda: nn.Flatten("a"), "start_dim"),
    (lambda: nn.Unflatten("a", 2), "dim"),
    (lambda: nn.Unflatten(1, "a"), "sizes"),
    (lambda: nn.ZeroPad2d("a"), "padding"),
    (lambda: nn.Conv1d("a", 2, 3), "in_channels"),
    (lambda: nn.Conv2d(2, "a", 3), "out_channels"),
    (lambda: nn.Conv2d(2, 2, "a"), "kernel_size"),
    (lambda: nn.Conv2d(2, 2, 3, groups="a"), "groups"),
    (lambda: nn.ConvTranspose2d("a", 2, 3), "in_channels"),
    (lambda: nn.BatchNorm1d("a"), "num_features"),
    (lambda: nn.BatchNorm2d(2, eps="a"), "eps"),
    (lambda: nn.BatchNorm2d(2, momentum="a"), "momentum"),
    (lambda: nn.InstanceNorm1d("a"), "num_features"),
    (lambda: nn.LayerNorm("a"), "normalized_shape"),
    (lambda: nn.LayerNorm((2, "a")), "sizes"),
    (lambda: nn.GroupNorm("a", 4), "num_groups"),
    (lambda: nn.GroupNorm(2, "a"), "num_channels"),
    (lambda: nn.LSTM("a", 3), "input_size"),
    (lambda: nn.GRU(2, 2.5), "hidden_size"),
    (lambda: nn.RNN(2, 2, "a"), "num_layers"),
    (lambda: nn.LSTM(2, 2, dropout="a"), "dropout"),
    (lambda: nn.GRUCell("a", 1), "input_size"),
    (lambda: nn.RNNCell(1, 2.5), "hidden_size"),
    (lambda: nn.Embedding("a", 3), "num_embeddings"),
    (lambda: nn.Embedding(3, "a"), "embedding_dim"),
    (lambda: nn.Embedding(3, 3, padding_idx="a"), "padding_idx"),
    (lambda: nn.EmbeddingBag(3, "a"), "embedding_dim"),
    (lambda: nn.Dropout("a"), "p must be a number"),
    (lambda: nn.MultiheadAttention("a", 1), "embed_dim"),
    (lambda: nn.MultiheadAttention(4, 2.0), "num_heads"),
    (lambda: nn.MultiheadAttention(4, 2, kdim="a"), "kdim"),
    (lambda: nn.PReLU("a"), "num_parameters"),
    (lambda: nn.LeakyReLU("a"), "negative_slope must be a number"),
    (lambda: nn.ELU("a"), "alpha"),
    (lambda: nn.Hardtanh("a"), "min_val"),
    (lambda: nn.Softplus(1.0, "a"), "threshold"),
    (lambda: nn.Softmax("a")(tp.ones(2)), "dim"),
    (lambda: nn.AdaptiveAvgPool2d("a")(tp.ones(1, 1, 4, 4)), "output_size"),
    (lambda: nn.Upsample("a")(tp.ones(1, 1, 4, 4)), "size"),
    (lambda: tp.zeros("a"), "sizes must be ints"),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_wrong_types(case):
    make, message = WRONG[case]
    with pytest.raises(TypeError, match=f"^{message}"):
        make()


def test_numbers_of_numpy_will_do():
    nn.Linear(np.int64(2), np.int32(3))
    nn.BatchNorm1d(np.int64(2), eps=np.float32(1e-5), momentum=None)
    nn.Dropout(np.float64(0.5))
