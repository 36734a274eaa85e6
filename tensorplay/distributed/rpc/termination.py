"""When may everybody leave?  Termination detection for `shutdown`.

A worker that has called `shutdown` goes on serving until no worker has calls, answers or anything
else outstanding.  The method is Mattern's four-counter method (F. Mattern, "Algorithms for
distributed termination detection", Distributed Computing 2, 1987): one worker, the *leader*, asks
all workers, in *waves*, for the number of messages they have sent and received and whether they are
active.  When two waves in a row find everybody passive, and the same totals with as many messages
received as sent, then nothing was under way at the end of the first.

A worker may *depart* without waiting, and tells the others.  From then on it has no part in this:
the leader is the lowest rank that remains, waves ask those that remain, and nobody counts what he
exchanged with it.  Whoever is told forgets the waves so far.

Pure: events go in, messages to be sent come out.  The messages of this module do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

#: Seconds between waves: at first, and at most.
_FIRST_GAP = 0.2e-3
_LONGEST_GAP = 20e-3

Payload = tuple[str, int, int, int, bool]
Outgoing = tuple[int, Payload]


class Counts(NamedTuple):
    """One worker's answer to a wave: messages sent, received; whether it is active."""

    sent: int
    received: int
    active: bool


class Termination:
    """One worker's part; the leader's also runs the waves.

    Args:
        rank: This worker.
        size: Number of workers.
        counts: Gives this worker's counts, without what it exchanged with the workers given: a
            number with the bit of each such rank set.  Must look at its activity before it looks
            at what it has sent, so that a message is seen as one or the other.

    Attributes:
        stopped: All may leave.
        leader: The worker that runs the waves, as far as this one knows.
        missing: The workers that had not called `shutdown` when somebody last asked; None if this
            worker has not been told.
    """

    def __init__(self, rank: int, size: int, counts: Callable[[int], Counts]) -> None:
        self._rank = rank
        self._size = size
        self._counts = counts
        self.stopped = False
        self.missing: list[int] | None = None
        # A bit for each rank that has departed.
        self._departed = 0
        self.leader = 0
        self._has_joined = False
        # At the leader: the workers that have called `shutdown`.
        self._joined: set[int] = set()
        self._wave = 0
        self._answers: dict[int, Counts] = {}
        self._before: tuple[int, int] | None = None
        self._disturbed = False
        self._next_wave_at: float | None = None
        self._gap = _FIRST_GAP

    def join(self) -> list[Outgoing]:
        """This worker has called `shutdown`."""
        self._has_joined = True
        return self._tell_leader()

    def depart(self, rank: int) -> list[Outgoing]:
        """Another worker has departed."""
        self._departed |= 1 << rank
        self._joined.discard(rank)
        self._wave += 1  # answers to the wave under way are ignored
        self._before = None
        self._disturbed = False
        before = self.leader
        self.leader = next(r for r in range(self._size) if not self._departed >> r & 1)
        if self._has_joined and self.leader != before:
            return self._tell_leader()
        return self._start_if_all_joined()

    def _tell_leader(self) -> list[Outgoing]:
        if self._rank != self.leader:
            return [(self.leader, ("joined", 0, 0, 0, False))]
        return self._on_joined(self._rank)

    def receive(self, source: int, payload: Payload) -> list[Outgoing]:
        """A message of this protocol has come."""
        verb, wave, sent, received, active = payload
        if verb == "joined":
            return self._on_joined(source)
        if verb == "ask":
            return [(source, self._absent())]
        if verb == "absent":
            self.missing = [rank for rank in range(self._size) if wave >> rank & 1]
            return []
        if verb == "count":
            mine = self._counts(sent)
            return [(source, ("counted", wave, mine.sent, mine.received, mine.active))]
        if verb == "counted":
            return self._on_counted(source, wave, Counts(sent, received, active))
        self.stopped = True
        return []

    def ask(self) -> list[Outgoing]:
        """This worker has waited for too long: find out who is missing."""
        if self._rank != self.leader:
            return [(self.leader, ("ask", 0, 0, 0, False))]
        # The others have waited as long; soon nobody may be here to be asked.
        self.receive(self._rank, self._absent())
        return [(rank, self._absent()) for rank in sorted(self._joined - {self._rank})]

    def _absent(self) -> Payload:
        ranks = sum(1 << rank for rank in self._remaining() if rank not in self._joined)
        return ("absent", ranks, 0, 0, False)

    def _remaining(self) -> list[int]:
        return [rank for rank in range(self._size) if not self._departed >> rank & 1]

    def report(self) -> list[str]:
        """How far this worker's shutdown has got, for people; a line each."""
        sent, received, active = self._counts(self._departed)
        lines = [
            f"shutdown {'has been called here' if self._has_joined else 'has not been called here'}"
            f"{', all may leave' if self.stopped else ''}; messages that count: {sent} sent, "
            f"{received} received; {'active' if active else 'passive'}"
        ]
        joined = self._joined.copy()
        if self._rank == self.leader and joined:
            missing = [rank for rank in self._remaining() if rank not in joined]
            lines.append(f"{self._wave} waves; not in shutdown yet: ranks {missing}")
        return lines

    def tick(self, now: float) -> list[Outgoing]:
        """Time has passed (monotonic seconds)."""
        if not self._disturbed or self.stopped:
            return []
        if self._next_wave_at is None:
            self._next_wave_at = now + self._gap
            self._gap = min(2 * self._gap, _LONGEST_GAP)
        if now < self._next_wave_at:
            return []
        self._disturbed = False
        self._next_wave_at = None
        return self._start_wave()

    def _on_joined(self, source: int) -> list[Outgoing]:
        self._joined.add(source)
        return self._start_if_all_joined()

    def _start_if_all_joined(self) -> list[Outgoing]:
        leads = self._rank == self.leader and not self.stopped
        return self._start_wave() if leads and self._joined.issuperset(self._remaining()) else []

    def _start_wave(self) -> list[Outgoing]:
        self._wave += 1
        self._answers = {self._rank: self._counts(self._departed)}
        others = self._others()
        if not others:
            return self._judge()
        return [(rank, ("count", self._wave, self._departed, 0, False)) for rank in others]

    def _others(self) -> list[int]:
        return [rank for rank in self._remaining() if rank != self._rank]

    def _on_counted(self, source: int, wave: int, counts: Counts) -> list[Outgoing]:
        if wave != self._wave:
            return []  # somebody has departed since it was asked
        self._answers[source] = counts
        return self._judge() if len(self._answers) == len(self._remaining()) else []

    def _judge(self) -> list[Outgoing]:
        answers = self._answers.values()
        totals = (sum(a.sent for a in answers), sum(a.received for a in answers))
        quiet = totals[0] == totals[1] and not any(a.active for a in answers)
        if quiet and self._before == totals:
            self.stopped = True
            return [(rank, ("stop", 0, 0, 0, False)) for rank in self._others()]
        if quiet:
            self._before = totals
            return self._start_wave()
        self._before = None
        # Somebody works: `tick` asks again a little later, less and less often.
        self._disturbed = True
        return []
