"""Arguments by PyTorch's names, in its orders, as sequences and one by one: the same results."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from parity.compare import compare  # noqa: E402

S = np.eye(3) * 2 + np.arange(9.0).reshape(3, 3) / 16
S = S @ S.T

CASES: dict[str, Callable[..., Any]] = {
    "dot tensor": lambda lib, t: lib.dot(t(np.ones(3)), tensor=t(np.ones(3))),
    "det input": lambda lib, t: lib.det(input=t(S)),
    "slogdet input": lambda lib, t: lib.slogdet(input=t(S))[1],
    "logdet input": lambda lib, t: lib.logdet(input=t(S)),
    "inverse input": lambda lib, t: lib.inverse(input=t(S)),
    "linalg.det A": lambda lib, t: lib.linalg.det(A=t(S)),
    "linalg.matrix_power input": lambda lib, t: lib.linalg.matrix_power(input=t(S), n=2),
    "split tensor": lambda lib, t: lib.split(tensor=t(S), split_size_or_sections=1)[0],
    "Tensor.split split_size": lambda lib, t: t(S).split(split_size=1)[0],
    "addmm_ kw": lambda lib, t: t(S).addmm_(mat1=t(S), mat2=t(S)),
    "baddbmm_ kw": lambda lib, t: t(S[None]).baddbmm_(batch1=t(S[None]), batch2=t(S[None])),
    "addmv_ kw": lambda lib, t: t(np.ones(3)).addmv_(mat=t(S), vec=t(np.ones(3))),
    "addr_ kw": lambda lib, t: t(S).addr_(vec1=t(np.ones(3)), vec2=t(np.ones(3))),
    "pow_ exponent": lambda lib, t: t(S).pow_(exponent=2),
    "pow exponent": lambda lib, t: lib.pow(t(S), exponent=2),
    "mul_ other": lambda lib, t: t(S).mul_(other=2),
    "swapaxes": lambda lib, t: lib.swapaxes(t(S), axis0=0, axis1=1),
    "swapdims": lambda lib, t: lib.swapdims(t(S), dim0=0, dim1=1),
    "moveaxis": lambda lib, t: lib.moveaxis(t(S), source=0, destination=1),
    "true_divide other": lambda lib, t: lib.true_divide(t(S), other=2),
    "div rounding": lambda lib, t: lib.div(input=t(S), other=2, rounding_mode="floor"),
    "randint high": lambda lib, t: t(np.array(lib.randint(high=5, size=(2,)).shape)),
    "randint low high": lambda lib, t: t(np.array(lib.randint(low=0, high=5, size=(2,)).shape)),
    "arange end": lambda lib, t: lib.arange(end=5),
    "arange kw": lambda lib, t: lib.arange(start=1, end=5, step=2),
    "zeros size": lambda lib, t: lib.zeros(size=(2, 3)),
    "ones size": lambda lib, t: lib.ones(size=(2, 3)),
    "rand size": lambda lib, t: t(np.array(lib.rand(size=(2, 3)).shape)),
    "randn size": lambda lib, t: t(np.array(lib.randn(size=(2, 3)).shape)),
    "empty size": lambda lib, t: t(np.array(lib.empty(size=(2, 3)).shape)),
    "full kw": lambda lib, t: lib.full(size=(2, 3), fill_value=2.0),
    "sum axis": lambda lib, t: lib.sum(t(S), axis=0),
    "mean axis": lambda lib, t: lib.mean(t(S), axis=0),
    "max axis": lambda lib, t: lib.max(t(S), axis=0)[0],
    "max dim": lambda lib, t: lib.max(t(S), dim=0, keepdim=True)[0],
    "var unbiased": lambda lib, t: lib.var(t(S), unbiased=False),
    "var dim unbiased": lambda lib, t: lib.var(t(S), 0, False),
    "var corr": lambda lib, t: lib.var(t(S), dim=0, correction=0, keepdim=True),
    "std dim unb": lambda lib, t: lib.std(t(S), dim=0, unbiased=False),
    "cat axis": lambda lib, t: lib.cat([t(S), t(S)], axis=1),
    "stack kw": lambda lib, t: lib.stack(tensors=[t(S), t(S)], dim=1),
    "squeeze axis": lambda lib, t: t(S).unsqueeze(0).squeeze(dim=0),
    "unsqueeze dim": lambda lib, t: lib.unsqueeze(t(S), dim=-1),
    "flatten": lambda lib, t: lib.flatten(t(S), start_dim=0, end_dim=-1),
    "transpose": lambda lib, t: lib.transpose(t(S), dim0=0, dim1=1),
    "permute": lambda lib, t: lib.permute(t(S), dims=(1, 0)),
    "Tensor.permute": lambda lib, t: t(S).permute(1, 0),
    "view dtype": lambda lib, t: t(S).view(9),
    "view -1": lambda lib, t: t(S).view(-1, 9),
    "reshape shape": lambda lib, t: lib.reshape(t(S), shape=(9,)),
    "expand": lambda lib, t: t(S).expand(2, -1, -1),
    "repeat": lambda lib, t: t(S).repeat(2, 1),
    "clamp": lambda lib, t: lib.clamp(t(S), min=1, max=1.5),
    "where": lambda lib, t: lib.where(t(S) > 0, t(S), 0.0),
    "where cond": lambda lib, t: lib.where(condition=t(S) > 0, input=t(S), other=t(S) * 2),
    "topk": lambda lib, t: lib.topk(t(S), k=2, dim=0, largest=False, sorted=True)[0],
    "sort": lambda lib, t: lib.sort(t(np.arange(5.0)), dim=0, descending=True)[0],
    "sort stable": lambda lib, t: lib.sort(t(np.arange(5.0)), stable=True)[0],
    "gather": lambda lib, t: lib.gather(t(S), dim=0, index=lib.tensor([[0, 1, 2]])),
    "scatter": lambda lib, t: lib.scatter(t(S), dim=0, index=lib.tensor([[0, 1, 2]]), src=t(S)),
    "scatter value": lambda lib, t: t(S).scatter(0, lib.tensor([[0, 1, 2]]), 5.0),
    "scatter_ value": lambda lib, t: t(S).scatter_(0, lib.tensor([[0, 1, 2]]), value=5.0),
    "index_select": lambda lib, t: lib.index_select(t(S), dim=0, index=lib.tensor([0, 1])),
    "masked_fill": lambda lib, t: lib.masked_fill(t(S), mask=t(S) > 0, value=7.0),
    "norm": lambda lib, t: lib.norm(t(S)),
    "norm p": lambda lib, t: lib.norm(t(S), p=1, dim=1, keepdim=True),
    "norm fro": lambda lib, t: lib.norm(t(S), "fro"),
    "Tensor.norm": lambda lib, t: t(S).norm(),
    "Tensor.norm2": lambda lib, t: t(S).norm(2, -1, True),
    "logsumexp": lambda lib, t: lib.logsumexp(t(S), dim=(0, 1)),
    "cumsum": lambda lib, t: lib.cumsum(t(S), dim=0),
    "prod": lambda lib, t: lib.prod(t(S), dim=0, keepdim=True),
    "any": lambda lib, t: lib.any(t(S) > 0, dim=0, keepdim=True),
    "all": lambda lib, t: lib.all(t(S) > 0),
    "einsum list": lambda lib, t: lib.einsum("ij,jk->ik", [t(S), t(S)]),
    "einsum": lambda lib, t: lib.einsum("ij,jk->ik", t(S), t(S)),
    "outer": lambda lib, t: lib.outer(t(S[0]), vec2=t(S[0])),
    "bmm": lambda lib, t: lib.bmm(t(S[None]), mat2=t(S[None])),
    "mm": lambda lib, t: lib.mm(t(S), mat2=t(S)),
    "linalg.solve": lambda lib, t: lib.linalg.solve(t(S), t(S)),
    "linalg.solve kw": lambda lib, t: lib.linalg.solve(A=t(S), B=t(S)),
    "linalg.inv": lambda lib, t: lib.linalg.inv(A=t(S)),
    "linalg.svd": lambda lib, t: lib.linalg.svd(t(S), full_matrices=False).S,
    "linalg.eigh": lambda lib, t: lib.linalg.eigh(t(S), UPLO="U").eigenvalues,
    "eye": lambda lib, t: lib.eye(n=2, m=3),
    "linspace": lambda lib, t: lib.linspace(start=0, end=1, steps=3),
    "linspace int": lambda lib, t: lib.linspace(0, 10, steps=5, dtype=lib.int64),
    "linspace tensors": lambda lib, t: lib.linspace(lib.tensor(0.0), lib.tensor(1.0), 3),
    "randperm": lambda lib, t: t(np.array(lib.randperm(n=5).shape)),
    "one_hot": lambda lib, t: lib.nn.functional.one_hot(lib.tensor([1, 2]), num_classes=4),
    "one_hot -1": lambda lib, t: lib.nn.functional.one_hot(lib.tensor([1, 2])),
    "pad": lambda lib, t: lib.nn.functional.pad(t(S), pad=(1, 1), mode="constant", value=2.0),
    "pad none": lambda lib, t: lib.nn.functional.pad(t(S), (1, 1, 2, 0)),
    "flip": lambda lib, t: lib.flip(t(S), dims=(0,)),
    "flip2": lambda lib, t: t(S).flip(0, 1),
    "roll": lambda lib, t: lib.roll(t(S), shifts=1, dims=0),
    "tril": lambda lib, t: lib.tril(t(S), diagonal=-1),
    "chunk": lambda lib, t: lib.chunk(t(S), chunks=2, dim=1)[1],
    "narrow": lambda lib, t: lib.narrow(t(S), dim=0, start=1, length=2),
    "split sizes": lambda lib, t: lib.split(t(S), [1, 2], dim=1)[1],
    "embedding": lambda lib, t: lib.nn.functional.embedding(lib.tensor([0, 1]), t(S)),
    "embedding kw": lambda lib, t: lib.nn.functional.embedding(
        input=lib.tensor([0, 1]), weight=t(S), padding_idx=0
    ),
    "embedding_bag": lambda lib, t: lib.nn.functional.embedding_bag(
        lib.tensor([0, 1]), t(S), lib.tensor([0]), mode="sum"
    ),
    "softplus": lambda lib, t: lib.nn.functional.softplus(t(S), beta=2, threshold=10),
    "layer_norm": lambda lib, t: lib.nn.functional.layer_norm(t(S), normalized_shape=(3,)),
    "batch_norm": lambda lib, t: lib.nn.functional.batch_norm(t(S), None, None, training=True),
    "pow scalar base": lambda lib, t: lib.pow(2, t(S)),
    "maximum": lambda lib, t: lib.maximum(t(S), other=t(S)),
    "lerp": lambda lib, t: lib.lerp(t(S), t(S), 0.5),
    "addcmul": lambda lib, t: lib.addcmul(t(S), t(S), t(S), value=2),
    "sub alpha": lambda lib, t: lib.sub(t(S), t(S), alpha=2),
    "std_mean": lambda lib, t: lib.std_mean(t(S))[0],
    "argmax none": lambda lib, t: lib.argmax(t(S)),
    "argsort": lambda lib, t: lib.argsort(t(np.array([3.0, 1, 2])), descending=True),
    "tensor.sum dims": lambda lib, t: t(S).sum((0, 1)),
    "tensor.sum dtype": lambda lib, t: t(S).sum(dtype=lib.float32),
    "to dtype kw": lambda lib, t: t(S).to(device="cpu", dtype=lib.float32, non_blocking=True),
    "to device dtype": lambda lib, t: t(S).to("cpu", lib.float32),
    "to other": lambda lib, t: t(S).to(t(S).float()),
    "unique": lambda lib, t: lib.unique(t(S), return_counts=True)[1],
    "bernoulli p": lambda lib, t: lib.bernoulli(t(np.ones(3))),
    "multinomial": lambda lib, t: lib.multinomial(t(np.array([0.0, 1.0])), num_samples=1),
    "normal_ kw": lambda lib, t: t(np.array(t(S).normal_(mean=0, std=1).shape)),
    "uniform_ to": lambda lib, t: t(np.array(t(S).uniform_(-1, to=1).shape)),
    "random_ to": lambda lib, t: t(np.array(t(S).random_(0, to=5).shape)),
    "random_ one": lambda lib, t: t(np.array(t(S).random_(5).shape)),
    "exponential_": lambda lib, t: t(np.array(t(S).exponential_(lambd=2.0).shape)),
    "rand_like gen": lambda lib, t: t(
        np.array(lib.rand_like(t(S), generator=lib.Generator()).shape)
    ),
    "randn gen": lambda lib, t: t(
        np.array(lib.randn(2, generator=lib.Generator().manual_seed(1)).shape)
    ),
    "relu inplace": lambda lib, t: lib.nn.functional.relu(t(S), True),
    "dropout inplace": lambda lib, t: lib.nn.functional.dropout(t(S), 0.0, True, True),
    "size()": lambda lib, t: lib.zeros(t(S).size()),
    "new_zeros": lambda lib, t: t(S).new_zeros(2, 3),
    "zeros list": lambda lib, t: lib.zeros([2, 3]),
    "zeros Size": lambda lib, t: lib.zeros(lib.Size([2, 3]), dtype=lib.long),
    "full_like": lambda lib, t: lib.full_like(t(S), 3),
    "is_floating_point": lambda lib, t: lib.tensor(lib.is_floating_point(t(S))),
    "detach_": lambda lib, t: (t(S).requires_grad_() * 2).detach_(),
    "detach fn": lambda lib, t: lib.detach(t(S)),
    "cross_entropy probs": lambda lib, t: lib.nn.functional.cross_entropy(
        t(S), t(S) / 2, label_smoothing=0.1
    ),
    "nanmean": lambda lib, t: lib.nanmean(t(S)),
    "F.softmax dtype": lambda lib, t: lib.nn.functional.softmax(t(S), dim=1, dtype=lib.float32),
    "log_softmax": lambda lib, t: lib.log_softmax(t(S), dim=1),
    "tensor()": lambda lib, t: lib.as_tensor(S, dtype=lib.float32, device=lib.device("cpu")),
}


@pytest.mark.parametrize("name", CASES)
def test_spelling(name):
    def call(library):
        out = CASES[name](library, library.tensor)
        return out.detach() if isinstance(out, library.Tensor) else out

    compare(call)
