"""Executes the calls of other workers, and answers them.

Each runs as a task on a serving thread, under the autograd context that its message names.  What it
raises goes back to the caller; the worker stays in service.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.errors import describe, rebuild
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.job import end_if_forked
from tensorplay.distributed.rpc.ownership import RRefId
from tensorplay.distributed.rpc.serialization import pack, unpack
from tensorplay.distributed.transport import Message
from tensorplay.distributed.transport.wire import NO_CONTEXT

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent

# A CREATE begins with the id of the value: it must be known even if the rest cannot be unpickled.
LOCAL_ID = struct.Struct("<Q")

Task = Callable[[], None]


class Running:
    """A call that is being executed.

    Attributes:
        kind: The kind of its message.
        thread: Identity of the thread.
        began: When (monotonic seconds).
        function: What is called, once it has been unpickled.
    """

    __slots__ = ("began", "function", "kind", "thread")

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.thread = threading.get_ident()
        self.began = time.monotonic()
        self.function: Callable[..., Any] | None = None


class Server:
    """The serving side of an agent.

    Attributes:
        calls_served: Calls, fetches and creations executed so far.
        executing: What is being executed, or waits to be; each a unique object.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.calls_served = 0
        self.executing: set[Any] = set()
        #: What threads are executing, by the caller's rank and its call's number.
        self.running: dict[tuple[int, int], Running] = {}
        self._counting = threading.Lock()
        agent.handle(messages.CALL, partial(self._serve_task, self._serve_call))
        agent.handle(messages.CREATE, partial(self._serve_task, self._serve_create))
        agent.handle(messages.FETCH, partial(self._serve_task, self._serve_fetch))

    def task(self, function: Callable[[], None]) -> Task:
        """`function`, counted among what is being executed until it has run."""
        self.executing.add(function)
        return partial(self._run, function)

    def _run(self, function: Callable[[], None]) -> None:
        try:
            function()
        finally:
            self.executing.discard(function)

    def _serve_task(self, serve: Callable[[Message], None], message: Message) -> Task:
        self.executing.add(message)
        with self._counting:
            self.calls_served += 1
        return partial(self._serve, message, serve)

    def _serve(self, message: Message, serve: Callable[[Message], None]) -> None:
        if self._agent.closed:
            self.executing.discard(message)
            return
        recorder = self._agent.recorder
        before = recorder.enter(message.context)
        key = (message.peer, message.call)
        self.running[key] = Running(message.kind)
        try:
            serve(message)
        except BaseException as error:
            end_if_forked(error)
            self._answer_error(message, error)
        finally:
            recorder.leave(before)
            self.running.pop(key, None)
            self.executing.discard(message)

    def _unpack_request(self, message: Message, start: int = 0) -> Any:
        if message.context != NO_CONTEXT:
            self._agent.recorder.check(message)
        request, tensors = unpack(message.body[start:] if start else message.body, message.buffers)
        if tensors and message.context != NO_CONTEXT:
            self._agent.recorder.attach(message, tensors)
        # Memory of the message lives on only in what was made of it.
        message.body = b""
        message.buffers = ()
        return request

    def _note_function(self, message: Message, function: Any) -> None:
        running = self.running.get((message.peer, message.call))
        if running is not None:
            running.function = function

    def _serve_call(self, message: Message) -> None:
        function, args, kwargs = self._unpack_request(message)
        self._note_function(message, function)
        result = function(*args, **kwargs)
        self._answer(message, messages.REPLY, result)

    def _serve_create(self, message: Message) -> None:
        (local_id,) = LOCAL_ID.unpack_from(message.body)
        rref_id = RRefId(message.peer, local_id)
        value = self._agent.rrefs.value_of(rref_id)
        try:
            function, args, kwargs = self._unpack_request(message, LOCAL_ID.size)
            self._note_function(message, function)
            value.finish(value=function(*args, **kwargs))
        except BaseException as error:
            value.finish(failure=partial(rebuild, describe(error, self._agent.name)))
            raise
        finally:
            self._agent.rrefs.made(rref_id)
        self._answer(message, messages.REPLY, None)

    def _serve_fetch(self, message: Message) -> None:
        value = self._agent.rrefs.value_of(RRefId(*self._unpack_request(message)))
        if value.done():
            self._answer_with(message, value)
            return
        # No thread waits for it.
        key = object()
        self.executing.add(key)

        def answer() -> None:
            try:
                self._answer_with(message, value)
            except BaseException as error:
                self._answer_error(message, error)
            finally:
                self.executing.discard(key)

        value.when_done(answer)

    def _answer_with(self, message: Message, value: Future) -> None:
        self._answer(message, messages.REPLY, value.result_now())

    def _answer_error(self, message: Message, error: BaseException) -> None:
        self._answer(message, messages.ERROR, tuple(describe(error, self._agent.name)))

    def _answer(self, request: Message, kind: int, value: Any) -> None:
        packed = pack(value, copy=True)
        answer = Message(kind, request.peer, packed.body, packed.buffers)
        answer.call = request.call
        answer.context = request.context
        answer.grad_count = len(packed.tensors)
        try:
            if request.context != NO_CONTEXT and kind == messages.REPLY:
                self._agent.recorder.record_send(answer, packed.tensors)
            if request.peer == self._agent.rank:
                self._agent.send_to_self(answer)
            else:
                self._agent.send(answer)
        except BaseException:
            packed.discard()
            raise
