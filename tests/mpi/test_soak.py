"""Everything at once and at random among all ranks; at the end nothing is left, and no memory."""

from __future__ import annotations

import gc
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from mpi.conftest import RpcWorld
from mpi.served import LIMIT, add, eventually, here, identity
from tensorplay.distributed import rpc
from tensorplay.distributed.autograd.session import current_session

pytestmark = pytest.mark.mpi

MEMORY_MARGIN = 32 << 20
"""Bytes by which a rank may grow between the middle and the end of a soak."""


class Planned(Exception):
    pass


def fail(number: int) -> None:
    raise Planned(number)


def nest(depth: int, seed: int, size: int) -> int:
    """Call on through workers at random; the depth reached."""
    if depth == 0:
        return 0
    to = random.Random(seed).randrange(size)
    return 1 + int(rpc.rpc_sync(to, nest, args=(depth - 1, seed + 1, size)))


def pass_round(rref: Any, hops: int, seed: int, size: int) -> Any:
    """Hand a reference on through workers at random, and read its value at the end."""
    if hops == 0:
        return rref.to_here()
    to = random.Random(seed).randrange(size)
    return rpc.rpc_sync(to, pass_round, args=(rref, hops - 1, seed + 1, size))


_released: dict[str, threading.Event] = {}


def released(key: str) -> threading.Event:
    # Whoever comes first makes it: the calls that are held, or the one that lets them go.
    return _released.setdefault(key, threading.Event())


def held(key: str, value: Any) -> Any:
    assert released(key).wait(LIMIT)
    return value


def release(key: str) -> None:
    released(key).set()


def square(x: Any) -> Any:
    return x * x


class Soak:
    """One thread's random doings."""

    def __init__(self, world: RpcWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.kept: list[Any] = []

    def anybody(self) -> int:
        return self.random.randrange(self.world.size)

    def step(self) -> None:
        choice = self.random.choice(
            [
                self.call,
                self.call_many,
                self.nest,
                self.pass_round,
                self.keep_cycle,
                self.fail,
                self.time_out,
                self.callbacks,
                self.differentiate,
            ]
        )
        choice()

    def call(self) -> None:
        array = np.full(self.random.choice([0, 3, 300, 3000, 60_000]), 7.0)
        assert np.array_equal(rpc.rpc_sync(self.anybody(), add, args=(array, 1)), array + 1)

    def call_many(self) -> None:
        futures = [rpc.rpc_async(self.anybody(), identity, args=(i,)) for i in range(30)]
        assert [future.wait() for future in futures] == list(range(30))

    def nest(self) -> None:
        depth = self.random.randrange(8)
        seed = self.random.randrange(1000)
        assert rpc.rpc_sync(self.anybody(), nest, args=(depth, seed, self.world.size)) == depth

    def pass_round(self) -> None:
        array = np.arange(self.random.choice([3, 5000]))
        rref = rpc.remote(self.anybody(), identity, args=(array,))
        arguments = (rref, self.random.randrange(5), self.random.randrange(1000), self.world.size)
        assert np.array_equal(rpc.rpc_sync(self.anybody(), pass_round, args=arguments), array)
        if self.random.random() < 0.3:
            self.kept.append(rref)
        del self.kept[:-10]

    def keep_cycle(self) -> None:
        cycle: list[Any] = [rpc.remote(self.anybody(), identity, args=(rpc.RRef(5),))]
        cycle.append(cycle)

    def fail(self) -> None:
        to, number = self.anybody(), self.random.randrange(100)
        with pytest.raises(Planned, match=str(number)):
            rpc.rpc_sync(to, fail, args=(number,))
        with pytest.raises(Planned, match=str(number)):
            rpc.remote(to, fail, args=(number,)).to_here()
        rpc.rpc_async(to, fail, args=(number,))  # and nobody asks

    def time_out(self) -> None:
        to = self.anybody()
        key = f"{self.world.rank} {self.random.random()}"
        arguments = (key, [rpc.RRef(5), np.ones(3000)])
        with pytest.raises(rpc.RpcTimeoutError):
            rpc.rpc_sync(to, held, args=arguments, timeout=0.005)
        with pytest.raises(rpc.RpcTimeoutError):
            rpc.remote(to, held, args=arguments).to_here(timeout=0.005)
        rpc.rpc_sync(to, release, args=(key,))

    def callbacks(self) -> None:
        to = self.anybody()
        future = rpc.rpc_async(to, here).then(
            lambda f: rpc.rpc_sync(f.wait(), add, args=(f.wait(), 1))
        )
        assert future.wait() == to + 1

    def differentiate(self) -> None:
        x = tp.tensor([3.0], requires_grad=True)
        with dist_autograd.context() as context:
            y = rpc.rpc_sync(self.anybody(), square, args=(x,))
            dist_autograd.backward(context, [y.sum()])
            assert dist_autograd.get_gradients(context)[x].numpy() == [6.0]


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def run_for(world: RpcWorld, seconds: float, seed: int) -> int:
    """All ranks' threads do random things for a while; the number of steps of this rank."""
    deadline = time.monotonic() + seconds
    errors: list[BaseException] = []
    steps: list[int] = []

    def work(number: int) -> None:
        soak = Soak(world, seed * 100 + world.rank * 10 + number)
        done = 0
        try:
            while time.monotonic() < deadline and not errors:
                soak.step()
                done += 1
        except BaseException as error:
            errors.append(error)
        steps.append(done)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + LIMIT)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]
    return sum(steps)


def check_nothing_is_left(world: RpcWorld) -> None:
    eventually(lambda: rpc.statistics().calls_outstanding == 0)

    left: list[tuple[int, list[str]]] = []

    def all_gone() -> bool:
        # On all ranks together: what is collected on one may free values on another.
        gc.collect()
        owned = rpc.statistics().values_owned
        left[:] = world.comm.allgather((owned, current_session().container.report()))
        return not any(owned or contexts for owned, contexts in left)

    try:
        eventually(all_gone)
    except AssertionError as error:
        raise AssertionError(f"values owned and contexts left, by rank: {left}") from error


@pytest.mark.parametrize(
    "seconds",
    [1.5, pytest.param(60.0, marks=[pytest.mark.soak, pytest.mark.timeout(300)])],
)
@pytest.mark.ranks(4)
def test_random_doings_of_all_ranks(rpc_world: RpcWorld, seconds: float) -> None:
    assert run_for(rpc_world, seconds, seed=1) > 10
    check_nothing_is_left(rpc_world)
    before = resident()
    assert run_for(rpc_world, seconds, seed=2) > 10
    check_nothing_is_left(rpc_world)
    assert resident() - before < MEMORY_MARGIN
