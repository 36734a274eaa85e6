"""Modules that live on another worker."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from harness.loopback import run_world
from tensorplay import nn
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule


def on_rank_0(size: int, program: Callable[[], Any]) -> Any:
    """Run `program` on worker 0 of a world; the others serve."""
    return run_world(size, lambda rank: program() if rank == 0 else None)[0]


class Scale(nn.Module):
    """Multiplies by a parameter, and by ten more in training."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(tp.tensor([factor], dtype=tp.float64))
        self.inner = nn.Linear(2, 2)

    def forward(self, x: tp.Tensor, plus: float = 0.0) -> tp.Tensor:
        if rpc.get_worker_info().id != 1:
            raise AssertionError("called on the wrong worker")
        return x * self.factor * (10.0 if self.training else 1.0) + plus

    def tenth(self) -> float:
        return float(self.factor.item()) / 10

    def divide(self, x: tp.Tensor, by: float) -> tp.Tensor:
        return x / (self.factor * by)


def test_calls_run_on_its_worker() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Scale, (3.0,))
        x = tp.tensor([2.0], dtype=tp.float64)
        assert module(x).item() == 60.0
        assert module.forward(x, plus=1.0).item() == 61.0
        assert module.forward_async(x, 2.0).wait().item() == 62.0
        assert module.get_module_rref().owner_name() == "worker1"
        assert (module.on, module.device) == ("worker1", "cpu")
        assert "worker1" in repr(module)

    on_rank_0(2, program)


def test_train_and_eval_do_what_they_say_also_through_a_parent() -> None:
    def program() -> None:
        module = RemoteModule("rank:1/cpu", Scale, kwargs={"factor": 3.0})
        x = tp.tensor([2.0], dtype=tp.float64)
        assert module.eval() is module
        assert module(x).item() == 6.0
        module.train()
        assert module(x).item() == 60.0
        parent = nn.Sequential(module)
        parent.eval()
        assert parent(x).item() == 6.0
        parent.train(True)
        assert parent(x).item() == 60.0

    on_rank_0(2, program)


def gradient_of(rref: rpc.RRef, context_id: int) -> list[float]:
    return dist_autograd.get_gradients(context_id)[rref.local_value()].tolist()


def test_gradients_of_inputs_and_parameters() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Scale, (3.0,))
        factor = module.remote_parameters()[0]
        x = tp.tensor([2.0, 5.0], dtype=tp.float64, requires_grad=True)
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, module(x).sum())
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [30.0, 30.0]
            assert rpc.rpc_sync("worker1", gradient_of, (factor, context_id)) == [70.0]

    on_rank_0(2, program)


def test_parameters_of_inner_modules_are_found_when_asked_for() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Scale, (1.0,))
        assert len(module.remote_parameters()) == 3
        (own,) = module.remote_parameters(recurse=False)
        assert own.to_here().item() == 1.0

    on_rank_0(2, program)


def fail(message: str) -> nn.Module:
    raise KeyError(message)


def test_errors_of_construction_surface_at_construction() -> None:
    def program() -> None:
        with pytest.raises(KeyError, match="why"):
            RemoteModule("worker1", fail, ("why",))
        with pytest.raises(ValueError, match=r"returns an instance of <class nn\.Module>"):
            RemoteModule("worker1", dict)
        with pytest.raises(TypeError):
            RemoteModule("worker1", Scale)
        with pytest.raises(RuntimeError, match="could not find destination"):
            RemoteModule("nobody", Scale, (1.0,))
        with pytest.raises(TypeError, match=r"Give a string such as 'worker1/cpu'.*not 1"):
            RemoteModule(1, Scale, (1.0,))  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="Invalid device string: 'cpu7'"):
            RemoteModule("worker1/cpu7", Scale, (1.0,))
        with pytest.raises(TypeError, match=r"write args=\(value,\)"):
            RemoteModule("worker1", Scale, tp.ones(1))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="module_cls must be callable, got a str"):
            RemoteModule("worker1", "Scale")  # type: ignore[arg-type]
        assert RemoteModule("worker1", Scale, (1.0,)).eval() is not None

    on_rank_0(2, program)


