"""How the place of a remote module is written."""

import pytest

from tensorplay.distributed.nn.remote_device import RemoteDevice, parse_remote_device


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker1", RemoteDevice("worker1", "cpu")),
        ("worker1/cpu", RemoteDevice("worker1", "cpu")),
        ("rank:3", RemoteDevice(3, "cpu")),
        ("rank:12/cpu", RemoteDevice(12, "cpu")),
        ("worker1/cpu:0", RemoteDevice("worker1", "cpu")),
    ],
)
def test_forms(text: str, expected: RemoteDevice) -> None:
    assert parse_remote_device(text) == expected


@pytest.mark.parametrize("text", ["", "/", "/cpu", "a/b/c", "x:y", "rank:", "rank:x/cpu"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Could not parse remote_device"):
        parse_remote_device(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("w/", "must not be empty"), ("w/cpu2", "Invalid device string"), ("w/cuda:0", "'cpu'")],
)
def test_other_devices_are_refused(text: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        parse_remote_device(text)
