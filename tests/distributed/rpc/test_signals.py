"""Whose handler a signal has."""

from __future__ import annotations

import ctypes
import faulthandler
import signal
import sys
from collections.abc import Iterator

import pytest

from tensorplay.distributed.rpc.signals import Owner, owner_of

NUMBER = signal.SIGUSR2


@pytest.fixture(autouse=True)
def handler_before() -> Iterator[None]:
    before = signal.signal(NUMBER, signal.SIG_DFL)
    yield
    signal.signal(NUMBER, before)


def test_nobody() -> None:
    assert owner_of(NUMBER) is Owner.NOBODY


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_handler_in_python(handler: signal.Handlers) -> None:
    signal.signal(NUMBER, handler)
    assert owner_of(NUMBER) is Owner.PROGRAM


def test_faulthandler() -> None:
    faulthandler.register(NUMBER, file=sys.__stderr__)
    try:
        assert owner_of(NUMBER) is Owner.PROGRAM
    finally:
        faulthandler.unregister(NUMBER)
    assert owner_of(NUMBER) is Owner.NOBODY


def test_handler_in_a_library() -> None:
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal(int(NUMBER), ctypes.cast(libc.abs, ctypes.c_void_p))
    assert owner_of(NUMBER) is Owner.LIBRARY


def test_ignored_in_c() -> None:
    ctypes.CDLL(None).signal(int(NUMBER), ctypes.c_void_p(int(signal.SIG_IGN)))
    assert owner_of(NUMBER) is Owner.PROGRAM
