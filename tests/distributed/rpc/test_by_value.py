"""Lambdas, closures and what a script defines, sent with cloudpickle."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from distributed.rpc.called import LONG, add, arguments, eventually, identity, on_first, values_at
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import by_value

pytest.importorskip("cloudpickle")


@pytest.fixture
def asked_for() -> Iterator[None]:
    """Have functions travel by value."""
    by_value.send_by_value(by_value.make_pickler)
    yield
    by_value.send_by_value(None)


def of_a_notebook(code: str) -> dict[str, Any]:
    """Run code as a notebook would, in a module that nobody can import."""
    module = types.ModuleType("__main__")
    exec(code, module.__dict__)
    return module.__dict__


@pytest.mark.usefixtures("asked_for")
def test_lambdas_closures_and_classes() -> None:
    def program() -> None:
        offset = 5

        def closure(x: int) -> int:
            return x + offset

        class Local:
            def __init__(self, value: int) -> None:
                self.value = value

            def get(self) -> int:
                return self.value + offset

        assert rpc.rpc_sync(1, lambda x: x + 1, args=(1,)) == 2
        assert rpc.rpc_sync(1, closure, args=(1,)) == 6
        assert rpc.rpc_sync(1, functools.partial(closure, 2)) == 7
        assert rpc.rpc_sync(1, Local(1).get) == 6
        assert rpc.remote(1, Local, args=(2,)).to_here().get() == 7
        assert rpc.rpc_sync(1, identity, args=(closure,))(10) == 15
        assert rpc.rpc_async(1, lambda: lambda: offset).wait()() == 5

    on_first(2, program)


@pytest.mark.usefixtures("asked_for")
def test_functions_of_a_notebook() -> None:
    cell = of_a_notebook(
        "factor = 3\ndef scale(x): return helper(x)\ndef helper(x): return x*factor"
    )

    def program() -> None:
        assert rpc.rpc_sync(1, cell["scale"], args=(5,)) == 15
        # What it is now counts, not what it was when it was sent first.
        cell["factor"] = 4
        assert rpc.rpc_sync(1, cell["scale"], args=(5,)) == 20

    on_first(2, program)


@pytest.mark.usefixtures("asked_for")
def test_tensors_and_references_in_closures() -> None:
    def program() -> None:
        weight = tp.ones(LONG)
        array = np.arange(LONG, dtype=np.float64)
        rref = rpc.remote(1, add, args=(1, 2))

        def closure() -> Any:
            return weight.sum().item(), float(array.sum()), rref.owner().id, rref.to_here()

        expected = LONG, LONG * (LONG - 1) / 2, 1, 3
        for worker in (0, 1, 2):
            assert rpc.rpc_sync(worker, closure) == expected

    on_first(3, program)


@pytest.mark.usefixtures("asked_for")
def test_references_in_closures_give_their_values_back() -> None:
    def program() -> None:
        rref = rpc.remote(1, add, args=(1, 2))
        assert rpc.rpc_sync(2, lambda: rref.to_here()) == 3

    def check() -> None:
        program()
        eventually(lambda: values_at(1) == 0)

    on_first(3, check)


@pytest.mark.usefixtures("asked_for")
def test_gradients_reach_tensors_in_closures() -> None:
    def program() -> None:
        weight = tp.full((3,), 2.0, requires_grad=True)
        x = tp.ones(3, requires_grad=True)
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, lambda y: (y * weight).sum(), args=(x,))
            dist_autograd.backward(context_id, [loss])
            grads = dist_autograd.get_gradients(context_id)
            assert grads[weight].tolist() == [1.0] * 3
            assert grads[x].tolist() == [2.0] * 3

    on_first(2, program)


@pytest.mark.usefixtures("asked_for")
def test_exceptions_that_a_function_defines() -> None:
    class OwnError(Exception):
        pass

    def fail() -> None:
        raise OwnError("text", 5)

    def program() -> None:
        with pytest.raises(OwnError) as caught:
            rpc.rpc_sync(1, fail)
        assert caught.value.args == ("text", 5)

    on_first(2, program)


@pytest.mark.usefixtures("asked_for")
def test_what_has_a_name_goes_by_it() -> None:
    def program() -> None:
        assert rpc.rpc_sync(1, identity, args=(add,)) is add
        assert rpc.rpc_sync(1, arguments, args=(1,), kwargs={"a": [2]}) == ((1,), {"a": [2]})

    on_first(2, program)


@pytest.mark.usefixtures("asked_for")
def test_what_cannot_be_pickled_at_all() -> None:
    def program() -> None:
        lock = threading.Lock()
        with pytest.raises(TypeError, match="cannot pickle"):
            rpc.rpc_sync(1, lambda: lock)
        assert rpc.rpc_sync(1, add, args=(1, 2)) == 3

    on_first(2, program)


@pytest.mark.parametrize(
    "function", [lambda: 1, of_a_notebook("def cell(): pass")["cell"], type("Made", (), {})]
)
def test_without_it_the_error_says_how(function: Callable[..., Any]) -> None:
    def program() -> None:
        with pytest.raises(Exception, match=r"MPIRpcBackendOptions\(cloudpickle=True\)"):
            rpc.rpc_sync(1, function)

    on_first(2, program)
