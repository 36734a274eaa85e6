"""DLPack between tensorplay and torch: one memory, both ways."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402  # torch first: it may not be there

TYPES = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128"


@pytest.mark.parametrize("name", TYPES.split())
def test_from_torch(name):
    theirs = torch.zeros(2, 3, dtype=getattr(torch, name))
    mine = tp.from_dlpack(theirs)
    assert mine.dtype is getattr(tp, name)
    theirs[1, 2] = 1
    assert mine[1, 2].item() == 1
    mine[0, 0] = 1
    assert theirs[0, 0].item() == 1


@pytest.mark.parametrize("name", TYPES.split())
def test_to_torch(name):
    mine = tp.zeros(2, 3, dtype=getattr(tp, name))
    theirs = torch.from_dlpack(mine.T)
    assert theirs.dtype is getattr(torch, name)
    assert theirs.shape == (3, 2)
    mine[1, 2] = 1
    assert theirs[2, 1].item() == 1
    theirs[0, 0] = 1
    assert mine[0, 0].item() == 1


def test_capsules():
    theirs = torch.arange(3.0)
    mine = tp.from_dlpack(torch.utils.dlpack.to_dlpack(theirs))
    theirs[0] = 5
    assert mine.tolist() == [5.0, 1.0, 2.0]
    with pytest.raises(RuntimeError, match="read-only"):
        mine.add_(1)
    mine = tp.ones(3)
    theirs = torch.utils.dlpack.from_dlpack(mine.__dlpack__())
    mine[0] = 5
    assert theirs.tolist() == [5.0, 1.0, 1.0]


def test_what_requires_grad_is_not_shared():
    for one, library in ((tp.ones(1), torch), (torch.ones(1), tp)):
        one.requires_grad_()
        with pytest.raises(BufferError, match="require gradient"):
            library.from_dlpack(one)


def test_what_tensors_cannot_hold_is_refused():
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        tp.from_dlpack(torch.ones(1, dtype=torch.bfloat16))


def test_arrays_of_the_other_library_are_data():
    assert tp.tensor(torch.arange(3)).tolist() == [0, 1, 2]
    assert tp.as_tensor(torch.ones(2)).dtype is tp.float32
    assert torch.as_tensor(np.asarray(tp.ones(2))).tolist() == [1.0, 1.0]
