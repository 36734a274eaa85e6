"""Saving and loading: what comes back, and what is refused."""

import io
import json
import math
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import tensorplay as tp
from tensorplay import nn, optim

TYPES = ["bool", "uint8", "int8", "int16", "int32", "int64"]
TYPES += ["float16", "float32", "float64", "complex64", "complex128"]


def same(a, b):
    if isinstance(a, tp.Tensor):
        return isinstance(b, tp.Tensor) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and (a == b or (a != a and b != b))


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_all_types(name, mmap, tmp_path):
    values = np.random.default_rng(0).integers(0, 2, (3, 4)).astype(name)
    saved = {
        "whole": tp.from_numpy(values),
        "turned": tp.from_numpy(values).T,
        "number": tp.from_numpy(values)[0, 0],
        "empty": tp.from_numpy(values[:0]),
        "byte": tp.tensor([1, 2, 3], dtype=tp.uint8),
    }
    tp.save(saved, tmp_path / "x")
    loaded = tp.load(tmp_path / "x", mmap=mmap)
    assert same(saved, loaded)
    # They can be written to, and the file stays as it is.
    loaded["whole"][0] = 1
    assert same(saved, tp.load(tmp_path / "x"))


def test_whatever_is_built_of_tensors(tmp_path):
    saved = {
        "a": [tp.ones(2), 3, "text \u00e9", None, True, 1.5, math.inf, math.nan, 2**70],
        "b": {"c.d": tp.zeros(1), 7: (tp.ones(1), [])},
        "b.c": {"d": tp.ones(3)},
        "__metadata__": tp.ones(4),
        "": tp.ones(5),
    }
    tp.save(saved, tmp_path / "x")
    loaded = tp.load(tmp_path / "x")
    assert same(saved, loaded)
    assert type(loaded["b"][7]) is tuple
    for alone in (tp.ones(2), 3, "x", None, [], {}):
        tp.save(alone, tmp_path / "x")
        assert same(alone, tp.load(tmp_path / "x"))


def test_other_containers_and_numbers_become_plain_ones(tmp_path):
    point = namedtuple("point", "x y")
    saved = {
        "o": OrderedDict(a=1),
        "p": point(1, 2),
        "n": np.float64(0.5),
        "r": np.arange(3),
        "w": nn.Parameter(tp.ones(2)),
    }
    tp.save(saved, tmp_path / "x")
    loaded = tp.load(tmp_path / "x")
    expected = {"o": {"a": 1}, "p": (1, 2), "n": 0.5, "r": tp.arange(3), "w": tp.ones(2)}
    assert same(expected, loaded)
    assert not loaded["w"].requires_grad


def test_a_training_goes_on_where_it_was(tmp_path):
    def start():
        tp.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        return net, optim.Adam(net.parameters(), lr=0.1)

    def step(net, optimizer):
        optimizer.zero_grad()
        net(tp.ones(2, 3)).sum().backward()
        optimizer.step()

    net, optimizer = start()
    step(net, optimizer)
    tp.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "x")
    step(net, optimizer)
    other, its_optimizer = start()
    loaded = tp.load(tmp_path / "x", mmap=True)
    other.load_state_dict(loaded["net"])
    its_optimizer.load_state_dict(loaded["optimizer"])
    step(other, its_optimizer)
    assert same(net.state_dict(), other.state_dict())


def test_open_files(tmp_path):
    file = io.BytesIO()
    tp.save(tp.arange(3), file)
    file.seek(0)
    assert tp.load(file).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="needs a path"):
        tp.load(file, mmap=True)


@pytest.mark.parametrize(
    ("obj", "error"),
    [
        (nn.Linear(1, 1), "this: a Linear"),
        ({"net": nn.Linear(1, 1)}, "'net': a Linear .* state_dict"),
        ({"a": [1, {2}]}, "'a.1': a set"),
        ({(1, 2): 3}, r"key \(1, 2\)"),
        ({"a": {None: 3}}, "'a': its key None"),
        ({"f": print}, "builtin_function"),
        (np.array(["x"]), "elements of type"),
        (1j, "complex"),
    ],
)
def test_what_cannot_be_saved_is_refused_and_the_old_file_kept(obj, error, tmp_path):
    tp.save(1, tmp_path / "x")
    with pytest.raises(TypeError, match=error):
        tp.save(obj, tmp_path / "x")
    assert tp.load(tmp_path / "x") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_what_contains_itself_is_refused(tmp_path):
    tp.save(1, tmp_path / "x")
    around: dict = {"w": tp.ones(1)}
    around["a"] = [around]
    with pytest.raises(ValueError, match=r"the value at 'a\.0': it is contained in itself"):
        tp.save(around, tmp_path / "x")
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        tp.save(deep, tmp_path / "x")
    assert tp.load(tmp_path / "x") == 1
    # The same thing in two places is none of this.
    shared = [tp.ones(1)]
    tp.save([shared, shared], tmp_path / "x")
    assert same(tp.load(tmp_path / "x"), [shared, shared])


def test_bytes_behind_a_saved_file_are_refused(tmp_path):
    path = tmp_path / "x"
    tp.save({"w": tp.ones(3)}, path)
    path.write_bytes(path.read_bytes() + b"\0")
    for mmap in (False, True):
        with pytest.raises(ValueError, match="damaged: there are 1 bytes behind"):
            tp.load(path, mmap=mmap)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    tp.save(1, tmp_path / "x")

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        tp.save(2, tmp_path / "x")
    assert tp.load(tmp_path / "x") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def frame(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


BROKEN = {
    "empty": b"",
    "short": b"1234",
    "cut off": (100).to_bytes(8, "little") + b"{}",
    "huge header": (2**60).to_bytes(8, "little") + b"{}",
    "no JSON": frame(b"\x80\x04pickle"),
    "a list": frame([1]),
    "unknown type": frame({"a": entry("BF16", (2,))}, b"1234"),
    "past the end": frame({"a": entry(offsets=(4, 8))}, b"1234"),
    "wrong size": frame({"a": entry(shape=(2,))}, b"1234"),
    "negative": frame({"a": entry(shape=(-1,), offsets=(4, 0))}, b"1234"),
    "no offsets": frame({"a": {"dtype": "F32", "shape": [1]}}, b"1234"),
    "missing tensor": frame({"__metadata__": {"tensorplay": '{"t":"b"}'}}),
    "bytes behind": frame({"a": entry()}, b"12345678"),
    "bytes behind nothing": frame({}, b"1234"),
    "a hole": frame({"a": entry(), "b": entry(offsets=(8, 12))}, b"1" * 12),
    "an overlap": frame({"a": entry(), "b": entry()}, b"1234"),
    "nested without end": frame(b"[" * 100_000),
    "unknown build": frame({"__metadata__": {"tensorplay": '{"x":"b"}'}}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(BROKEN[name])
    with pytest.raises(ValueError, match=r"file is no safetensors file, or damaged: "):
        tp.load(path)


def test_files_that_are_not_there(tmp_path):
    for mmap in (False, True):
        with pytest.raises(FileNotFoundError):
            tp.load(tmp_path / "x", mmap=mmap)
    with pytest.raises(FileNotFoundError):
        tp.save(1, tmp_path / "no" / "x")
