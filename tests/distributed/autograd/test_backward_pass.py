"""The backward pass by itself: random worlds, all orders of small ones, and single rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorplay as tp
from distributed.autograd.simulator import Choose, ModelWorker, RandomProgram, Value, World
from tensorplay.distributed.autograd.backward_pass import (
    BackwardPass,
    Closure,
    Instruction,
    SendAnswers,
    SendBegin,
    SendReport,
)
from tensorplay.distributed.autograd.functions import RecvRpcBackward, SendRpcBackward
from tensorplay.tensor import wrap

# -- random worlds -----------------------------------------------------------------------------


def check_messages(world: World, roots: list[Value]) -> None:
    """The latest pass cost what the design says, and no message more."""
    workers: list[ModelWorker] = world.workers  # type: ignore[assignment]
    pass_id = max([pass_id for worker in workers for pass_id in worker.passes])
    sent = {
        kind: sum([worker.sent[kind, pass_id] for worker in workers])
        for kind in ("answers", "gradients", "report")
    }
    used = set().union(*[root.made_of for root in roots])
    pairs = [number for number in used if world.ends.get(number, (0, 0))[0] != world.ends.get(number, (0, 0))[1]]
    assert sent["gradients"] == len(pairs)
    joined = [worker for worker in workers if pass_id in worker.passes]
    assert sent["report"] == len(joined)
    for worker in workers:
        for rank in range(world.size):
            assert worker.begun[pass_id, rank] <= 1
