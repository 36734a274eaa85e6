"""What docs/autograd.md says is so."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.pages import failures_of, typed
from tensorplay.distributed.autograd import ContextGraph, exchange
from tensorplay.distributed.rpc.messages import name_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "autograd.md"
SVG = "{http://www.w3.org/2000/svg}"
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
    shown = graphs_in_dot()
    assert list(shown) == list(made)
    for name, text in shown.items():
        assert text == made[name], f"the page's graph {name!r} should be:\n{made[name]}"


def graphs_in_dot() -> dict[str, str]:
    """The blocks of DOT by the names of their graphs."""
    return dict(re.findall(r"^```dot graph=(\w+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S))


def test_pictures_show_the_graphs() -> None:
    """Their nodes, boxes and arrows, with what is written on them, wherever they are drawn."""
    graphs = graphs_in_dot()
    assert re.findall(r"\]\(graphs/(\w+)\.svg\)", PAGE.read_text()) == list(graphs)
    for name, text in graphs.items():
        picture = PAGE.parent / "graphs" / f"{name}.svg"
        assert in_picture(picture) == in_dot(text), f"draw {picture} again, by `dot -Tsvg`"


def in_dot(text: str) -> Counter[str]:
    workers = re.findall(r'^    label="(.*)"$', text, re.M)
    nodes = re.findall(r'^    \w+ \[label="(.*?)"', text, re.M)
    arrows = re.findall(r"^ +(\w+ -> \w+)", text, re.M)
    messages = re.findall(r'label="(message \d+)"', text)
    return Counter([*workers, *(label.replace("\\n", " ") for label in nodes), *arrows, *messages])


def in_picture(path: Path) -> Counter[str]:
    found: list[str] = []
    for group in ElementTree.parse(path).iter(f"{SVG}g"):
        texts = [text.text or "" for text in group.findall(f"{SVG}text")]
        if group.get("class") == "edge":
            title = group.findtext(f"{SVG}title") or ""
            found += [title.replace("->", " -> "), *texts]
        elif group.get("class") in ("node", "cluster"):
            found.append(" ".join(texts))
    return Counter(found)


def test_nodes_that_the_text_names_are_in_the_graph_above_it() -> None:
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
