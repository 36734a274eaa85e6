"""What a pass costs as the world grows: ``benchmarks/worlds.py`` with smaller worlds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SIZES = (10, 100, 400)


def _load() -> Any:
    path = Path(__file__).parents[3] / "benchmarks" / "worlds.py"
    specification = importlib.util.spec_from_file_location("worlds", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["worlds"] = module
    specification.loader.exec_module(module)
    return module


worlds = _load()


@pytest.mark.parametrize("shape", ["pipeline", "star", "tree"])
def test_calls_that_are_used_cost_a_message_a_pair_and_a_report_a_worker(shape: str) -> None:
    costs = [worlds.measure(worlds.SHAPES[shape], size, memory=False) for size in SIZES]
    for size, cost in zip(SIZES, costs, strict=True):
        assert cost.pairs == 2 * (size - 1)
        assert (cost.answers, cost.notices, cost.reports) == (cost.pairs, 0, size - 1)
        assert cost.others == 0
    # Constant for each worker that has not started the pass.
    (busiest,) = {cost.busiest for cost in costs}
    assert busiest == {"pipeline": 5, "star": 2, "tree": 7}[shape]
    assert max(cost.busiest_bytes for cost in costs) < 1.1 * costs[0].busiest_bytes


@pytest.mark.parametrize(
    ("shape", "rounds"),
    [
        ("pipeline", lambda size: 2 * (size - 1)),
        ("star", lambda size: 2),
        ("tree", lambda size: 2 * (size.bit_length() - 1)),
    ],
)
def test_answers_follow_one_another_no_longer_than_the_graph_is_deep(
    shape: str, rounds: Any
) -> None:
    for size in SIZES:
        cost = worlds.measure(worlds.SHAPES[shape], size, memory=False)
        # And one more for a report, where the last answers come back to the first worker.
        assert rounds(size) <= cost.rounds <= rounds(size) + 1


def test_only_workers_that_have_no_answer_to_get_are_told_by_a_notice() -> None:
    for size in SIZES:
        cost = worlds.measure(worlds.star_half_plain, size, memory=False)
        plain = (size - 1) // 2
        assert cost.pairs == 2 * (size - 1) - plain
        assert (cost.answers, cost.notices, cost.reports) == (cost.pairs, plain, size - 1)


def test_an_exchange_of_all_with_some_costs_messages_in_proportion() -> None:
    for size in SIZES:
        cost = worlds.measure(worlds.exchange, size, memory=False)
        # Answers that are ready together share a message.
        assert cost.answers <= cost.pairs == 9 * size - 1
        # Nobody is told by one that it has not received anything from.
        assert cost.notices <= cost.pairs
        assert cost.reports == size - 1
        assert cost.others == 0
        # It knows at most 19 others: 8 it has sent to, 8 it has received from, 3 of the tree.
        assert cost.busiest <= 2 * 19 + 1


@pytest.mark.parametrize("shape", worlds.SHAPES)
def test_memory_for_each_worker_does_not_grow_with_the_world(shape: str) -> None:
    small, large = (worlds.measure(worlds.SHAPES[shape], size).memory for size in (50, 400))
    assert large < 1.25 * small + 1000


def test_the_table_has_a_line_for_each_world(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["worlds.py", "5", "12"])
    worlds.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * len(worlds.SHAPES)
    assert len({line.count("|") for line in lines}) == 1
