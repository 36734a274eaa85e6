"""Files that the safetensors package reads and writes."""

import numpy as np
import pytest

safetensors_numpy = pytest.importorskip("safetensors.numpy")

import tensorplay as tp  # noqa: E402

TYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
VALUES = {name: np.arange(6).reshape(2, 3).astype(name) for name in TYPES}


def test_it_reads_ours(tmp_path):
    saved = {name: tp.from_numpy(value.copy()) for name, value in VALUES.items()}
    tp.save(saved | {"step": 3}, tmp_path / "x")
    loaded = safetensors_numpy.load_file(tmp_path / "x")
    assert set(loaded) == set(VALUES)
    for name, value in VALUES.items():
        assert loaded[name].dtype == value.dtype
        assert np.array_equal(loaded[name], value)


def test_names_are_the_paths(tmp_path):
    net = tp.nn.Sequential(tp.nn.Linear(2, 1))
    tp.save({"net": net.state_dict(), "steps": [tp.ones(1)]}, tmp_path / "x")
    names = set(safetensors_numpy.load_file(tmp_path / "x"))
    assert names == {"net.0.weight", "net.0.bias", "steps.0"}


@pytest.mark.parametrize("mmap", [False, True])
def test_we_read_its(mmap, tmp_path):
    safetensors_numpy.save_file(VALUES, tmp_path / "x", metadata={"of": "somebody"})
    loaded = tp.load(tmp_path / "x", mmap=mmap)
    assert set(loaded) == set(VALUES)
    for name, value in VALUES.items():
        assert loaded[name].dtype == value.dtype
        assert np.array_equal(loaded[name].numpy(), value)
