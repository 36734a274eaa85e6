"""Loaded by every run of pytest in this folder; the rules of worlds stand in harness/world.py."""

import pytest

from tensorplay.autograd import elsewhere

pytest_plugins = ["harness.world"]


@pytest.fixture(autouse=True)
def _no_pass_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer's warning about gradients that went elsewhere depends on this test alone."""
    monkeypatch.setattr(elsewhere, "_passes", [])
