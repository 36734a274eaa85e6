"""What docs/from_pytorch.md says is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tensorplay as tp
from tensorplay.distributed import autograd, nn, rpc

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "from_pytorch.md").read_text()


def test_imports_after_the_change() -> None:
    (change,) = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
    before = [line[1:] for line in change.splitlines() if line.startswith("-")]
    after = [line[1:] for line in change.splitlines() if line.startswith("+")]
    assert [line.replace("torch", "tensorplay", 1) for line in before[1:]] == after[1:]
    subprocess.run([sys.executable, "-c", "\n".join(after)], timeout=50, check=True)


def test_names_of_calls_and_methods() -> None:
    (same,) = re.findall(r"^## What is the same\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    owners = {"api": rpc.api, "functions": rpc.functions, "dist_autograd": autograd}
    for name in re.findall(r"`(?:rpc\.)?([\w.]+)`", same):
        owner, _, attribute = name.rpartition(".")
        places: list[Any] = [owners[owner]] if owner else [rpc, rpc.api, autograd, tp.Tensor]
        assert any(hasattr(place, attribute) for place in places), name


def test_spellings_that_are_recommended() -> None:
    assert tp.Size([2, 3]) == tp.empty(2, 3).shape
    assert isinstance(tp.ones(2).size(), tp.Size)
    for function in (tp.sum, tp.mean, lambda x, axis: tp.max(x, axis=axis)[0]):
        assert function(tp.ones(2, 3), axis=0).shape == (3,)
    with pytest.raises(TypeError):
        tp.nn.functional.softmax(tp.ones(2))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="size_average"):
        tp.nn.MSELoss(size_average=True)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (nn, "functional"),
        (tp.optim, "LBFGS"),
        (tp.optim, "NAdam"),
        (tp.optim.Optimizer, "register_step_post_hook"),
        (tp.optim.lr_scheduler, "CyclicLR"),
        (tp, "LongTensor"),
        (tp, "inference_mode"),
        (tp, "multiprocessing"),
        (tp, "set_num_threads"),
        (tp, "set_printoptions"),
        (tp.Tensor, "cuda"),
        (tp.Tensor, "data_ptr"),
        (tp.Tensor, "share_memory_"),
        (tp.Tensor, "untyped_storage"),
        (tp.autograd, "Variable"),
        (tp, "bfloat16"),
        (tp, "complex32"),
        (tp.nn, "Conv3d"),
        (tp.nn, "Transformer"),
    ],
)
def test_what_is_said_to_be_missing_is(place: Any, name: str) -> None:
    assert not hasattr(place, name), f"{name} is there: the page may say so"
