"""One worker: makes calls, serves those of others.

A call travels as ``CALL`` and is answered by ``REPLY`` or ``ERROR`` under the same number.
``CREATE`` makes a value that stays on its owner, ``FETCH`` asks for a copy of it, ``DROP`` returns
the weights of references that are gone (see `ownership`).

Threads: `_receive` runs on whichever thread polls and never runs user code.  What does, it returns
as a task (see `transport.progress`).
"""

from __future__ import annotations

import numbers
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.calls import Call, Calls
from tensorplay.distributed.rpc.counter import Counter
from tensorplay.distributed.rpc.current import set_thread_agent, why_forbidden
from tensorplay.distributed.rpc.errors import Failure, rebuild
from tensorplay.distributed.rpc.futures import Future, run_inline
from tensorplay.distributed.rpc.leaving import Leaving
from tensorplay.distributed.rpc.messages import make_recorder
from tensorplay.distributed.rpc.options import (
    LONGEST_TIMEOUT,
    UNSET_RPC_TIMEOUT,
    MPIRpcBackendOptions,
)
from tensorplay.distributed.rpc.ownership import RRefId
from tensorplay.distributed.rpc.payloads import NONE, pack_call, unpack_result
from tensorplay.distributed.rpc.rref import RRef
from tensorplay.distributed.rpc.rref_calls import apply_to_value, fail
from tensorplay.distributed.rpc.rref_table import RRefTable
from tensorplay.distributed.rpc.serialization import (
    REFERENCE_TABLE,
    Packed,
    pack,
    receive_references,
    unpack,
)
from tensorplay.distributed.rpc.server import LOCAL_ID, Running, Server
from tensorplay.distributed.rpc.termination import Counts
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport import Completion, Message, Progress, Transport
from tensorplay.distributed.transport.wire import NO_CONTEXT

#: Seconds that serving threads get to end at shutdown.
_STOP_PATIENCE = 5.0
#: Seconds that a worker that departs gives to what it has sent.
_PARTING_PATIENCE = 1.0

#: Function and arguments of a call.
Request = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
Handler = Callable[[Message], Callable[[], None] | None]


