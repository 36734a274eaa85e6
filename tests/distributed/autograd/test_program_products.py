"""Gradients of random programs on several workers, differentiated again, against one process."""

from __future__ import annotations

import pytest

from distributed.autograd.driving import on_first
from distributed.autograd.program_products import check_products
from distributed.autograd.test_random_programs import BATCH, weather_of

SOAK = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("size", "count"),
    [
        *((1, 50), (2, 150), (3, 150), (5, 50)),
        *(pytest.param(size, 3000, marks=SOAK) for size in (2, 4)),
    ],
)
def test_hessian_vector_products_of_random_programs(size: int, count: int) -> None:
    products = 0

    def drive() -> None:
        nonlocal products
        for seed in range(first, first + BATCH):
            products += check_products(seed, size)

    for number in range(count // BATCH):
        first = number * BATCH
        on_first(drive, size=size, weather=weather_of(number))
    assert products > count / 6, "too few programs have second derivatives"
