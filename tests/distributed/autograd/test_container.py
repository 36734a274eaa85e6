"""What a worker keeps of contexts: which there are, and their gradients."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tensorplay.distributed.autograd.container import Container


def test_a_context_is_made_on_first_sight_and_not_again_after_its_release() -> None:
    container = Container(1)
    context = container.get(7)
    assert context is container.get(7) is container.retrieve(7)
    assert container.release(7) is context
    assert container.release(7) is None
    assert container.get(7) is None
    with pytest.raises(RuntimeError, match=r"id: 7 \(it has been released\)"):
        container.retrieve(7)


def test_a_release_that_comes_first_is_remembered() -> None:
    container = Container(1)
    assert container.release(7) is None
    assert container.get(7) is None
    assert len(container) == 0


def test_the_memory_of_released_ids_is_bounded() -> None:
    container = Container(1)
    for context_id in range(20_000):
        container.release(context_id)
    assert len(container._released) <= 16_384
    assert container.get(19_999) is None


def test_ids_of_contexts_and_messages_are_unique_over_workers() -> None:
    first = [Container(rank).new().id for rank in (0, 1, 65535)]
    assert first == [0, 1 << 48, 65535 << 48]


def test_threads_that_see_a_context_first_at_once_see_the_same() -> None:
    container = Container(0)
    for context_id in range(200):
        begin = threading.Barrier(4)
        found: list[Any] = []

        def look(begin: Any = begin, found: Any = found, context_id: int = context_id) -> None:
            begin.wait()
            found.append(container.get(context_id))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(id, found))) == 1
