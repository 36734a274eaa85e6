"""What docs/programs.md says of the programs is so."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from harness.launcher import run_ranks

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs" / "programs.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*)\n```$", PAGE, re.M)
#: Commands that are followed by what they print.
SHOWN = re.findall(r"^```sh\n([^\n]*)\n```\n\n```text\n(.*?)^```$", PAGE, re.M | re.S)


def programs() -> dict[str, str]:
    """The text of each program in examples/, by its path."""
    texts = {f"examples/{path.name}": path.read_text() for path in CHECKOUT.glob("examples/*.py")}
    return {path: text for path, text in texts.items() if "__main__" in text}


def test_every_program_is_listed_with_its_own_command() -> None:
    assert {command.split()[-1] for command in COMMANDS} == set(programs())
    for command in COMMANDS:
        assert f"\n    {command}\n" in programs()[command.split()[-1]], command
    listed = re.findall(r"^\| \[\w+\.py\]\(\.\./(\S+)\)", PAGE, re.M)
    assert sorted(listed) == sorted(programs())


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[c.split("/")[-1] for c, _ in SHOWN])
def test_programs_print_the_tables_that_are_shown(tmp_path: Path, command: str, shown: str) -> None:
    launcher, option, size, python, script = shlex.split(command)
    assert (launcher, option, python) == ("mpiexec", "-n", "python")
    program = [sys.executable, str(CHECKOUT / script), "--short"]
    finished = run_ranks(int(size), program, limit=100, cwd=tmp_path)
    assert finished.status == 0, finished.output
    titles = [line for line in shown.splitlines() if line and not re.search(r"\d", line)]
    assert titles
    for title in titles:
        assert title in finished.output.splitlines()
