"""References to values on other workers."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tensorplay.distributed.rpc.current import agent_or_none, current_agent, why_forbidden
from tensorplay.distributed.rpc.errors import RpcTimeoutError
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.options import UNSET_RPC_TIMEOUT
from tensorplay.distributed.rpc.ownership import RRefId
from tensorplay.distributed.rpc.rref_calls import differentiate
from tensorplay.distributed.rpc.rref_proxy import (
    RRefProxy,
    Start,
    start_async,
    start_remote,
    start_sync,
)
from tensorplay.distributed.rpc.serialization import (
    Packed,
    register_reducer,
    register_reference_maker,
)
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport.wire import NO_CONTEXT

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent
    from tensorplay.distributed.rpc.calls import Call

T = TypeVar("T")

# Guards the splitting of weights; held for a few instructions only.
_splitting = threading.Lock()

# Owner, creator, the count there, exponent of the weight.
_Fork = tuple[int, int, int, int]


class RRef(Generic[T]):
    """A reference to a value that lives on its *owner*.

    ``RRef(value)`` makes this worker the owner of `value`; `remote` makes another worker the owner
    of a call's result.  References can be sent in calls; the value stays where it is, until the
    last reference to it is gone.

    Args:
        value: Anything.
        type_hint: Taken for the sake of programs that give one, and not used.

    Raises:
        RuntimeError: RPC has not been initialised.

    If the call that was to make the value has failed, or has taken longer than its timeout, then
    whatever uses the reference on the worker that made the call raises the cause, each time.

    Local; all methods may be called by any thread.  References end with `shutdown`, and cannot be
    pickled but in calls.

    >>> from tensorplay.distributed import rpc
    >>> names = rpc.remote("worker1", list, args=("ab",))
    >>> names.rpc_sync().append("c")
    >>> names.to_here()
    ['a', 'b', 'c']
    >>> rpc.rpc_sync("worker1", rpc.RRef.local_value, args=(names,))
    ['a', 'b', 'c']
    """

    __slots__ = (
        "__weakref__",
        "_agent",
        "_creation",
        "_exponent",
        "_fork",
        "_id",
        "_owner",
        "_type",
    )

    _agent: Agent
    _owner: int
    _id: RRefId
    _fork: int
    _exponent: int
    _creation: Call | None
    _type: Future | None

    def __init__(self, value: T, type_hint: Any = None) -> None:
        agent = agent_or_none()
        if agent is None:
            raise RuntimeError(
                why_forbidden()
                or "Current RPC agent is not set! Did you initialize the RPC framework (e.g. by "
                "calling `rpc.init_rpc`)?"
            )
        rref_id = agent.rrefs.new_id()
        agent.rrefs.value_of(rref_id).set_result(value)
        agent.rrefs.made(rref_id)
        self._fill(agent, agent.rank, rref_id, 0, None)

    def _fill(
        self, agent: Agent, owner: int, rref_id: RRefId, exponent: int, creation: Call | None
    ) -> None:
        self._agent = agent
        self._owner = owner
        self._id = rref_id
        self._creation = creation
        self._type = None
        self._fork = agent.rrefs.new_fork(owner, rref_id)
        self._exponent = exponent

    @classmethod
    def _make(
        cls, agent: Agent, owner: int, rref_id: RRefId, exponent: int, creation: Call | None
    ) -> RRef[Any]:
        rref = cls.__new__(cls)
        rref._fill(agent, owner, rref_id, exponent, creation)
        return rref

    def __del__(self) -> None:
        # May run on any thread, with any lock held: only appends to a queue.
        try:
            self._agent.rrefs.dropped.append((self._owner, self._id, self._exponent))
        except AttributeError:
            return

    # -- where the value is ----------------------------------------------------------------------

    def is_owner(self) -> bool:
        """Whether this worker is the owner."""
        return self._owner == self._agent.rank

    def owner(self) -> WorkerInfo:
        """The worker where the value lives."""
        return self._agent.workers[self._owner]

    def owner_name(self) -> str:
        """The name of the worker where the value lives."""
        return self.owner().name

    def confirmed_by_owner(self) -> bool:
        """Whether the owner knows of the value.

        False only on the worker whose call is to make it, until the owner has answered; it stays so
        if the call has expired or could not be sent.
        """
        creation = self._creation
        return creation is None or (creation.done() and not creation.lost)

    # -- the value -------------------------------------------------------------------------------

    def to_here(self, timeout: float = UNSET_RPC_TIMEOUT) -> T:
        """The value: on its owner the value itself, elsewhere a fresh copy at each call.

        Blocks until the value exists.  In an autograd context each call records a send/recv pair,
        so gradients of the copy flow back to the value.

        Args:
            timeout: Seconds; -1 for the default of the options, 0 for no limit.

        Raises:
            RpcTimeoutError: It took longer, or the call that was to make the value did.
            Exception: What the call that was to make the value raised.
            RuntimeError: RPC has been shut down.
        """
        self._check_session("to_here")
        if not self.is_owner():
            return cast(T, self._agent.fetch(self, timeout))
        return self._own_value(self._agent.seconds(timeout))

    def local_value(self) -> T:
        """The value itself, on its owner.  Blocks until it exists.

        Raises:
            RuntimeError: This worker is not the owner, or RPC has been shut down.
            Exception: What the call that was to make the value raised.
        """
        self._check_session("local_value")
        if not self.is_owner():
            here = self._agent.workers[self._agent.rank]
            raise RuntimeError(
                f"For UserRRef(rref_id={self._id}, fork_id={self._fork_id}), can't call "
                f"localValue() on user {here}. Call it on owner {self.owner()}"
            )
        return self._own_value(0.0)

    def _own_value(self, seconds: float) -> T:
        value = self._agent.rrefs.value_of(self._id)
        # The creation is answered when the value has been made, or fails by itself.
        made = self._creation or value
        if not made.wait_until(time.monotonic() + seconds if seconds else None):
            raise RpcTimeoutError(f"the value of {self!r} was not made within {seconds:g} s")
        self._check_creation()
        return cast(T, value.result_now())

    def _check_session(self, use: str) -> None:
        forbidden = why_forbidden()
        if forbidden is not None:
            raise RuntimeError(forbidden)
        if self._agent.closed:
            raise RuntimeError(
                f"{self!r} belongs to an RPC session that has been shut down. Cannot call {use}() "
                "on it after deletion."
            )

    def _check_agent(self, agent: Agent) -> None:
        """Raise unless it is of the agent's session: elsewhere its number means another value."""
        if self._agent is not agent:
            which = "an" if self._agent.closed else "another"
            ended = " that has been shut down" if self._agent.closed else ""
            raise RuntimeError(
                f"{self!r} belongs to {which} RPC session{ended}: it cannot be used in this one"
            )

    def _check_creation(self) -> None:
        """Raise what the call that was to make the value raised, if it has done so.

        Or, in a forked child, that there are no values: RPC is the parent's.
        """
        forbidden = why_forbidden()
        if forbidden is not None:
            raise RuntimeError(forbidden)
        if self._creation is not None and self._creation.done():
            self._creation.value()

    def _wait_for_creation(self) -> None:
        """Wait until the value exists; raises what the call that was to make it raised."""
        if self._creation is not None:
            self._creation.wait()

    # -- calls on the value ----------------------------------------------------------------------

    def rpc_sync(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """A proxy that calls methods of the value on its owner and waits for their results.

        ``rref.rpc_sync().method(*args)`` runs ``value.method(*args)`` there, and
        ``rref.rpc_sync()(*args)`` runs ``value(*args)``.  Arguments and results are copies, on the
        owner too.  A call costs what a call of a function costs.

        Args:
            timeout: Of each call, in seconds; -1 for the default of the options, 0 for no limit.

        Raises (when something is called on the proxy):
            AttributeError: The value has no such attribute.
            TypeError: The attribute cannot be called.
            RpcTimeoutError: It took longer.
            Exception: What the method, or the call that was to make the value, raised.

        >>> from tensorplay.distributed import rpc
        >>> rpc.remote("worker1", str, args=("abc",)).rpc_sync().upper()
        'ABC'
        """
        return self._proxy("rpc_sync", start_sync, timeout)

    def rpc_async(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """Like `rpc_sync`, but calls return at once, with a `Future` of the result.

        >>> from tensorplay.distributed import rpc
        >>> rpc.remote("worker1", str, args=("abc",)).rpc_async().upper().wait()
        'ABC'
        """
        return self._proxy("rpc_async", start_async, timeout)

    def remote(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """Like `rpc_sync`, but results stay on the owner; calls return at once, with an `RRef`.

        What goes wrong there is raised when that reference is used.

        >>> from tensorplay.distributed import rpc
        >>> rpc.remote("worker1", str, args=("abc",)).remote().upper().to_here()
        'ABC'
        """
        return self._proxy("remote", start_remote, timeout)

    def _proxy(self, name: str, start: Start, timeout: float) -> RRefProxy:
        self._check_session(name)
        self._check_creation()
        self._agent.seconds(timeout)  # raises here, not at the first call
        return RRefProxy(self, start, timeout)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Differentiate the value, a tensor with a single element, on its owner.

        Args:
            dist_autograd_ctx_id: The autograd context in which the gradients are added up.  Only
                the owner may leave it out: the gradients are then added to ``.grad`` there.
            retain_graph: Keep the graph for another pass.

        Raises:
            RuntimeError: The value is no tensor, needs no gradient or is not a single element; the
                context is not known; or none was given and this worker is not the owner.
            Exception: What a backward rule raised, on whichever worker.
        """
        self._check_session("backward")
        if self.is_owner():
            differentiate(self.local_value(), dist_autograd_ctx_id, retain_graph)
        elif dist_autograd_ctx_id == NO_CONTEXT:
            raise RuntimeError(
                f"User RRefs require 'dist_autograd_ctx_id' to be specified: {self!r} lives on "
                f"{self.owner()}"
            )
        else:
            self._agent.call_on_value(
                self,
                differentiate,
                (dist_autograd_ctx_id, retain_graph),
                None,
                UNSET_RPC_TIMEOUT,
                waits=True,
            ).wait()

    # -- for programs that look inside -----------------------------------------------------------

    def _get_type(self, timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True) -> Any:
        """The type of the value.  Asks the owner the first time, and remembers the answer.

        Args:
            timeout: Seconds, for that question.
            blocking: Wait for the type; otherwise a `Future` of it, the same one each time.
        """
        self._check_session("_get_type")
        self._check_creation()
        future = self._type
        if future is None:
            asked = self._ask_type(timeout)
            with _splitting:
                future = self._type = self._type or asked
        if not blocking:
            return future
        try:
            return future.wait()
        except RpcTimeoutError:
            # Another time the owner may be quicker.
            self._type = None
            raise

    def _ask_type(self, timeout: float) -> Future:
        if not self.is_owner():
            return self._agent.call_on_value(self, type, (), None, timeout, waits=False)
        value = self._agent.rrefs.value_of(self._id)
        made: Future = self._creation or value
        return made.then(partial(_type_of, value))

    def _get_future(self) -> Future:
        """The future of the call that makes the value, on the worker that made the call."""
        if self._creation is not None:
            return self._creation
        if not self.is_owner():
            raise RuntimeError(
                f"{self!r} came in a message: only the worker that called remote() has the future "
                "of the value's creation"
            )
        future = Future()
        future.set_result(None)
        return future

    def _serialize(self) -> _Fork:
        """A copy of the reference in a form for `_deserialize`, which must be called on it once.

        Until then the copy keeps the value alive.
        """
        return self._split()

    @staticmethod
    def _deserialize(fork: _Fork) -> RRef[Any]:
        """The reference that `_serialize` has made, on this worker or another."""
        return _received_rref(*fork)

    def _split(self) -> _Fork:
        """Give half of the weight away."""
        if self._agent.closed:
            raise RuntimeError(
                f"{self!r} belongs to an RPC session that has been shut down. Cannot call fork an "
                "UserRRef after deletion."
            )
        self._check_creation()
        with _splitting:
            self._exponent += 1
            exponent = self._exponent
        return self._owner, *self._id, exponent

    @property
    def _fork_id(self) -> RRefId:
        return RRefId(self._agent.rank, self._fork)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError(
            "Can not pickle rref in python pickler, rref can only be pickled when using RPC"
        )

    def __repr__(self) -> str:
        if self.is_owner():
            return f"OwnerRRef({self._id})"
        return f"UserRRef(RRefId = {self._id}, ForkId = {self._fork_id})"


# Does not hold the reference: what it raises would keep it, in a cycle.
def _type_of(value: Future, made: Future) -> type:
    made.value()
    return type(value.value())


def _reduce_rref(rref: RRef[Any], packed: Packed) -> tuple[Any, ...]:
    agent = rref._agent
    if not agent.closed and current_agent() is not agent:
        raise RuntimeError(
            f"{rref!r} belongs to another RPC session: it cannot be sent in this one"
        )
    fork = rref._split()
    owner, rref_id, exponent = rref._owner, rref._id, fork[-1]
    packed.on_discard(lambda: agent.rrefs.dropped.append((owner, rref_id, exponent)))
    return packed.refer(*fork)


def _received_rref(owner: int, created_on: int, local_id: int, exponent: int) -> RRef[Any]:
    agent = current_agent()
    rref_id = RRefId(created_on, local_id)
    if owner == agent.rank:
        agent.rrefs.value_of(rref_id)
    return RRef._make(agent, owner, rref_id, exponent, None)


register_reducer(RRef, _reduce_rref)
register_reference_maker(_received_rref)
