"""What goes wrong with a call is raised where somebody waits, and the worker stays in service."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from typing import Any

import numpy as np
import pytest

from distributed.rpc.called import (
    HARSH,
    LIMIT,
    LONG,
    Gate,
    Losing,
    Thing,
    Unloadable,
    Unpicklable,
    count_values,
    eventually,
    function_of_a_lost_module,
    here,
    identity,
    on_first,
    pass_gate,
    values_at,
)
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent
from tensorplay.distributed.transport import Message
from tensorplay.distributed.transport.loopback import LoopbackTransport

# -- what cannot be sent ---------------------------------------------------------------------------


def make_unpicklable() -> Any:
    return Unpicklable()


def make_lambda() -> Any:
    return lambda: 0


def test_arguments_that_cannot_be_pickled_raise_at_the_call() -> None:
    def program() -> None:
        for to in (0, 1):
            for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
                with pytest.raises(ValueError, match="cannot be pickled"):
                    call(to, identity, args=(Unpicklable(),))
                with pytest.raises(Exception, match="pickle"):
                    call(to, lambda: 0)
            assert rpc.rpc_sync(to, here) == to
        assert current_agent().calls_outstanding == 0

    on_first(2, program)


def test_results_that_cannot_be_pickled_raise_at_the_caller() -> None:
    def program() -> None:
        for to in (0, 1):
            with pytest.raises(ValueError, match="cannot be pickled"):
                rpc.rpc_sync(to, make_unpicklable)
            with pytest.raises(Exception, match="pickle"):
                rpc.rpc_async(to, make_lambda).wait()
            rref = rpc.remote(to, make_unpicklable)
            if to == 1:
                with pytest.raises(ValueError, match="cannot be pickled"):
                    rref.to_here()
            else:
                assert isinstance(rref.to_here(), Unpicklable)
            assert rpc.rpc_sync(to, here) == to

    on_first(2, program)


def test_arguments_that_the_callee_cannot_load() -> None:
    def program() -> None:
        with pytest.raises(KeyError, match="cannot be loaded") as info:
            rpc.rpc_sync(1, identity, args=(Unloadable(1),))
        assert "__setstate__" in str(info.value.__cause__)
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


def test_results_that_the_caller_cannot_load() -> None:
    def program() -> None:
        future = rpc.rpc_async(1, Unloadable, args=(0,))
        for _ in range(2):
            with pytest.raises(KeyError, match="cannot be loaded"):
                future.wait()
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


def test_function_that_the_callee_does_not_have() -> None:
    def program() -> None:
        for _ in range(2):
            with pytest.raises(ModuleNotFoundError, match="lost_module"):
                rpc.rpc_sync(1, function_of_a_lost_module(), args=(Losing(),))
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


def test_what_cannot_be_called() -> None:
    def program() -> None:
        for call in (rpc.rpc_sync, rpc.rpc_async):
            with pytest.raises(TypeError, match="callable"):
                call(1, 3).wait()  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="callable"):
            rpc.remote(1, 3).to_here()  # type: ignore[arg-type]

    on_first(2, program)


def test_calls_that_the_network_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    send = LoopbackTransport.send
    broken = threading.Event()

    def refusing(transport: LoopbackTransport, message: Message) -> None:
        if broken.is_set() and message.on_failure is not None:
            message.on_failure(message, RuntimeError("could not be sent"))
        else:
            send(transport, message)

    def program() -> None:
        rref, own = rpc.remote(1, Thing), rpc.RRef(Thing())
        rref.to_here()
        broken.set()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="could not be sent"):
                rpc.rpc_sync(1, identity, args=(own,))
            with pytest.raises(RuntimeError, match="could not be sent"):
                rref.to_here()
        lost = rpc.remote(1, Thing, args=(own,))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="could not be sent"):
                lost.to_here()
        broken.clear()
        assert current_agent().calls_outstanding == 0
        assert rref.to_here().value == 0
        del rref, own, lost
        eventually(lambda: values_at(1) == count_values() == 0)

    monkeypatch.setattr(LoopbackTransport, "send", refusing)
    on_first(2, program)


# -- exceptions ------------------------------------------------------------------------------------


class Trouble(Exception):
    def __init__(self, text: str, number: int) -> None:
        super().__init__(text, number)
        self.number = number


def raise_(error: BaseException) -> None:
    raise error


def raise_trouble(text: str) -> None:
    raise Trouble(text, 5)


def raise_local() -> None:
    class Local(Exception):
        pass

    raise Local("of a class that nobody else has")


def raise_exit() -> None:
    sys.exit(3)


def raise_interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("to", [0, 1])
def test_exception_keeps_type_arguments_and_traceback(to: int) -> None:
    def program() -> None:
        for get in (
            lambda: rpc.rpc_sync(to, raise_trouble, args=("text",)),
            lambda: rpc.rpc_async(to, raise_trouble, args=("text",)).wait(),
            lambda: rpc.remote(to, raise_trouble, args=("text",)).to_here(),
        ):
            with pytest.raises(Trouble) as info:
                get()
            assert info.value.args == ("text", 5)
            assert info.value.number == 5
            shown = "".join(traceback.format_exception(info.value))
            assert f"On worker 'worker{to}'" in shown
            assert "in raise_trouble" in shown

    on_first(2, program)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (raise_local, "Local: of a class that nobody else has"),
        (raise_exit, "SystemExit: 3"),
        (raise_interrupt, "KeyboardInterrupt"),
    ],
)
def test_what_cannot_be_raised_here_is_a_remote_error(function: Any, text: str) -> None:
    def program() -> None:
        for to in (0, 1):
            with pytest.raises(rpc.RemoteError, match=text) as info:
                rpc.rpc_sync(to, function)
            assert f"worker{to}" in str(info.value)
            with pytest.raises(rpc.RemoteError, match=text):
                rpc.remote(to, function).to_here()
            assert rpc.rpc_sync(to, here) == to

    on_first(2, program)


def raise_far(depth: int) -> None:
    if depth == 0:
        raise_trouble("deep")
    rpc.rpc_sync(here() + 1, raise_far, args=(depth - 1,))


def test_exception_through_several_workers_names_each() -> None:
    def program() -> None:
        with pytest.raises(Trouble) as info:
            raise_far(3)
        shown = "".join(traceback.format_exception(info.value))
        for worker in ("worker1", "worker2", "worker3"):
            assert f"On worker '{worker}'" in shown

    on_first(4, program)


def test_callee_raises_many_times_and_stays_in_service() -> None:
    def program() -> None:
        for i in range(100):
            with pytest.raises(KeyError, match=str(i)):
                rpc.rpc_sync(1, raise_, args=(KeyError(i),))
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


def test_exception_that_nobody_waits_for_is_forgotten() -> None:
    def program() -> None:
        for _ in range(10):
            rpc.rpc_async(1, raise_trouble, args=("text",))
            rpc.remote(1, raise_trouble, args=("text",))
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


# -- timeouts --------------------------------------------------------------------------------------


def test_call_that_takes_too_long_and_whose_late_answer_is_dropped(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(
            rpc.RpcTimeoutError, match=r"RPC ran for more than set timeout \(50 ms\).*'worker1'"
        ):
            rpc.rpc_sync(1, pass_gate, args=(gate.name,), timeout=0.05)
        future = rpc.rpc_async(1, pass_gate, args=(gate.name,), timeout=0.05)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                future.wait()
        assert rpc.rpc_sync(1, here) == 1
        gate.event.set()
        assert rpc.rpc_sync(1, pass_gate, args=(gate.name, 5)) == 5
        with pytest.raises(RuntimeError):
            future.wait()
        assert current_agent().calls_outstanding == 0

    on_first(2, program)


def test_default_timeout_is_that_of_the_options(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(rpc.RpcTimeoutError, match="100 ms"):
            rpc.rpc_sync(1, pass_gate, args=(gate.name,))
        with pytest.raises(rpc.RpcTimeoutError, match="100 ms"):
            rpc.rpc_sync(1, pass_gate, args=(gate.name,), timeout=-1)
        future = rpc.rpc_async(1, pass_gate, args=(gate.name, "value"), timeout=0)
        longer = rpc.rpc_async(1, pass_gate, args=(gate.name, "value"), timeout=LIMIT)
        time.sleep(0.2)
        assert not future.done()
        gate.event.set()
        assert future.wait() == longer.wait() == "value"

    on_first(2, program, rpc_timeout=0.1)


def test_timeout_of_a_call_to_oneself(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(rpc.RpcTimeoutError):
            rpc.rpc_sync(0, pass_gate, args=(gate.name,), timeout=0.05)
        gate.event.set()

    on_first(1, program)


def test_negative_timeout_expires_at_once(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(rpc.RpcTimeoutError, match="-5000 ms"):
            rpc.rpc_sync(1, pass_gate, args=(gate.name,), timeout=-5)
        gate.event.set()

    on_first(2, program)


@pytest.mark.parametrize("timeout", [None, "5", True, [1]])
def test_timeout_must_be_a_number(timeout: Any) -> None:
    def program() -> None:
        for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(TypeError, match="timeout must be a number of seconds"):
                call(1, here, timeout=timeout)
        with pytest.raises(TypeError, match="timeout must be a number of seconds"):
            rpc.remote(1, here).to_here(timeout=timeout)

    on_first(2, program)


def test_timeouts_expire_while_answers_to_others_keep_coming(gate: Gate) -> None:
    def program() -> None:
        late = rpc.rpc_async(1, pass_gate, args=(gate.name,), timeout=0.1)
        deadline = time.monotonic() + LIMIT
        while not late.done():
            assert time.monotonic() < deadline
            rpc.rpc_sync(1, here)
        gate.event.set()

    on_first(2, program)


def test_short_timeout_among_long_ones_is_never_missed(gate: Gate) -> None:
    # Threads with long and short timeouts: each sets the time at which to look next.
    rounds = 300

    def program() -> None:
        agent = current_agent()
        stop = threading.Event()

        def long() -> None:
            set_thread_agent(agent)
            while not stop.is_set():
                rpc.rpc_async(1, here, timeout=10 * LIMIT).wait()

        threads = [threading.Thread(target=long) for _ in range(2)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for _ in range(rounds):
                future = rpc.rpc_async(1, pass_gate, args=(gate.name,), timeout=1e-3)
                assert future.wait_until(time.monotonic() + LIMIT)
        finally:
            sys.setswitchinterval(interval)
            stop.set()
            gate.event.set()
        for thread in threads:
            thread.join(LIMIT)

    on_first(2, program)


def test_fetch_that_takes_too_long_may_be_tried_again(gate: Gate) -> None:
    def program() -> None:
        rref = rpc.remote(1, pass_gate, args=(gate.name, "value"))
        for _ in range(3):
            with pytest.raises(rpc.RpcTimeoutError):
                rref.to_here(timeout=0.02)
        gate.event.set()
        assert rref.to_here() == "value"

    on_first(2, program)


def test_fetch_on_the_owner_that_takes_too_long(gate: Gate) -> None:
    def program() -> None:
        rref = rpc.remote(0, pass_gate, args=(gate.name, "value"))
        with pytest.raises(rpc.RpcTimeoutError):
            rref.to_here(timeout=0.02)
        gate.event.set()
        assert rref.to_here() == "value"

    on_first(1, program)


@pytest.mark.parametrize("to", [0, 1])
def test_creation_that_takes_too_long_is_the_cause_at_every_use(gate: Gate, to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, pass_gate, args=(gate.name, "value"), timeout=0.05)
        eventually(rref._get_future().done)
        for late in (False, True):
            for _ in range(2):
                with pytest.raises(rpc.RpcTimeoutError, match="50 ms"):
                    rref.to_here()
            with pytest.raises(rpc.RpcTimeoutError, match="50 ms"):
                rpc.rpc_sync(1, identity, args=(rref,))
            if not late:
                gate.event.set()
                rpc.rpc_sync(to, pass_gate, args=(gate.name,))
        del rref
        eventually(lambda: values_at(to) == 0)

    on_first(2, program)


def test_reference_dropped_after_a_fetch_that_took_too_long(gate: Gate) -> None:
    def program() -> None:
        rref = rpc.remote(1, pass_gate, args=(gate.name, np.ones(LONG)))
        with pytest.raises(rpc.RpcTimeoutError):
            rref.to_here(timeout=0.02)
        del rref
        # Nobody holds the reference; the late fetch still uses the value.
        rpc.rpc_sync(1, here)
        gate.event.set()
        eventually(lambda: values_at(1) == 0)

    on_first(2, program, weather=HARSH)
