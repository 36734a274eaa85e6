"""The package: what it exports, what it imports, and that its examples are true."""

import builtins
import doctest
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys

import pytest

import tensorplay as tp

LOCAL = [
    "tensorplay.autograd",
    "tensorplay.distributions",
    "tensorplay.nn",
    "tensorplay.nn.utils",
    "tensorplay.ops",
    "tensorplay.optim",
    "tensorplay.utils",
    "tensorplay.utils.data",
]


def modules():
    """All modules of the local library."""
    single = ["dtypes", "io", "linalg", "random", "tensor"]
    names = ["tensorplay", *[f"tensorplay.{name}" for name in single], *LOCAL]
    for package in LOCAL:
        found = pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")
        names += [info.name for info in found]
    return names


@pytest.mark.parametrize("name", modules())
def test_examples_are_true(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


@pytest.mark.parametrize(
    "name",
    [
        "tensorplay",
        "tensorplay.autograd",
        "tensorplay.linalg",
        "tensorplay.distributions",
        "tensorplay.nn",
        "tensorplay.nn.utils",
        "tensorplay.nn.utils.rnn",
        "tensorplay.optim",
        "tensorplay.utils.data",
    ],
)
def test_exports_are_sorted_and_there(name):
    module = importlib.import_module(name)
    assert module.__all__ == sorted(set(module.__all__))
    for one in module.__all__:
        if one != "distributed":
            assert getattr(module, one) is not None


def test_names_of_builtins_stay_out_of_star_imports():
    assert not {name for name in tp.__all__ if hasattr(builtins, name)}
    assert tp.sum is not sum
    assert tp.float == tp.float32


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="module 'tensorplay' has no attribute 'nothing'"):
        _ = tp.nothing
    assert {"nn", "optim", "distributed", "zeros"} <= set(dir(tp))


def test_importing_starts_nothing():
    """Neither MPI nor what only some programs need is imported."""
    code = (
        "import sys, tensorplay as tp; tp.zeros(1); "
        "print([m for m in ('mpi4py', 'numpy.random', 'tensorplay.nn', 'tensorplay.distributed') "
        "if m in sys.modules]); "
        "tp.nn; tp.optim; print('mpi4py' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


def test_rarely_used_operations_are_imported_when_they_are_used():
    code = (
        "import sys, tensorplay as tp\n"
        "rare = ['decompositions', 'scattering', 'inplace_forms', 'elementary']\n"
        "def loaded(): return [m for m in rare if f'tensorplay.ops.{m}' in sys.modules]\n"
        "print(loaded()); tp.svd; tp.ones(1).scatter_add_; x = tp.ones(2).log1p_()\n"
        "print(loaded(), x.expm1().tolist(), tp.ones(2, 3).mT.shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rare = "['decompositions', 'scattering', 'inplace_forms', 'elementary']"
    assert done.stdout.splitlines() == ["[]", f"{rare} [1.0, 1.0] (3, 2)"]


PUBLIC = [name for name in tp.__all__ if inspect.isroutine(getattr(tp, name))]
METHODS = [
    name for name in list(vars(tp.Tensor)) if inspect.isfunction(getattr(tp.Tensor, name, None))
]


@pytest.mark.parametrize("name", PUBLIC)
def test_operations_can_be_sent(name):
    function = getattr(tp, name)
    assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("name", METHODS)
def test_methods_can_be_sent(name):
    method = getattr(tp.Tensor, name)
    assert pickle.loads(pickle.dumps(method)) is method
