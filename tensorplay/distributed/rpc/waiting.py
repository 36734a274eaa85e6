"""Waiting for several futures together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tensorplay.distributed.rpc.futures import Future


def collect_all(futures: Iterable[Future]) -> Future:
    """A future for the list of `futures`, done when all of them are.

    If some failed, its `wait` raises the first error there was.  Local.

    Raises:
        TypeError: One of them is no future.

    >>> from tensorplay.futures import Future, collect_all
    >>> one, two = Future(), Future()
    >>> both = collect_all([one, two])
    >>> two.set_result(2)
    >>> one.set_result(1)
    >>> [future.wait() for future in both.wait()]
    [1, 2]
    """
    return _all_of(_checked("collect_all", futures), early=False)


def wait_all(futures: Iterable[Future]) -> list[Any]:
    """Wait for all `futures`; the list of their values.

    Raises the first error that there is at once, without waiting for those still under way.  Local;
    a worker that waits goes on serving.

    Raises:
        TypeError: One of them is no future.

    >>> from tensorplay.futures import Future, wait_all
    >>> one = Future()
    >>> one.set_result(1)
    >>> wait_all([one, one.then(lambda future: future.wait() + 1)])
    [1, 2]
    """
    _all_of(every := _checked("wait_all", futures), early=True).wait()
    return [future.value() for future in every]


def _checked(caller: str, futures: Iterable[Future]) -> list[Future]:
    every = list(futures)
    for future in every:
        if not isinstance(future, Future):
            raise TypeError(f"{caller}() needs a list of futures, got a {type(future).__name__}")
    return every


def _all_of(futures: list[Future], *, early: bool) -> Future:
    """A future for the list of `futures`; it fails at the first error if `early`, else at last."""
    result = Future()
    if not futures:
        result.set_result([])
        return result
    left = len(futures)
    first: BaseException | None = None
    # Re-entrant: a finaliser that completes futures may run in between.
    counting = threading.RLock()

    def settled(future: Future) -> None:
        nonlocal left, first
        error = future.exception()
        with counting:
            left -= 1
            first = first or error
            over = left == 0 or (early and first is not None)
        if over:
            # It may be over already: early, by an error.
            if first is not None:
                result.finish(error=first)
            else:
                result.finish(value=futures)

    for future in futures:
        future.add_done_callback(settled)
    return result


#: Has a list as its ``future_list`` inside `_wait_all`, on the thread concerned.
_thread_local_var = threading.local()


@contextlib.contextmanager
def _wait_all() -> Iterator[None]:
    """A block at whose end all `rpc_async` calls made in it by this thread are waited for.

    Leaving it raises the first error of a call at once.  If the block itself raised, that is what
    leaves it, after the calls have ended in some way.  Local.

    >>> from tensorplay.distributed import rpc
    >>> with rpc.api._wait_all():
    ...     future = rpc.rpc_async("worker1", pow, args=(2, 3))
    >>> future.value()
    8
    """
    outer: list[Future] | None = getattr(_thread_local_var, "future_list", None)
    made = _thread_local_var.future_list = list[Future]()
    try:
        yield
        wait_all(made)
    except Exception:
        for future in made:
            future.wait_until(None)
        raise
    finally:
        if outer is None:
            del _thread_local_var.future_list
        else:
            _thread_local_var.future_list = outer


def note(future: Future) -> None:
    """Have the block of `_wait_all` that this thread is in, if it is, wait for `future`."""
    # Not getattr with a default: that costs an exception where there is none.
    futures: list[Future] | None = _thread_local_var.__dict__.get("future_list")
    if futures is not None:
        futures.append(future)
