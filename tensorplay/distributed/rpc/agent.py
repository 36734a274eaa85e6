"""One worker: makes calls, serves those of others.

A call travels as ``CALL`` and is answered by ``REPLY`` or ``ERROR`` under the same number.
``CREATE`` makes a value that stays on its owner, ``FETCH`` asks for a copy of it, ``DROP`` returns
the weights of references that are gone (see `ownership`).

Threads: `_receive` runs on whichever thread polls and never runs user code.  What does, it returns
as a task (see `transport.progress`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.current import set_thread_agent
from tensorplay.distributed.rpc.errors import Failure, RpcTimeoutError, rebuild
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.messages import make_recorder
from tensorplay.distributed.rpc.options import UNSET_RPC_TIMEOUT, MPIRpcBackendOptions
from tensorplay.distributed.rpc.ownership import RRefId
from tensorplay.distributed.rpc.rref import RRef
from tensorplay.distributed.rpc.rref_calls import apply_to_value, fail
from tensorplay.distributed.rpc.rref_table import RRefTable
from tensorplay.distributed.rpc.serialization import Packed, pack, receive_references, unpack
from tensorplay.distributed.rpc.server import LOCAL_ID, Server
from tensorplay.distributed.rpc.termination import Counts, Outgoing, Termination
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport import Completion, Message, Progress, Transport
from tensorplay.distributed.transport.wire import NO_CONTEXT

#: Seconds that serving threads get to end at shutdown.
_STOP_PATIENCE = 5.0
#: Seconds that rank 0 gets to say who has not come to a shutdown.
_ASK_PATIENCE = 1.0

Handler = Callable[[Message], Callable[[], None] | None]


class _Call(Future):
    """The future of a call that has not been answered."""

    __slots__ = ("context", "creates", "deadline", "lost", "pinned", "seconds", "worker")

    def __init__(
        self, worker: int, context: int, seconds: float, pinned: RRef[Any] | None, creates: bool
    ) -> None:
        super().__init__()
        self.worker = worker
        self.context = context
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds if seconds else float("inf")
        #: The reference whose value the call uses: it lives at least as long as the call.
        self.pinned = pinned
        #: The call makes a value that stays on its owner.
        self.creates = creates
        #: It was not sent, or has expired: no answer will be taken.
        self.lost = False


class Agent:
    """The RPC agent of one worker.

    Args:
        workers: All workers, in the order of their ranks.
        transport: Carries the messages.
        options: Timeouts and such.
        crashed: Called, on the thread concerned, when serving fails in a way that no caller can be
            told about.

    Attributes:
        calls_made: Calls sent from here.
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
        self.calls_made = 0
        self._by_name = {info.name: info for info in self.workers}
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        # Not later than the first deadline among `_calls`.
        self._first_deadline = float("inf")
        self._deadline_lock = threading.Lock()
        #: References whose values are used by calls that have expired but may still be executed.
        self._expired_pins: dict[int, RRef[Any]] = {}
        self._counting = threading.Lock()
        self._sent = 0
        self._received = 0
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
    def calls_served(self) -> int:
        """Calls executed here."""
        return self._server.calls_served

    @property
    def calls_outstanding(self) -> int:
        """Calls made from here that have not been answered."""
        return len(self._calls)

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
        worker = self.resolve(to).id
        request: Any = (function, *_arguments(args, kwargs))
        return self._request(messages.CALL, worker, request, timeout, copy=not waits)

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
        return self._create(worker, (function, *_arguments(args, kwargs)), timeout, None)

    def create_from_value(self, rref: RRef[Any], request: Any, timeout: float) -> RRef[Any]:
        """Like `use_value`, but the result stays with the owner; the reference to it."""
        return self._create(rref._owner, request, timeout, rref)

    def _create(
        self, worker: int, request: Any, timeout: float, pinned: RRef[Any] | None
    ) -> RRef[Any]:
        rref_id = self.rrefs.new_id()
        prefix = LOCAL_ID.pack(rref_id.local_id)
        creation = self._request(
            messages.CREATE, worker, request, timeout, copy=True, pinned=pinned, prefix=prefix
        )
        return RRef._make(self, worker, rref_id, 0, creation)

    def fetch(self, rref: RRef[Any], timeout: float) -> Any:
        """A copy of the value of a reference that another worker owns."""
        request = tuple(rref._id)
        return self._request(
            messages.FETCH, rref._owner, request, timeout, copy=False, pinned=rref
        ).wait()

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
        call = (tuple(rref._id), function, *_arguments(args, kwargs))
        return self.use_value(rref, (apply_to_value, call, {}), timeout, waits=waits)

    def use_value(self, rref: RRef[Any], request: Any, timeout: float, *, waits: bool) -> Future:
        """Start a call on the owner of a reference that uses the value."""
        return self._request(
            messages.CALL, rref._owner, request, timeout, copy=not waits, pinned=rref
        )

    def wait_for_calls(self, context: int) -> None:
        """Wait until the calls made from here under an autograd context have ended, some way."""
        for call in list(self._calls.values()):
            if call.context == context:
                call.wait_until(None)

    def seconds(self, timeout: float) -> float:
        """The timeout of a call in seconds, 0 for none; -1 stands for the default."""
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise TypeError(f"timeout must be a number of seconds, got {timeout!r}")
        if timeout == UNSET_RPC_TIMEOUT:
            return self.options.rpc_timeout
        return float(timeout)

    def _request(
        self,
        kind: int,
        worker: int,
        request: Any,
        timeout: float,
        *,
        copy: bool,
        pinned: RRef[Any] | None = None,
        prefix: bytes = b"",
    ) -> _Call:
        if self.closed:
            raise RuntimeError("RPC has not been initialized: this worker's agent is shut down")
        recorder = self.recorder
        context = recorder.current()
        own = worker == self.rank
        call = _Call(
            worker, context, self.seconds(timeout), pinned, creates=kind == messages.CREATE
        )
        packed = pack(request, copy=copy or own)
        body = prefix + packed.body if prefix else packed.body
        message = Message(kind, worker, body, packed.buffers)
        message.call = number = next(self._numbers)
        message.grad_count = len(packed.tensors)
        self._calls[number] = call
        self._note_deadline(call.deadline)
        try:
            if pinned is not None:
                # Not before the call is entered: from here on `_expire` sees it.
                pinned._check_creation()
            if context != NO_CONTEXT:
                message.context = context
                recorder.record_send(message, packed.tensors)
            if own:
                with self._counting:
                    self.calls_made += 1
                self.send_to_self(message)
            else:
                message.on_failure = partial(self._not_sent, packed)
                with self._counting:
                    self.calls_made += 1
                    self._sent += 1
                self.transport.send(message)
        except BaseException:
            self._forget(number)
            packed.discard()
            raise
        return call

    def _not_sent(self, packed: Packed, message: Message, error: Exception) -> None:
        with self._counting:
            self._sent -= 1
        self.recorder.retract_send(message)
        packed.discard()
        if message.kind == messages.CREATE:
            # References to the value may be with other workers: its owner must hear of its failure.
            notice = pack((fail, (str(error),), {}), copy=False).body
            body = message.body[: LOCAL_ID.size] + notice
            self.send(Message(messages.CREATE, message.peer, body))
        call = self._forget(message.call)
        if call is not None:
            call.lost = True
            call.finish(failure=partial(RuntimeError, str(error)))

    def _forget(self, number: int) -> _Call | None:
        """Take back a call that has not been sent; None if it has expired already."""
        self._expired_pins.pop(number, None)
        call = self._calls.pop(number, None)
        if call is not None:
            call.pinned = None
        return call

    def send(self, message: Message) -> None:
        """Send a message to another worker; any thread."""
        with self._counting:
            self._sent += 1
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
                self._received += 1
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
        # References in it are dropped in good order, should nobody ever ask for the result.
        references = receive_references(message.body)
        call = self._calls.pop(message.call, None)
        if call is None:
            # The caller has given up waiting.
            self._expired_pins.pop(message.call, None)
            return
        call.pinned = None
        if message.kind == messages.ERROR:
            call.finish(failure=partial(self._decode_error, message))
        else:
            call.finish(decode=partial(self._decode_reply, message, references))

    def _decode_error(self, message: Message) -> Exception:
        value, _ = unpack(message.body, message.buffers)
        return rebuild(Failure(*value))

    def _decode_reply(self, message: Message, references: Sequence[Any]) -> Any:
        value, tensors = unpack(message.body, message.buffers, references)
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
        # In the order in which they were made: what waits for a value expires with its creation.
        creations: dict[Future | None, Callable[[], BaseException]] = {}
        for number, call in self._calls.copy().items():
            pinned = call.pinned
            failure = None if pinned is None else creations.get(pinned._creation)
            if failure is None and call.deadline <= now:
                failure = partial(self._timeout_error, call.seconds, call.worker, call.creates)
            if failure is None or self._calls.pop(number, None) is None:
                continue
            if pinned is not None:
                self._expired_pins[number] = pinned
                call.pinned = None
            if call.creates:
                creations[call] = failure
            call.lost = True
            call.finish(failure=failure)
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

    def _timeout_error(self, seconds: float, worker: int, creates: bool) -> RpcTimeoutError:
        text = (
            f"RPC ran for more than set timeout ({seconds * 1e3:g} ms) and will now be marked "
            f"with an error: no answer from worker {self.workers[worker].name!r}"
        )
        if creates:
            text = (
                "RRef creation via rpc.remote() timed out, and it is possible that the RRef on the "
                f"owner node does not exist. {text}"
            )
        return RpcTimeoutError(text)

    # -- tasks -----------------------------------------------------------------------------------

    def run_soon(self, function: Callable[[], None]) -> None:
        """Have a serving thread run `function`; shutdown waits for it."""
        if self._ended:
            function()
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
        with self._counting:
            sent = self._sent
        return Counts(sent, self._received, active)

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

    def join(self, timeout: float) -> None:
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
            call.lost = True
            call.pinned = None
            call.finish(failure=failure)
        self._calls.clear()
        self._expired_pins.clear()
        # Callbacks of what has just failed, and of what came too late for a serving thread.
        self._ended = True
        self.progress.run_queue()
        self.recorder.close()
        self.rrefs.clear()


def _arguments(
    args: Sequence[Any] | None, kwargs: dict[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if args is None:
        args = ()
    elif not isinstance(args, (tuple, list)):
        raise TypeError(
            f"args must be a tuple or a list of arguments, got {type(args).__name__}; for a single "
            "argument write args=(value,)"
        )
    return tuple(args), dict(kwargs) if kwargs else {}
