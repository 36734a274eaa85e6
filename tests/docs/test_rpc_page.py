"""What docs/rpc.md says is so."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.launcher import Finished, run_ranks
from harness.pages import Block, blocks_of, failures_of, typed
from tensorplay.distributed import rpc

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "rpc.md"
MODULE = "examples_of_the_page"


@pytest.fixture
def module() -> Iterator[str]:
    yield MODULE
    del sys.modules[MODULE]


def test_typed_examples(module: str) -> None:
    examples = typed(PAGE, module)
    assert all(example.examples for example in examples), "a block that is neither kind"
    assert not failures_of(examples, 3)


def run_program(block: Block, folder: Path) -> Finished:
    program = folder / "program.py"
    program.write_text(block.text)
    paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(program)]
    return run_ranks(block.ranks, command, limit=50, variables=variables)


#: What the programs of the page print, in its order; ranks print in any.
PRINTED = [
    {"hello worker0, this is worker1", "hello worker1, this is worker0"},
    {"[1, 2, 4]"},
]


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_programs(number: int, tmp_path: Path) -> None:
    programs = [block for block in blocks_of(PAGE) if block.ranks]
    assert len(programs) == len(PRINTED)
    finished = run_program(programs[number], tmp_path)
    assert finished.status == 0, finished.output
    # Lines of ranks may come in one.
    assert all(line in finished.output for line in PRINTED[number]), finished.output


def rows(section: str) -> list[list[str]]:
    """Return the cells of the rows of the first table of a section."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    found = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return found[2:]


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_options_are_all_there() -> None:
    listed = [name for row in rows("Options") for name in names(row[0])]
    assert sorted(listed) == sorted(f.name for f in dataclasses.fields(rpc.MPIRpcBackendOptions))


def test_counters_are_all_there() -> None:
    listed = [name for row in rows("Counters") for name in names(row[0])]
    assert listed == [field.name for field in dataclasses.fields(rpc.Statistics)]


def test_own_errors_are_what_is_said() -> None:
    text = PAGE.read_text()
    table = re.search(r"\| type \| is also \|\n\| -+ \| -+ \|\n((?:\|.*\n)+)", text)
    assert table is not None
    listed = dict(line.strip("| ").split(" | ") for line in table[1].splitlines())
    own = [rpc.RpcTimeoutError, rpc.WorkerLeftError, rpc.FunctionNotFoundError]
    own += [rpc.MissingModuleError, rpc.RemoteError]
    assert {f"`{kind.__name__}`": [base.__name__ for base in kind.__bases__] for kind in own} == {
        kind: names(bases) for kind, bases in listed.items()
    }


FILLED_IN = re.compile(r"'[^']*'|f for 3 s|SystemExit: 3|.file.py, line 7.")


def test_texts_of_errors_are_those_of_the_library() -> None:
    """What the tables quote stands somewhere in the sources, apart from what is filled in."""
    folder = Path(rpc.__path__[0]).parent
    sources = "".join(path.read_text() for path in sorted(folder.rglob("*.py")))
    sources = re.sub(r'"\s+f?"', "", sources)  # strings of several lines
    quoted = [
        part
        for row in rows("Errors") + rows("Timeouts")
        for part in FILLED_IN.split(row[0].replace("`", ""))
        if len(part) > 5 and "exception of your function" not in row[0]
    ]
    assert len(quoted) > 15
    missing = [part for part in quoted if part.strip(" :,(") not in sources]
    assert not missing
