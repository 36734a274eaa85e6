"""Whatever goes wrong in a call is an error at its caller, and the worker stays in service."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mpi.conftest import RpcWorld
from mpi.served import add, eventually, here, identity
from tensorplay.distributed import rpc

# A rank that calls itself, and one that calls others.
pytestmark = [pytest.mark.mpi, pytest.mark.ranks(1, 3)]


def get_sync(to: int, function: Callable[..., Any], *args: Any) -> Any:
    return rpc.rpc_sync(to, function, args=args)


def get_async(to: int, function: Callable[..., Any], *args: Any) -> Any:
    return rpc.rpc_async(to, function, args=args).wait()


def get_remote(to: int, function: Callable[..., Any], *args: Any) -> Any:
    return rpc.remote(to, function, args=args).to_here()


def get_then(to: int, function: Callable[..., Any], *args: Any) -> Any:
    return rpc.rpc_async(to, function, args=args).then(lambda f: f.wait()).wait()


WAYS = [get_sync, get_async, get_remote, get_then]


def check_raises(
    kind: Any,
    shown: str | None,
    to: int,
    function: Callable[..., Any],
    *args: Any,
    ways: Any = WAYS,
) -> None:
    """Calling in any way raises `kind`; what the traceback holds is gone when this returns."""
    for get in ways:
        with pytest.raises(kind, match=shown) as info:
            get(to, function, *args)
        if info.type is rpc.RemoteError:
            assert f"worker{to}" in str(info.value)


def check_in_service(world: RpcWorld) -> None:
    for to in world.everybody:
        assert rpc.rpc_sync(to, here) == to
        assert rpc.remote(to, add, args=(to, 1)).to_here() == to + 1
    eventually(lambda: rpc.statistics().calls_outstanding == 0)
    gc.collect()
    eventually(lambda: rpc.statistics().values_owned == 0)


# -- what a handler raises -----------------------------------------------------------------------


class Odd(BaseException):
    """Neither an Exception nor one that Python knows."""


def raise_system_exit() -> None:
    raise SystemExit("enough")


def raise_keyboard_interrupt() -> None:
    raise KeyboardInterrupt


def raise_generator_exit() -> None:
    raise GeneratorExit


def raise_odd() -> None:
    raise Odd("thing")


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (raise_system_exit, "SystemExit: enough"),
        (raise_keyboard_interrupt, "KeyboardInterrupt"),
        (raise_generator_exit, "GeneratorExit"),
        (raise_odd, "Odd: thing"),
    ],
)
def test_exception_that_would_end_a_thread(
    rpc_world: RpcWorld, function: Callable[[], None], shown: str
) -> None:
    for to in rpc_world.everybody:
        check_raises(rpc.RemoteError, shown, to, function)
    check_in_service(rpc_world)


class NeedsTwoArguments(Exception):
    """Pickles, but cannot be rebuilt: its class wants more than what is in `args`."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


class OnlyThere(Exception):
    """Rebuilt on the worker where it was raised, and nowhere else."""

    def __reduce__(self) -> Any:
        return (rebuild_on, (here(), str(self)))


def rebuild_on(worker: int, text: str) -> Exception:
    if here() != worker:
        raise ImportError("no such thing here")
    return OnlyThere(text)


class HoldsALock(Exception):
    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


class WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class ExitsWhenShown(Exception):
    def __str__(self) -> str:
        raise SystemExit("shown")

    __repr__ = __str__


class ExitsWhenPickled(Exception):
    def __reduce__(self) -> Any:
        raise SystemExit("pickled")


class IsSomethingElse(Exception):
    """Unpickles to what is no exception."""

    def __reduce__(self) -> Any:
        return (int, (3,))


def raise_needs_two() -> None:
    raise NeedsTwoArguments("two", 2)


def raise_only_there() -> None:
    raise OnlyThere("raised")


def raise_holds_a_lock() -> None:
    raise HoldsALock


def raise_without_text() -> None:
    raise WithoutText


def raise_exits_when_shown() -> None:
    raise ExitsWhenShown


def raise_exits_when_pickled() -> None:
    raise ExitsWhenPickled("text")


def raise_is_something_else() -> None:
    raise IsSomethingElse("text")


def raise_with_bad_cause() -> None:
    try:
        raise_without_text()
    except WithoutText as error:
        raise KeyError("above it") from error


def raise_not_unicode() -> None:
    raise ValueError("lone \ud800 surrogate")


def recurse() -> None:
    recurse()


