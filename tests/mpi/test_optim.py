"""Training over the ranks of an MPI job: distributed optimizers and remote modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from mpi.conftest import RpcWorld
from tensorplay import nn
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule
from tensorplay.distributed.optim import DistributedOptimizer
from tensorplay.optim import lr_scheduler

pytestmark = pytest.mark.mpi

WIDTH = 5


def layer(seed: int) -> nn.Module:
    """A layer that is the same wherever it is made."""
    tp.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double()


def batch(step: int) -> tuple[tp.Tensor, tp.Tensor]:
    random = np.random.default_rng(step)
    x = random.standard_normal((8, WIDTH))
    return tp.tensor(x), tp.tensor(np.sin(x))


def train_alone(count: int, steps: int) -> tuple[list[float], dict[str, Any]]:
    model = nn.Sequential(*[layer(k) for k in range(count)])
    optimizer = tp.optim.Adam(model.parameters(), lr=0.05)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 4)
    losses = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def test_a_chain_over_all_ranks_trains_as_one_process(rpc_world: RpcWorld) -> None:
    """With a schedule and clipping; half-way all that there is moves on to other ranks."""
    if rpc_world.rank != 0:
        return
    size, steps = rpc_world.size, 6
    expected, weights = train_alone(size, steps)

    def build(shift: int) -> tuple[nn.Sequential, DistributedOptimizer, Any]:
        ranks = [(k + shift) % size for k in range(size)]
        modules = [RemoteModule(f"rank:{rank}", layer, (k,)) for k, rank in enumerate(ranks)]
        rrefs = [rref for module in modules for rref in module.remote_parameters()]
        optimizer = DistributedOptimizer(tp.optim.Adam, rrefs, lr=0.05)
        return nn.Sequential(*modules), optimizer, lr_scheduler.CosineAnnealingLR(optimizer, 4)

    model, optimizer, scheduler = build(0)
    losses = []
    for step in range(steps):
        if step == steps // 2:
            saved = model.state_dict(), optimizer.state_dict(), scheduler.state_dict()
            model, optimizer, scheduler = build(1)
            for one, state in zip((model, optimizer, scheduler), saved, strict=True):
                one.load_state_dict(state)
        x, y = batch(step)
        with dist_autograd.context() as context_id:
            loss = ((model(x) - y) ** 2).mean()
            dist_autograd.backward(context_id, [loss])
            optimizer.clip_grad_norm_(context_id, 0.1)
            optimizer.step(context_id)
        scheduler.step()
        losses.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-10)
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(value.numpy(), weights[name].numpy(), rtol=1e-8)


def serve_parameter() -> rpc.RRef:
    return rpc.RRef(nn.Parameter(tp.zeros(1000, dtype=tp.float64)))


def weigh(rref: rpc.RRef, x: tp.Tensor) -> tp.Tensor:
    return rref.local_value() * x


@pytest.mark.parametrize("shared", [False, True])
def test_all_ranks_train_one_parameter_at_once(rpc_world: RpcWorld, shared: bool) -> None:
    """Rank 0 has it; no step is lost, and none sees a value that another is writing."""
    steps = 25
    rref = optimizer = None
    if rpc_world.rank == 0:
        rref = serve_parameter()
        if shared:
            optimizer = DistributedOptimizer(tp.optim.SGD, [rref], lr=1e-3)
    gathered = rpc.api._all_gather((rref, optimizer))["worker0"]
    rref, optimizer = gathered
    optimizer = optimizer or DistributedOptimizer(tp.optim.SGD, [rref], lr=1e-3)
    x = tp.ones(1000, dtype=tp.float64, requires_grad=True)
    for _ in range(steps):
        with dist_autograd.context() as context_id:
            y = rpc.rpc_sync("worker0", weigh, (rref, x))
            dist_autograd.backward(context_id, [y.sum()])
            slope = dist_autograd.get_gradients(context_id)[x]
            # The whole of the value that the forward pass has used, and no other.
            assert tp.equal(slope, y)
            assert slope.min().item() == slope.max().item()
            optimizer.step(context_id)
    rpc.api._barrier({info.name for info in rpc.api._get_current_rpc_agent().get_worker_infos()})
    if rpc_world.rank == 0:
        value = rref.local_value()
        assert value[0].item() == pytest.approx(-1e-3 * steps * rpc_world.size, rel=1e-12)


def use(module: RemoteModule, x: tp.Tensor) -> tuple[Any, ...]:
    y = module(x)
    return y.detach(), module.state_dict()["0.bias"], module.training


def test_a_remote_module_goes_round_all_ranks(rpc_world: RpcWorld) -> None:
    if rpc_world.rank != 0:
        return
    last = rpc_world.size - 1
    module = RemoteModule(f"rank:{last}/cpu", layer, (3,)).eval()
    x, _ = batch(0)
    local = layer(3)
    for rank in rpc_world.everybody:
        y, bias, training = rpc.rpc_sync(rank, use, (module, x))
        assert tp.allclose(y, local(x))
        assert tp.equal(bias, local.state_dict()["0.bias"])
        assert training is False


def test_what_fails_on_other_ranks_is_raised_here(rpc_world: RpcWorld) -> None:
    with pytest.raises(ValueError, match="returns an instance of <class nn"):
        RemoteModule(f"rank:{rpc_world.next}", dict)
    module = RemoteModule(f"rank:{rpc_world.next}", layer, (0,))
    with pytest.raises(ValueError, match="Invalid learning rate") as caught:
        DistributedOptimizer(tp.optim.SGD, module.remote_parameters(), lr=-1.0)
    assert f"On worker 'worker{rpc_world.next}'" in str(caught.value.__cause__)


@pytest.mark.ranks(3, 4)
def test_an_owner_that_has_left_is_named_and_the_others_step(world: RpcWorld) -> None:
    rpc.init_rpc()
    if world.rank == 0:
        # The one that leaves comes first.
        modules = [RemoteModule(f"rank:{rank}", layer, (0,)) for rank in (1, 2)]
        rrefs = [rref for module in modules for rref in module.remote_parameters()]
        optimizer = DistributedOptimizer(tp.optim.SGD, rrefs, lr=1.0)
    world.comm.Barrier()
    if world.rank == 1:
        rpc.shutdown(graceful=False)
    world.comm.Barrier()
    if world.rank == 0:
        left = "worker 'worker1' has left"
        with pytest.raises(rpc.WorkerLeftError, match=left):
            modules[0](batch(0)[0])
        before = modules[1].state_dict()["0.bias"]
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, [modules[1](batch(0)[0]).sum()])
            with pytest.raises(rpc.WorkerLeftError, match=left):
                optimizer.step(context_id)
            with pytest.raises(rpc.WorkerLeftError, match=left):
                optimizer.clip_grad_norm_(context_id, 1.0)
        assert not tp.equal(modules[1].state_dict()["0.bias"], before)
        with pytest.raises(rpc.WorkerLeftError, match=left):
            optimizer.state_dict()
    if world.rank != 1:
        rpc.shutdown(timeout=30)
