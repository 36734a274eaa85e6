"""One worker: makes calls, serves those of others.

A call travels as ``CALL`` and is answered by ``REPLY`` or ``ERROR`` under the same number.
``CREATE`` makes a value that stays on its owner, ``FETCH`` asks for a copy of it, ``DROP`` returns
the weights of references that are gone (see `ownership`).

Threads: `_receive` runs on whichever thread polls and never runs user code.  What does, it returns
as a task (see `transport.progress`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.counter import Counter
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent
from tensorplay.distributed.rpc.errors import Failure, RpcTimeoutError, rebuild
from tensorplay.distributed.rpc.futures import Future, run_inline
from tensorplay.distributed.rpc.messages import make_recorder
from tensorplay.distributed.rpc.options import UNSET_RPC_TIMEOUT, MPIRpcBackendOptions
from tensorplay.distributed.rpc.ownership import RRefId
from tensorplay.distributed.rpc.rref import RRef
from tensorplay.distributed.rpc.rref_table import RRefTable
from tensorplay.distributed.rpc.serialization import (
    NONE,
    REFERENCE_TABLE,
    Packed,
    pack,
    pack_call,
    receive_references,
    unpack,
    unpack_result,
)
from tensorplay.distributed.rpc.server import LOCAL_ID, Server
from tensorplay.distributed.rpc.termination import Counts, Outgoing, Termination
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport import Completion, Message, Progress, Transport
from tensorplay.distributed.transport.wire import NO_CONTEXT

#: Seconds that serving threads get to end at shutdown.
_STOP_PATIENCE = 5.0
#: Seconds that rank 0 gets to say who has not come to a shutdown.
_ASK_PATIENCE = 1.0
_NEVER = float("inf")

Handler = Callable[[Message], Callable[[], None] | None]


class _Call(Future):
    """The future of a call that has not been answered.

    Attributes:
        worker: Rank of the callee.
        function: What is called there, if a function is.
        kind: What was sent; see `messages`.
        context: The autograd context of the call, or `NO_CONTEXT`.
        began: When it was made (monotonic seconds).
        seconds: Its timeout, 0 for none.
        deadline: When it expires (monotonic seconds).
        pinned: The reference whose value the call uses: it lives at least as long as the call.
    """

    kind: int
    pinned: RRef[Any] | None = None

    def __init__(
        self, worker: int, function: Callable[..., Any] | None, context: int, seconds: float
    ) -> None:
        self.worker = worker
        self.function = function
        self.context = context
        self.began = began = time.monotonic()
        self.seconds = seconds
        self.deadline = began + seconds if seconds else _NEVER


class Agent:
    """The RPC agent of one worker.

    Args:
        workers: All workers, in the order of their ranks.
        transport: Carries the messages.
        options: Timeouts and such.
        crashed: Called, on the thread concerned, when serving fails in a way that no caller can be
            told about.

    Attributes:
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
        self._calls: dict[int, _Call] = {}
        # Not later than the first deadline among `_calls`.
        self._first_deadline = float("inf")
        self._deadline_lock = threading.Lock()
        #: References whose values are used by calls that have expired but may still be executed.
        self._expired_pins: dict[int, RRef[Any]] = {}
        self._made = Counter()
        # Messages to each worker that were handed to the transport, came back from it as not to be
        # sent, and messages from each.
        self._sent = [Counter() for _ in self.workers]
        self._unsent = [Counter() for _ in self.workers]
        self._received = [0 for _ in self.workers]
        self._termination = Termination(self.rank, transport.size, self._counts)
        self._terminating = threading.Lock()
        self._stopped = Future()
        self._told_who_is_missing = Completion()
        self.closed = False
        self._ended = False
        self._handlers: dict[int, Handler] = {
            messages.REPLY: self._on_reply,
            messages.ERROR: self._on_reply,
            messages.DROP: self._on_drop,
            messages.TERMINATION: self._on_termination,
        }
        self._server = Server(self)
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
        return self._made.value

    @property
    def calls_served(self) -> int:
        """Calls executed here."""
        return self._server.calls_served

    @property
    def calls_outstanding(self) -> int:
        """Calls made from here that have not been answered."""
        return len(self._calls)

    @property
    def creations_outstanding(self) -> int:
        """Values that others have been asked to make and have not acknowledged."""
        return sum(call.kind == messages.CREATE for call in self._calls.copy().values())

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
            f"Cannot get WorkerInfo from name {to!r}: give a worker's name, rank or WorkerInfo"
        )

    def get_worker_info(self, worker: str | int | WorkerInfo | None = None) -> WorkerInfo:
        """A worker by name or rank; this one by default."""
        return self.workers[self.rank] if worker is None else self.resolve(worker)

    def get_worker_infos(self) -> list[WorkerInfo]:
        """All workers, in the order of their ranks."""
        return list(self.workers)

    def get_debug_info(self) -> dict[str, str]:
        """Counters of calls and threads, as strings."""
        progress = self.progress
        counts = {
            "server_active_calls": len(self._server.executing),
            "server_active_async_calls": self._server.deferred,
            "client_active_calls": len(self._calls),
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
            function, *_arguments(args, kwargs), copy=not waits or worker == self.rank
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
        packed = pack_call(function, *_arguments(args, kwargs), copy=True)
        rref_id = self.rrefs.new_id()
        body = LOCAL_ID.pack(rref_id.local_id) + packed.body
        self._send_call(messages.CREATE, call, packed, body)
        return RRef._make(self, worker, rref_id, 0, call)

    def fetch(self, rref: RRef[Any], timeout: float) -> Any:
        """A copy of the value of a reference that another worker owns."""
        rref._check_creation()
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
        rref._check_creation()
        worker = rref._owner
        call = self._new_call(worker, function, timeout)
        call.pinned = rref
        on_value = (tuple(rref._id), function, *_arguments(args, kwargs))
        packed = pack_call(_apply_to_value, on_value, {}, copy=not waits or worker == self.rank)
        self._send_call(messages.CALL, call, packed, packed.body)
        return call

    def wait_for_calls(self, context: int) -> None:
        """Wait until the calls made from here under an autograd context have ended, some way."""
        for call in list(self._calls.values()):
            if call.context == context:
                call.wait_until(None)

    def seconds(self, timeout: float) -> float:
        """The timeout of a call in seconds, 0 for none; -1 stands for the default."""
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise TypeError(f"timeout must be a number of seconds, got {timeout!r}")
        if timeout != timeout:
            raise ValueError("timeout must be a number of seconds, got nan")
        if timeout == UNSET_RPC_TIMEOUT:
            return self.options.rpc_timeout
        return float(timeout)

    def _new_call(self, worker: int, function: Callable[..., Any] | None, timeout: float) -> _Call:
        if self.closed:
            raise RuntimeError("RPC has not been initialized: this worker's agent is shut down")
        seconds = (
            self.options.rpc_timeout if timeout is UNSET_RPC_TIMEOUT else self.seconds(timeout)
        )
        return _Call(worker, function, self.recorder.current(), seconds)

    def _send_call(self, kind: int, call: _Call, packed: Packed, body: bytes) -> None:
        worker = call.worker
        call.kind = kind
        message = Message(kind, worker, body, packed.buffers)
        message.call = number = self._made.add() + 1
        tensors = packed.tensors
        if tensors:
            message.grad_count = len(tensors)
        self._calls[number] = call
        if call.deadline < self._first_deadline:
            self._note_deadline(call.deadline)
        try:
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
            self._calls.pop(number, None)
            packed.discard()
            raise

    def _not_sent(self, packed: Packed, message: Message, error: Exception) -> None:
        self._unsent[message.peer].add()
        self.recorder.retract_send(message)
        packed.discard()
        call = self._calls.pop(message.call, None)
        if call is not None:
            call.finish(failure=partial(RuntimeError, str(error)))

    def send(self, message: Message) -> None:
        """Send a message to another worker; any thread."""
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
            if message.kind != messages.TERMINATION:
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
        call = self._calls.pop(message.call, None)
        if call is None:
            # The caller has given up waiting.
            self._expired_pins.pop(message.call, None)
            return
        call.pinned = None
        if message.kind == messages.ERROR:
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
        drops, _ = unpack(message.body, message.buffers)
        for created_on, local_id, exponent in drops:
            self.rrefs.give_back(RRefId(created_on, local_id), exponent)
        return self._server.task(partial(self.rrefs.let_go)) if self.rrefs.free else None

    def send_drops(self) -> None:
        """Tell owners of the references that are gone."""
        for owner, drops in self.rrefs.take_dropped().items():
            body = pack([(*rref_id, exponent) for rref_id, exponent in drops], copy=False).body
            self.send(Message(messages.DROP, owner, body))
        if self.rrefs.free:
            self.run_soon(partial(self.rrefs.let_go))

    def _tick(self, now: float) -> None:
        if now >= self._first_deadline:
            self._expire(now)
        if self.rrefs.dropped:
            self.send_drops()
        with self._terminating:
            outgoing = self._termination.tick(now)
        self._send_termination(outgoing)

    def _expire(self, now: float) -> None:
        # Unlike list(items()), a copy is made in one piece: no finaliser can run in between.
        for number, call in self._calls.copy().items():
            if call.deadline <= now and self._calls.pop(number, None) is not None:
                if call.pinned is not None:
                    self._expired_pins[number] = call.pinned
                    call.pinned = None
                call.finish(failure=partial(self._timeout_error, call.seconds, call.worker))
        # Calls are entered before their deadlines are noted.  So what is entered before the look
        # at all of them is noted below, and what is entered later notes its own.
        with self._deadline_lock:
            self._first_deadline = float("inf")
        for call in list(self._calls.values()):
            self._note_deadline(call.deadline)

    def _note_deadline(self, deadline: float) -> None:
        if deadline < self._first_deadline:
            # Nothing is allocated in here: no finaliser can run, which might make a call.
            with self._deadline_lock:
                if deadline < self._first_deadline:
                    self._first_deadline = deadline

    def _timeout_error(self, seconds: float, worker: int) -> RpcTimeoutError:
        return RpcTimeoutError(
            f"RPC ran for more than set timeout ({seconds * 1e3:g} ms) and will now be marked "
            f"with an error: no answer from worker {self.workers[worker].name!r}"
        )

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

    # -- shutdown --------------------------------------------------------------------------------

    def _counts(self) -> Counts:
        # Activity before counts: what was active and has ended has counted its messages.
        active = bool(
            self._server.executing or self._calls or self.rrefs.dropped or self.transport.busy
        )
        sent = sum(counter.value for counter in self._sent)
        sent -= sum(counter.value for counter in self._unsent)
        return Counts(sent, sum(self._received), active)

    def _send_termination(self, outgoing: list[Outgoing]) -> None:
        for rank, payload in outgoing:
            body = pack(payload, copy=False).body
            self.transport.send(Message(messages.TERMINATION, rank, body))
        if self._termination.stopped:
            self._stopped.finish()
        if self._termination.missing is not None:
            self._told_who_is_missing.complete()

    def _on_termination(self, message: Message) -> None:
        payload, _ = unpack(message.body, message.buffers)
        with self._terminating:
            outgoing = self._termination.receive(message.peer, payload)
        self._send_termination(outgoing)

    def join(self, timeout: float = 0) -> None:
        """Serve until no worker has anything outstanding.  Collective over all workers.

        Args:
            timeout: Seconds; 0 for no limit.

        Raises:
            RpcTimeoutError: It took longer.
        """
        with self._terminating:
            outgoing = self._termination.join()
        self._send_termination(outgoing)
        deadline = time.monotonic() + timeout if timeout else None
        if not self.progress.rest(self._stopped, deadline):
            reason = self._who_holds_up()
            raise RpcTimeoutError(f"shutdown took longer than {timeout:g} s; {reason}")

    def _who_holds_up(self) -> str:
        if self._termination.missing is None:
            with self._terminating:
                outgoing = self._termination.ask()
            self._send_termination(outgoing)
            self.progress.rest(self._told_who_is_missing, time.monotonic() + _ASK_PATIENCE)
        missing = self._termination.missing
        if missing is None:
            return f"{self.workers[0].name} does not answer"
        names = ", ".join(self.workers[rank].name for rank in missing)
        return f"not there yet: {names}" if names else "others still work"

    def close(self, graceful: bool) -> None:
        """Stop serving; calls still unanswered fail."""
        self.closed = True
        if graceful:
            # The last messages of the termination protocol must have left.
            deadline = time.monotonic() + _STOP_PATIENCE
            while self.transport.busy and time.monotonic() < deadline:
                time.sleep(1e-4)
        self.progress.stop(_STOP_PATIENCE)
        failure = partial(RuntimeError, "RPC was shut down before this call was answered")
        for call in list(self._calls.values()):
            call.finish(failure=failure)
        self._calls.clear()
        self._expired_pins.clear()
        # Callbacks of what has just failed, and of what came too late for a serving thread.
        self._ended = True
        self.progress.run_queue()
        self.recorder.close()
        self.rrefs.clear()


def _decode_plain(body: bytes) -> Any:
    return unpack_result(body, ())[0]


def _apply_to_value(
    rref_id: tuple[int, int],
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    value = current_agent().rrefs.value_of(RRefId(*rref_id)).wait()
    return function(value, *args, **kwargs)


def _arguments(
    args: Sequence[Any] | None, kwargs: dict[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
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
