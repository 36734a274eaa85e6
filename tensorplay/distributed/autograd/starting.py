"""Passes that this worker starts: one at a time in each context, and what is kept of each."""

from __future__ import annotations

import threading
import time

from tensorplay.distributed.autograd.backward_pass import Closure
from tensorplay.distributed.autograd.context import DistAutogradContext
from tensorplay.distributed.autograd.rules import check_may_start
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.errors import RpcTimeoutError
from tensorplay.distributed.rpc.futures import Future


class Started:
    """A pass that this worker has started."""

    def __init__(self, rank: int, known: set[int]) -> None:
        self.closure = Closure(rank, known)
        self.result = Future()
        self.began = time.monotonic()


def take_turn(agent: Agent, context: DistAutogradContext, timeout: float | None) -> None:
    """Wait until no other pass of this worker runs in the context.

    Others wait then until `context.starting` is released.

    Raises:
        RpcTimeoutError: It took longer than `timeout` seconds.
        RuntimeError: That pass waits for this thread, which runs a rule of it.
    """
    check_may_start(agent.rank, context.id)
    if not context.starting.acquire(blocking=False):
        patience = -1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        with agent.standing_aside():
            begins = context.starting.acquire(timeout=patience)
        if not begins:
            raise RpcTimeoutError(
                f"the backward pass could not begin within {timeout} s: another one of this worker "
                f"runs in autograd context {context.id}"
            )
