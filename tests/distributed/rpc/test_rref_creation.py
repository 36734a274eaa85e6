"""References whose value could not be made, or was made too late; and what a creation leaves."""

from __future__ import annotations

import gc
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from distributed.rpc.called import (
    HARSH,
    LIMIT,
    Gate,
    Thing,
    Unpicklable,
    add,
    count_values,
    eventually,
    here,
    identity,
    on_first,
    pass_gate,
    values_at,
)
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.transport import Message
from tensorplay.distributed.transport.loopback import LoopbackTransport

USES: dict[str, Callable[[Any], Any]] = {
    "to_here": lambda rref: rref.to_here(),
    "rpc_sync": lambda rref: rref.rpc_sync().get(),
    "rpc_async": lambda rref: rref.rpc_async().get(),
    "remote": lambda rref: rref.remote().get(),
    "_get_type": lambda rref: rref._get_type(),
    "_get_type later": lambda rref: rref._get_type(blocking=False),
    "sending it": lambda rref: rpc.rpc_async(1, identity, args=(rref,)),
    "sending it far": lambda rref: rpc.remote(2, identity, args=([rref],)),
    "_serialize": lambda rref: rref._serialize(),
}
ON_OWNER = {
    "local_value": lambda rref: rref.local_value(),
    "backward": lambda rref: rref.backward(),
}


def fails_at_every_use(rref: Any, error: type[Exception], text: str) -> None:
    """Each use raises at once, the first time and the second."""
    uses = USES | (ON_OWNER if rref.is_owner() else {})
    for use in (*uses.values(), *uses.values()):
        began = time.monotonic()
        with pytest.raises(error, match=text):
            use(rref)
        assert time.monotonic() - began < LIMIT / 2


def sent() -> int:
    return rpc.statistics().messages_sent


TIMED_OUT = (
    r"RRef creation via rpc.remote\(\) timed out, and it is possible that the RRef on the owner "
    r"node does not exist.*RPC ran for more than .*50 ms"
)


@pytest.mark.parametrize("to", [0, 1])
def test_failed_creation_raises_its_cause_at_every_use(to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, add, args=(1, "text"))
        with pytest.raises(TypeError, match="unsupported operand"):
            rref._get_future().wait()
        # The owner has answered.
        assert rref.confirmed_by_owner()
        before = sent()
        fails_at_every_use(rref, TypeError, "unsupported operand")
        assert sent() == before
        proxy_of_another = rpc.remote(to, Thing).rpc_sync()
        assert proxy_of_another.get() == 0
        del rref, proxy_of_another
        gc.collect()
        eventually(lambda: values_at(to) == 0)

    on_first(3, program)


@pytest.mark.parametrize("to", [0, 1])
def test_creation_that_timed_out_raises_so_at_every_use(gate: Gate, to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, pass_gate, args=(gate.name, Thing()), timeout=0.05)
        proxy = rref.rpc_sync()
        eventually(rref._get_future().done)
        for late in (False, True):
            fails_at_every_use(rref, rpc.RpcTimeoutError, TIMED_OUT)
            with pytest.raises(rpc.RpcTimeoutError, match=TIMED_OUT):
                proxy.get()
            with pytest.raises(rpc.RpcTimeoutError, match=TIMED_OUT):
                rref._get_future().wait()
            assert not rref.confirmed_by_owner()
            if not late:
                assert values_at(to) == 1
                gate.event.set()
                # Made by now, and its answer has come.
                rpc.rpc_sync(to, pass_gate, args=(gate.name,))
                rpc.rpc_sync(to, here)
        del rref, proxy
        gc.collect()
        eventually(lambda: values_at(to) == 0)

    on_first(3, program)


@pytest.mark.parametrize("to", [0, 1])
def test_value_made_too_late_for_anybody_ends_at_once(gate: Gate, to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, pass_gate, args=(gate.name, Thing()), timeout=0.02)
        assert gate.waiting.acquire(timeout=LIMIT)
        eventually(rref._get_future().done)
        del rref
        # The reference is gone before the value comes.
        eventually(lambda: not current_agent().rrefs.dropped)
        assert values_at(to) == 1
        gate.event.set()
        eventually(lambda: values_at(to) == 0)

    on_first(2, program, weather=HARSH)


@pytest.mark.parametrize("to", [0, 1])
def test_what_waits_for_a_value_fails_when_its_creation_times_out(gate: Gate, to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, pass_gate, args=(gate.name, Thing(5)), timeout=0.05)
        calls = [rref.rpc_async().get(), rref._get_type(blocking=False)]
        made = rref.remote().get()
        of_made = made.rpc_async().bit_length()
        began = time.monotonic()
        with pytest.raises(rpc.RpcTimeoutError, match=TIMED_OUT):
            rref.to_here(timeout=0)
        for future in (*calls, of_made):
            with pytest.raises(rpc.RpcTimeoutError, match=TIMED_OUT):
                future.wait()
        with pytest.raises(rpc.RpcTimeoutError, match=TIMED_OUT):
            made.to_here(timeout=0)
        assert time.monotonic() - began < LIMIT / 2
        assert current_agent().calls_outstanding == 0
        # What the owner still executes uses the value: no matter that nobody holds a reference.
        del rref, made, calls, of_made, future
        gc.collect()
        rpc.rpc_sync(to, here)
        gate.event.set()
        eventually(lambda: values_at(to) == 0)
        eventually(lambda: not current_agent().calls._expired_pins)

    on_first(2, program)


