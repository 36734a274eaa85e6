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


@pytest.mark.parametrize(
    "text", ["", "/", "/cpu", "/cuda:0", "a/b/c", "x:y", "rank:", "rank:x/cpu", "rank:-1"]
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"Could not parse remote_device: {text}. The valid"):
        parse_remote_device(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("w/", "Device string must not be empty"),
        ("w/cpu2", "Invalid device string: 'cpu2'"),
        ("w/cuda:0", "Expected one of cpu device type at start of device string: cuda:0"),
        ("w/xyz", "device type at start of device string"),
    ],
)
def test_other_devices_are_refused(text: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        parse_remote_device(text)


@pytest.mark.parametrize("given", [1, None, ("worker1", "cpu")])
def test_what_is_no_string_is_refused(given: object) -> None:
    with pytest.raises(TypeError, match="Invalid type for remote_device"):
        parse_remote_device(given)
