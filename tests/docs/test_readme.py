"""What the README says is so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from harness.launcher import run_ranks

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "README.md").read_text()


def test_ten_lines_print_what_is_said(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "ten_lines.py").write_text(program)
    finished = run_ranks(2, [sys.executable, "ten_lines.py"], limit=50, cwd=tmp_path)
    assert finished.status == 0, finished.output
    assert "tensor([10., 10., 10.])" in finished.output
    assert "tensor([10., 10., 10.])" in README


def test_links_lead_somewhere() -> None:
    for page in [CHECKOUT / "README.md", *(CHECKOUT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^):]+)\)", page.read_text()):
            path, _, section = target.partition("#")
            aim = page.parent / path if path else page
            assert aim.exists(), f"{page.name}: {target}"
            assert not section or section in sections(aim), f"{page.name}: {target}"


def sections(page: Path) -> set[str]:
    """Return the names by which links reach the sections of a page."""
    titles = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w-]", "", title.lower().replace(" ", "-")) for title in titles}


def test_commands_are_the_first_two_shell_lines() -> None:
    commands = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    assert commands[0].strip() == "python3 run.py train"
    assert commands[1].strip() == "python3 run.py test"
