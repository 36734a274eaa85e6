"""What `training.py` measures: the same training for tensorplay and for its peer, torch."""

from __future__ import annotations

import importlib
import itertools
import time
from statistics import median
from typing import Any

WIDTHS = (784, 512, 512, 10)
SERVED_WIDTHS = (784, 128, 10)
SERVED_BATCH = 32

_library: Any = None
_rpc: Any = None
_autograd: Any = None
_optim: Any = None
#: On each worker, the layers that it has made.
_layers: list[Any] = []


def use(library: Any, rpc: Any, autograd: Any) -> None:
    """Name the packages: of tensorplay, or of torch.  On every worker."""
    global _library, _rpc, _autograd, _optim
    _library, _rpc, _autograd = library, rpc, autograd
    _optim = importlib.import_module(f"{library.__name__}.distributed.optim")


def measure(steps: int) -> dict[str, float]:
    """Worker 0's medians, in seconds a step: what the number of workers allows."""
    if len(_rpc.api._get_current_rpc_agent().get_worker_infos()) < 4:
        results = {}
        for batch in (256, 32):
            results[f"one process, batch {batch}"] = in_one_process(batch, steps)
            results[f"two stages, batch {batch}"] = in_two_stages(batch, steps)
        return results
    return {"3 trainers, a step of any": with_a_server(steps)}


# -- a model in two stages -------------------------------------------------------------------------


def stack(widths: tuple[int, ...], *, ends: bool) -> Any:
    """Linear layers with ReLU between them, and behind the last unless it `ends` the model."""
    nn = _library.nn
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*(layers[:-1] if ends else layers))


def data(batch: int) -> tuple[Any, Any]:
    return _library.randn(batch, 784), _library.randint(0, 10, (batch,))


def in_one_process(batch: int, steps: int) -> float:
    """Median seconds of a step without RPC."""
    _library.manual_seed(0)
    model = stack(WIDTHS, ends=True)
    optimizer = _library.optim.SGD(model.parameters(), lr=0.05)
    x, target = data(batch)

    def step() -> None:
        optimizer.zero_grad()
        _library.nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()

    return times(step, steps)


def in_two_stages(batch: int, steps: int) -> float:
    """Median seconds of a step with the last two layers on the other worker."""
    _library.manual_seed(0)
    first = stack(WIDTHS[:2], ends=False)
    second = _rpc.remote("worker1", make, args=(WIDTHS[1:],))
    parameters = [_rpc.RRef(parameter) for parameter in first.parameters()]
    parameters += second.rpc_sync().parameter_rrefs()
    optimizer = _optim.DistributedOptimizer(_library.optim.SGD, parameters, lr=0.05)
    x, target = data(batch)

    def step() -> None:
        with _autograd.context() as context_id:
            out = second.rpc_sync().forward(first(x))
            loss = _library.nn.functional.cross_entropy(out, target)
            _autograd.backward(context_id, [loss])
            optimizer.step(context_id)

    return times(step, steps)


class Stage:
    """Layers that other workers use."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.layers = stack(widths, ends=True)

    def forward(self, x: Any) -> Any:
        return self.layers(x)

    def parameter_rrefs(self) -> list[Any]:
        return [_rpc.RRef(parameter) for parameter in self.layers.parameters()]


def make(widths: tuple[int, ...]) -> Stage:
    return Stage(widths)


# -- a parameter server ----------------------------------------------------------------------------


def with_a_server(steps: int) -> float:
    """Seconds of a step of any of three trainers that train one model at the same time."""
    _library.manual_seed(0)
    server = _rpc.RRef(Stage(SERVED_WIDTHS))
    for warm_up in (True, False):
        began = time.perf_counter()
        trainers = [
            _rpc.rpc_async(f"worker{rank}", train, args=(server, 5 if warm_up else steps))
            for rank in (1, 2, 3)
        ]
        done = sum(trainer.wait() for trainer in trainers)
        seconds = time.perf_counter() - began
    return seconds / done


def train(server: Any, steps: int) -> int:
    """A trainer; how many of its steps came to their end."""
    parameters = server.rpc_sync().parameter_rrefs()
    optimizer = _optim.DistributedOptimizer(_library.optim.SGD, parameters, lr=0.05)
    x, target = data(SERVED_BATCH)
    done = 0
    for _ in range(steps):
        try:
            with _autograd.context() as context_id:
                out = server.rpc_sync().forward(x)
                loss = _library.nn.functional.cross_entropy(out, target)
                _autograd.backward(context_id, [loss])
                optimizer.step(context_id)
            done += 1
        except RuntimeError as error:
            # torch's step fails if another trainer's has written to what its graph needs.
            if "inplace" not in str(error):
                raise
    return done


def times(step: Any, count: int) -> float:
    """Median seconds of one step, after a few that do not count."""
    for _ in range(min(count, 5)):
        step()
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return median(seconds)