class Agent:
    """The RPC agent of one worker.

    Args:
        workers: All workers, in the order of their ranks.
        transport: Carries the messages.
        options: Timeouts and such.
        crashed: Called, on the thread concerned, when serving fails in a way that no caller can be
            told about.

    Attributes:
        departed: Workers that have left without waiting for the others.
        at_end: What `shutdown` has to undo, last first.
        closed: No calls are made or served any more.
    """

    def __init__(
        self,
        workers: Sequence[WorkerInfo],
        transport: Transport,
        options: MPIRpcBackendOptions,
        crashed: Callable[[BaseException], None],
    ) -> None:
        self.workers = tuple(workers)
        self.rank = transport.rank
        self.name = self.workers[self.rank].name
        self.options = options
        self.transport = transport
        self.rrefs = RRefTable(self.rank)
        self.progress = Progress(
            transport,
            self._receive,
            self._tick,
            crashed,
            self.name,
            partial(set_thread_agent, self),
        )
        self._by_name = {info.name: info for info in self.workers}
        self.calls = Calls(self._ask, lambda rank: self.workers[rank].name)
        # Messages to each worker that were handed to the transport, came back from it as not to be
        # sent, and messages from each.
        self._sent = [Counter() for _ in self.workers]
        self._unsent = [Counter() for _ in self.workers]
        self._received = [0 for _ in self.workers]
        self.at_end: list[Callable[[], None]] = []
        self.closed = False
        self._ended = False
        self._handlers: dict[int, Handler] = {
            messages.REPLY: self._on_reply,
            messages.ERROR: self._on_reply,
            messages.DROP: self._on_drop,
            messages.INQUIRY: self._on_inquiry,
            messages.STATUS: self._on_status,
        }
        self._server = Server(self)
        self.leaving = Leaving(self, self._counts)
        self.departed = self.leaving.departed
        self.recorder = make_recorder(self)

    def start(self) -> None:
        """Begin to serve.  All agents of the world must exist before any is used."""
        self.progress.start()

    def handle(self, kind: int, handler: Handler) -> None:
        """Have `handler` receive messages of a further kind.

        It runs on the polling thread: quick, not blocking, no user code; that it returns as a task.
        """
        self._handlers[kind] = handler

    @property
    def calls_made(self) -> int:
        """Calls, fetches and creations started here."""
        return self.calls.made

    @property
    def calls_served(self) -> int:
        """Calls executed here."""
        return self._server.calls_served

    @property
    def calls_outstanding(self) -> int:
        """Calls made from here that have not been answered."""
        return len(self.calls.outstanding)

    @property
    def creations_outstanding(self) -> int:
        """Values that others have been asked to make and have not acknowledged."""
        return sum(call.creates for call in self.calls.outstanding.copy().values())

    # -- workers ---------------------------------------------------------------------------------

    def resolve(self, to: str | int | WorkerInfo) -> WorkerInfo:
        """The worker meant by a name, a rank or a `WorkerInfo`."""
        if isinstance(to, WorkerInfo):
            to = to.name
        if isinstance(to, str):
            info = self._by_name.get(to)
            if info is None:
                names = ", ".join(sorted(self._by_name))
                raise RuntimeError(f"could not find destination {to!r}; the workers are: {names}")
            return info
        if isinstance(to, int):
            if 0 <= to < len(self.workers):
                return self.workers[to]
            raise RuntimeError(
                f"could not find destination {to}; ranks go from 0 to {len(self.workers) - 1}"
            )
        raise ValueError(
            f"Cannot get WorkerInfo from name {to!r}: give a worker's name, its rank as an int, or "
            "its WorkerInfo"
        )

    def get_worker_info(self, worker: str | int | WorkerInfo | None = None) -> WorkerInfo:
        """A worker by name or rank; this one by default."""
        return self.workers[self.rank] if worker is None else self.resolve(worker)

    def get_worker_infos(self) -> list[WorkerInfo]:
        """All workers, in the order of their ranks."""
        return list(self.workers)

    @property
    def running(self) -> list[Running]:
        """What threads are executing for other workers, and for this one."""
        return self._server.running

    @property
    def waiting_to_run(self) -> int:
        """Calls and other tasks that wait for a thread, or for a value."""
        return max(len(self._server.executing) - len(self._server.running), 0)

    def get_debug_info(self) -> dict[str, str]:
        """Counters of calls and threads, as strings."""
        progress = self.progress
        counts = {
            "server_active_calls": len(self._server.executing),
            "server_active_async_calls": self._server.deferred,
            "client_active_calls": len(self.calls.outstanding),
            "num_idle_threads": progress.idle_count,
            "thread_pool_size": progress.thread_count,
        }
        return {f"agent.{name}": str(count) for name, count in counts.items()}

    # -- making calls ----------------------------------------------------------------------------

    def call(
        self,
        to: str | int | WorkerInfo,
        function: Callable[..., Any],
        args: Sequence[Any] | None,
        kwargs: dict[str, Any] | None,
        timeout: float,
        *,
        waits: bool,
    ) -> Future:
        """Start a call; `waits` tells that the caller will not touch the arguments meanwhile."""
        info = self._by_name.get(to) if type(to) is str else None
        worker = (info or self.resolve(to)).id
        call = self._new_call(worker, function, timeout)
        packed = pack_call(
            function, *_arguments(function, args, kwargs), copy=not waits or worker == self.rank
        )
        self._send_call(messages.CALL, call, packed, packed.body)
        return call

    def create(
        self,
        to: str | int | WorkerInfo,
        function: Callable[..., Any],
        args: Sequence[Any] | None,
        kwargs: dict[str, Any] | None,
        timeout: float,
    ) -> RRef[Any]:
        """Start a call whose result stays where it is made; the reference to it."""
        worker = self.resolve(to).id
        call = self._new_call(worker, function, timeout)
        return self._create(
            call, pack_call(function, *_arguments(function, args, kwargs), copy=True)
        )

    def create_from_value(self, rref: RRef[Any], request: Request, timeout: float) -> RRef[Any]:
        """Like `use_value`, but the result stays with the owner; the reference to it."""
        call = self._new_call(rref._owner, request[0], timeout)
        call.pinned = rref
        return self._create(call, pack_call(*request, copy=True))

    def _create(self, call: Call, packed: Packed) -> RRef[Any]:
        call.creates = True
        rref_id = self.rrefs.new_id()
        body = LOCAL_ID.pack(rref_id.local_id) + packed.body
        self._send_call(messages.CREATE, call, packed, body)
        return RRef._make(self, call.worker, rref_id, 0, call)

    def fetch(self, rref: RRef[Any], timeout: float) -> Any:
        """A copy of the value of a reference that another worker owns."""
        call = self._new_call(rref._owner, None, timeout)
        call.pinned = rref
        packed = pack(tuple(rref._id), copy=False)
        self._send_call(messages.FETCH, call, packed, packed.body)
        return call.wait()

    def call_on_value(
        self,
        rref: RRef[Any],
        function: Callable[..., Any],
        args: Sequence[Any] | None,
        kwargs: dict[str, Any] | None,
        timeout: float,
        *,
        waits: bool,
    ) -> Future:
        """Start ``function(value, *args, **kwargs)`` on the owner of a reference.

        The reference is kept until the answer has come, so the message needs no copy of it.
        """
        on_value = (tuple(rref._id), function, *_arguments(function, args, kwargs))
        call = self.use_value(rref, (apply_to_value, on_value, {}), timeout, waits=waits)
        call.function = function
        return call

    def use_value(self, rref: RRef[Any], request: Request, timeout: float, *, waits: bool) -> Call:
        """Start a call on the owner of a reference that uses the value."""
        worker = rref._owner
        call = self._new_call(worker, request[0], timeout)
        call.pinned = rref
        packed = pack_call(*request, copy=not waits or worker == self.rank)
        self._send_call(messages.CALL, call, packed, packed.body)
        return call

    def wait_for_calls(self, context: int) -> None:
        """Wait until the calls made from here under an autograd context have ended, some way."""
        for call in list(self.calls.outstanding.values()):
            if call.context == context:
                call.wait_until(None)

    def seconds(self, timeout: float) -> float:
        """The timeout of a call in seconds, 0 for none; -1 stands for the default."""
        number: object = timeout
        if isinstance(number, bool) or not isinstance(number, numbers.Real):
            raise TypeError(f"timeout must be a number of seconds, got {timeout!r}")
        if timeout != timeout or timeout > LONGEST_TIMEOUT:
            raise ValueError(
                f"timeout must be a number of seconds, 0 for no limit, got {timeout!r}"
            )
        if timeout == UNSET_RPC_TIMEOUT:
            return self.options.rpc_timeout
        return float(max(timeout, -LONGEST_TIMEOUT))

    def _new_call(self, worker: int, function: Callable[..., Any] | None, timeout: float) -> Call:
        if self.closed:
            raise RuntimeError(
                why_forbidden() or "RPC has not been initialized: this worker's agent is shut down"
            )
        seconds = (
            self.options.rpc_timeout if timeout is UNSET_RPC_TIMEOUT else self.seconds(timeout)
        )
        return Call(worker, function, self.recorder.current(), seconds)

    def _send_call(self, kind: int, call: Call, packed: Packed, body: bytes) -> None:
        worker = call.worker
        message = Message(kind, worker, body, packed.buffers)
        tensors = packed.tensors
        if tensors:
            message.grad_count = len(tensors)
        message.call = number = self.calls.enter(call)
        try:
            if worker in self.departed:
                # Looked at after the call has been entered: `_on_parting` does it the other way.
                raise self.leaving.has_left(worker)
            if call.pinned is not None:
                call.pinned._check_agent(self)
                # Not before the call is entered: from here on `Calls.look` sees it.
                call.pinned._check_creation()
            context = call.context
            if context != NO_CONTEXT:
                message.context = context
                self.recorder.record_send(message, tensors)
            if worker == self.rank:
                self.send_to_self(message)
            else:
                message.on_failure = partial(self._not_sent, packed)
                self._sent[worker].add()
                self.transport.send(message)
        except BaseException:
            self.calls.forget(number)
            packed.discard()
            raise
        if call.seconds < 0:
            # Expired as soon as it is made, whether or not somebody happens to look at the clock.
            self.calls.look(time.monotonic())

    def _not_sent(self, packed: Packed, message: Message, error: Exception) -> None:
        self._unsent[message.peer].add()
        self.recorder.retract_send(message)
        packed.discard()
        if message.kind == messages.CREATE:
            # References to the value may be with other workers: its owner must hear of its failure.
            notice = pack_call(fail, (str(error),), {}, copy=False).body
            body = message.body[: LOCAL_ID.size] + notice
            self.send(Message(messages.CREATE, message.peer, body))
        call = self.calls.forget(message.call)
        if call is not None:
            call.finish(failure=partial(RuntimeError, str(error)))

    def send(self, message: Message) -> None:
        """Send a message to another worker; any thread.  One that has left gets none."""
        if message.peer in self.departed:
            return
        self._sent[message.peer].add()
        self.transport.send(message)

    def send_to_self(self, message: Message) -> None:
        """Take a message of this worker to itself as if it had come from another."""
        # Serialised like any other, so that the callee gets copies.
        message.buffers = [memoryview(bytearray(buffer)) for buffer in message.buffers]
        task = self._dispatch(message)
        if task is not None:
            self.progress.submit(task)

    # -- receiving -------------------------------------------------------------------------------

    def _receive(self, message: Message) -> Callable[[], None] | None:
        if not message.announced:
            if message.kind not in messages.UNCOUNTED:
                self._received[message.peer] += 1
            if message.context != NO_CONTEXT:
                self.recorder.announce(message)
            message.announced = True
        if not message.ready:
            return None
        return self._handlers[message.kind](message)

    def _dispatch(self, message: Message) -> Callable[[], None] | None:
        if message.context != NO_CONTEXT:
            self.recorder.announce(message)
        return self._handlers[message.kind](message)

    def _on_reply(self, message: Message) -> None:
        body = message.body
        # References in it are dropped in good order, should nobody ever ask for the result.
        references = receive_references(body) if body[0] == REFERENCE_TABLE else ()
        call = self.calls.answered(message.call)
        if call is None:
            return
        if message.kind == messages.ERROR:
            self.calls.failed += 1
            call.finish(failure=partial(self._decode_error, message))
        elif body == NONE:
            call.finish()
        elif references or message.grad_count or message.buffers:
            call.finish(decode=partial(self._decode_reply, message, references))
        else:
            call.finish(decode=partial(_decode_plain, body))

    def _decode_error(self, message: Message) -> Exception:
        value, _ = unpack(message.body, message.buffers)
        return rebuild(Failure(*value))

    def _decode_reply(self, message: Message, references: Sequence[Any]) -> Any:
        value, tensors = unpack_result(message.body, message.buffers, references)
        if tensors and message.context != NO_CONTEXT:
            self.recorder.attach(message, tensors)
        return value

    def _on_drop(self, message: Message) -> Callable[[], None] | None:
        drops = pickle.loads(message.body)
        for created_on, local_id, exponent in drops:
            self.rrefs.give_back(RRefId(created_on, local_id), exponent)
        return self._server.task(partial(self.rrefs.let_go)) if self.rrefs.free else None

    def send_drops(self) -> None:
        """Tell owners of the references that are gone."""
        for owner, drops in self.rrefs.take_dropped().items():
            body = pickle.dumps([(*rref_id, exponent) for rref_id, exponent in drops], 5)
            self.send(Message(messages.DROP, owner, body))
        if self.rrefs.free:
            self.run_soon(partial(self.rrefs.let_go))

    def _tick(self, now: float) -> None:
        if now >= self.calls.next_due:
            self.calls.look(now)
        if self.rrefs.dropped:
            self.send_drops()
        self.leaving.tick(now)

    # -- calls that take long --------------------------------------------------------------------

    def _ask(self, number: int, call: Call) -> None:
        """Ask the callee what it is doing, so that the error can tell should the call expire."""
        if call.worker == self.rank:
            call.state = self._server.describe(self.rank, number)
        elif call.worker not in self.departed:
            inquiry = Message(messages.INQUIRY, call.worker)
            inquiry.call = number
            self.transport.send(inquiry)

    def _on_inquiry(self, message: Message) -> None:
        if message.peer in self.departed:
            return
        text = self._server.describe(message.peer, message.call)
        status = Message(messages.STATUS, message.peer, text.encode())
        status.call = message.call
        self.transport.send(status)

    def _on_status(self, message: Message) -> None:
        call = self.calls.outstanding.get(message.call)
        if call is not None:
            call.state = bytes(message.body).decode()

    # -- tasks -----------------------------------------------------------------------------------

    def run_soon(self, function: Callable[[], None]) -> None:
        """Have a serving thread run `function`; shutdown waits for it."""
        if self._ended:
            run_inline(function)
        else:
            self.progress.submit(self._server.task(function))

    def in_this_context(self, function: Callable[[], None]) -> Callable[[], None]:
        """`function`, to be run elsewhere under the autograd context of this thread."""
        recorder = self.recorder
        context = recorder.current()
        if context == NO_CONTEXT:
            return function

        def run() -> None:
            before = recorder.enter(context)
            try:
                function()
            finally:
                recorder.leave(before)

        return run

    def wait(
        self,
        completion: Completion,
        deadline: float | None = None,
        mine: Callable[[Callable[[], None]], bool] | None = None,
    ) -> bool:
        """Wait, serving, until done or `deadline`; see `Progress.wait`."""
        slots = self._server.slots
        if slots is None:
            return self.progress.wait(completion, deadline, mine)
        with slots.given_up():
            return self.progress.wait(completion, deadline, mine)

    def standing_aside(self) -> AbstractContextManager[None]:
        """A block in which this thread waits for another: a call that it runs gives up its slot."""
        slots = self._server.slots
        return nullcontext() if slots is None else slots.given_up()

    # -- shutdown --------------------------------------------------------------------------------

    def _counts(self, departed: int) -> Counts:
        # Activity before counts: what was active and has ended has counted its messages.
        active = bool(
            self._server.executing
            or self.calls.outstanding
            or self.rrefs.dropped
            or self.transport.busy
        )
        remaining = [rank for rank in range(len(self.workers)) if not departed >> rank & 1]
        sent = sum(self._sent[rank].value - self._unsent[rank].value for rank in remaining)
        return Counts(sent, sum(self._received[rank] for rank in remaining), active)

    def join(self, timeout: float = 0) -> None:
        """Serve until no worker has anything outstanding; see `Leaving.join`."""
        self.leaving.join(timeout)

    def abandon(self) -> None:
        """This process is a forked child, where nobody serves.  Calls that are not answered fail.

        Their callbacks are left to the parent.
        """
        self.closed = True
        self.transport.abandon()
        failure = partial(RuntimeError, why_forbidden())
        for call in self.calls.outstanding.values():
            call.fail_without_callbacks(failure)

    def close(self, graceful: bool, hurried: bool = False) -> None:
        """Stop serving; calls still unanswered fail.

        Args:
            graceful: `join` has found that no worker has anything outstanding.
            hurried: Wait neither for what is being sent nor for what is being executed.
        """
        self.closed = True
        if graceful:
            # The last messages of the termination protocol must have left.
            self.leaving.let_out(_STOP_PATIENCE)
        else:
            self.leaving.depart(0.0 if hurried else _PARTING_PATIENCE)
        self.progress.stop(0.0 if hurried else _STOP_PATIENCE)
        self.calls.fail_all(
            partial(RuntimeError, "RPC was shut down before this call was answered")
        )
        # Callbacks of what has just failed, and of what came too late for a serving thread.
        self._ended = True
        self.progress.run_queue()
        self.recorder.close()
        self.rrefs.clear()


def _decode_plain(body: bytes) -> Any:
    return unpack_result(body, ())[0]


def _arguments(
    function: object, args: Sequence[Any] | None, kwargs: dict[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not callable(function):
        raise TypeError(
            f"function should be callable. Got {function!r}, of type {type(function).__name__}"
        )
    if type(args) is tuple and kwargs is None:
        return args, {}
    if args is None:
        args = ()
    elif not isinstance(args, (tuple, list)):
        raise TypeError(
            f"args must be a tuple or a list of arguments, got {type(args).__name__}; for a single "
            "argument write args=(value,)"
        )
    if kwargs is None:
        kwargs = {}
    elif not isinstance(kwargs, Mapping):
        raise TypeError(
            f"kwargs must be a mapping of names to arguments, got {type(kwargs).__name__}"
        )
    return tuple(args), dict(kwargs)
