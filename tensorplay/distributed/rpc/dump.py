"""What one worker is doing, as text for people who look for the cause of a hang.

Pure: `State` holds plain values, and `text_of` formats them.  `dump_state` fills a `State`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ThreadState:
    """A thread of the worker.

    Attributes:
        name: Its name.
        serves: Whether it is a serving thread of the library.
        task: The call that it executes, in words; None if it executes none.
        stack: The lines of its stack, most recent call last.
    """

    name: str
    serves: bool = False
    task: str | None = None
    stack: Sequence[str] = ()


@dataclass(frozen=True)
class OutstandingCall:
    """A call made by the worker that has not been answered.

    Attributes:
        number: Its number among the worker's calls; the callee knows it by the same.
        peer: The callee, in words.
        function: What is called, or None where it is not known.
        age: Seconds since the call.
        left: Seconds until it times out, None if it never does.
        context: Its autograd context, None if it has none.
    """

    number: int
    peer: str
    function: str | None
    age: float
    left: float | None = None
    context: int | None = None


@dataclass(frozen=True)
class ExecutedCall:
    """A call of another worker that a thread is executing.

    Attributes:
        number: Its number among the caller's calls.
        caller: The caller, in words.
        kind: Kind of its message.
        function: What is called, or None where it is not known yet.
        age: Seconds for which it has been executed.
        thread: Name of the thread.
    """

    number: int
    caller: str
    kind: str
    function: str | None
    age: float
    thread: str


@dataclass(frozen=True)
class State:
    """What one worker is doing.

    Attributes:
        rank: The worker's rank; each line of the text begins with it.
        size: The number of workers.
        name: The worker's name.
        host: Where it runs.
        pid: Its process there.
        asked_by: Who has asked for this, in words.
        threads: Its threads.
        outstanding: Calls that it waits for.
        executed: Calls that it executes.
        queued: How many further tasks wait for a thread or for a value.
        autograd: Contexts and passes, a line each.
        shutdown: How far shutdown has got, a line each.
        counters: Counters by name.
    """

    rank: int
    size: int
    name: str
    host: str
    pid: int
    asked_by: str
    threads: Sequence[ThreadState] = ()
    outstanding: Sequence[OutstandingCall] = ()
    executed: Sequence[ExecutedCall] = ()
    queued: int = 0
    autograd: Sequence[str] = ()
    shutdown: Sequence[str] = ()
    counters: dict[str, int] = field(default_factory=dict)


def text_of(state: State) -> str:
    """The text of a dump.  Each line begins with the rank: launchers mix the ranks' lines.

    >>> print(text_of(State(0, 2, "worker0", "node1", 42, "a signal")).splitlines()[0])
    [rank 0] ==== tensorplay: worker0 (rank 0 of 2), pid 42 on node1, asked by a signal
    """
    lines = [
        f"==== tensorplay: {state.name} (rank {state.rank} of {state.size}), pid {state.pid} on "
        f"{state.host}, asked by {state.asked_by}",
        *_section("calls that this worker waits for", map(_outstanding, state.outstanding)),
        *_section("calls that this worker executes", map(_executed, state.executed)),
        f"  tasks that wait for a thread or a value: {state.queued}",
        *_section("autograd contexts and passes", state.autograd),
        *_section("shutdown", state.shutdown),
        "  counters: " + ", ".join(f"{name} {n}" for name, n in state.counters.items()),
        f"  threads: {len(state.threads)}",
        *(line for thread in state.threads for line in _thread(thread)),
        f"==== end of {state.name}",
    ]
    return "".join(f"[rank {state.rank}] {line}\n" for line in lines)


def _section(title: str, lines: Iterable[str]) -> list[str]:
    items = [f"    {line}" for line in lines]
    return [f"  {title}:", *items] if items else [f"  {title}: none"]


def _outstanding(call: OutstandingCall) -> str:
    context = "" if call.context is None else f", context {call.context}"
    left = "no timeout" if call.left is None else f"times out in {max(call.left, 0.0):.1f} s"
    return (
        f"call {call.number} to {call.peer}: {call.function or 'function not known'}, "
        f"for {call.age:.1f} s, {left}{context}"
    )


def _executed(call: ExecutedCall) -> str:
    return (
        f"{call.kind} {call.number} of {call.caller}: {call.function or 'function not known'}, "
        f"for {call.age:.1f} s, on thread {call.thread!r}"
    )


def _thread(thread: ThreadState) -> list[str]:
    role = " (serving thread)" if thread.serves else ""
    task = f", executes {thread.task}" if thread.task else ""
    return [f"  thread {thread.name!r}{role}{task}", *(f"    {line}" for line in thread.stack)]
