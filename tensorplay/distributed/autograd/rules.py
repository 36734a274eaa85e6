"""Where a thread stands that runs the backward rules of a pass."""

from __future__ import annotations

from tensorplay.distributed.autograd.container import thread
from tensorplay.distributed.autograd.context import RANK_SHIFT
from tensorplay.distributed.transport.wire import NO_CONTEXT


class RunningRules:
    """A block in which this thread runs rules of a pass.  Entered by one thread at a time.

    Any thread may come to run them: the one that waits for the pass, which is in the context, or
    one that serves, which is in none.  So that rules and hooks do not depend on which it is, they
    run in no context; only those of a pass that is itself recorded run in its context, since the
    calls that they make are part of what is recorded.
    """

    __slots__ = ("_before", "_now", "_within")

    def __init__(self, context_id: int, pass_id: int, recorded: bool) -> None:
        self._now = (context_id, pass_id)
        self._within = context_id if recorded else NO_CONTEXT

    def __enter__(self) -> None:
        self._before = (thread.context, thread.rules_of)
        thread.context = self._within
        thread.rules_of = self._now

    def __exit__(self, *exc_info: object) -> None:
        thread.context, thread.rules_of = self._before


def check_may_start(rank: int, context_id: int) -> None:
    """Raise RuntimeError if a pass of this worker would wait for one that waits for this thread."""
    if thread.rules_of is None:
        return
    running, pass_id = thread.rules_of
    if running == context_id and pass_id >> RANK_SHIFT == rank:
        raise RuntimeError(
            "a backward rule or hook cannot start another pass of the same worker in the context "
            f"of the pass that runs it ({context_id}): each waits for the other. Open a context "
            "of its own within the rule, or start the pass after the first"
        )
