"""Places of remote modules are read as PyTorch reads them, with its errors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tensorplay.distributed.nn.remote_device import parse_remote_device

torch = pytest.importorskip("torch")

TEXTS: list[Any] = [
    "w",
    "w/cpu",
    "w/cpu:0",
    "rank:1",
    "rank:12/cpu",
    "w/",
    "w/cpu2",
    "w/cpu:x",
    "w/xyz",
    "/",
    "/cpu",
    "/cuda:0",
    "a/b/c",
    "x:y",
    "a:b/cpu",
    "rank:",
    "rank:x/cpu",
    "rank:-1",
    "rank:1.5",
    "",
    1,
    None,
]


def outcome(read: Any, text: Any) -> Any:
    try:
        return read(text)
    except (ValueError, RuntimeError, TypeError) as error:
        # Up to where formats and devices are listed, or ours says more.
        return type(error), re.split(r" The valid| of cpu|;|\. Give", str(error))[0]


def theirs(text: Any) -> Any:
    device = torch.distributed._remote_device(text)
    return device.rank() if device.rank() is not None else device.worker_name()


@pytest.mark.parametrize("text", TEXTS)
def test_same(text: Any) -> None:
    ours = outcome(lambda one: parse_remote_device(one).worker, text)
    assert ours == outcome(theirs, text)
