"""Writing into tensors: values, gradients, and what is refused."""

import random

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.autograd import gradcheck


def leaf(*values):
    return tp.tensor(values, dtype=tp.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda t: t.add_(1), [2.0, 3.0]),
        (lambda t: t.add_(tp.ones(2), alpha=2), [3.0, 4.0]),
        (lambda t: t.sub_(tp.tensor([1.0, 0.0])), [0.0, 2.0]),
        (lambda t: t.mul_(3), [3.0, 6.0]),
        (lambda t: t.div_(2), [0.5, 1.0]),
        (lambda t: t.pow_(3), [1.0, 8.0]),
        (lambda t: t.neg_(), [-1.0, -2.0]),
        (lambda t: t.zero_(), [0.0, 0.0]),
        (lambda t: t.fill_(7), [7.0, 7.0]),
        (lambda t: t.copy_(tp.tensor([5])), [5.0, 5.0]),
        (lambda t: t.clamp_(max=1.5), [1.0, 1.5]),
        (lambda t: t.neg_().relu_(), [0.0, 0.0]),
    ],
)
def test_values_are_written_into_the_same_memory(write, expected):
    t = tp.tensor([1.0, 2.0])
    array, version = t._array, t._version[0]
    assert write(t) is t
    assert t._array is array
    assert t.tolist() == expected
    assert t.dtype == tp.float32
    assert t._version[0] > version


def test_operators_write_in_place():
    t = tp.tensor([1.0, 2.0])
    same = t
    t += 1
    t *= tp.tensor([2.0, 3.0])
    t -= 1
    t /= 3
    t **= 2
    assert t is same
    assert t.tolist() == pytest.approx([1.0, 64 / 9])


def test_a_leaf_that_requires_grad_is_not_written_to():
    x = leaf(1.0)
    for write in (lambda: x.add_(1), x.zero_, lambda: x.__setitem__(0, 1.0)):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
            write()
    with tp.no_grad():
        x.add_(1)
    assert x.tolist() == [2.0]


def test_neither_is_a_view_of_one():
    x = leaf(1.0, 2.0)
    for view in (x[0], x.reshape(2, 1), x.unbind()[1]):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            view.zero_()
    assert x.tolist() == [1.0, 2.0]


def test_a_view_made_in_no_grad_is_not_written_to_outside():
    y = leaf(1.0, 2.0) * 1.0
    with tp.no_grad():
        view = y[0]
        view.fill_(5.0)
    assert y.tolist() == [5.0, 2.0]
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        view.zero_()


def test_results_must_fit():
    t, whole = tp.ones(2), tp.tensor([1, 2])
    with pytest.raises(RuntimeError, match=r"output with shape \[2\] doesn't match"):
        t.add_(tp.ones(3, 2))
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type int64"):
        whole.add_(0.5)
    with pytest.raises(RuntimeError, match="can't be cast"):
        whole.div_(2)
    assert whole.add_(1).tolist() == [2, 3]
    with pytest.raises(RuntimeError, match="shape mismatch in an indexed assignment"):
        t[:] = tp.ones(3)


def test_a_buffer_becomes_part_of_the_graph_through_what_is_written():
    x = leaf(2.0, 3.0)
    buffer = tp.zeros(3, dtype=tp.float64)
    for i in range(2):
        buffer[i] = x[i] * x[i]
    buffer[2] = 1.0
    assert buffer.requires_grad
    assert buffer.tolist() == [4.0, 9.0, 1.0]
    (buffer * tp.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [4.0, 60.0]


def test_a_write_through_a_view_reaches_the_base_and_its_other_views():
    x, w = leaf(1.0, 2.0, 3.0, 4.0), leaf(5.0)
    base = x * 1.0
    row, column = base.reshape(2, 2)[0], base.reshape(2, 2).T[0]
    row.mul_(w)
    assert base.tolist() == [5.0, 10.0, 3.0, 4.0]
    assert column.tolist() == [5.0, 3.0]
    (column * column).sum().backward()
    assert x.grad.tolist() == [2 * 5.0 * 5.0, 0.0, 6.0, 0.0]
    assert w.grad.tolist() == [10.0]


def test_a_write_into_the_base_reaches_its_views():
    x = leaf(1.0, 2.0)
    base = x * 1.0
    view = base[1:]
    base.mul_(x)
    view.sum().backward()
    assert x.grad.tolist() == [0.0, 4.0]


def test_what_was_computed_before_the_write_keeps_its_gradient():
    x = leaf(1.0, 2.0)
    base = x * 3.0
    before = base[0] * 2
    base.zero_()
    before.sum().backward()
    assert x.grad.tolist() == [6.0, 0.0]


def test_constants_written_over_cut_the_gradient():
    x = leaf(1.0, 2.0)
    y = x * 3.0
    y[0] = 7.0
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 3.0]


