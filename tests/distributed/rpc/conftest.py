"""Fixtures of the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distributed.rpc.called import Gate, gates


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Iterator[Gate]:
    """Yield a gate that is closed; it opens when the test ends."""
    name = request.node.nodeid
    gate = gates[name] = Gate(name)
    yield gate
    gate.event.set()
    del gates[name]
