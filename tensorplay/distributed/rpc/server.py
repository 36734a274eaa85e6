"""Executes the calls of other workers, and answers them.

Each runs as a task on a serving thread, under the autograd context that its message names.  What it
raises goes back to the caller; the worker stays in service.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.counter import Counter
from tensorplay.distributed.rpc.errors import describe, rebuild
from tensorplay.distributed.rpc.functions import Later, is_async
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.job import end_if_forked
from tensorplay.distributed.rpc.naming import name_for_people
from tensorplay.distributed.rpc.ownership import RRefId
from tensorplay.distributed.rpc.payloads import pack_result, unpack_call
from tensorplay.distributed.rpc.serialization import Packed, pack, unpack
from tensorplay.distributed.rpc.slots import Slots
from tensorplay.distributed.transport import Message
from tensorplay.distributed.transport.wire import NO_CONTEXT

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent

# A CREATE begins with the id of the value: it must be known even if the rest cannot be unpickled.
LOCAL_ID = struct.Struct("<Q")

Task = Callable[[], None]
# Frames of these modules are not where a user looks for what keeps a call.
_LIBRARY = ("tensorplay.", "threading", "concurrent.")


class Running(NamedTuple):
    """A request that a thread has begun to execute.

    Attributes:
        message: The request.
        began: When (monotonic seconds).
        thread: Identity of the thread.
        function: What is called; None if the request is for a value.
    """

    message: Message
    began: float
    thread: int
    function: Callable[..., Any] | None


class Server:
    """The serving side of an agent.

    Attributes:
        executing: What is being executed, or waits to be; each a unique object.
        slots: Bounds how many requests run at once; None if nothing does.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._served = Counter()
        # Requests whose answers wait for a future, without a thread.
        self._deferred: set[Message] = set()
        self.executing: set[Any] = set()
        #: By request, what threads are executing.
        self._running: dict[Message, tuple[float, int, Callable[..., Any] | None]] = {}
        limit = agent.options.num_worker_threads
        self.slots = None if limit is None else Slots(limit, agent.progress.submit)
        agent.handle(messages.CALL, partial(self._serve_task, self._serve_call))
        agent.handle(messages.CREATE, partial(self._serve_task, self._serve_create))
        agent.handle(messages.FETCH, partial(self._serve_task, self._serve_fetch))

    @property
    def calls_served(self) -> int:
        """Calls, fetches and creations executed so far."""
        return self._served.value

    @property
    def running(self) -> list[Running]:
        """What threads are executing."""
        return [Running(message, *entry) for message, entry in self._running.copy().items()]

    @property
    def deferred(self) -> int:
        """How many requests' answers wait for a future, without a thread."""
        return len(self._deferred)

    def describe(self, peer: int, call: int) -> str:
        """What has become of a call of another worker, for people.  Any thread."""
        for running in self.running:
            message = running.message
            if message.peer == peer and message.call == call:
                return self._describe_running(running)
        name = self._agent.name
        for message in self.executing.copy():
            if isinstance(message, Message) and (message.peer, message.call) == (peer, call):
                if self.slots is not None and len(self.slots):
                    return (
                        f"worker {name!r} has not begun it: it runs as many calls as "
                        f"num_worker_threads={self._agent.options.num_worker_threads} allows"
                    )
                if message in self._deferred:
                    return f"worker {name!r} waits for a future that it depends on"
                return f"worker {name!r} has not begun it"
        return f"worker {name!r} is through with it, or has not got it yet"

    def _describe_running(self, running: Running) -> str:
        seconds = time.monotonic() - running.began
        what = "it" if running.function is None else name_for_people(running.function)
        text = f"worker {self._agent.name!r} has been executing {what} for {seconds:.3g} s"
        frame = sys._current_frames().get(running.thread)
        # The user's own code tells more than the waits of the library that it calls.
        while frame is not None and frame.f_globals.get("__name__", "").startswith(_LIBRARY):
            frame = frame.f_back
        if frame is None:
            return text
        code = frame.f_code
        return f"{text}, and is in {code.co_name!r} ({code.co_filename}, line {frame.f_lineno})"

    def task(self, function: Callable[[], None]) -> Task:
        """`function`, counted among what is being executed until it has run."""
        self.executing.add(function)
        return partial(self._run, function)

    def _run(self, function: Callable[[], None]) -> None:
        try:
            function()
        finally:
            self.executing.discard(function)

    def _serve_task(self, serve: Callable[[Message], bool], message: Message) -> Task | None:
        self.executing.add(message)
        self._served.add()
        task = partial(self._serve, message, serve)
        return task if self.slots is None else self.slots.admit(task)

    def _serve(self, message: Message, serve: Callable[[Message], bool]) -> None:
        """Execute a request with `serve`, which tells whether it has been answered."""
        if self._agent.closed:
            self.executing.discard(message)
            return
        recorder = self._agent.recorder
        context = message.context
        if context != NO_CONTEXT:
            recorder.enter(context)
        answered = True
        try:
            answered = serve(message)
        except BaseException as error:
            end_if_forked(error)
            self._answer_error(message, error)
        finally:
            # Whatever the function has done to it, a serving thread is in no context afterwards.
            recorder.leave(NO_CONTEXT)
            self._running.pop(message, None)
            if answered:
                self.executing.discard(message)

    def _begin(self, message: Message, function: Callable[..., Any] | None) -> None:
        self._running[message] = (time.monotonic(), get_ident(), function)

    def _answer_when_done(
        self, message: Message, future: Any, function: Any, answer: Callable[[Future], None]
    ) -> bool:
        """Answer a request once `future` is done.  No thread waits for it.

        Raises:
            RuntimeError: It is no future, though `function` is marked as returning one.
        """
        if not isinstance(future, Future):
            raise RuntimeError(
                "Functions decorated with @rpc.async_function must return a torch.futures.Future "
                f"object, but got {type(future)}: {name_for_people(function)} must return a "
                "tensorplay.futures.Future"
            )

        def when_done() -> None:
            try:
                answer(future)
            except BaseException as error:
                self._answer_error(message, error)
            finally:
                self._deferred.discard(message)
                self.executing.discard(message)

        self._deferred.add(message)
        future.when_done(when_done)
        return False

    def _unpack_call(
        self, message: Message, start: int = 0
    ) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]:
        function, args, kwargs, tensors = unpack_call(message.body, message.buffers, start)
        if message.context != NO_CONTEXT:
            # Not earlier: references in the message must be there to be dropped.
            self._agent.recorder.check(message)
        if tensors and message.context != NO_CONTEXT:
            self._agent.recorder.attach(message, tensors)
        # Memory of the message lives on only in what was made of it.
        message.body = b""
        message.buffers = ()
        return function, args, kwargs

    def _serve_call(self, message: Message) -> bool:
        function, args, kwargs = self._unpack_call(message)
        self._begin(message, function)
        # Whether a result has other holders shows only when this frame has none of it.
        result = [function(*args, **kwargs) if kwargs else function(*args)]
        if is_async(function) or type(result[0]) is Later:
            future = result[0].result if type(result[0]) is Later else result[0]
            return self._answer_when_done(
                message, future, function, partial(self._answer_with, message)
            )
        del function, args, kwargs
        self._answer(message, messages.REPLY, pack_result(result))
        return True

    def _serve_create(self, message: Message) -> bool:
        (local_id,) = LOCAL_ID.unpack_from(message.body)
        rref_id = RRefId(message.peer, local_id)
        self._agent.rrefs.value_of(rref_id)  # from here on it is known, though not made
        try:
            function, args, kwargs = self._unpack_call(message, LOCAL_ID.size)
            self._begin(message, function)
            result = function(*args, **kwargs)
            if is_async(function) or type(result) is Later:
                future = result.result if type(result) is Later else result
                return self._answer_when_done(
                    message, future, function, partial(self._created_later, message, rref_id)
                )
        except BaseException as error:
            self._create_failed(rref_id, error)
            raise
        self._created(message, rref_id, result)
        return True

    def _created(self, message: Message, rref_id: RRefId, value: Any) -> None:
        self._agent.rrefs.value_of(rref_id).finish(value=value)
        self._agent.rrefs.made(rref_id)
        self._answer(message, messages.REPLY, pack_result([None]))

    def _create_failed(self, rref_id: RRefId, error: BaseException) -> None:
        failure = partial(rebuild, describe(error, self._agent.name))
        self._agent.rrefs.value_of(rref_id).finish(failure=failure)
        self._agent.rrefs.made(rref_id)

    def _created_later(self, message: Message, rref_id: RRefId, future: Future) -> None:
        try:
            value = future.result_now()
        except BaseException as error:
            self._create_failed(rref_id, error)
            raise
        self._created(message, rref_id, value)

    def _serve_fetch(self, message: Message) -> bool:
        if message.context != NO_CONTEXT:
            self._agent.recorder.check(message)
        rref_id, _ = unpack(message.body, message.buffers)
        value = self._agent.rrefs.value_of(RRefId(*rref_id))
        if value.done():
            self._answer_with(message, value)
            return True
        return self._answer_when_done(message, value, None, partial(self._answer_with, message))

    def _answer_with(self, message: Message, value: Future) -> None:
        self._answer(message, messages.REPLY, pack(value.result_now(), copy=True))

    def _answer_error(self, message: Message, error: BaseException) -> None:
        failure = pack(tuple(describe(error, self._agent.name)), copy=False)
        self._answer(message, messages.ERROR, failure)

    def _answer(self, request: Message, kind: int, packed: Packed) -> None:
        answer = Message(kind, request.peer, packed.body, packed.buffers)
        answer.call = request.call
        if packed.tensors:
            answer.grad_count = len(packed.tensors)
        try:
            if request.context != NO_CONTEXT:
                answer.context = request.context
                if kind == messages.REPLY:
                    self._agent.recorder.record_send(answer, packed.tensors)
            if request.peer == self._agent.rank:
                self._agent.send_to_self(answer)
            else:
                self._agent.send(answer)
        except BaseException:
            packed.discard()
            raise
