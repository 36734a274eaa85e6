"""Several workers in one process, each on a thread of its own, over the loopback transport."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.current import set_thread_agent
from tensorplay.distributed.rpc.options import MPIRpcBackendOptions
from tensorplay.distributed.rpc.start import agree
from tensorplay.distributed.transport.loopback import LoopbackWorld, Weather


def run_world(
    size: int,
    program: Callable[[int], Any],
    *,
    weather: Weather | None = None,
    rpc_timeout: float = 20.0,
    seconds: float = 40.0,
    num_worker_threads: int | None = None,
) -> list[Any]:
    """Run ``program(rank)`` on a thread for each of `size` workers; what each returned.

    All workers shut down gracefully afterwards.  Raises what any of them raised, or if they are not
    through after `seconds`.
    """
    world = LoopbackWorld(size, weather or Weather())
    options = MPIRpcBackendOptions(
        rpc_timeout=rpc_timeout, switch_interval=None, num_worker_threads=num_worker_threads
    )
    results: list[Any] = [None] * size
    errors: list[tuple[int, BaseException]] = []
    begin = threading.Barrier(size)

    def worker(rank: int) -> None:
        transport = world.transport(rank)
        workers = agree(transport, None, None, None, options)
        agent = Agent(workers, transport, options, lambda error: errors.append((rank, error)))
        set_thread_agent(agent)
        begin.wait(timeout=seconds)
        agent.start()
        try:
            results[rank] = program(rank)
        except BaseException as error:
            errors.append((rank, error))
        try:
            agent.join(seconds)
        except BaseException as error:
            errors.append((rank, error))
        agent.close(graceful=True)
        set_thread_agent(None)

    threads = [
        threading.Thread(target=worker, args=(rank,), name=f"worker {rank}", daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 10)
    if errors:
        rank, error = errors[0]
        for other, problem in errors[1:]:
            print(f"worker {other} too:", "".join(traceback.format_exception(problem)))
        raise AssertionError(f"worker {rank} failed: {error!r}") from error
    stuck = [thread.name for thread in threads if thread.is_alive()]
    assert not stuck, f"still running after {seconds} s: {', '.join(stuck)}"
    return results
