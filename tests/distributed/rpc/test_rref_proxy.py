"""Methods of remotely referenced values, called through proxies."""

from __future__ import annotations

import functools
import gc
import pickle
from typing import Any

import pytest

import tensorplay as tp
from distributed.rpc.called import (
    HARSH,
    LIMIT,
    Gate,
    Thing,
    Unpicklable,
    count_values,
    eventually,
    here,
    identity,
    on_first,
    pass_gate,
    values_at,
)
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.rref_calls import Later, apply_to_value, call_method
from tensorplay.distributed.rpc.rref_proxy import RRefProxy


def double(value: int) -> int:
    return 2 * value


class Adder(Thing):
    """Has callable attributes of each kind."""

    constant = 5

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.doubled = double
        self.seen: list[Any] = []
        self.name = "adder"

    def __call__(self, other: int = 1, *, times: int = 1) -> int:
        return int(self.value + other * times)

    def __len__(self) -> int:
        return 3

    @property
    def method_made_anew(self) -> Any:
        return self.added

    def name_and_method(self, name: str, method: str) -> tuple[str, str]:
        return name, method

    def see(self, thing: Any) -> int:
        self.seen.append(thing)
        return id(thing)

    def where(self) -> int:
        return here()

    def fail(self) -> None:
        raise LookupError("from the method")


class Missing:
    """What a call on a proxy raises is told apart by the three ways to call."""

    @staticmethod
    def sync(rref: Any, name: str) -> None:
        getattr(rref.rpc_sync(), name)()

    @staticmethod
    def asynchronous(rref: Any, name: str) -> None:
        getattr(rref.rpc_async(), name)().wait()

    @staticmethod
    def remote(rref: Any, name: str) -> None:
        getattr(rref.remote(), name)().to_here()


WAYS = [Missing.sync, Missing.asynchronous, Missing.remote]


@pytest.mark.parametrize("to", [0, 1])
def test_methods_run_on_the_owner_in_all_three_ways(to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, Adder, args=(5,))
        assert rref.rpc_sync().added(2) == 7
        assert rref.rpc_async().added(other=2).wait() == 7
        result = rref.remote().added(2)
        assert isinstance(result, rpc.RRef)
        assert result.owner().id == to
        assert result.to_here() == 7
        assert result.rpc_sync().bit_length() == 3
        assert rref.rpc_sync().where() == to
        assert rref.rpc_sync().static(4) == 8
        assert rref.rpc_sync().named(3) == ("Adder", 3)
        # Neither name means anything to the proxy.
        assert rref.rpc_sync().name_and_method(name="a", method="b") == ("a", "b")

    on_first(2, program)


@pytest.mark.parametrize("to", [0, 1])
def test_callable_attributes_and_the_value_itself(to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, Adder, args=(5,))
        assert rref.rpc_sync().doubled(4) == 8
        assert rref.rpc_sync().method_made_anew(1) == 6
        assert rref.rpc_sync()(2, times=3) == 11
        assert rref.rpc_async()().wait() == 6
        assert rref.remote()(2).to_here() == 7
        assert rref.rpc_sync().__call__(2) == 7
        assert rref.rpc_sync().__len__() == 3

    on_first(2, program)


def test_proxy_may_be_used_again_and_again() -> None:
    def program() -> None:
        rref = rpc.remote(1, Adder, args=(5,))
        proxy = rref.rpc_async(timeout=LIMIT)
        assert isinstance(proxy, RRefProxy)
        assert repr(proxy) == f"<proxy of {rref!r}>"
        added = proxy.added
        futures = [added(i) for i in range(20)] + [proxy.added(i) for i in range(20)]
        assert [future.wait() for future in futures] == [5 + i for i in range(20)] * 2
        with pytest.raises(RuntimeError, match="send the RRef itself"):
            pickle.dumps(proxy)
        # The proxy keeps its reference.
        del rref
        assert proxy.added(1).wait() == 6

    on_first(2, program)


@pytest.mark.parametrize("to", [0, 1])
@pytest.mark.parametrize("way", WAYS)
def test_what_the_value_does_not_have(way: Any, to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, Adder, args=(5,))
        for _ in range(2):
            with pytest.raises(AttributeError, match="'Adder' object has no attribute 'nothing'"):
                way(rref, "nothing")
            with pytest.raises(TypeError, match=r"'name' of this 'Adder' .* not callable.* 'str'"):
                way(rref, "name")
            with pytest.raises(TypeError, match=r"'constant' .* not callable"):
                way(rref, "constant")
            with pytest.raises(LookupError, match="from the method"):
                way(rref, "fail")
            with pytest.raises(TypeError, match="missing 1 required positional argument"):
                way(rref, "added")
        plain = rpc.remote(to, Thing)
        with pytest.raises(AttributeError, match="has no attribute '__call__'"):
            way(plain, "__call__")
        assert rref.rpc_sync().added(1) == 6

    on_first(2, program)


def test_arguments_are_copies_on_ones_own_worker_too() -> None:
    def program() -> None:
        adder, thing = Adder(5), Thing(1)
        rref = rpc.RRef(adder)
        assert rref.rpc_sync().see(thing) != id(thing)
        assert adder.seen[0] is not thing
        assert adder.seen[0].value == 1
        adder.seen.clear()
        result = rref.remote().added(1)
        assert result.is_owner()
        assert result.local_value() == 6

    on_first(1, program)


