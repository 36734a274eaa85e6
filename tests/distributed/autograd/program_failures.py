"""What a failing random program is shown as."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from distributed.autograd.programs import Program


@contextlib.contextmanager
def shown(program: Program, check: Callable[[Program], None]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{error}\n\n{program}") from error
