"""Where a module is to live: ``"worker1"``, ``"worker1/cpu"``, ``"rank:1"``, ``"rank:1/cpu"``."""

from __future__ import annotations

import re
from typing import NamedTuple

_RANK = re.compile(r"rank:(\d+)")
_WORKER = re.compile(r"[^:/]+")


class RemoteDevice(NamedTuple):
    """A worker and a device there.

    Attributes:
        worker: Name or rank.
        device: Always ``"cpu"``.
    """

    worker: str | int
    device: str


def parse_remote_device(text: object) -> RemoteDevice:
    """Read a remote device.

    Raises:
        TypeError: It is no string.
        ValueError: It is not of the form above.
        RuntimeError: There is no such device.

    >>> parse_remote_device("rank:1/cpu")
    RemoteDevice(worker=1, device='cpu')
    """
    if not isinstance(text, str):
        raise TypeError(
            f"Invalid type for remote_device: {type(text)}. Give a string such as 'worker1/cpu' or "
            f"'rank:1/cpu', not {text!r}"
        )
    worker_text, slash, device = text.partition("/")
    rank = _RANK.fullmatch(worker_text)
    if not worker_text or "/" in device or not (rank or _WORKER.fullmatch(worker_text)):
        raise ValueError(
            f"Could not parse remote_device: {text}. The valid format is '<workername>/<device>' "
            "or 'rank:<rank>/<device>'; the device may be left out"
        )
    if slash and not device:
        raise RuntimeError("Device string must not be empty")
    if device not in ("", "cpu", "cpu:0"):
        if device.startswith("cpu"):
            raise RuntimeError(f"Invalid device string: {device!r}; workers compute on 'cpu'")
        raise RuntimeError(
            f"Expected one of cpu device type at start of device string: {device}; workers "
            "compute on 'cpu'"
        )
    return RemoteDevice(int(rank[1]) if rank else worker_text, "cpu")