def test_copies_sent_before_the_creation_timed_out_get_the_late_value(gate: Gate) -> None:
    def program() -> None:
        rref = rpc.remote(1, pass_gate, args=(gate.name, Thing(5)), timeout=0.05)
        early = rpc.rpc_async(2, value_there, args=(rref,))
        eventually(rref._get_future().done)
        gate.event.set()
        assert early.wait() == 5
        with pytest.raises(rpc.RpcTimeoutError, match=TIMED_OUT):
            rref.to_here()
        del rref
        gc.collect()
        eventually(lambda: values_at(1) == 0)

    on_first(3, program)


def value_there(rref: Any) -> Any:
    return rref.to_here().value


def test_timeout_of_something_that_the_creation_called_is_not_its_own(gate: Gate) -> None:
    def program() -> None:
        rref = rpc.remote(1, wait_at_gate_of, args=(2, gate.name))
        with pytest.raises(rpc.RpcTimeoutError, match="RPC ran for more than") as caught:
            rref.to_here()
        gate.event.set()
        assert "creation" not in str(caught.value)
        eventually(rref.confirmed_by_owner)

    on_first(3, program)


def wait_at_gate_of(worker: int, name: str) -> Any:
    return rpc.rpc_sync(worker, pass_gate, args=(name,), timeout=0.02)


# -- creations that are not sent -------------------------------------------------------------------


def nothing_left(*workers: int) -> bool:
    gc.collect()
    return all(values_at(worker) == 0 for worker in workers)


@pytest.mark.parametrize("to", [0, 1])
def test_creation_that_cannot_be_pickled_leaves_nothing(to: int) -> None:
    def program() -> None:
        own, other = rpc.RRef(Thing()), rpc.remote(1, Thing)
        for _ in range(3):
            with pytest.raises(ValueError, match="cannot be pickled"):
                rpc.remote(to, identity, args=([own, other, Unpicklable()],))
            with pytest.raises(pickle.PicklingError):
                rpc.remote(to, lambda: None, args=(own,))
        assert values_at(1) == count_values() == 1
        assert current_agent().calls_outstanding == 0
        del own, other
        eventually(lambda: nothing_left(0, 1))

    on_first(2, program)


def test_creation_on_a_worker_that_does_not_exist_leaves_nothing() -> None:
    def program() -> None:
        own = rpc.RRef(Thing())
        for to in ("nobody", 7, -1):
            with pytest.raises(RuntimeError, match="could not find destination"):
                rpc.remote(to, identity, args=(own,))
        with pytest.raises(TypeError, match="timeout must be"):
            rpc.remote(1, identity, args=(own,), timeout="soon")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="args must be"):
            rpc.remote(1, identity, args=own)  # type: ignore[arg-type]
        del own
        eventually(lambda: nothing_left(0, 1))

    on_first(2, program)


class Refusing:
    """A network that does not take creations for a while; it says so at once, or later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, later: bool) -> None:
        self.broken = threading.Event()
        self.refused: list[tuple[LoopbackTransport, Message]] = []
        self.later = later
        self._send = LoopbackTransport.send
        # A plain function: it becomes a method.
        monkeypatch.setattr(LoopbackTransport, "send", lambda *args: self._refuse(*args))

    def _refuse(self, transport: LoopbackTransport, message: Message) -> None:
        refused = self.broken.is_set() and message.on_failure is not None
        if not (refused and message.kind == messages.CREATE):
            self._send(transport, message)
            return
        self.refused.append((transport, message))
        if not self.later:
            self.fail()

    def fail(self) -> None:
        while self.refused:
            _, message = self.refused.pop()
            assert message.on_failure is not None
            message.on_failure(message, RuntimeError("could not be sent"))


@pytest.mark.parametrize("later", [False, True])
def test_creation_that_the_network_refuses(monkeypatch: pytest.MonkeyPatch, later: bool) -> None:
    def program() -> None:
        own = rpc.RRef(Thing())
        network.broken.set()
        rref = rpc.remote(1, identity, args=(own,))
        network.broken.clear()
        if later:
            # Others have heard of it by now, and wait for the value.
            early = [rpc.rpc_async(worker, value_there, args=(rref,)) for worker in (1, 2)]
            early.append(rref.rpc_async().get())
            network.fail()
            for future in early:
                with pytest.raises(RuntimeError, match="could not be sent"):
                    future.wait()
            del early, future
        assert not rref.confirmed_by_owner()
        fails_at_every_use(rref, RuntimeError, "could not be sent")
        assert current_agent().calls_outstanding == 0
        del rref, own
        eventually(lambda: nothing_left(0, 1))

    network = Refusing(monkeypatch, later=later)
    on_first(3, program, seconds=LIMIT)


# -- what a callee gets ----------------------------------------------------------------------------


def confirmed_there(*rrefs: Any) -> list[bool]:
    return [rref.confirmed_by_owner() for rref in rrefs]


def test_references_are_confirmed_where_they_arrive(gate: Gate) -> None:
    def program() -> None:
        unmade = rpc.remote(1, pass_gate, args=(gate.name,))
        assert not unmade.confirmed_by_owner()
        for to in (0, 1, 2):
            assert rpc.rpc_sync(to, confirmed_there, args=(unmade, rpc.RRef(1))) == [True, True]
            assert rpc.remote(to, confirmed_there, args=(unmade,)).to_here() == [True]
            assert all(
                rpc.rpc_sync(to, identity, args=([unmade],))[0].confirmed_by_owner() for _ in "12"
            )
        assert not unmade.confirmed_by_owner()
        gate.event.set()
        eventually(unmade.confirmed_by_owner)

    on_first(3, program)
