"""The examples of pages and docstrings, run so that they stay true.

A page's blocks of Python are of two kinds.  One marked ``python ranks=2`` is a program for so many
ranks.  The others are typed: with ``>>>``, in the order of the page, on the first of a few workers
that live in one process.
"""

from __future__ import annotations

import doctest
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.loopback import run_world

_BLOCK = re.compile(r"^```python(?: ranks=(\d+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of Python in a page.

    Attributes:
        line: Number of its first line.
        text: What stands in it.
        ranks: For a program, on how many ranks it runs; 0 if it is typed.
    """

    line: int
    text: str
    ranks: int


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of Python of `page`, in their order."""
    text = page.read_text()
    return [
        Block(text.count("\n", 0, found.start(2)) + 1, found[2], int(found[1] or 0))
        for found in _BLOCK.finditer(text)
    ]


def failures_of(examples: list[doctest.DocTest], size: int, **options: Any) -> str:
    """Type `examples` on the first of `size` workers; return what is not as they say, for people.

    Examples that share a dictionary of globals see each other's names.
    """
    reports: list[str] = []

    def program(rank: int) -> None:
        if rank == 0:
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
            for example in examples:
                runner.run(example, out=reports.append, clear_globs=False)

    run_world(size, program, **options)
    return "".join(reports)


def typed(page: Path, module_name: str) -> list[doctest.DocTest]:
    """Return the typed blocks of `page`; what they define stands in a module of its own.

    The module must be importable by that name, as calls find functions by theirs: the caller takes
    it out of ``sys.modules`` again.
    """
    module = sys.modules[module_name] = types.ModuleType(module_name)
    parser = doctest.DocTestParser()
    examples = []
    for block in blocks_of(page):
        if not block.ranks:
            name = f"{page.name}:{block.line}"
            example = parser.get_doctest(block.text, {}, name, str(page), block.line - 1)
            example.globs = module.__dict__
            examples.append(example)
    return examples
