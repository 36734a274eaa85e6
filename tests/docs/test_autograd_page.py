"""What docs/autograd.md says is so."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.pages import failures_of, typed
from tensorplay.distributed.autograd import ContextGraph, exchange
from tensorplay.distributed.rpc.messages import name_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "autograd.md"
MODULE = "examples_of_the_autograd_page"


@pytest.fixture
def module() -> Iterator[str]:
    yield MODULE
    del sys.modules[MODULE]


def test_examples_and_the_graphs_that_they_make(module: str) -> None:
    """A block of DOT names the variable of the examples that holds its graph."""
    examples = typed(PAGE, module)
    assert all(example.examples for example in examples), "a block that is not typed"
    assert not failures_of(examples, 3)
    made = {
        name: value.dot()
        for name, value in vars(sys.modules[module]).items()
        if isinstance(value, ContextGraph)
    }
    shown = re.findall(r"^```dot graph=(\w+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert [name for name, _ in shown] == list(made)
    for name, text in shown:
        assert text == made[name], f"the page's graph {name!r} should be:\n{made[name]}"


def test_nodes_that_the_text_names_are_in_the_graphs() -> None:
    parts = re.split(r"^```dot", PAGE.read_text(), flags=re.M)[1:]
    graphs = [part.partition("\n```\n") for part in parts]
    named = [(key, graph) for graph, _, after in graphs for key in re.findall(r"`(w\d_\d)`", after)]
    assert len(named) > 5
    assert all(key in graph for key, graph in named)


def test_messages_are_all_there() -> None:
    (table,) = re.findall(r"^\| message \|.*\n\| -.*\n((?:\|.*\n)+)", PAGE.read_text(), re.M)
    listed = re.findall(r"^\| `(\w+)` \|", table, re.M)
    first, last = exchange.GRADIENTS, exchange.RELEASE
    assert listed == [name_of(kind) for kind in range(first, last + 1)]
