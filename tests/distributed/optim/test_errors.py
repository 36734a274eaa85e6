"""What goes wrong with a distributed optimizer is raised where it is made or used."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from distributed.optim.lines import Line, lines, on_rank_0, references, train_together, values
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule
from tensorplay.distributed.optim import DistributedOptimizer, clip_grad_norm_


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


def test_what_is_no_reference() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Line, (2.0,))
        (rref, other) = module.remote_parameters()
        for given, text in [
            ([3], "element 0 is of type int"),
            ([rref, None], "element 1 is of type NoneType"),
            (
                [tp.zeros(1)],
                "element 0 is of type Tensor; for a parameter of this worker give RRef",
            ),
            (tp.zeros(1), "list of RRefs to parameters, got a Tensor"),
            (rref, "list of RRefs to parameters, got a RRef"),
            (module, "list of RRefs to parameters, got a RemoteModule"),
            (3, "list of RRefs to parameters, got a int"),
            ([{"params": [tp.zeros(1)]}], "element 0 is of type Tensor"),
            ([{"lr": 0.1}], "a group has no 'params'"),
            ([{"params": [rref]}, other], "got a RRef among dictionaries"),
        ]:
            with pytest.raises(TypeError, match=text):
                DistributedOptimizer(tp.optim.SGD, given, lr=0.1)  # type: ignore[arg-type]
        with pytest.raises(AttributeError):  # PyTorch's
            DistributedOptimizer(tp.optim.SGD, [3], lr=0.1)  # type: ignore[list-item]
        with pytest.raises(TypeError, match="optimizer_class must be a class"):
            DistributedOptimizer("SGD", [rref], lr=0.1)  # type: ignore[arg-type]
        with (
            dist_autograd.context() as context_id,
            pytest.raises(TypeError, match="clip_grad_norm_ needs RRefs"),
        ):
            clip_grad_norm_(context_id, [tp.zeros(1)], 1.0)  # type: ignore[list-item]

    on_rank_0(2, program)


def nothing() -> None:
    return None


def fail(text: str) -> Any:
    raise KeyError(text)


def test_references_to_what_is_no_parameter() -> None:
    def program() -> None:
        for rref, text in [
            (rpc.remote("worker1", nothing), "worker 'worker1' leads to a NoneType"),
            (rpc.RRef(3), "worker 'worker0' leads to a int"),
            (rpc.remote("worker1", Line, (1.0,)), "leads to a Line; use its remote_parameters"),
        ]:
            with pytest.raises(TypeError, match=text):
                DistributedOptimizer(tp.optim.SGD, [rref], lr=0.1)
        with pytest.raises(KeyError, match="why"):
            DistributedOptimizer(tp.optim.SGD, [rpc.remote("worker1", fail, ("why",))], lr=0.1)

    on_rank_0(2, program)


def test_errors_of_the_local_class_are_raised_when_it_is_made() -> None:
    def program() -> None:
        rrefs = references(lines(3)[1:])
        with pytest.raises(TypeError, match="no_such_option") as caught:
            DistributedOptimizer(tp.optim.SGD, rrefs, no_such_option=1)
        with pytest.raises(ValueError, match="Invalid learning rate: -1") as caught_too:
            DistributedOptimizer(tp.optim.Adam, rrefs, lr=-1.0)
        for error in (caught.value, caught_too.value):
            assert "On worker 'worker1'" in str(error.__cause__)
            if sys.version_info >= (3, 11):
                assert "making the optimizer failed on worker 'worker1'" in notes(error)
                assert "making the optimizer failed on worker 'worker2'" in notes(error)
        with pytest.raises(TypeError, match="it made a list"):
            DistributedOptimizer(list, rrefs)  # type: ignore[arg-type]

    on_rank_0(3, program)


class Stumbles(tp.optim.SGD):
    """Cannot step on workers that it is told."""

    def __init__(self, params: Any, lr: float, workers: list[int]) -> None:
        super().__init__(params, lr)
        self.workers = workers

    def step_with(self, grads: Any) -> None:
        here = rpc.get_worker_info().id
        if here in self.workers:
            raise ArithmeticError(f"stumbled on {here}")
        super().step_with(grads)


def test_errors_of_a_step_on_several_workers() -> None:
    def program() -> None:
        modules = lines(4)
        workers = [1, 3]
        optimizer = DistributedOptimizer(Stumbles, references(modules), 0.1, workers)
        before = values(modules)
        with pytest.raises(ArithmeticError, match="stumbled on 1") as caught:
            train_together(modules, optimizer, range(1))
        if sys.version_info >= (3, 11):
            assert "step failed on worker 'worker1'" in notes(caught.value)
            assert "worker 'worker3': ArithmeticError: stumbled on 3" in notes(caught.value)
        moved = [one != other for one, other in zip(before, values(modules), strict=True)]
        assert moved == [True, True, False, False, True, True, False, False]

    on_rank_0(4, program)


def test_references_of_an_earlier_session() -> None:
    kept: list[Any] = []

    def before() -> None:
        kept.append(RemoteModule("worker1", Line, (2.0,)))
        kept.extend(kept[0].remote_parameters())
        kept.append(DistributedOptimizer(tp.optim.SGD, kept[1:]))

    def after() -> None:
        module, *rrefs, optimizer = kept
        text = "belongs to an RPC session that has been shut down"
        with pytest.raises(RuntimeError, match=text):
            DistributedOptimizer(tp.optim.SGD, rrefs)
        with dist_autograd.context() as context_id, pytest.raises(RuntimeError, match=text):
            optimizer.step(context_id)
        for use in (module, module.forward_async, module.state_dict, module.remote_parameters):
            with pytest.raises(RuntimeError, match=text):
                use()

    on_rank_0(2, before)
    on_rank_0(2, after)


def test_needs_rpc() -> None:
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        DistributedOptimizer(tp.optim.SGD, [], lr=0.1).step(0)
