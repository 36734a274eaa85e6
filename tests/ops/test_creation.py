"""New tensors: from data, filled, and random."""

import copy
import pickle
import threading

import numpy as np
import pytest

import tensorplay as tp


def test_types_of_data():
    assert tp.tensor([1.0, 2.0]).dtype == tp.float32
    assert tp.tensor([1, 2]).dtype == tp.int64
    assert tp.tensor([1, 2.0]).dtype == tp.float32
    assert tp.tensor(True).dtype == tp.bool
    assert tp.tensor(1j).dtype == tp.complex64
    assert tp.tensor([]).dtype == tp.float32
    assert tp.tensor(np.ones(2)).dtype == tp.float64
    assert tp.tensor(np.float64(1)).dtype == tp.float64
    assert tp.tensor([np.float64(1)]).dtype == tp.float64
    assert tp.tensor([1, 2], dtype=tp.float64).dtype == tp.float64
    assert tp.tensor([1.5], dtype=float).dtype == tp.float64
    assert tp.tensor([1.5], dtype=int).tolist() == [1]
    assert tp.tensor([tp.tensor(1.0), tp.tensor(2.0)]).tolist() == [1.0, 2.0]


def test_tensor_copies_and_from_numpy_does_not():
    array = np.ones(2)
    copied, shared, maybe = tp.tensor(array), tp.from_numpy(array), tp.as_tensor(array)
    array[0] = 5
    assert copied.tolist() == [1.0, 1.0]
    assert shared.tolist() == maybe.tolist() == [5.0, 1.0]
    assert tp.as_tensor(shared) is shared
    assert tp.as_tensor(shared, dtype=tp.float32).dtype == tp.float32
    with pytest.raises(TypeError, match=r"expected np.ndarray \(got list\)"):
        tp.from_numpy([1.0])


def test_filled_tensors():
    assert tp.zeros(2, 3).tolist() == [[0.0] * 3] * 2
    assert tp.ones((2,), dtype=tp.int64).tolist() == [1, 1]
    assert tp.ones(()).shape == ()
    assert tp.empty([2, 0]).shape == (2, 0)
    assert tp.full((2,), 3).dtype == tp.int64
    assert tp.full((2,), 3.5).tolist() == [3.5, 3.5]
    assert tp.full_like(tp.ones(2, dtype=tp.float64), 2).dtype == tp.float64
    assert tp.zeros_like(tp.ones(2)).tolist() == [0.0, 0.0]
    assert tp.ones_like(tp.zeros(1), dtype=tp.bool).tolist() == [True]
    assert tp.empty_like(tp.zeros(3), requires_grad=True).requires_grad
    assert tp.arange(3).tolist() == [0, 1, 2]
    assert tp.arange(1, 2, 0.25).tolist() == [1.0, 1.25, 1.5, 1.75]
    assert tp.arange(3.0).dtype == tp.float32
    assert tp.linspace(0, 1, 3).tolist() == [0.0, 0.5, 1.0]
    assert tp.eye(2, 3).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    with pytest.raises(RuntimeError, match="there is no device"):
        tp.zeros(1, device="cuda")
    assert tp.zeros(1, device="cpu").device == "cpu"


def test_random_tensors_repeat_with_their_seed():
    def draw():
        tp.manual_seed(3)
        return [
            tp.rand(2, 2),
            tp.randn((3,), dtype=tp.float64),
            tp.randint(5, (4,)),
            tp.randint(-3, 3, (4,)),
            tp.randperm(6),
            tp.rand_like(tp.zeros(2)),
            tp.randn_like(tp.zeros(2, dtype=tp.float16)),
        ]

    first, second = draw(), draw()
    for a, b in zip(first, second, strict=True):
        assert tp.equal(a, b)
        assert a.dtype == b.dtype
    assert tp.initial_seed() == 3
    assert not tp.equal(tp.rand(4), tp.rand(4))
    assert sorted(first[4].tolist()) == list(range(6))
    assert first[6].dtype == tp.float16
    with pytest.raises(RuntimeError, match="cannot have the type int64"):
        tp.rand(2, dtype=tp.int64)


def test_generators_are_independent_and_can_be_rewound():
    generator = tp.Generator().manual_seed(1)
    state = generator.get_state()
    first = tp.randn(3, generator=generator)
    tp.randn(3)
    generator.set_state(state)
    assert tp.equal(tp.randn(3, generator=generator), first)
    assert tp.Generator().seed() != tp.Generator().seed()
    assert tp.Generator().get_state()
    assert isinstance(tp.Generator().initial_seed(), int)


@pytest.mark.parametrize("drawn_before", [False, True])
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))]
)
def test_copies_of_a_generator_go_on_where_it_stands(copied, drawn_before):
    generator = tp.Generator().manual_seed(3) if drawn_before else tp.Generator()
    if drawn_before:
        tp.randn(3, generator=generator)
    other = copied(generator)
    assert other.initial_seed() == generator.initial_seed()
    expected = tp.randn(3, generator=generator)
    assert tp.equal(tp.randn(3, generator=other), expected)
    # Each by itself from there.
    tp.randn(3, generator=other)
    assert not tp.equal(tp.randn(3, generator=other), tp.randn(3, generator=generator))


def test_one_generator_serves_several_threads():
    tp.manual_seed(0)
    drawn = []
    threads = [
        threading.Thread(target=lambda: drawn.append(tp.rand(1000).numpy())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tp.manual_seed(0)
    alone = np.concatenate([tp.rand(1000).numpy() for _ in range(8)])
    assert np.array_equal(np.sort(np.concatenate(drawn)), np.sort(alone))


def test_the_default_generator_can_be_rewound():
    tp.manual_seed(5)
    state = tp.get_rng_state()
    first = tp.rand(3)
    tp.set_rng_state(state)
    assert tp.equal(tp.rand(3), first)
    assert tp.seed() == tp.initial_seed()


def test_generators_serve_all_that_is_random():
    def draw():
        generator = tp.Generator().manual_seed(1)
        return [
            tp.normal(0.0, 1.0, (3,), generator=generator),
            tp.bernoulli(tp.full((3,), 0.5), generator=generator),
            tp.multinomial(tp.ones(2, 5), 3, generator=generator),
            tp.multinomial(tp.ones(5), 3, True, generator=generator),
            tp.zeros(3).uniform_(generator=generator),
            tp.zeros(3).normal_(generator=generator),
            tp.zeros(3).exponential_(generator=generator),
            tp.zeros(3).bernoulli_(generator=generator),
            tp.zeros(3, dtype=tp.int64).random_(generator=generator),
        ]

    first = draw()
    tp.rand(7)
    for a, b in zip(first, draw(), strict=True):
        assert tp.equal(a, b)


def test_multinomial_never_draws_what_has_no_weight():
    weights = tp.tensor([[0.0, 1e-30, 0.0, 1.0, 0.0]] * 2000)
    assert set(tp.multinomial(weights, 50, replacement=True).flatten().tolist()) <= {1, 3}
    with pytest.raises(RuntimeError, match="without replacement"):
        tp.multinomial(weights, 3)
