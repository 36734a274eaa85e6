"""Local optimizers that are stepped by hand after a distributed backward pass."""

from __future__ import annotations

import sys
import warnings

import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from distributed.optim.lines import Line, on_rank_0
from harness.launcher import run_bounded
from tensorplay.distributed import rpc


def step_here(x: tp.Tensor, context_id: int) -> list[str]:
    """Step an optimizer of this worker by hand, twice, after a pass; what it warned of."""
    model = Line(2.0)
    loss = (model(x) * model(x)).sum()
    dist_autograd.backward(context_id, loss)
    by_hand = tp.optim.SGD(model.parameters(), lr=1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        by_hand.step()
        by_hand.step()
    assert [warning.filename for warning in caught] == [__file__] * len(caught)
    assert model.weight.tolist() == [2.0]
    by_hand.step_with(dist_autograd.get_gradients(context_id))
    assert model.weight.tolist() != [2.0]
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("worker", [0, 1])
def test_a_step_by_hand_that_finds_no_gradient_after_a_distributed_pass_warns_once(
    worker: int,
) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = tp.ones(1, dtype=tp.float64, requires_grad=True)
            (text,) = rpc.rpc_sync(worker, step_here, args=(x, context_id))
            assert "no parameter has a .grad" in text
            assert "DistributedOptimizer" in text

    on_rank_0(2, program)


def test_a_step_by_hand_with_gradients_of_its_own_does_not_warn() -> None:
    def program() -> None:
        model = Line(2.0)
        by_hand = tp.optim.SGD(model.parameters(), lr=1.0)
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, model(tp.ones(1, dtype=tp.float64)).sum())
        model(tp.ones(1, dtype=tp.float64)).sum().backward()
        by_hand.step()
        assert model.weight.tolist() == [1.0]

    on_rank_0(1, program)


def test_optimizers_without_gradients_do_not_warn_where_no_distributed_pass_has_run() -> None:
    script = (
        "import warnings; warnings.simplefilter('error');"
        "import tensorplay as tp, tensorplay.distributed.autograd;"
        "tp.optim.SGD([tp.ones(2, requires_grad=True)], lr=1.0).step()"
    )
    assert run_bounded([sys.executable, "-c", script], limit=30).status == 0
