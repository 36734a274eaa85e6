"""What docs/design.md says of the folders is so."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs" / "design.md").read_text()


def test_tree_has_only_what_is_there() -> None:
    (tree,) = re.findall(r"^tensorplay/\n((?: .*\n)+)", PAGE, re.MULTILINE)
    folders = [CHECKOUT / "tensorplay"]
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        names, _, _ = line.strip().partition("   ")
        for name in names.split():
            if name.endswith("/") or "." in name:
                assert list(folders[depth - 1].glob(name.rstrip("/"))), f"{line}: {name}"
            if name.endswith("/"):
                folders[depth:] = [folders[depth - 1] / name]


def test_files_that_are_named_are_there() -> None:
    named = re.findall(r"`([\w/]+/\w+\.py)`", PAGE)
    assert len(named) > 8
    for name in named:
        assert (CHECKOUT / name).is_file() or list((CHECKOUT / "tensorplay").rglob(name)), name
