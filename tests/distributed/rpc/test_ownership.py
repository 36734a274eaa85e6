"""A value is freed when the last reference to it is gone: never earlier, and always then."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


class Cluster:
    """References on many workers; what is sent to the owner arrives in any order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.owner = Owner()
        #: Exponents of the references that are held somewhere, or travel in a message.
        self.references = [0]
        #: Under way to the owner: the exponent of a drop, "made" or "news".
        self.under_way: list[int | str] = ["made"]
        self.freed = 0
        self.is_made = False

    def copy(self) -> None:
        if self.references:
            position = self.random.randrange(len(self.references))
            self.references[position] += 1
            self.references.append(self.references[position])
            if self.random.random() < 0.3:
                # The copy goes to the owner itself.
                self.under_way.append("news")

    def drop(self) -> None:
        if self.references:
            position = self.random.randrange(len(self.references))
            self.under_way.append(self.references.pop(position))

    def deliver(self) -> None:
        if not self.under_way:
            return
        item = self.under_way.pop(self.random.randrange(len(self.under_way)))
        if item == "news":
            # Whoever brings the news holds a reference meanwhile.
            if self.references:
                self.owner.know(ID)
        elif item == "made":
            self.is_made = True
            self.freed += self.owner.made(ID)
        else:
            self.freed += self.owner.give_back(ID, int(item))

    def check(self) -> None:
        drops = [item for item in self.under_way if isinstance(item, int)]
        if self.references or drops or not self.is_made:
            assert self.freed == 0, "freed too early"
            if self.is_made:
                assert ID in self.owner
        else:
            assert self.freed == 1, "not freed"
            assert len(self.owner) == 0


STEPS = st.lists(st.sampled_from(["copy", "copy", "drop", "deliver", "deliver"]), max_size=200)


def actions(cluster: Cluster, steps: list[str]) -> Iterator[None]:
    for step in steps:
        getattr(cluster, step)()
        yield
    while cluster.references:
        cluster.drop()
        yield
    while cluster.under_way:
        cluster.deliver()
        yield


@settings(deadline=None, max_examples=300)
@given(seed=st.integers(0, 2**32), steps=STEPS)
def test_freed_exactly_once_and_exactly_at_the_end(seed: int, steps: list[str]) -> None:
    cluster = Cluster(seed)
    for _ in actions(cluster, steps):
        cluster.check()
    assert cluster.freed == 1
    assert len(cluster.owner) == 0
