"""Tensors of several types in one context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distributed.autograd.driving import HARSH, on_first
from distributed.autograd.program_dtypes import PAIRS, PROGRAMS, operands_of_two_types

SIZES = pytest.mark.parametrize("size", [1, 2, 3])
WEATHERS = pytest.mark.parametrize("options", [{}, {"weather": HARSH}], ids=["fair", "harsh"])


@SIZES
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_operands_of_two_types(first: Any, second: Any, size: int) -> None:
    on_first(lambda: operands_of_two_types(size, first, second), size)


@WEATHERS
@SIZES
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: Callable[[int], None], size: int, options: dict[str, Any]) -> None:
    on_first(lambda: program(size), size, **options)