def use_there(module: RemoteModule) -> tuple[Any, ...]:
    x = tp.tensor([2.0], dtype=tp.float64)
    numbers = module(x).item(), module.forward_async(x).wait().item(), module.tenth()
    assert module.get_module_rref().owner_name() == "worker1"
    assert "worker1" in repr(module)
    return *numbers, len(module.remote_parameters()), module.on, module.training


def test_a_third_worker_can_use_it() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Scale, (3.0,))
        assert rpc.rpc_sync("worker2", use_there, (module,)) == (
            60.0,
            60.0,
            0.3,
            3,
            "worker1",
            True,
        )
        parent = nn.Sequential(nn.Linear(1, 1), module.eval())
        inside = rpc.rpc_sync("worker2", nn.Sequential.__getitem__, (parent, 1))
        assert use_there(inside) == (6.0, 6.0, 0.3, 3, "worker1", False)

    on_rank_0(3, program)


def test_one_can_be_made_for_a_module_that_exists() -> None:
    def program() -> None:
        rref = rpc.remote("worker1", Scale, (4.0,))
        module = RemoteModule.init_from_module_rref("worker1/cpu", rref)
        assert module.eval()(tp.tensor([2.0], dtype=tp.float64)).item() == 8.0
        assert not RemoteModule.init_from_module_rref("rank:1", rref).training
        with pytest.raises(ValueError, match="the module lives on worker 'worker1'"):
            RemoteModule.init_from_module_rref("worker0", rref)
        with pytest.raises(ValueError, match=r"returns an instance of <class nn\.Module>"):
            RemoteModule.init_from_module_rref("worker1", rpc.remote("worker1", dict))
        with pytest.raises(KeyError, match="why"):
            RemoteModule.init_from_module_rref("worker1", rpc.remote("worker1", fail, ("why",)))

    on_rank_0(2, program)


def test_plain_pickle_is_refused() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Scale, (4.0,))
        with pytest.raises(RuntimeError, match="can only be pickled when using RPC"):
            pickle.dumps(module)
        with pytest.raises(RuntimeError, match="Cannot pickle RemoteModule in python pickler"):
            copy.deepcopy(module)

    on_rank_0(2, program)


def test_methods_of_its_class_run_there() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Scale, (4.0,))
        assert module.tenth() == 0.4
        x = tp.tensor([2.0], dtype=tp.float64, requires_grad=True)
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, module.divide(x, by=2.0).sum())
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [0.125]
        with pytest.raises(AttributeError, match="worker 'worker1' has no method of that name"):
            _ = module.factor
        assert not hasattr(module, "weight")
        with pytest.raises(TypeError):
            module.divide(x)

    on_rank_0(2, program)


REFUSED = [
    "register_buffer",
    "register_parameter",
    "add_module",
    "cuda",
    "ipu",
    "xpu",
    "cpu",
    "type",
    "bfloat16",
    "named_parameters",
    "register_backward_hook",
    "register_forward_pre_hook",
    "register_forward_hook",
    "parameters",
    "buffers",
    "named_buffers",
    "children",
    "named_children",
    "modules",
    "named_modules",
    "share_memory",
    "register_full_backward_hook",
]


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_from_afar_is_refused(name: str) -> None:
    def program() -> None:
        module = RemoteModule("worker1", Scale, (4.0,))
        with pytest.raises(ValueError, match=f"Method ``{name}`` not supported for RemoteModule"):
            getattr(module, name)()
        if "parameters" in name:
            with pytest.raises(ValueError, match="Please use ``remote_parameters`` instead"):
                getattr(module, name)()

    on_rank_0(2, program)


def test_needs_rpc() -> None:
    with pytest.raises(RuntimeError, match="only works in RPC"):
        RemoteModule("worker1", Scale, (4.0,))
