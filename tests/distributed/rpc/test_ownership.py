"""A value is freed when the last reference to it is gone: never earlier, and always then."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tensorplay.distributed.rpc.ownership import Owner, RRefId

ID = RRefId(2, 7)
OTHER = RRefId(3, 7)


def made_owner() -> Owner:
    owner = Owner()
    assert not owner.made(ID)
    return owner


def test_text_of_an_id() -> None:
    assert str(ID) == "GloballyUniqueId(created_on=2, local_id=7)"


def test_only_reference_dropped() -> None:
    owner = made_owner()
    assert ID in owner
    assert owner.give_back(ID, 0)
    assert ID not in owner
    assert len(owner) == 0


def test_copy_outlives_the_original() -> None:
    owner = made_owner()
    assert not owner.give_back(ID, 1)
    assert ID in owner
    assert owner.give_back(ID, 1)
    assert ID not in owner


def test_values_do_not_share_weights() -> None:
    owner = made_owner()
    owner.made(OTHER)
    assert not owner.give_back(ID, 1)
    assert owner.give_back(OTHER, 0)
    assert owner.give_back(ID, 1)


def test_value_is_not_free_before_it_has_been_made() -> None:
    # All references can be gone while the call that makes the value still runs.
    owner = Owner()
    owner.know(ID)
    assert not owner.give_back(ID, 0)
    assert ID in owner
    assert owner.made(ID)
    assert ID not in owner


def test_all_of_the_weight_may_come_before_the_first_news() -> None:
    owner = Owner()
    assert not owner.give_back(ID, 1)
    assert not owner.give_back(ID, 1)
    assert owner.made(ID)
    assert len(owner) == 0


def test_known_value_stays_known() -> None:
    owner = Owner()
    owner.know(ID)
    assert not owner.give_back(ID, 1)
    owner.know(ID)
    assert not owner.made(ID)
    assert owner.give_back(ID, 1)


@pytest.mark.parametrize("copies", [1, 100, 5000])
def test_one_reference_copied_very_often(copies: int) -> None:
    owner = made_owner()
    freed = [owner.give_back(ID, exponent) for exponent in range(1, copies + 1)]
    assert not any(freed)
    assert owner.give_back(ID, copies)


@pytest.mark.parametrize("copies", [1, 100, 5000])
def test_copy_of_a_copy_of_a_copy(copies: int) -> None:
    # Each holder copies once and drops its own: weights come home largest first, or last.
    weights = [*range(1, copies + 1), copies]
    for order in (weights, weights[::-1]):
        owner = made_owner()
        freed = [owner.give_back(ID, exponent) for exponent in order]
        assert freed == [False] * copies + [True]


# -- every order of a few events -----------------------------------------------------------------

MOST_REFERENCES = 4
WORKERS = range(3)
OWNER = 0


class State(NamedTuple):
    """All that a few workers hold of one value, and all that is under way.

    Attributes:
        held: Worker and exponent of each reference.
        sent: Destination and exponent of each reference in a message.
        dropped: Exponents of the drops under way to the owner, or not taken up by it yet.
        creation: How far the call that makes the value is: not there, being executed, through.
        copies: How often a reference has been copied.
    """

    held: tuple[tuple[int, int], ...] = ((1, 0),)
    sent: tuple[tuple[int, int], ...] = ()
    dropped: tuple[int, ...] = ()
    creation: str = "sent"
    copies: int = 0


Step = tuple[State, Callable[[Owner], bool]]


def nothing_happens(owner: Owner) -> bool:
    return False


def hears_of_it(owner: Owner) -> bool:
    owner.know(ID)
    return False


def without(entries: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return entries[:index] + entries[index + 1 :]


def steps_of_references(state: State) -> Iterator[Step]:
    """What the holders of references may do, and the messages that hold one."""
    for index, (worker, exponent) in enumerate(state.held):
        rest = without(state.held, index)
        yield (
            state._replace(held=rest, dropped=sorted_with(state.dropped, exponent)),
            nothing_happens,
        )
        if state.copies < MOST_REFERENCES - 1:
            for to in WORKERS:
                yield (
                    state._replace(
                        held=sorted_with(rest, (worker, exponent + 1)),
                        sent=sorted_with(state.sent, (to, exponent + 1)),
                        copies=state.copies + 1,
                    ),
                    nothing_happens,
                )
    for index, (to, exponent) in enumerate(state.sent):
        rest = without(state.sent, index)
        yield (
            state._replace(sent=rest, held=sorted_with(state.held, (to, exponent))),
            hears_of_it if to == OWNER else nothing_happens,
        )
        # It is not sent after all, or cannot be unpickled.
        yield (
            state._replace(sent=rest, dropped=sorted_with(state.dropped, exponent)),
            nothing_happens,
        )


def steps_at_the_owner(state: State) -> Iterator[Step]:
    for index, exponent in enumerate(state.dropped):
        rest = without(state.dropped, index)
        yield state._replace(dropped=rest), partial(give_back, exponent=exponent)
    if state.creation == "sent":
        yield state._replace(creation="executed"), hears_of_it
    elif state.creation == "executed":
        yield state._replace(creation="through"), is_made


def give_back(owner: Owner, exponent: int) -> bool:
    return owner.give_back(ID, exponent)


def is_made(owner: Owner) -> bool:
    return owner.made(ID)


def sorted_with(entries: tuple[Any, ...], entry: Any) -> tuple[Any, ...]:
    return tuple(sorted((*entries, entry)))


def check(state: State, owner: Owner, freed: bool) -> None:
    """`freed` tells whether the last step has freed the value."""
    over = state.creation == "through" and not (state.held or state.sent or state.dropped)
    assert freed == over, f"{'' if freed else 'not '}freed in {state}"
    if over:
        assert ID not in owner
        assert len(owner) == 0
    elif state.creation != "sent":
        assert ID in owner


def test_every_order_of_up_to_four_references_on_three_workers() -> None:
    seen: set[tuple[State, bytes]] = set()
    start = (State(), pickle.dumps(Owner()))
    open_ = [start]
    ends = 0
    while open_:
        state, before = open_.pop()
        steps = [*steps_of_references(state), *steps_at_the_owner(state)]
        ends += not steps
        for after, happens in steps:
            owner = pickle.loads(before)
            check(after, owner, happens(owner))
            # What the owner has noted may differ by the order in which it has heard it.
            reached = (after, pickle.dumps(owner))
            if reached not in seen:
                seen.add(reached)
                open_.append(reached)
    assert ends == MOST_REFERENCES  # one for each number of references
    assert len(seen) > 5000


# -- many values, many references, at random -----------------------------------------------------


class Reference(NamedTuple):
    rref_id: RRefId
    exponent: int


class Cluster(RuleBasedStateMachine):
    """Values of one owner and references anywhere; what is sent to it arrives in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = Owner()
        self.count = 0
        #: Held somewhere, or in a message.
        self.references: list[Reference] = []
        #: Under way to the owner.
        self.drops: list[Reference] = []
        #: Calls under way to it, or executed by it, that make a value.
        self.creations: list[RRefId] = []
        self.freed: set[RRefId] = set()

    def note(self, rref_id: RRefId, freed: bool) -> None:
        if freed:
            assert rref_id not in self.freed, "freed twice"
            self.freed.add(rref_id)

    @rule(creator=st.integers(1, 3))
    def create(self, creator: int) -> None:
        self.count += 1
        rref_id = RRefId(creator, self.count)
        self.references.append(Reference(rref_id, 0))
        self.creations.append(rref_id)

    @precondition(lambda self: self.references)
    @rule(position=st.integers(0), times=st.integers(1, 8))
    def copy(self, position: int, times: int) -> None:
        position %= len(self.references)
        for _ in range(times):
            rref_id, exponent = self.references[position]
            self.references[position] = Reference(rref_id, exponent + 1)
            self.references.append(self.references[position])

    @precondition(lambda self: self.references)
    @rule(position=st.integers(0))
    def bring_to_the_owner(self, position: int) -> None:
        self.owner.know(self.references[position % len(self.references)].rref_id)

    @precondition(lambda self: self.references)
    @rule(position=st.integers(0))
    def drop(self, position: int) -> None:
        self.drops.append(self.references.pop(position % len(self.references)))

    @precondition(lambda self: self.drops)
    @rule(position=st.integers(0))
    def deliver_drop(self, position: int) -> None:
        rref_id, exponent = self.drops.pop(position % len(self.drops))
        self.note(rref_id, self.owner.give_back(rref_id, exponent))

    @precondition(lambda self: self.creations)
    @rule(position=st.integers(0))
    def begin_to_make(self, position: int) -> None:
        self.owner.know(self.creations[position % len(self.creations)])

    @precondition(lambda self: self.creations)
    @rule(position=st.integers(0))
    def make(self, position: int) -> None:
        rref_id = self.creations.pop(position % len(self.creations))
        self.note(rref_id, self.owner.made(rref_id))

    @invariant()
    def freed_exactly_when_nothing_is_left(self) -> None:
        needed = {entry.rref_id for entry in (*self.references, *self.drops)}
        needed.update(self.creations)
        numbered = {RRefId(c, n) for c in range(1, 4) for n in range(1, self.count + 1)}
        for rref_id in numbered:
            if rref_id in self.freed:
                assert rref_id not in needed, "freed too early"
                assert rref_id not in self.owner
            elif rref_id not in needed:
                assert rref_id not in self.owner, "not freed"

    def teardown(self) -> None:
        while self.references:
            self.drop(0)
        while self.drops:
            self.deliver_drop(len(self.drops) // 2)
        while self.creations:
            self.make(0)
        assert len(self.freed) == self.count
        assert len(self.owner) == 0


Cluster.TestCase.settings = settings(deadline=None, max_examples=150, stateful_step_count=60)
TestAnyOrderOfManyReferences = Cluster.TestCase
