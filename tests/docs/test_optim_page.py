"""What docs/optim_and_modules.md says is so."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.launcher import run_ranks
from harness.pages import blocks_of, failures_of, typed
from tensorplay import optim
from tensorplay.distributed.nn import RemoteModule
from tensorplay.nn import Module

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "optim_and_modules.md"
MODULE = "examples_of_the_optim_page"


@pytest.fixture
def module() -> Iterator[str]:
    yield MODULE
    del sys.modules[MODULE]


def test_typed_examples(module: str) -> None:
    examples = typed(PAGE, module)
    assert all(example.examples for example in examples), "a block that is neither kind"
    assert not failures_of(examples, 3)


def test_program(tmp_path: Path) -> None:
    (block,) = [block for block in blocks_of(PAGE) if block.ranks]
    program = tmp_path / "program.py"
    program.write_text(block.text)
    paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(paths)}
    finished = run_ranks(block.ranks, [sys.executable, str(program)], limit=50, variables=variables)
    assert finished.status == 0, finished.output
    assert "learned: [2.0, -1.0]" in finished.output


def names(section: str) -> set[str]:
    """The names in the first paragraph of a section."""
    (text,) = re.findall(rf"^## {section}\n\n(.*?)\n\n", PAGE.read_text(), re.M | re.S)
    return set(re.findall(r"`(\w+)`", text))


def test_optimizers_and_schedules_are_all_there() -> None:
    classes = set(optim.__all__) - {"Optimizer", "lr_scheduler"}
    assert names("Optimizers of one process") & set(dir(optim)) == classes
    schedules = set(optim.lr_scheduler.__all__) - {"LRScheduler"}
    found = names("Schedules") - {"lr_scheduler", "DistributedOptimizer"}
    assert found == schedules


def test_what_a_remote_module_refuses() -> None:
    """All public methods of modules are done there, or refused, or are of no use from afar."""
    text = PAGE.read_text()
    (refused,) = re.findall(r"^\| (.*) \| `ValueError`, as in PyTorch \|$", text, re.M)
    named = set(re.findall(r"`(\w+)`", refused))
    own = vars(RemoteModule)
    assert all("Not supported" in (own[name].__doc__ or "") for name in named)
    done = [
        name
        for row in re.findall(r"^\| (.*) \| done there \|$", text, re.M)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert all(name in own or name == "eval" for name in done)
    assert all(hasattr(Module, name) for name in done)
