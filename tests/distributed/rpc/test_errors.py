"""An exception arrives as what it was, wherever that can be done, and with its traceback."""

from __future__ import annotations

import pickle
import sys
import traceback
import types
from typing import Any

import numpy as np
import pytest

from tensorplay.distributed.rpc import RemoteError, RemoteTraceback, RpcTimeoutError
from tensorplay.distributed.rpc.errors import Failure, describe, rebuild


def raised(error: BaseException) -> BaseException:
    """The exception with the traceback of a few calls."""

    def inner() -> None:
        raise error

    try:
        inner()
    except BaseException as caught:
        return caught
    raise AssertionError


def travel(error: BaseException, worker: str = "w7") -> Exception:
    """Send an exception to another worker."""
    failure = describe(raised(error), worker)
    return rebuild(Failure(*pickle.loads(pickle.dumps(tuple(failure)))))


class WithAttributes(Exception):
    def __init__(self, code: int, array: Any) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.array = array

    def __reduce__(self) -> Any:
        return (WithAttributes, (self.code, self.array))


class LateAttribute(ValueError):
    pass


class NeedsTwo(Exception):
    """Its `args` do not fit its constructor: pickle can store it, and not load it."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("holds a function")
        self.function = lambda: 0


class NoText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class TurnsIntoNothing(Exception):
    def __reduce__(self) -> Any:
        return (int, (5,))


BUILTIN = [
    ValueError("text", 5),
    TypeError("t"),
    KeyError("k"),
    IndexError(3),
    AttributeError("a"),
    NotImplementedError(),
    AssertionError("x"),
    ZeroDivisionError("z"),
    StopIteration(4),
    TimeoutError("late"),
    RuntimeError("r"),
    RpcTimeoutError("rpc"),
    RemoteError("nested"),
    Exception("äöü 漢字 ж \n \\ '"),
]


@pytest.mark.parametrize("error", BUILTIN, ids=repr)
def test_type_and_arguments_are_kept(error: Exception) -> None:
    got = travel(error)
    assert type(got) is type(error)
    assert got.args == error.args
    assert str(got) == str(error)


def test_errors_with_state_of_their_own() -> None:
    got: Any = travel(FileNotFoundError(2, "No such file", "/tmp/file"))
    assert isinstance(got, FileNotFoundError)
    assert (got.errno, got.strerror, got.filename) == (2, "No such file", "/tmp/file")
    got = travel(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"))
    assert (got.object, got.reason) == (b"\xff", "invalid")


def test_attributes_are_kept() -> None:
    got: Any = travel(WithAttributes(5, np.arange(3)))
    assert isinstance(got, WithAttributes)
    assert got.code == 5
    assert list(got.array) == [0, 1, 2]
    error: Any = LateAttribute("v")
    error.detail = {"a": 1}
    got = travel(error)
    assert got.detail == {"a": 1}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes came with Python 3.11")
def test_notes_are_kept() -> None:
    error: Any = ValueError("v")
    error.add_note("a note")
    got: Any = travel(error)
    assert got.__notes__ == ["a note"]


def test_remote_traceback_is_the_cause() -> None:
    got = travel(ValueError("reason"), worker="far-away")
    cause = got.__cause__
    assert isinstance(cause, RemoteTraceback)
    for part in ("far-away", "in inner", "raise error", "ValueError: reason"):
        assert part in cause.text
    shown = "".join(traceback.format_exception(got))
    assert shown.index("in inner") < shown.index("direct cause") < shown.rindex("reason")


def test_remote_causes_are_shown() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as first:
            raise ValueError("second") from first
    except ValueError as error:
        got = rebuild(describe(error, "w"))
    assert "KeyError: 'first'" in str(got.__cause__)
    assert "ValueError: second" in str(got.__cause__)


@pytest.mark.parametrize("error", [NeedsTwo(1, 2), Unpicklable(), TurnsIntoNothing("n")])
def test_what_cannot_be_rebuilt_arrives_as_remote_error(error: Exception) -> None:
    got = travel(error, worker="far-away")
    assert type(got) is RemoteError
    assert isinstance(got, RuntimeError)
    assert type(error).__name__ in str(got)
    assert str(error) in str(got)
    assert "far-away" in str(got)
    assert "in inner" in str(got.__cause__)


def test_type_that_the_caller_does_not_have() -> None:
    module = types.ModuleType("only_at_the_callee")
    exec("class Special(Exception): pass", module.__dict__)
    sys.modules["only_at_the_callee"] = module
    try:
        failure = describe(raised(module.Special("s")), "w")
    finally:
        del sys.modules["only_at_the_callee"]
    got = rebuild(failure)
    assert type(got) is RemoteError
    assert "Special: s" in str(got)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_what_would_end_the_caller_arrives_as_remote_error(error: BaseException) -> None:
    got = travel(error)
    assert type(got) is RemoteError
    assert type(error).__name__ in str(got)


def test_text_of_system_exit() -> None:
    assert "SystemExit: 3" in str(travel(SystemExit(3)))


def test_exception_without_text() -> None:
    got = travel(NoText())
    assert isinstance(got, (NoText, RemoteError))
    assert "NoText" in str(got.__cause__)


def test_exception_group() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("groups came with Python 3.11")
    got: Any = travel(ExceptionGroup("several", [ValueError(1), KeyError(2)]))  # noqa: F821
    assert [type(error) for error in got.exceptions] == [ValueError, KeyError]


def test_long_way_through_several_workers_names_each() -> None:
    error: BaseException = ValueError("deep")
    for worker in ("w3", "w2", "w1"):
        error = travel(error, worker)
    assert type(error) is ValueError
    shown = "".join(traceback.format_exception(error))
    for worker in ("w3", "w2", "w1"):
        assert f"On worker '{worker}'" in shown


def test_timeout_is_both_kinds_of_error() -> None:
    assert issubclass(RpcTimeoutError, RuntimeError)
    assert issubclass(RpcTimeoutError, TimeoutError)


def test_remote_traceback_can_be_pickled() -> None:
    got = pickle.loads(pickle.dumps(RemoteTraceback("text")))
    assert got.text == "text"
    assert str(got) == "\ntext"


class CauseRaises(Exception):
    __cause__ = property(lambda self: 1 // 0)  # type: ignore[assignment]


class CannotBeChanged(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError(f"no {name}")


ODD = [
    SyntaxError("bad dsl", ("file", 3, "2", "text")),
    SyntaxError("bad dsl", ("file", 3, 2, b"text")),
    CauseRaises("text"),
    CannotBeChanged("text"),
]


@pytest.mark.parametrize("error", ODD, ids=repr)
def test_errors_that_cannot_be_shown_arrive_all_the_same(error: Exception) -> None:
    try:
        raise error
    except Exception as raised:
        failure = describe(raised, "worker1")
    assert "test_errors_that_cannot_be_shown" in failure.trace
    rebuilt = rebuild(failure)
    assert isinstance(rebuilt, (type(error), RemoteError))
    assert "worker1" in str(BaseException.__dict__["__cause__"].__get__(rebuilt))
