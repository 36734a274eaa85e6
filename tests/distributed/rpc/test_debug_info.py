"""Counters of a worker, by PyTorch's names."""

from __future__ import annotations

import threading

import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from distributed.rpc.called import LIMIT, Gate, add, eventually, on_first, pass_gate
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent

STRINGS = {
    "num_pending_users",
    "num_forks",
    "num_pending_futures",
    "num_owner_rrefs",
    "agent.server_active_async_calls",
    "agent.client_active_calls",
    "agent.server_active_calls",
    "agent.num_idle_threads",
    "agent.thread_pool_size",
}
INTS = {"num_autograd_contexts", "num_current_backward_passes"}


def test_keys_and_types() -> None:
    def program() -> None:
        info = rpc._get_debug_info()
        assert set(info) == STRINGS | INTS
        assert {type(info[key]) for key in STRINGS} == {str}
        assert {type(info[key]) for key in INTS} == {int}
        assert all(int(info[key]) >= 0 for key in info)

    on_first(2, program)


def test_of_references() -> None:
    def program() -> None:
        info = rpc._rref_context_get_debug_info()
        assert set(info) == {key for key in STRINGS if not key.startswith("agent.")}
        assert set(info.values()) == {"0"}
        mine = rpc.RRef(5)
        assert rpc._rref_context_get_debug_info()["num_owner_rrefs"] == "1"
        del mine
        eventually(lambda: rpc._rref_context_get_debug_info()["num_owner_rrefs"] == "0")

    on_first(2, program)


def counts(*keys: str) -> dict[str, str]:
    info = rpc._get_debug_info()
    return {key: info[key] for key in keys}


def test_while_something_goes_on(gate: Gate) -> None:
    def program() -> None:
        made = rpc.remote(1, pass_gate, args=(gate.name, 5))
        fetch = rpc.remote(2, made.to_here)
        gate.waiting.acquire()
        assert counts("num_pending_users", "agent.client_active_calls") == {
            "num_pending_users": "2",
            "agent.client_active_calls": "2",
        }
        there = ("num_pending_futures", "num_owner_rrefs", "agent.server_active_async_calls")
        expected = dict.fromkeys(there, "1")
        eventually(lambda: rpc.rpc_sync(1, counts, args=there) == expected)
        assert int(rpc.rpc_sync(1, counts, args=("agent.server_active_calls",)).popitem()[1]) >= 2
        gate.event.set()
        assert fetch.to_here() == 5
        eventually(lambda: counts("num_pending_users") == {"num_pending_users": "0"})
        there = ("num_pending_futures", "agent.server_active_async_calls")
        expected = dict.fromkeys(there, "0")
        eventually(lambda: rpc.rpc_sync(1, counts, args=there) == expected)

    on_first(3, program)


def test_of_autograd() -> None:
    def program() -> None:
        with dist_autograd.context():
            assert rpc._get_debug_info()["num_autograd_contexts"] == 1
        assert rpc._get_debug_info()["num_autograd_contexts"] == 0

    on_first(1, program)


def test_while_a_backward_pass_goes_on(gate: Gate) -> None:
    def program() -> None:
        x = tp.ones(2, requires_grad=True)
        x.register_hook(gate.pass_through)
        agent = current_agent()
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, add, args=(x, 1.0)).sum()

            def backward() -> None:
                set_thread_agent(agent)
                dist_autograd.backward(context_id, [loss])

            thread = threading.Thread(target=backward)
            thread.start()
            gate.waiting.acquire()
            assert rpc._get_debug_info()["num_current_backward_passes"] == 1
            gate.event.set()
            thread.join(LIMIT)
        assert rpc._get_debug_info()["num_current_backward_passes"] == 0

    on_first(2, program)


def test_needs_a_worker() -> None:
    for function in (rpc._get_debug_info, rpc._rref_context_get_debug_info):
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            function()
