"""An optimizer never writes into an array that anybody else may hold."""

import threading
import tracemalloc

import numpy as np
import pytest

import tensorplay as tp
from tensorplay import optim
from tensorplay.optim import SGD, Adam


def leaf(*values):
    return tp.tensor(values, dtype=tp.float64, requires_grad=True)


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_graph_recorded_before_a_step_is_exact_for_its_own_values(kind):
    x, w = leaf(2.0), leaf(3.0)
    y = (x * w * w).sum()
    optimizer = kind([x, w], lr=0.5)
    for _ in range(3):
        optimizer.step_with({x: tp.ones(1), w: tp.ones(1)})
    assert w.item() != 3.0
    y.backward()
    assert (x.grad.item(), w.grad.item()) == (9.0, 12.0)


def test_trainers_that_share_parameters_all_get_exact_gradients():
    w = leaf(1.0)
    optimizer = SGD([w], lr=0.1)
    values, losses = [], []
    for _ in range(4):
        losses.append((w * w).sum())
        values.append(w.item())
        optimizer.step_with({w: tp.ones(1)})
    for value, loss in zip(values, losses, strict=True):
        w.grad = None
        loss.backward()
        assert w.grad.item() == pytest.approx(2 * value)


def test_whoever_holds_the_old_values_keeps_them():
    w = leaf(1.0, 2.0)
    optimizer = SGD([w], lr=1.0)
    holders = []
    for _ in range(3):
        holders += [w.detach(), w.detach().numpy()[1:], w.data, memoryview(w._array)]
        optimizer.step_with({w: tp.ones(2)})
    for i, start in enumerate([1.0, 0.0, -1.0]):
        detached, tail, data, buffer = holders[4 * i : 4 * i + 4]
        assert detached.tolist() == data.tolist() == list(buffer) == [start, start + 1]
        assert tail.tolist() == [start + 1]
    assert w.tolist() == [-2.0, -1.0]


def test_what_shares_memory_before_a_step_does_not_follow_it():
    layer = tp.nn.Linear(2, 1)
    other = tp.nn.Linear(2, 1)
    other.weight.data = layer.weight.data
    assert np.shares_memory(other.weight.detach().numpy(), layer.weight.detach().numpy())
    before = layer.weight.tolist()
    held = [layer.weight.view(-1), layer.state_dict()["weight"], other.weight]
    SGD([layer.weight], lr=1.0).step_with({layer.weight: tp.ones(1, 2)})
    assert layer.weight.tolist() != before
    assert [one.tolist() for one in held] == [before[0], before, before]


def test_the_array_that_the_user_gave_is_not_written_to():
    array = np.ones(2)
    w = tp.from_numpy(array[:]).requires_grad_()
    optimizer = SGD([w], lr=1.0)
    for _ in range(3):
        optimizer.step_with({w: tp.ones(2)})
    assert array.tolist() == [1.0, 1.0]


def test_a_momentum_does_not_hold_the_gradient():
    w, g = leaf(1.0), tp.ones(1, dtype=tp.float64)
    optimizer = SGD([w], lr=1.0, momentum=0.9)
    for _ in range(2):
        optimizer.step_with({w: g})
    assert g.tolist() == [1.0]


def test_a_write_by_the_user_is_still_noticed_after_a_step():
    x, w = leaf(1.0), leaf(2.0)
    SGD([w]).step_with({w: tp.ones(1)})
    y = x * w
    with tp.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize(
    "kind",
    [
        lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        Adam,
        lambda p: optim.AdamW(p, amsgrad=True),
        lambda p: optim.Adagrad(p, weight_decay=0.1),
        lambda p: optim.Adadelta(p, weight_decay=0.1),
        lambda p: optim.RMSprop(p, weight_decay=0.1, momentum=0.9, centered=True),
        lambda p: optim.Adamax(p, weight_decay=0.1),
        optim.Rprop,
    ],
)
def test_steps_allocate_nothing_once_they_run(kind):
    w = tp.zeros(100_000, requires_grad=True)
    g = tp.ones(100_000)
    optimizer = kind([w])
    for _ in range(3):
        optimizer.step_with({w: g})
    arrays = {id(w._array), id(optimizer._spares[w])}
    tracemalloc.start()
    try:
        for _ in range(4):
            optimizer.step_with({w: g})
            assert {id(w._array), id(optimizer._spares[w])} == arrays
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_a_step_is_one_change_for_those_who_read_meanwhile():
    w = tp.zeros(50_000, requires_grad=True)
    g = tp.ones(50_000)
    optimizer = SGD([w], lr=1.0)
    torn, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            values = w.detach().numpy()
            if values[0] != values[-1] or values.min() != values.max():
                torn.append(values)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(200):
        optimizer.step_with({w: g})
    stop.set()
    reader.join()
    assert not torn


def test_steps_from_several_threads_and_optimizers_lose_nothing():
    w = tp.zeros(20_000, requires_grad=True)
    g = tp.ones(20_000)

    def run():
        optimizer = SGD([w], lr=1.0)
        for _ in range(50):
            optimizer.step_with({w: g})

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert w.min().item() == w.max().item() == -200.0