def test_memory_in_another_order_is_written_to_rightly():
    base = leaf(*range(6)).reshape(2, 3) * 1.0

    def run(x):
        columns = (x.T * 1.0).T  # its memory runs down the columns
        columns.T.reshape(-1)[1:4].mul_(2.0)
        return columns

    assert gradcheck(run, tp.tensor(base.detach().numpy(), requires_grad=True))


def test_stretched_memory_is_not_written_to():
    with pytest.raises(RuntimeError, match="clone"):
        tp.ones(1).expand(3).add_(1)


def test_detached_tensors_share_memory_but_no_history():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    y.detach().zero_()
    assert y.tolist() == [0.0, 0.0]
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_dead_views_are_forgotten():
    base = tp.zeros(4)
    for i in range(1000):
        base[i % 4].item()
    assert len(base._alias) < 100


def views_of(t, choice):
    """One of the views of a matrix or vector; the choice is between 0 and 1."""
    options = [lambda: t[0], lambda: t[..., -1:], lambda: t.T, lambda: t.reshape(-1)]
    options += [lambda: t.chunk(2)[0], lambda: t.unsqueeze(0), lambda: t[::2]]
    return options[int(choice * len(options))]()


def program(seed, x, y):
    """Random operations, views and writes on a few tensors; returns a scalar of them all."""
    drawn = random.Random(seed)
    pool = [x * 1.0, tp.ones(4, 3, dtype=tp.float64), y * 1.0]
    for _ in range(drawn.randint(4, 12)):
        a, b = drawn.choice(pool), drawn.choice(pool)
        choice = drawn.random()
        step = drawn.choice(["mul", "add", "view", "view", "write", "write", "set", "zero"])
        try:
            if step == "mul":
                pool.append(a * b)
            elif step == "add":
                pool.append((a + b) * 0.5)
            elif step == "view":
                pool.append(views_of(a, choice))
            elif step == "write":
                (a.add_ if choice < 0.5 else a.mul_)(b)
            elif step == "set":
                views_of(a, choice).copy_(b)
            elif step == "zero":
                views_of(a, choice)[0].zero_()
        except (RuntimeError, IndexError):
            # Shapes that do not fit: the same ones every time.
            continue
    return sum([(one * one).sum() * (0.1 * i + 1) for i, one in enumerate(pool)])


def test_random_programs_with_views_and_writes_have_exact_gradients():
    drawn = np.random.default_rng(0)
    exact = 0
    for seed in range(150):
        x = tp.tensor(drawn.uniform(0.5, 1.2, (4, 3)), requires_grad=True)
        y = tp.tensor(drawn.uniform(0.5, 1.2, 3), requires_grad=True)
        out = program(seed, x, y)
        try:
            found = tp.autograd.grad(out, [x, y], allow_unused=True, materialize_grads=True)
        except RuntimeError as error:
            # A saved tensor was written to: refusing is right.
            assert "modified by an inplace operation" in str(error)  # noqa: PT017
            continue
        exact += 1
        for one, slope in zip((x, y), found, strict=True):
            direction = drawn.standard_normal(one.shape)
            start, eps = one.detach().numpy().copy(), 1e-6
            values = []
            with tp.no_grad():
                for sign in (1, -1):
                    one._array[...] = start + sign * eps * direction
                    values.append(program(seed, x, y).item())
                one._array[...] = start
            numeric = (values[0] - values[1]) / (2 * eps)
            assert (slope.numpy() * direction).sum() == pytest.approx(
                numeric, rel=1e-4, abs=1e-4 * abs(values[0]) + 1e-6
            ), seed
    assert exact > 60


def test_a_tensor_taken_out_of_the_graph():
    x = tp.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    assert y.detach_() is y
    assert (y.requires_grad, y.is_leaf, y.grad_fn) == (False, True, None)
    z.sum().backward()  # recorded before
    assert x.grad.tolist() == [8.0] * 3
    assert not (y * x.detach_()).requires_grad
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        tp.ones(3, requires_grad=True)[:2].detach_()


def test_a_write_before_the_backward_pass_of_clamp_is_noticed():
    x = tp.ones(3, requires_grad=True) * 1
    y = x.clamp(0.0, 2.0)
    with tp.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()