def test_tensors_and_modules() -> None:
    def program() -> None:
        tensor = rpc.remote(1, tp.ones, args=((2, 3),))
        assert tuple(tensor.rpc_sync().size()) == (2, 3)
        assert tensor.rpc_async().sum().wait().item() == 6
        assert tensor.remote().sum().to_here().item() == 6
        module = rpc.remote(1, tp.nn.Linear, args=(3, 2))
        assert module.rpc_sync()(tp.ones((4, 3))).shape == (4, 2)
        assert module.rpc_sync().forward(tp.ones((4, 3))).shape == (4, 2)
        module.rpc_sync().train(False)
        assert not module.to_here().training

    on_first(2, program)


def test_methods_may_be_called_before_the_value_is_made(gate: Gate) -> None:
    def program() -> None:
        rref = rpc.remote(1, pass_gate, args=(gate.name, Thing(5)))
        futures = [rref.rpc_async().added(i) for i in range(5)]
        chained = rref.remote().added(1).remote().bit_length()
        elsewhere = rpc.rpc_async(2, added_there, args=(rref, 3))
        assert gate.waiting.acquire(timeout=LIMIT)
        assert not any(future.done() for future in futures)
        gate.event.set()
        assert [future.wait() for future in futures] == [5 + i for i in range(5)]
        assert chained.to_here() == 3
        assert elsewhere.wait() == 8

    on_first(3, program, weather=HARSH)


def added_there(rref: Any, other: int) -> Any:
    return rref.rpc_sync().added(other)


def messages_sent() -> int:
    return rpc.statistics().messages_sent


def test_call_through_a_proxy_costs_one_round_trip() -> None:
    def program() -> None:
        rref = rpc.remote(1, Adder, args=(5,))
        eventually(rref.confirmed_by_owner)
        for proxy, settle in (
            (rref.rpc_sync(), lambda result: result),
            (rref.rpc_async(), lambda future: future.wait()),
        ):
            before = messages_sent()
            for i in range(10):
                assert settle(proxy.added(i)) == 5 + i
            assert messages_sent() - before == 10

    on_first(2, program)


@pytest.mark.parametrize("to", [0, 1])
def test_timeouts(gate: Gate, to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, Waiting, args=(gate.name,))
        eventually(rref.confirmed_by_owner)
        with pytest.raises(rpc.RpcTimeoutError, match=r"RPC ran for more than .*20 ms"):
            rref.rpc_sync(timeout=0.02).wait()
        future = rref.rpc_async(timeout=0.02).wait()
        with pytest.raises(rpc.RpcTimeoutError, match=r"RPC ran for more than .*20 ms"):
            future.wait()
        made = rref.remote(timeout=0.02).wait()
        with pytest.raises(rpc.RpcTimeoutError, match=r"creation via rpc.remote.. timed out"):
            made.to_here()
        for bad in (None, "1", True):
            for way in (rref.rpc_sync, rref.rpc_async, rref.remote):
                with pytest.raises(TypeError, match="timeout must be a number"):
                    way(timeout=bad)
        gate.event.set()
        assert rref.rpc_sync(timeout=LIMIT).wait() == "through"
        del rref, made, future, way
        gc.collect()
        eventually(lambda: values_at(to) == 0)

    on_first(2, program)


class Waiting:
    def __init__(self, name: str) -> None:
        self.name = name

    def wait(self) -> Any:
        return pass_gate(self.name, "through")


def test_value_lives_as_long_as_calls_on_it(gate: Gate) -> None:
    def program() -> None:
        future = rpc.remote(1, Waiting, args=(gate.name,)).rpc_async().wait()
        made = rpc.remote(1, Waiting, args=(gate.name,)).remote().wait()
        for _ in range(2):
            assert gate.waiting.acquire(timeout=LIMIT)
        assert values_at(1) == 3
        gate.event.set()
        assert future.wait() == made.to_here() == "through"
        del made
        eventually(lambda: values_at(1) == 0)

    on_first(2, program, weather=HARSH)


def test_arguments_that_cannot_be_sent() -> None:
    def program() -> None:
        rref, own = rpc.remote(1, Adder, args=(5,)), rpc.RRef(1)
        for proxy in (rref.rpc_sync(), rref.rpc_async(), rref.remote()):
            with pytest.raises(ValueError, match="cannot be pickled"):
                proxy.see(own, Unpicklable())
        assert rref.rpc_sync().added(1) == 6
        del rref, own, proxy
        eventually(lambda: values_at(1) == count_values() == 0)

    on_first(2, program)


def test_references_as_arguments_of_methods() -> None:
    def program() -> None:
        rref, thing = rpc.remote(1, Adder, args=(5,)), rpc.remote(2, Thing, args=(7,))
        rref.rpc_sync().see(thing)
        bound = functools.partial(identity, thing)
        assert rpc.rpc_sync(1, bound).to_here().value == 7
        del thing, bound
        assert rpc.rpc_sync(2, count_values) == 1
        del rref
        eventually(lambda: values_at(1) == values_at(2) == 0)

    on_first(3, program)


def marked(function: Any) -> Any:
    """Mark a function as asynchronous."""
    function._wrapped_async_rpc_function = function
    return function


class Asynchronous:
    @marked
    def method(self) -> Any:
        return "future"

    @staticmethod
    @marked
    def static() -> Any:
        return "future"

    @classmethod
    @marked
    def of_class(cls) -> Any:
        return "future"

    @marked
    def __call__(self) -> Any:
        return "future"

    def plain(self) -> Any:
        return "value"


def test_results_of_asynchronous_methods_are_marked_for_the_server() -> None:
    def program() -> None:
        rref = rpc.RRef(Asynchronous())
        for name in ("method", "static", "of_class", "__call__"):
            assert call_method(tuple(rref._id), name, (), {}) == Later("future")
        assert call_method(tuple(rref._id), "plain", (), {}) == "value"
        assert apply_to_value(tuple(rref._id), Asynchronous.method, (), {}) == Later("future")

    on_first(1, program)