@pytest.mark.parametrize(
    ("function", "kind", "shown"),
    [
        (raise_needs_two, rpc.RemoteError, "NeedsTwoArguments: two"),
        (raise_holds_a_lock, rpc.RemoteError, "HoldsALock: locked"),
        (raise_without_text, WithoutText, None),
        (raise_exits_when_shown, ExitsWhenShown, None),
        (raise_exits_when_pickled, rpc.RemoteError, "ExitsWhenPickled"),
        (raise_is_something_else, rpc.RemoteError, "IsSomethingElse: text"),
        (raise_with_bad_cause, KeyError, "above it"),
        (raise_not_unicode, ValueError, "lone"),
        (recurse, RecursionError, "recursion"),
    ],
)
def test_exception_that_is_hard_to_send(
    rpc_world: RpcWorld, function: Callable[[], None], kind: type[Exception], shown: str | None
) -> None:
    for to in rpc_world.everybody:
        check_raises(kind, shown, to, function)
    check_in_service(rpc_world)


@pytest.mark.mpi(min_size=2)
def test_exception_that_only_the_callee_can_rebuild(rpc_world: RpcWorld) -> None:
    check_raises(rpc.RemoteError, "OnlyThere: raised", rpc_world.next, raise_only_there)
    check_in_service(rpc_world)


# -- what cannot be pickled or unpickled ---------------------------------------------------------


class Breaks:
    """Raises an error of class `kind` when it is unpickled."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __setstate__(self, state: Any) -> None:
        raise state["kind"]("of __setstate__")


def test_argument_that_cannot_be_unpickled(rpc_world: RpcWorld) -> None:
    text = "of __setstate__"
    for to in rpc_world.everybody:
        check_raises(ValueError, text, to, identity, Breaks(ValueError))
        check_raises(rpc.RemoteError, text, to, identity, Breaks(SystemExit))
        # References in a message that is lost are not.
        check_raises(ValueError, text, to, identity, [rpc.RRef(5), Breaks(ValueError)])
    check_in_service(rpc_world)


def make_breaks(kind: type[BaseException]) -> Any:
    return [rpc.RRef(5), Breaks(kind)]


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_result_that_cannot_be_unpickled(rpc_world: RpcWorld, kind: type[BaseException]) -> None:
    for to in rpc_world.everybody:
        # From one's own references nothing is unpickled.
        ways = WAYS if to != rpc_world.rank else [get_sync, get_async, get_then]
        check_raises((kind, rpc.RemoteError), "of __setstate__", to, make_breaks, kind, ways=ways)
    check_in_service(rpc_world)


class ReduceRaises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


def make_lock() -> Any:
    return threading.Lock()


def make_generator() -> Any:
    return (i for i in range(3))


def make_local_function() -> Any:
    return lambda: 5


def make_reduce_raises(error: BaseException) -> Any:
    return ReduceRaises(error)


UNPICKLABLE_RESULTS: list[tuple[Callable[..., Any], tuple[Any, ...], type[Exception], str]] = [
    (make_lock, (), TypeError, "lock"),
    (make_generator, (), TypeError, "generator"),
    (make_local_function, (), pickle.PicklingError, "pickle"),
    (make_reduce_raises, (KeyError("of __reduce__"),), KeyError, "of __reduce__"),
    (make_reduce_raises, (SystemExit("of __reduce__"),), rpc.RemoteError, "of __reduce__"),
]


@pytest.mark.parametrize(("function", "args", "kind", "shown"), UNPICKLABLE_RESULTS)
@pytest.mark.mpi(min_size=2)
def test_result_that_cannot_be_pickled(
    rpc_world: RpcWorld,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kind: type[Exception],
    shown: str,
) -> None:
    check_raises(kind, shown, rpc_world.next, function, *args)
    check_in_service(rpc_world)


def test_argument_that_cannot_be_pickled(rpc_world: RpcWorld) -> None:
    held = rpc.RRef(5)
    for to in rpc_world.everybody:
        for argument in (threading.Lock(), (i for i in range(3)), lambda: 5):
            for start in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
                # The reference before it has been packed already, and is taken back.
                with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
                    start(to, identity, args=([held, argument],))
    del held
    check_in_service(rpc_world)


def test_argument_that_exits_while_it_is_pickled(rpc_world: RpcWorld) -> None:
    for to in rpc_world.everybody:
        for start in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(KeyboardInterrupt):
                start(to, identity, args=([rpc.RRef(5), ReduceRaises(KeyboardInterrupt())],))
    check_in_service(rpc_world)
