"""Passes of random programs send exactly the messages that the design says."""

from __future__ import annotations

import pytest

from distributed.autograd.driving import on_first
from distributed.autograd.program_counts import check_counts
from distributed.autograd.test_random_programs import BATCH, weather_of

SOAK = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("size", "count"),
    [
        *((1, 20), (2, 150), (3, 150), (5, 100)),
        *(pytest.param(size, 3000, marks=SOAK) for size in (2, 4)),
    ],
)
def test_messages_of_random_programs(size: int, count: int) -> None:
    gradients = reports = 0

    def drive() -> None:
        nonlocal gradients, reports
        for seed in range(first, first + BATCH):
            sent = check_counts(seed, size)
            gradients += sent.gradients_sent
            reports += sent.reports_sent

    for number in range(count // BATCH):
        first = number * BATCH
        on_first(drive, size=size, weather=weather_of(number))
    if size == 1:
        assert gradients == reports == 0
    else:
        assert gradients > count
        assert reports > count
