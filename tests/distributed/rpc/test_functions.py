"""The decorator of functions that answer later, and how a server recognises them."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest

from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.functions import async_execution, is_async
from tensorplay.futures import Future


def done(value: Any) -> Future:
    future = Future()
    future.set_result(value)
    return future


@async_execution
def later(value: Any) -> Future:
    """Say what it is."""
    return done(value)


def plain(value: Any) -> Any:
    return value


class Methods:
    """All kinds of them, marked on the inside and on the outside."""

    @async_execution
    def method(self, value: Any) -> Future:
        return done((type(self).__name__, value))

    @staticmethod
    @async_execution
    def static_inside(value: Any) -> Future:
        return done(value)

    @async_execution
    @staticmethod
    def static_outside(value: Any) -> Future:
        return done(value)

    @classmethod
    @async_execution
    def class_inside(cls, value: Any) -> Future:
        return done((cls.__name__, value))

    @async_execution
    @classmethod
    def class_outside(cls, value: Any) -> Future:
        return done((cls.__name__, value))

    def unmarked(self, value: Any) -> Any:
        return value


class Marked:
    @async_execution
    def __call__(self, value: Any) -> Future:
        return done(value)


class Unmarked:
    def __call__(self, value: Any) -> Any:
        return value


class AnswersAnything:
    """An instance that has every attribute, as mocks and proxies do."""

    def __getattr__(self, name: str) -> Any:
        return name

    def __call__(self) -> None:
        pass


def test_called_locally_it_returns_the_future() -> None:
    assert later(5).wait() == 5
    assert Methods().method(5).wait() == ("Methods", 5)
    assert Methods.static_inside(5).wait() == Methods.static_outside(5).wait() == 5
    assert Methods.class_inside(5).wait() == Methods.class_outside(5).wait() == ("Methods", 5)
    assert Methods().static_outside(5).wait() == 5


def test_wrapper_looks_like_the_function_and_can_be_sent() -> None:
    assert later.__name__ == "later"
    assert later.__doc__ == "Say what it is."
    assert pickle.loads(pickle.dumps(later)) is later
    assert later._wrapped_async_rpc_function(5).wait() == 5  # type: ignore[attr-defined]


def test_function_itself_is_not_marked() -> None:
    marked = async_execution(plain)
    assert is_async(marked)
    assert not is_async(plain)


@pytest.mark.parametrize(
    "function",
    [
        later,
        functools.partial(later, 1),
        functools.partial(functools.partial(later), value=1),
        Methods.method,
        Methods().method,
        functools.partial(Methods().method, 1),
        Methods.static_inside,
        Methods.static_outside,
        Methods.class_inside,
        Methods.class_outside,
        Methods().class_outside,
        Marked(),
        functools.partial(Marked(), 1),
    ],
)
def test_marked_ones_are_recognised(function: Any) -> None:
    assert is_async(function)


@pytest.mark.parametrize(
    "function",
    [
        plain,
        len,
        int,
        Methods,
        Marked,
        [].append,
        str.upper,
        functools.partial(plain, 1),
        functools.partial(len),
        Methods().unmarked,
        Unmarked(),
        AnswersAnything(),
        5,
        None,
    ],
)
def test_others_are_not(function: Any) -> None:
    assert not is_async(function)


def test_only_functions_can_be_marked() -> None:
    with pytest.raises(TypeError, match="needs a function, got a int"):
        async_execution(5)  # type: ignore[type-var]


def test_it_is_where_programs_look_for_it() -> None:
    assert rpc.functions.async_execution is async_execution
