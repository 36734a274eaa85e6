"""Whose handler a signal has."""

from __future__ import annotations

import ctypes
import enum
import signal


class Owner(enum.Enum):
    """Who handles a signal in this process."""

    NOBODY = "nobody"
    #: The program, in Python (`faulthandler` included), or it ignores the signal.
    PROGRAM = "the program"
    #: A library, in C.  MPICH for example takes SIGUSR1 for news of ranks that have died.
    LIBRARY = "a library"


class _Place(ctypes.Structure):
    """``Dl_info`` of ``dlfcn.h``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


_libc = ctypes.CDLL(None)
#: ``struct sigaction`` begins with the handler's address; the rest is shorter than this (words).
_ROOM = 64


def owner_of(number: int) -> Owner:
    """Who handles signal `number`.

    `signal.getsignal` knows only of handlers set by the module `signal`; those of `faulthandler`
    and of libraries are told apart by where their code is.
    """
    if signal.getsignal(number) != signal.SIG_DFL:
        return Owner.PROGRAM
    action = current_action(number)
    address = None if action is None else action[0]
    if not address:
        return Owner.NOBODY
    if address == int(signal.SIG_IGN):
        return Owner.PROGRAM
    own = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value
    return Owner.PROGRAM if _base(address) == _base(own) else Owner.LIBRARY


def current_action(number: int) -> ctypes.Array[ctypes.c_void_p] | None:
    """How signal `number` is handled, whoever has said so; for `restore_action`."""
    action = (ctypes.c_void_p * _ROOM)()
    return action if _libc.sigaction(number, None, action) == 0 else None


def restore_action(number: int, action: ctypes.Array[ctypes.c_void_p]) -> None:
    """Have signal `number` handled as `current_action` has found it."""
    _libc.sigaction(number, action, None)


def _base(address: int | None) -> int | None:
    """Where the program or library is loaded that the code at `address` belongs to."""
    place = _Place()
    if not _libc.dladdr(ctypes.c_void_p(address), ctypes.byref(place)):
        return None
    base: int | None = place.base
    return base
