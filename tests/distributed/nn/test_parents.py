"""The state of a remote module, and modules that contain remote ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from harness.loopback import run_world
from tensorplay import nn
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule
from tensorplay.distributed.optim import DistributedOptimizer


def on_rank_0(size: int, program: Callable[[], Any]) -> Any:
    """Run `program` on worker 0 of a world; the others serve."""
    return run_world(size, lambda rank: program() if rank == 0 else None)[0]


class Body(nn.Module):
    """Two layers and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.head = nn.Linear(2, 1)
        self.register_buffer("count", tp.zeros(1))

    def forward(self, x: tp.Tensor) -> tp.Tensor:
        return self.head(self.layer(x).tanh())


class Hybrid(nn.Module):
    """One part here and two elsewhere."""

    def __init__(self, make: Callable[[str], nn.Module]) -> None:
        super().__init__()
        self.here = nn.Linear(2, 2)
        self.body = make("worker1")
        self.more = nn.ModuleList([make("worker2")])

    def forward(self, x: tp.Tensor) -> tp.Tensor:
        y = self.here(x)
        return self.body(y) + self.more[0](y)


def hybrid() -> Hybrid:
    return Hybrid(lambda worker: RemoteModule(worker, Body))


def local() -> Hybrid:
    return Hybrid(lambda worker: Body())


def fill(module: nn.Module) -> None:
    """For `apply`: numbers that tell a layer's shape."""
    if isinstance(module, nn.Linear):
        with tp.no_grad():
            module.weight.copy_(tp.full(module.weight.shape, float(module.weight.shape[0])))


def look(module: nn.Module) -> tuple[bool, bool, str, Any]:
    parameter = next(module.parameters())
    return module.training, parameter.requires_grad, str(parameter.dtype), parameter.grad


def there(module: RemoteModule) -> tuple[bool, bool, str, Any]:
    seen: tuple[bool, bool, str, Any] = rpc.rpc_sync(
        module.on, look_at, (module.get_module_rref(),)
    )
    return seen


def look_at(rref: rpc.RRef) -> tuple[bool, bool, str, Any]:
    return look(rref.local_value())


def leave_a_gradient(rref: rpc.RRef) -> None:
    for parameter in rref.local_value().parameters():
        parameter.grad = tp.zeros_like(parameter)


def test_state_of_a_remote_module() -> None:
    def program() -> None:
        module, other = RemoteModule("worker1", Body), Body()
        assert list(module.state_dict()) == list(other.state_dict())
        assert "a.layer.weight" in module.state_dict(prefix="a.")
        assert not any(value.requires_grad for value in module.state_dict().values())
        keys = module.load_state_dict(other.state_dict())
        assert repr(keys) == "<All keys matched successfully>"
        x = tp.ones(3, 2)
        assert tp.equal(module(x), other(x))
        # What arrives are copies.
        module.state_dict()["head.bias"].fill_(100.0)
        assert tp.equal(module(x), other(x))
        with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "count"'):
            module.load_state_dict({})
        missing, unexpected = module.load_state_dict(
            {"count": np.ones(1), "x": np.ones(1)}, strict=False
        )
        assert (len(missing), unexpected) == (4, ["x"])
        assert module.state_dict()["count"].item() == 1.0
        with dist_autograd.context():
            with_grad = {name: value.clone() for name, value in other.named_parameters()}
            module.load_state_dict({**with_grad, "count": tp.zeros(1)})

    on_rank_0(2, program)


def test_state_of_a_parent() -> None:
    def program() -> None:
        parent, other = hybrid(), local()
        assert sorted(parent.state_dict()) == sorted(other.state_dict())
        # From one process to several, and back.
        parent.load_state_dict(other.state_dict())
        x = tp.ones(3, 2)
        assert tp.allclose(parent(x), other(x))
        third = local()
        third.load_state_dict(parent.state_dict())
        assert tp.allclose(third(x), other(x))
        assert "p.layer.weight" in parent.body.state_dict(prefix="p.")
        assert "top.more.0.head.bias" in parent.state_dict(prefix="top.")

        state = other.state_dict()
        state["body.strange"] = state.pop("body.count")
        keys = parent.load_state_dict(state, strict=False)
        assert keys == (["body.count"], ["body.strange"])
        with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) .*"body.strange"'):
            parent.load_state_dict(state)
        del state["body.strange"], state["here.weight"]
        with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "here.weight"'):
            parent.load_state_dict({**state, "body.count": tp.zeros(1)})

    on_rank_0(3, program)


