"""A name stands for what pickle would make of it."""

from __future__ import annotations

import functools
import math
import operator
import sys
import types
from typing import Any

import pytest

from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.naming import name_for_people, name_of, named


def plain() -> str:
    return "plain"


class Plain:
    @staticmethod
    def static() -> None: ...

    def method(self) -> None: ...


@pytest.mark.parametrize("function", [plain, Plain, len, math.sqrt, operator.add, dict])
def test_functions_and_classes_of_modules_are_found_again(function: Any) -> None:
    assert name_of(function)
    assert named(name_of(function)) is function


@pytest.mark.parametrize(
    "function",
    [
        lambda: None,
        Plain.static,
        Plain.method,
        Plain().method,
        [].append,
        functools.partial(plain),
        Plain(),
    ],
    ids=repr,
)
def test_others_have_no_name(function: Any) -> None:
    assert name_of(function) == b""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("module_of_the_test")
    exec("def function(): return 1", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_name_stands_for_what_the_module_holds_now(module: types.ModuleType) -> None:
    first = module.function
    name = name_of(first)
    assert named(name) is first
    exec("def function(): return 2", module.__dict__)
    assert named(name) is module.function is not first
    assert name_of(first) == b""
    assert name_of(module.function) == name


def test_a_module_that_is_loaded_again(
    module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name_of(module.function)
    named(name)
    again = types.ModuleType(module.__name__)
    again.__dict__["function"] = plain
    monkeypatch.setitem(sys.modules, module.__name__, again)
    assert named(name) is plain


def test_names_that_mean_nothing_here(module: types.ModuleType) -> None:
    name = name_of(module.function)
    del module.function
    with pytest.raises(rpc.FunctionNotFoundError, match="does not serialize function code"):
        named(name)
    with pytest.raises(AttributeError):
        named(name)
    del sys.modules[module.__name__]
    with pytest.raises(rpc.MissingModuleError, match="module_of_the_test"):
        named(name)
    with pytest.raises(ModuleNotFoundError):
        named(name)


def test_caches_do_not_grow_for_ever() -> None:
    from tensorplay.distributed.rpc import naming

    for number in range(naming._LIMIT + 10):
        with pytest.raises(rpc.FunctionNotFoundError):
            named(f"math\nfunction{number}".encode())
    assert len(naming._places) <= naming._LIMIT


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (len, "builtins.len"),
        (functools.partial(functools.partial(len)), "builtins.len"),
        (plain, f"{__name__}.plain"),
        (Plain().method, f"{__name__}.Plain.method"),
        (Plain(), f"{__name__}.Plain object"),
    ],
)
def test_names_for_people(function: Any, name: str) -> None:
    assert name_for_people(function) == name
