"""Executes the calls of other workers, and answers them.

Each runs as a task on a serving thread, under the autograd context that its message names.  What it
raises goes back to the caller; the worker stays in service.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.counter import Counter
from tensorplay.distributed.rpc.errors import describe, rebuild
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.ownership import RRefId
from tensorplay.distributed.rpc.serialization import (
    Packed,
    pack,
    pack_result,
    unpack,
    unpack_call,
)
from tensorplay.distributed.transport import Message
from tensorplay.distributed.transport.wire import NO_CONTEXT

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent

# A CREATE begins with the id of the value: it must be known even if the rest cannot be unpickled.
LOCAL_ID = struct.Struct("<Q")

Task = Callable[[], None]


class Server:
    """The serving side of an agent.

    Attributes:
        deferred: Calls whose answers wait for a future, without a thread.
        executing: What is being executed, or waits to be; each a unique object.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._served = Counter()
        self.deferred = 0
        self._counting = threading.Lock()
        self.executing: set[Any] = set()
        agent.handle(messages.CALL, partial(self._serve_task, self._serve_call))
        agent.handle(messages.CREATE, partial(self._serve_task, self._serve_create))
        agent.handle(messages.FETCH, partial(self._serve_task, self._serve_fetch))

    @property
    def calls_served(self) -> int:
        """Calls, fetches and creations executed so far."""
        return self._served.value

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
        self._served.add()
        return partial(self._serve, message, serve)

    def _serve(self, message: Message, serve: Callable[[Message], None]) -> None:
        if self._agent.closed:
            self.executing.discard(message)
            return
        recorder = self._agent.recorder
        context = message.context
        if context != NO_CONTEXT:
            recorder.enter(context)
        try:
            serve(message)
        except BaseException as error:
            self._answer_error(message, error)
        finally:
            # Whatever the function has done to it, a serving thread is in no context afterwards.
            recorder.leave(NO_CONTEXT)
            self.executing.discard(message)

    def _unpack_call(
        self, message: Message, start: int = 0
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        if message.context != NO_CONTEXT:
            self._agent.recorder.check(message)
        function, args, kwargs, tensors = unpack_call(message.body, message.buffers, start)
        if tensors and message.context != NO_CONTEXT:
            self._agent.recorder.attach(message, tensors)
        # Memory of the message lives on only in what was made of it.
        message.body = b""
        message.buffers = ()
        return function, args, kwargs

    def _serve_call(self, message: Message) -> None:
        function, args, kwargs = self._unpack_call(message)
        # Whether a result has other holders shows only when this frame has none of it.
        result = [function(*args, **kwargs) if kwargs else function(*args)]
        del function, args, kwargs
        self._answer(message, messages.REPLY, pack_result(result))

    def _serve_create(self, message: Message) -> None:
        (local_id,) = LOCAL_ID.unpack_from(message.body)
        rref_id = RRefId(message.peer, local_id)
        value = self._agent.rrefs.value_of(rref_id)
        try:
            function, args, kwargs = self._unpack_call(message, LOCAL_ID.size)
            value.finish(value=function(*args, **kwargs))
        except BaseException as error:
            value.finish(failure=partial(rebuild, describe(error, self._agent.name)))
            raise
        finally:
            self._agent.rrefs.made(rref_id)
        self._answer(message, messages.REPLY, pack_result([None]))

    def _serve_fetch(self, message: Message) -> None:
        if message.context != NO_CONTEXT:
            self._agent.recorder.check(message)
        rref_id, _ = unpack(message.body, message.buffers)
        value = self._agent.rrefs.value_of(RRefId(*rref_id))
        if value.done():
            self._answer_with(message, value)
            return
        # No thread waits for it.
        key = object()
        self.executing.add(key)
        with self._counting:
            self.deferred += 1

        def answer() -> None:
            try:
                self._answer_with(message, value)
            except BaseException as error:
                self._answer_error(message, error)
            finally:
                self.executing.discard(key)
                with self._counting:
                    self.deferred -= 1

        value.when_done(answer)

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
