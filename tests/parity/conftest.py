"""These tests are plain ones: in worlds of ranks, nobody needs to import torch to find that out."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--with-mpi") else None
