"""References to values on other workers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tensorplay.distributed.rpc.current import current_agent, why_forbidden
from tensorplay.distributed.rpc.errors import RpcTimeoutError
from tensorplay.distributed.rpc.options import UNSET_RPC_TIMEOUT
from tensorplay.distributed.rpc.ownership import RRefId
from tensorplay.distributed.rpc.serialization import (
    Packed,
    register_reducer,
    register_reference_maker,
)
from tensorplay.distributed.rpc.worker import WorkerInfo

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent
    from tensorplay.distributed.rpc.futures import Future

T = TypeVar("T")

# Guards the splitting of weights; held for a few instructions only.
_splitting = threading.Lock()


class RRef(Generic[T]):
    """A reference to a value that lives on its *owner*.

    ``RRef(value)`` makes this worker the owner of `value`; `remote` makes another worker the owner
    of a call's result.  References can be sent in calls; the value stays where it is, until the
    last reference to it is gone.

    Raises:
        RuntimeError: RPC has not been initialised.
    """

    __slots__ = ("__weakref__", "_agent", "_creation", "_exponent", "_id", "_owner")

    _agent: Agent
    _owner: int
    _id: RRefId
    _exponent: int
    _creation: Future | None

    def __init__(self, value: T) -> None:
        agent = current_agent()
        rref_id = agent.rrefs.new_id()
        agent.rrefs.value_of(rref_id).set_result(value)
        agent.rrefs.made(rref_id)
        self._fill(agent, agent.rank, rref_id, 0, None)

    def _fill(
        self, agent: Agent, owner: int, rref_id: RRefId, exponent: int, creation: Future | None
    ) -> None:
        self._agent = agent
        self._owner = owner
        self._id = rref_id
        self._creation = creation
        self._exponent = exponent

    @classmethod
    def _make(
        cls, agent: Agent, owner: int, rref_id: RRefId, exponent: int, creation: Future | None
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

    def is_owner(self) -> bool:
        """Whether this worker is the owner."""
        return self._owner == self._agent.rank

    def owner(self) -> WorkerInfo:
        """The worker where the value lives."""
        return self._agent.workers[self._owner]

    def owner_name(self) -> str:
        """Its name."""
        return self.owner().name

    def to_here(self, timeout: float = UNSET_RPC_TIMEOUT) -> T:
        """The value: on its owner the value itself, elsewhere a fresh copy at each call.

        Blocks until the value exists.  In an autograd context each call records a send/recv pair,
        so gradients of the copy flow back to the value.

        Args:
            timeout: Seconds; -1 for the default of the options, 0 for no limit.

        Raises:
            RpcTimeoutError: It took longer, or the call that was to make the value did.
            Exception: What the call that was to make the value raised.
        """
        if not self.is_owner():
            return cast(T, self._agent.fetch(self, timeout))
        self._check_creation()
        seconds = self._agent.seconds(timeout)
        future = self._agent.rrefs.value_of(self._id)
        if not future.wait_until(time.monotonic() + seconds if seconds else None):
            raise RpcTimeoutError(f"the value of {self!r} was not made within {seconds:g} s")
        return cast(T, future.result_now())

    def local_value(self) -> T:
        """The value itself, on its owner.  Blocks until it exists.

        Raises:
            RuntimeError: This worker is not the owner.
            Exception: What the call that was to make the value raised.
        """
        if not self.is_owner():
            here = self._agent.workers[self._agent.rank]
            raise RuntimeError(
                f"For {self!r}, can't call localValue() on user {here}. Call it on owner "
                f"{self.owner()}"
            )
        self._check_creation()
        value: T = self._agent.rrefs.value_of(self._id).wait()
        return value

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

    def confirmed_by_owner(self) -> bool:
        """Whether the owner has acknowledged the value's creation."""
        return self._creation is None or self._creation.done()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError(
            "Can not pickle rref in python pickler, rref can only be pickled when using RPC"
        )

    def __repr__(self) -> str:
        if self.is_owner():
            return f"OwnerRRef({self._id})"
        return f"UserRRef(RRefId = {self._id})"


def _reduce_rref(rref: RRef[Any], packed: Packed) -> tuple[Any, ...]:
    agent = rref._agent
    if current_agent() is not agent:
        raise RuntimeError(f"{rref!r} belongs to an RPC session that has been shut down")
    rref._check_creation()
    with _splitting:
        rref._exponent += 1
        exponent = rref._exponent
    owner, rref_id = rref._owner, rref._id
    packed.on_discard(lambda: agent.rrefs.dropped.append((owner, rref_id, exponent)))
    return packed.refer(owner, rref_id.created_on, rref_id.local_id, exponent)


def _received_rref(owner: int, created_on: int, local_id: int, exponent: int) -> RRef[Any]:
    agent = current_agent()
    rref_id = RRefId(created_on, local_id)
    if owner == agent.rank:
        agent.rrefs.value_of(rref_id)
    return RRef._make(agent, owner, rref_id, exponent, None)


register_reducer(RRef, _reduce_rref)
register_reference_maker(_received_rref)
