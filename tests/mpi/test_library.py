"""The library under the distribution, on the ranks of an MPI job."""

from __future__ import annotations

from typing import Any

import pytest

import tensorplay as tp
from mpi.conftest import RpcWorld
from tensorplay import nn
from tensorplay.distributed import autograd, rpc
from tensorplay.utils.data import DistributedSampler

pytestmark = pytest.mark.mpi


def numbers(size: int) -> list[int]:
    """What this worker goes through."""
    return list(DistributedSampler(range(size), shuffle=True, seed=3))


def test_workers_share_a_data_set_out(rpc_world: RpcWorld) -> None:
    size = 5 * rpc_world.size
    parts = [rpc.rpc_sync(worker, numbers, (size,)) for worker in rpc_world.everybody]
    assert sorted(i for part in parts for i in part) == list(range(size))
    assert {len(part) for part in parts} == {5}


def states(layer: nn.Module, x: tp.Tensor) -> Any:
    return layer(x)[0]


def test_recurrent_layers_travel(rpc_world: RpcWorld) -> None:
    """As a value, with gradients for its input flowing back through the rank that runs it."""
    tp.manual_seed(rpc_world.rank)
    layer = nn.LSTM(3, 4, num_layers=2, bidirectional=True).requires_grad_(False)
    x = tp.randn(5, 2, 3, requires_grad=True)
    (expected,) = tp.autograd.grad(layer(x)[0].sum(), x)
    with autograd.context() as context_id:
        out = rpc.rpc_sync(rpc_world.next, states, (layer, x))
        assert tp.equal(out, layer(x)[0])
        autograd.backward(context_id, out.sum())
        assert tp.allclose(autograd.get_gradients()[x], expected)


def test_modules_of_all_kinds_travel(rpc_world: RpcWorld) -> None:
    net = nn.ModuleDict(
        {
            "list": nn.ModuleList([nn.Sequential(nn.Linear(2, 3), nn.GELU()), nn.GRUCell(2, 2)]),
            "held": nn.ParameterList([tp.ones(2), tp.ones(3)]),
            "named": nn.ParameterDict({"w": tp.ones(2)}),
            "attention": nn.MultiheadAttention(4, 2),
            "loss": nn.CrossEntropyLoss(tp.ones(3)),
        }
    )
    returned = rpc.rpc_sync(rpc_world.next, nn.Module.eval, (net,))
    assert not returned["list"][0].training
    for name in ("list", "attention", "loss"):
        assert repr(returned[name]) == repr(net[name])
    ours, theirs = net.state_dict(), returned.state_dict()
    assert list(ours) == list(theirs)
    assert all(tp.equal(theirs[name], value) for name, value in ours.items())
