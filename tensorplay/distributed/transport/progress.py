"""Who polls the transport, and who executes what it brings.

Handing a message from thread to thread costs more than the message itself.  So the thread that
needs progress makes it:

* A thread that waits for a reply polls by itself until its own reply is there.
* While nobody waits, one *serving thread* polls, and executes at once the requests it receives.
* A waiting thread may hold the user's locks, so it never executes somebody else's request on its
  own stack: it puts it into the queue and wakes a serving thread.

The **token** is the right to poll; one thread has it at a time.  A serving thread gives it up while
it executes a request, since that request may block.  A further serving thread, the *standby*, looks
in every millisecond while requests are being executed, and takes over when nobody has polled since
it last looked.  Further ones are *spare*: they sleep until there is a task.

Invariants:

1. Whoever gives up the token while other threads wait wakes one of them.
2. The standby sleeps until woken only while a serving thread is in charge of polling, and whoever
   gives up that charge wakes it.  Before a serving thread executes anything, it sees to it that
   there is a standby that looks in.  So no number of blocked requests can starve a worker.
3. A task put into the queue wakes a sleeping serving thread, unless one is about to look, or a new
   one is started.  Every serving thread looks at the queue before it polls or sleeps.
4. `Completion.complete` sets `is_done` before it reads `_parked`; a waiter appends to `_parked`
   before it reads `is_done`.  So no wake-up is lost.
5. Should a wake-up be lost all the same, the standby polls within about a millisecond, and every
   parked thread looks for itself within `PARK_LIMIT`.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tensorplay.distributed.transport.base import Transport
from tensorplay.distributed.transport.parking import PARK_LIMIT, Completion, own, wake
from tensorplay.distributed.transport.wire import Message

#: After the last message a serving thread goes on polling without sleeping for so long, and a
#: waiting thread (seconds).
_HOT = 0.5e-3
_SPIN = 2e-3
#: The same where ranks share cores: a spinning rank keeps another from computing (seconds).
_CROWDED_HOT = 10e-6
_CROWDED_SPIN = 10e-6
#: Sleeps grow with the silence: this share of it ...
_SLEEP_SHARE = 1 / 8
#: ... up to this, for a serving thread and for a waiting one (seconds).
_LONGEST_SLEEP = 2.5e-3
_LONGEST_WAITING_SLEEP = 1e-3
#: With transfers under way nobody sleeps longer than this (seconds): over TCP they go on only while
#: somebody polls.
_LONGEST_BUSY_SLEEP = 50e-6
#: How often the standby looks in while requests are being executed (seconds).
_STANDBY_INTERVAL = 1e-3
#: It sleeps until woken when nothing has been executed for so long and somebody polls (seconds).
_STANDBY_PATIENCE = 0.1
#: A spare thread that has had nothing to do for so long ends (seconds) ...
_SPARE_PATIENCE = 2.0
#: ... unless there are no more than these.
_SPARE_THREADS = 2
#: Polls that bring nothing between looks at the clock, also where ranks share cores ...
_POLLS_PER_LOOK = 32
_CROWDED_POLLS_PER_LOOK = 4
#: ... and polls of any kind, since messages may come without a pause.
_POLLS_UNTIL_LOOK = 256
#: Polls between two sleeps: MPI may need one to notice that a message is there, and another to find
#: it.
_POLLS_AFTER_SLEEP = 2
#: A wait of more polls than this is a long one.
_LONG_WAIT = 1000

# os.sched_yield keeps the interpreter lock before Python 3.12: a worker's computing thread would
# stand still while another process has the core.  A foreign function call lets it go.
_yield: Callable[[], Any] = ctypes.CDLL(None).sched_yield

Task = Callable[[], None]


class Progress:
    """The progress engine of one worker.

    Args:
        transport: What to poll.
        receive: Called by the polling thread with each message the transport returns.  Must be
            quick, must not block and must not run user code; what has to be executed it returns as
            a task.
        tick: Called by the polling thread now and then with the time; for timeouts.
        crashed: Called when polling or a task raises, which is a fault of the library or of MPI.
        name: Name of the worker, for thread names.
        enter: Called first on every serving thread.
    """

    def __init__(
        self,
        transport: Transport,
        receive: Callable[[Message], Task | None],
        tick: Callable[[float], None],
        crashed: Callable[[BaseException], None],
        name: str,
        enter: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._receive = receive
        self._tick = tick
        self._crashed = crashed
        self._name = name
        self._enter = enter
        crowded = transport.crowded
        self._hot = _CROWDED_HOT if crowded else _HOT
        self._spin = _CROWDED_SPIN if crowded else _SPIN
        self._polls_per_look = _CROWDED_POLLS_PER_LOOK if crowded else _POLLS_PER_LOOK
        self._token = threading.Lock()
        # Parking lock of the thread that has the token.
        self._poller: Any = None
        #: Parking locks of the threads inside `wait`.
        self._waiting: set[Any] = set()
        #: Tasks for serving threads.
        self._queue: deque[Task] = deque()
        # Parking locks of the spare threads, and of the standby while it sleeps.
        self._spares: deque[Any] = deque()
        self._standby: Any = None
        # Held by the thread that is the standby.
        self._standby_role = threading.Lock()
        # The standby sleeps until woken.
        self._standby_asleep = False
        # A thread has been woken or started to be the standby, and does not run yet.
        self._standby_coming = False
        # Counts polls, so that the standby can see whether somebody polls.
        self._polls = 0
        self._look_by = 0
        self._executed_at = 0.0
        # A serving thread polls, or sleeps between polls.
        self._in_charge = False
        self._stopping = False
        self._threads: set[threading.Thread] = set()
        self._thread_count = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start to serve."""
        self._spawn()

    def stop(self, timeout: float) -> None:
        """Stop serving; waits up to `timeout` seconds for the threads to end."""
        self._stopping = True
        deadline = time.monotonic() + timeout
        for thread in tuple(self._threads):
            while thread.is_alive() and time.monotonic() < deadline:
                self._wake_serving()
                thread.join(0.001)

    def run_queue(self) -> None:
        """After `stop`: execute on this thread what no serving thread has got round to."""
        while self._queue:
            self._queue.popleft()()

    @property
    def serves_here(self) -> bool:
        """Whether this thread is a serving thread."""
        return threading.current_thread() in self._threads

    @property
    def serving_threads(self) -> frozenset[int | None]:
        """Identities of the serving threads alive."""
        return frozenset(thread.ident for thread in list(self._threads))

    @property
    def thread_count(self) -> int:
        """Serving threads alive."""
        return len(self._threads)

    @property
    def idle_count(self) -> int:
        """Serving threads that wait for work."""
        return len(self._spares) + (self._standby is not None)

    # -- tasks -----------------------------------------------------------------------------------

    def submit(self, task: Task) -> None:
        """Have a serving thread execute `task`.  Any thread."""
        self._queue.append(task)
        # A thread in charge, and one that is about to begin, look at the queue anyway.
        if not (self._wake_serving() or self._in_charge or self._standby_coming):
            self._spawn()

    def _wake_serving(self) -> bool:
        """Wake a sleeping serving thread; whether there was one."""
        try:
            lock = self._spares.pop()
        except IndexError:
            lock = self._standby
            if lock is None:
                return False
        wake(lock)
        return True

    def _spawn(self) -> None:
        with self._lock:
            if self._stopping:
                return
            self._thread_count += 1
            thread = threading.Thread(
                target=self._serve,
                name=f"tensorplay {self._name} serving {self._thread_count}",
                daemon=True,
            )
            self._threads.add(thread)
        thread.start()

    # -- waiting ---------------------------------------------------------------------------------

    def wait(
        self,
        completion: Completion,
        deadline: float | None = None,
        mine: Callable[[Task], bool] | None = None,
    ) -> bool:
        """Wait, polling, until `completion` is done or `deadline` (monotonic seconds) has passed.

        `mine` tells which tasks this thread may execute itself, since it is waiting for them.
        Returns whether it is done.
        """
        lock = own.lock
        if self._poller is lock and not completion.is_done:
            # Only a finaliser can come here, run by the collector in the middle of polling.
            raise RuntimeError(
                "a finaliser waits for a call on the thread that polls for the answer: it would "
                "wait for ever. Finalisers may use rpc_async, and must not wait"
            )
        waiting = self._waiting
        waiting.add(lock)
        began = self._polls
        token = self._token
        try:
            while not completion.is_done:
                if not self._stopping and token.acquire(blocking=False):
                    self._poller = lock
                    try:
                        task = self._poll_for(completion, deadline, lock, mine)
                    finally:
                        self._poller = None
                        token.release()
                    if task is not None:
                        # Meanwhile others poll.
                        waiting.discard(lock)
                        if waiting:
                            self._wake_waiting()
                        task()
                        waiting.add(lock)
                else:
                    seconds = PARK_LIMIT
                    if deadline is not None:
                        seconds = min(seconds, deadline - time.monotonic())
                    if seconds > 0:
                        completion.park(lock, seconds)
                if deadline is not None and time.monotonic() >= deadline:
                    return completion.is_done
            return True
        finally:
            waiting.discard(lock)
            if waiting:
                self._wake_waiting()
            elif self._polls - began > _LONG_WAIT:
                # Polling goes on without a gap.  After a short wait the standby's own look is
                # soon enough: waking it each time would cost more than the call.
                wake(self._standby or _nobody)

    def rest(self, completion: Completion, deadline: float | None = None) -> bool:
        """Like `wait`, but without polling: for a thread that leaves serving to others."""
        lock = own.lock
        while not completion.is_done:
            seconds = PARK_LIMIT
            if deadline is not None:
                seconds = min(seconds, deadline - time.monotonic())
                if seconds <= 0:
                    return False
            completion.park(lock, seconds)
        return True

    def _wake_waiting(self) -> None:
        # list() of a set is atomic under the interpreter lock; iterating over it is not.
        for lock in list(self._waiting)[:1]:
            wake(lock)

    def _poll_for(
        self,
        completion: Completion,
        deadline: float | None,
        lock: Any,
        mine: Callable[[Task], bool] | None,
    ) -> Task | None:
        """Poll, having the token, until done or past the deadline, or for a task that is `mine`."""
        poll = self._transport.poll
        misses = 0
        since = 0.0
        while not completion.is_done:
            self._polls += 1
            message = poll()
            if message is not None:
                task = self._receive(message)
                if task is not None:
                    if mine is not None and mine(task):
                        return task
                    self.submit(task)
                misses = 0
                since = 0.0
                if self._polls >= self._look_by:
                    now = self._look()
                    if deadline is not None and now >= deadline:
                        return None
                continue
            misses += 1
            if misses % self._polls_per_look:
                _yield()
                continue
            now = self._look()
            if deadline is not None and now >= deadline:
                return None
            if not since:
                since = now
            silence = now - since
            if silence > self._spin:
                seconds = min(silence * _SLEEP_SHARE, _LONGEST_WAITING_SLEEP)
                if self._transport.busy:
                    seconds = _LONGEST_BUSY_SLEEP
                completion.park(lock, seconds)
                misses = self._polls_per_look - _POLLS_AFTER_SLEEP
            if self._stopping:
                return None
        return None

    def _look(self) -> float:
        """Have the layer above look at the clock; the time."""
        self._look_by = self._polls + _POLLS_UNTIL_LOOK
        now = time.monotonic()
        self._tick(now)
        return now

    # -- serving ---------------------------------------------------------------------------------

    def _serve(self) -> None:
        lock = own.lock
        # The count of polls when this thread last looked; None: it may poll at once.
        looked_at: int | None = None
        try:
            self._enter()
            self._standby_coming = False
            while not self._stopping:
                if self._queue:
                    self._execute_queued()
                    looked_at = None
                elif self._may_poll(looked_at) and self._token.acquire(blocking=False):
                    task = self._poll_to_serve(lock)
                    if task is not None:
                        task()
                        task = None  # whatever it has worked on may be freed
                    looked_at = None
                elif self._standby_role.acquire(blocking=False):
                    looked_at = self._stand_by(lock)
                elif self._be_spare(lock):
                    looked_at = self._polls
                else:
                    return
        except BaseException as error:
            self._crashed(error)
        finally:
            self._threads.discard(threading.current_thread())

    def _may_poll(self, looked_at: int | None) -> bool:
        if self._in_charge:
            return False
        if looked_at is None:
            # While threads wait they poll.
            return not self._waiting
        return looked_at == self._polls

    def _execute_queued(self) -> None:
        self._ensure_standby()
        try:
            task = self._queue.popleft()
        except IndexError:
            return
        task()

    def _ensure_standby(self) -> None:
        """See to it that somebody looks in while this thread executes something."""
        self._executed_at = time.monotonic()
        if self._standby_asleep:
            self._rouse_standby()
        elif not (self._standby_role.locked() or self._standby_coming):
            self._standby_coming = True
            try:
                wake(self._spares.pop())
            except IndexError:
                self._spawn()

    def _rouse_standby(self) -> None:
        self._standby_asleep = False
        wake(self._standby or _nobody)

    def _stand_by(self, lock: Any) -> int | None:
        """Sleep as the standby; what to compare the count of polls with."""
        looked_at = self._polls
        seconds = _STANDBY_INTERVAL
        self._standby = lock
        # The thread in charge clears `_in_charge` before it reads `_standby_asleep`; this one sets
        # that before it reads `_in_charge`.  So one of them sees what the other does.
        self._standby_asleep = True
        if self._in_charge and time.monotonic() - self._executed_at > _STANDBY_PATIENCE:
            seconds = -1.0
        else:
            self._standby_asleep = False
        woken = bool(self._queue or self._stopping) or lock.acquire(timeout=seconds)
        self._standby = None
        self._standby_asleep = False
        self._standby_role.release()
        return None if woken else looked_at

    def _be_spare(self, lock: Any) -> bool:
        """Sleep until there is a task; False if this thread is not needed any more."""
        self._spares.append(lock)
        if not (self._queue or self._stopping):
            lock.acquire(timeout=_SPARE_PATIENCE)
        self._standby_coming = False
        try:
            self._spares.remove(lock)
        except ValueError:
            # Whoever took it off the list has released the lock, or is about to: the next sleep
            # may end early, which does no harm.
            return True
        return bool(self._queue) or len(self._spares) < _SPARE_THREADS

    def _poll_to_serve(self, lock: Any) -> Task | None:
        """Poll, having the token, until there is something to execute or others wait.

        Gives the token up; returns the task, if a message brought one.
        """
        token = self._token
        poll = self._transport.poll
        misses = 0
        have_token = True
        self._poller = lock
        last_message_at = 0.0
        self._in_charge = True
        try:
            while not (self._stopping or self._queue):
                self._polls += 1
                message = poll()
                if message is not None:
                    misses = 0
                    last_message_at = 0.0
                    if self._polls >= self._look_by:
                        self._look()
                    task = self._receive(message)
                    if task is not None:
                        self._in_charge = False
                        self._ensure_standby()
                        return task
                    continue
                if self._waiting:
                    return None
                misses += 1
                if misses % self._polls_per_look:
                    _yield()
                    continue
                now = self._look()
                if not last_message_at:
                    last_message_at = now
                seconds = self._pause(now - last_message_at)
                if seconds:
                    # A thread that begins to wait in the meantime finds the token free; a task
                    # finds this thread among the spare ones.
                    self._poller = None
                    token.release()
                    have_token = False
                    self._spares.append(lock)
                    if not (self._queue or self._waiting):
                        lock.acquire(timeout=seconds)
                    with contextlib.suppress(ValueError):
                        self._spares.remove(lock)
                    have_token = token.acquire(blocking=False)
                    if not have_token:
                        return None
                    self._poller = lock
                    misses = self._polls_per_look - _POLLS_AFTER_SLEEP
            return None
        finally:
            self._in_charge = False
            if have_token:
                self._poller = None
                token.release()
            if self._standby_asleep:
                self._rouse_standby()
            if self._waiting:
                self._wake_waiting()

    def _pause(self, silence: float) -> float:
        """How long to sleep before the next poll, in proportion to the silence (seconds)."""
        if silence < self._hot:
            return 0.0
        if self._transport.busy:
            return _LONGEST_BUSY_SLEEP
        return min(silence * _SLEEP_SHARE, _LONGEST_SLEEP)


# Stands for a thread that has gone on in the meantime.
_nobody = threading.Lock()
