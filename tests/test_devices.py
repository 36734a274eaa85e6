"""The one device there is, as programs choose, compare and pass it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tensorplay as tp


def test_how_programs_choose_a_device() -> None:
    device = tp.device("cuda:0" if tp.cuda.is_available() else "cpu")
    net = tp.nn.Linear(2, 3).to(device)
    x = tp.ones(4, 2, device=device).to(device)
    assert net(x.cpu()).device == device == net.weight.device
    assert (tp.cuda.is_available(), tp.cuda.device_count()) == (False, 0)
    assert x.to(device) is x
    assert x.to(device, tp.float64, non_blocking=True).dtype == tp.float64
    assert x.to(device=device, dtype=tp.int64).dtype == tp.int64


def test_what_a_device_is() -> None:
    device = tp.ones(1).device
    assert isinstance(device, tp.device)
    assert (device.type, device.index, str(device)) == ("cpu", None, "cpu")
    assert repr(device) == "device(type='cpu')"
    assert repr(tp.device("cpu", 0)) == "device(type='cpu', index=0)"
    assert tp.device("cpu:0").index == 0
    assert device == "cpu" == device
    assert device == tp.device("cpu") != tp.device("cpu:0")
    assert {device: 1}["cpu"] == 1  # type: ignore[index]
    assert device != 3
    assert pickle.loads(pickle.dumps(device)) == copy.deepcopy(device) == device
    assert tp.zeros(1, device="cpu:0").device == "cpu"


@pytest.mark.parametrize("place", ["cuda", "cuda:1", "mps", "meta", "cpu:1"])
def test_other_devices_are_refused(place: str) -> None:
    text = f"there is no device '{place}': tensors live in main memory"
    uses: list[Any] = [
        lambda: tp.device(place),
        lambda: tp.ones(1, device=place),
        lambda: tp.ones(1).to(place),
        lambda: tp.nn.Linear(1, 1, device=place),
        lambda: tp.nn.Linear(1, 1).to(place),
        lambda: tp.rand(1, device=place),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match=text):
            use()


def test_what_is_no_device() -> None:
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        tp.device("gpu")
    for wrong in ("cpu:x", "cpu:"):
        with pytest.raises(RuntimeError, match="Invalid device string"):
            tp.device(wrong)
    with pytest.raises(RuntimeError, match="Invalid device string"):
        tp.device("cpu:0", 0)
