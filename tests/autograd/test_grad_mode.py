"""Switching recording on and off."""

import threading

import pytest

import tensorplay as tp
from tensorplay.autograd.grad_mode import switched_off


@pytest.fixture
def x():
    return tp.ones(2, requires_grad=True)


def test_nothing_is_recorded_in_no_grad(x):
    with tp.no_grad():
        assert not tp.is_grad_enabled()
        y = x * 2
    assert tp.is_grad_enabled()
    assert not y.requires_grad
    assert y.is_leaf


def test_blocks_nest(x):
    with tp.no_grad():
        with tp.enable_grad():
            assert (x * 2).requires_grad
            with tp.set_grad_enabled(False):
                assert not (x * 2).requires_grad
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert not switched_off


def test_one_object_may_be_entered_within_itself(x):
    block = tp.no_grad()
    with block, block:
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_an_error_in_the_block_restores_the_mode(x):
    with pytest.raises(ValueError, match="inside"), tp.no_grad():
        raise ValueError("inside")
    assert (x * 2).requires_grad


def test_functions_can_be_decorated(x):
    @tp.no_grad()
    def double(value):
        """Doc."""
        return value * 2

    assert not double(x).requires_grad
    assert (double.__name__, double.__doc__) == ("double", "Doc.")


def test_the_mode_can_be_set_for_good(x):
    tp.set_grad_enabled(False)
    try:
        assert not (x * 2).requires_grad
    finally:
        tp.set_grad_enabled(True)
    assert (x * 2).requires_grad


def test_each_thread_has_its_own_mode(x):
    inside, checked = threading.Event(), threading.Event()
    seen = []

    def elsewhere():
        seen.append((x * 2).requires_grad)
        with tp.no_grad():
            inside.set()
            checked.wait(10)
            seen.append((x * 2).requires_grad)
        seen.append((x * 2).requires_grad)

    thread = threading.Thread(target=elsewhere)
    with tp.no_grad():
        thread.start()
        inside.wait(10)
        with tp.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
        checked.set()
        thread.join()
    assert seen == [True, False, True]
    assert (x * 2).requires_grad


def test_a_thread_that_ended_switched_off_leaves_others_switched_on(x):
    thread = threading.Thread(target=tp.set_grad_enabled, args=(False,))
    thread.start()
    thread.join()
    seen = []
    threads = [
        threading.Thread(target=lambda: seen.append((x * 2).requires_grad)) for _ in range(4)
    ]
    for one in threads:
        one.start()
        one.join()
    assert seen == [True] * 4
    assert (x * 2).requires_grad
    switched_off.clear()
