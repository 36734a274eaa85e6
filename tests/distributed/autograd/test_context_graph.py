"""Graphs of contexts as text and as pictures."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import tensorplay as tp
from distributed.autograd.driving import on_first
from distributed.autograd.remote import add, nothing
from tensorplay.distributed import autograd, rpc
from tensorplay.distributed.autograd import ContextGraph, GraphNode, MessagePair

DOT = r"""
digraph context {
  subgraph cluster_0 {
    label="worker0"
    w0_0 [label="w0_0: SumBackward0\nwaits for 0" peripheries=2]
    w0_0 -> w0_1
    w0_1 [label="w0_1: RecvRpcBackward\nwaits for 1" shape=house]
    w0_2 [label="w0_2: SendRpcBackward\nwaits for 1" shape=invhouse]
    w0_2 -> w0_3
    w0_3 [label="w0_3: leaf (2,)\nwaits for 1" shape=box]
  }
  subgraph cluster_1 {
    label="worker1"
    w1_0 [label="w1_0: SendRpcBackward\nwaits for 1" shape=invhouse]
    w1_0 -> w1_1
    w1_1 [label="w1_1: AddBackward0\nwaits for 1"]
    w1_1 -> w1_2
    w1_2 [label="w1_2: RecvRpcBackward\nwaits for 1" shape=house]
  }
  subgraph cluster_2 {
    label="worker2"
    w2 [label="nothing recorded" shape=plaintext]
  }
  w1_2 -> w0_2 [label="message 1" style=dashed]
  w0_1 -> w1_0 [label="message 2" style=dashed]
}
""".lstrip()


def small() -> ContextGraph:
    send = GraphNode(0, 0, "send", "SendRpcBackward", (1,), 1, message_id=7, peer=1)
    weight = GraphNode(0, 1, "leaf", "AccumulateGrad", (), 1, shape=(3, 4))
    recv = GraphNode(1, 0, "recv", "RecvRpcBackward", (), 0, message_id=7, peer=0)
    workers = {0: "trainer", 1: "ps:0"}
    return ContextGraph(5, workers, (send, weight, recv), (), (MessagePair(send, recv),))


def test_text_of_a_real_run_is_the_same_each_time() -> None:
    def program() -> None:
        for _ in range(3):
            with autograd.context() as context_id:
                y = rpc.rpc_sync(1, add, args=(tp.ones(2, requires_grad=True), 1.0))
                rpc.rpc_sync(2, nothing)
                assert autograd.get_graph(context_id, y.sum()).dot() == DOT

    on_first(program, size=3)


def test_names_are_quoted() -> None:
    odd = GraphNode(0, 0, "operation", 'Of"a\\classBackward')
    text = ContextGraph(1, {0: "worker0"}, (odd,), (), ()).dot()
    assert r'w0_0 [label="w0_0: Of\"a\\classBackward\nwaits for 0"]' in text


def test_inputs_that_need_no_gradient_have_no_arrow() -> None:
    product = GraphNode(0, 0, "operation", "MulBackward0", (None, 1))
    factor = GraphNode(0, 1, "leaf", "AccumulateGrad", (), 1, shape=())
    text = ContextGraph(1, {0: "worker0"}, (product, factor), (product,), ()).dot()
    assert text.count("->") == 1
    assert "w0_0 -> w0_1" in text


def test_draws_a_file_of_text(tmp_path: Path) -> None:
    small().draw(tmp_path / "graph.dot")
    assert (tmp_path / "graph.dot").read_text() == small().dot()


def install_dot(folder: Path, script: str) -> None:
    """Put a program of that name into a folder, in the place of Graphviz."""
    program = folder / "dot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_a_picture_is_made_by_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_dot(tmp_path, 'echo "$1 $2"; cat >"$3"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    small().draw(str(tmp_path / "graph.svg"))
    assert (tmp_path / "graph.svg").read_text() == small().dot()


def test_what_graphviz_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_dot(tmp_path, 'cat >/dev/null; echo "no room" >&2; exit 1')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(RuntimeError, match=r"cannot draw .*graph\.svg.* failed: no room"):
        small().draw(tmp_path / "graph.svg")


def test_without_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="'dot' of Graphviz is not on PATH"):
        small().draw(tmp_path / "graph.svg")


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the name must end in \.dot or \.svg"):
        small().draw(tmp_path / "graph.png")
