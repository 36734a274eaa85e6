"""References to values on other workers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.rpc.options import UNSET_RPC_TIMEOUT
from tensorplay.distributed.rpc.ownership import RRefId
from tensorplay.distributed.rpc.serialization import Packed, register_reducer
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
            RpcTimeoutError: It took longer.
            Exception: What the call that was to make the value raised.
        """
        if self.is_owner():
            return self.local_value()
        value: T = self._agent.fetch(self, timeout)
        return value

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
        value: T = self._agent.rrefs.value_of(self._id).wait()
        return value

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
    if rref._creation is not None and rref._creation.done():
        rref._creation.value()  # a failed creation raises here, before anything travels
    with _splitting:
        rref._exponent += 1
        exponent = rref._exponent
    owner, rref_id = rref._owner, rref._id
    packed.on_discard(lambda: agent.rrefs.dropped.append((owner, rref_id, exponent)))
    return (_received_rref, (owner, rref_id.created_on, rref_id.local_id, exponent))


def _received_rref(owner: int, created_on: int, local_id: int, exponent: int) -> RRef[Any]:
    agent = current_agent()
    rref_id = RRefId(created_on, local_id)
    if owner == agent.rank:
        agent.rrefs.value_of(rref_id)
    return RRef._make(agent, owner, rref_id, exponent, None)


register_reducer(RRef, _reduce_rref)