def test_all_that_is_wrong_with_a_state_is_told_at_once() -> None:
    def program() -> None:
        parent, other = hybrid(), local()
        before = parent.state_dict()
        state = other.state_dict()
        for name in ("here.weight", "body.count", "more.0.head.bias"):
            state[name + "x"] = state.pop(name)
        state["body.layer.weight"] = tp.ones(3, 3)
        state["here.bias"] = tp.ones(1)
        with pytest.raises(RuntimeError) as caught:
            parent.load_state_dict(state)
        with pytest.raises(RuntimeError) as expected:
            other.load_state_dict(state)

        heading, *rest = str(caught.value).split("\n\t")
        assert heading == "Error(s) in loading state_dict for Hybrid:"
        names = 'in state_dict: "here.weight{0}", "body.count{0}", "more.0.head.bias{0}".'
        assert rest[:2] == [
            f"Missing key(s) {names.format('')}",
            f"Unexpected key(s) {names.format('x')}",
        ]
        assert [line.split(":")[0] for line in rest[2:]] == [
            "size mismatch for here.bias",
            "size mismatch for body.layer.weight",
        ]
        assert str(expected.value).count("\n\t") == 4
        # And nothing has changed anywhere.
        after = parent.state_dict()
        assert all(tp.equal(after[name], value) for name, value in before.items())
        # Only sizes count if it is not strict.
        with pytest.raises(RuntimeError, match="size mismatch") as caught:
            parent.load_state_dict(state, strict=False)
        assert "key(s)" not in str(caught.value)

    on_rank_0(3, program)


def test_a_remote_module_takes_a_place_in_a_sequence() -> None:
    def program() -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU())
        model[0] = RemoteModule("worker1", nn.Linear, (2, 2))
        model[2] = RemoteModule("worker1", nn.Linear, (2, 2))
        kinds = [type(child).__name__ for child in model]
        assert kinds == ["RemoteModule", "Tanh", "RemoteModule", "ReLU"]
        other = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU())
        other.load_state_dict(model.state_dict())
        assert tp.equal(model(tp.ones(3, 2)), other(tp.ones(3, 2)))
        model[0] = nn.Tanh()
        assert type(model[0]) is nn.Tanh
        assert [name for name, _ in model.named_children()] == ["0", "1", "2", "3"]

    on_rank_0(2, program)


def test_what_a_parent_does_to_its_children() -> None:
    def program() -> None:
        parent = hybrid()
        remotes = [parent.body, parent.more[0]]
        assert all(isinstance(module, RemoteModule) for module in remotes)

        assert [name for name, _ in parent.named_parameters()] == ["here.weight", "here.bias"]
        assert len(list(parent.modules())) == 5
        assert "RemoteModule(on='worker1', device='cpu')" in repr(parent)

        parent.eval()
        assert [there(module)[0] for module in remotes] == [False, False]
        assert not parent.body.training
        parent.train()
        assert [there(module)[0] for module in remotes] == [True, True]

        parent.requires_grad_(False)
        assert [there(module)[1] for module in remotes] == [False, False]
        parent.requires_grad_()
        assert [there(module)[1] for module in remotes] == [True, True]

        parent.double()
        assert [there(module)[2] for module in remotes] == ["float64", "float64"]
        parent.to(tp.float32)
        assert [there(module)[2] for module in remotes] == ["float32", "float32"]
        assert parent.body.double().float().half() is parent.body
        assert there(parent.body)[2] == "float16"
        assert parent.body.to(tp.float32) is parent.body

        for module in remotes:
            rpc.rpc_sync(module.on, leave_a_gradient, (module.get_module_rref(),))
        parent.zero_grad(set_to_none=False)
        assert there(parent.body)[3].tolist() == [[0.0, 0.0], [0.0, 0.0]]
        parent.zero_grad()
        assert [there(module)[3] for module in remotes] == [None, None]

        assert parent.apply(fill) is parent
        assert parent.here.weight.tolist() == [[2.0, 2.0]] * 2
        for module in remotes:
            state = module.state_dict()
            assert state["layer.weight"].tolist() == [[2.0, 2.0]] * 2
            assert state["head.weight"].tolist() == [[1.0, 1.0]]

    on_rank_0(3, program)


def test_a_hybrid_learns_as_one_process_does() -> None:
    def program() -> None:
        parent, other = hybrid(), local()
        parent.load_state_dict(other.state_dict())
        rrefs = [rpc.RRef(parameter) for parameter in parent.parameters()]
        rrefs += parent.body.remote_parameters() + parent.more[0].remote_parameters()
        together = DistributedOptimizer(tp.optim.Adam, rrefs, lr=0.05)
        alone = tp.optim.Adam(other.parameters(), lr=0.05)
        x = tp.tensor(np.random.default_rng(0).standard_normal((8, 2)).astype(np.float32))
        for _ in range(4):
            with dist_autograd.context() as context_id:
                dist_autograd.backward(context_id, ((parent(x) - 1.0) ** 2).mean())
                together.step(context_id)
            alone.zero_grad()
            ((other(x) - 1.0) ** 2).mean().backward()
            alone.step()
        expected = other.state_dict()
        for name, value in parent.state_dict().items():
            assert tp.allclose(value, expected[name], atol=1e-6), name

    on_rank_0(3, program)
