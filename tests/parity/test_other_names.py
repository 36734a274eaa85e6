"""In-place forms, second names of operations, and what else has no page of its own here."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
import tensorplay.utils.data  # noqa: E402
from parity.compare import compare  # noqa: E402

random = np.random.default_rng(11)
#: Inside (0, 1), so that all functions are defined; some need more, see `SHIFTS`.
INSIDE = random.uniform(0.1, 0.9, (3, 4))
WHOLE = random.integers(1, 6, (3, 4))
SHIFTS = {"acosh_": 1.5}
UNDERIVED = ("acosh_", "asinh_", "atanh_", "floor_divide_")

UNARY = [
    "abs_", "acos_", "acosh_", "arccos", "arcsin", "arcsinh", "arctan", "arctanh", "absolute",
    "angle", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "cos_", "cosh_", "erf_", "erfc_",
    "exp2_", "exp_", "expm1_", "fix", "frac_", "log_", "log10_", "log1p_", "log2_", "logit_",
    "nan_to_num_", "neg_", "negative", "reciprocal_", "relu_", "round_", "rsqrt_", "sgn",
    "sigmoid_", "sign_", "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_", "tanh_", "trunc_",
    "conj",
]  # fmt: skip
WITH_ARGUMENTS = {
    "clamp_": (0.3, 0.6),
    "clip_": (0.3, None),
    "clamp_max_": (0.4,),
    "clamp_min_": (0.4,),
    "cumprod_": (0,),
    "cumsum_": (1,),
    "swapdims_": (0, 1),
    "floor_divide_": (0.3,),
    "fmod_": (0.3,),
    "remainder_": (0.3,),
    "pow_": (3,),
}
BINARY = [
    "add_", "sub_", "mul_", "div_", "pow_", "subtract", "divide", "arctan2", "atan2_", "hypot_",
    "fmod_", "remainder_", "lerp_", "greater_equal", "less_equal", "not_equal", "isclose",
]  # fmt: skip
BITS = [
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
    "bitwise_and_", "bitwise_or_", "bitwise_xor_", "bitwise_left_shift_", "bitwise_right_shift_",
    "logical_and", "logical_or", "logical_xor", "logical_and_", "logical_or_", "logical_xor_",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_of_one_tensor(name, dtype):
    def call(library, x):
        # Torch has no derivatives of a few.
        return getattr(x.detach().clone() if name in UNDERIVED else x * 1, name)()

    compare(call, (INSIDE + SHIFTS.get(name, 0)).astype(dtype))


@pytest.mark.parametrize("name", WITH_ARGUMENTS)
def test_with_numbers(name):
    def call(library, x):
        start = x.detach().clone() if name in UNDERIVED else x * 1
        return getattr(start, name)(*WITH_ARGUMENTS[name])

    compare(call, INSIDE)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_of_two_tensors(name, dtype):
    def call(library, x, y):
        arguments = (y, 0.3) if name == "lerp_" else (y,)
        return getattr(x * 1, name)(*arguments)

    compare(call, INSIDE.astype(dtype), random.uniform(0.2, 0.9, 4).astype(dtype))


@pytest.mark.parametrize("name", BITS)
def test_of_bits(name):
    def call(library, x, y):
        return getattr(x.clone(), name)(y)

    compare(call, WHOLE, WHOLE[::-1].copy())
    compare(lambda library, x: [(x > 2).bitwise_not_(), (x > 2).logical_not_(), ~x], WHOLE)


def test_products_written_into_a_tensor():
    def call(library, x, y, z):
        return [
            (x * 1).addcdiv_(y, z, value=0.5),
            (x * 1).addcmul_(y, z, value=0.5),
            library.matmul(x, y.mT),
            x.matmul(y.mT),
        ]

    compare(call, INSIDE, INSIDE + 0.5, INSIDE + 1)


def test_functions_under_their_second_names():
    def call(library, x, y):
        out = [getattr(library, name)(x) for name in UNARY if not name.endswith("_")]
        others = [name for name in BINARY if not name.endswith("_") and name != "lerp_"]
        out += [getattr(library, name)(x, y) for name in others]
        out += [library.arccosh(x + 2), library.isreal(x), library.isclose(x, y, atol=0.2)]
        z = library.polar(x, y)
        parts = library.view_as_real(z)
        out += [z, parts, library.view_as_complex(parts), library.conj(z).imag, library.sgn(z)]
        out += [library.angle(z), library.imag(z), library.real(z), library.isreal(z)]
        return [*out, library.broadcast_shapes((3, 1), (1, 4)) == (3, 4), library.pi]

    compare(call, INSIDE, INSIDE[::-1].copy())


def test_limits_of_types():
    for name in ("float32", "float64", "int32", "uint8"):
        kind = "finfo" if name.startswith("float") else "iinfo"
        own, other = (getattr(lib, kind)(getattr(lib, name)) for lib in (tp, torch))
        assert (float(own.max), float(own.min)) == (float(other.max), float(other.min))
        assert kind == "iinfo" or (float(own.eps), float(own.tiny)) == (other.eps, other.tiny)


@pytest.mark.parametrize("shape", [(6, 4), (8, 3, 5), (4, 3, 3, 2)])
def test_bounds_of_initial_values(shape):
    """Drawn numbers differ; what bounds and spreads them does not."""
    for library in (tp, torch):
        init = library.nn.init
        weight = library.empty(*shape, dtype=library.float64)
        assert init.constant_(weight, 2.0).mean() == 2.0
        assert init.ones_(weight).sum() == weight.numel()
        assert init.zeros_(weight).sum() == 0
        fan_in, fan_out = int(np.prod(shape[1:])), shape[0] * int(np.prod(shape[2:]))
        for name, options, fan, gain in (
            ("xavier_uniform_", {"gain": 2.0}, (fan_in + fan_out) / 2, 2.0),
            ("kaiming_uniform_", {"a": 1.0}, fan_in, 1.0),
            ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}, fan_out, 2**0.5),
        ):
            bound = gain * (3 / fan) ** 0.5
            largest = max(getattr(init, name)(weight, **options).abs().max() for _ in range(60))
            assert 0.9 * bound < largest <= bound
        for name, options, fan, gain in (
            ("xavier_normal_", {"gain": 2.0}, (fan_in + fan_out) / 2, 2.0),
            ("kaiming_normal_", {"nonlinearity": "relu"}, fan_in, 2**0.5),
        ):
            drawn = [getattr(init, name)(weight, **options).std() for _ in range(60)]
            assert abs(sum(drawn) / 60 / (gain * fan**-0.5) - 1) < 0.15
        rows = init.orthogonal_(weight, gain=3.0).reshape(shape[0], -1)
        square = rows @ rows.T if rows.shape[0] < rows.shape[1] else rows.T @ rows
        assert abs(square - 9 * library.eye(len(square), dtype=library.float64)).max() < 1e-9
        assert init.trunc_normal_(weight, 0.0, 1.0, -0.5, 0.25).min() >= -0.5
        assert weight.max() <= 0.25


def test_initial_values_without_chance():
    def call(library):
        init = library.nn.init
        return [
            init.eye_(library.empty(3, 4)),
            init.dirac_(library.empty(4, 2, 3)),
            init.dirac_(library.empty(4, 2, 3, 3), groups=2),
            *[init.calculate_gain(name) for name in ("relu", "tanh", "linear", "sigmoid", "selu")],
            init.calculate_gain("leaky_relu", 0.3),
        ]

    compare(call)


@pytest.mark.parametrize("name", ["Dropout", "Dropout1d", "Dropout2d", "AlphaDropout", "Identity"])
def test_what_drops_nothing(name):
    def call(library, x):
        module = getattr(library.nn, name)(0.4)
        function = getattr(library.nn.functional, {"Dropout": "dropout"}.get(name, "relu"))
        return [module.eval()(x), function(x, *((0.0,) if name == "Dropout" else ()))]

    compare(call, random.normal(size=(2, 3, 4, 2) if name == "Dropout2d" else (2, 3, 4)))


def test_order_of_samples():
    def indices(library):
        data = library.utils.data
        dataset = data.TensorDataset(library.arange(11), library.arange(11) * 2)
        orders = [list(data.SequentialSampler(dataset))]
        for drop in (False, True):
            batches = data.BatchSampler(data.SequentialSampler(dataset), 4, drop)
            orders += [list(batches), [len(batches)]]
            loader = data.DataLoader(dataset, batch_size=3, drop_last=drop)
            orders += [[x.tolist() for x, _ in loader], [len(loader)]]
            for rank in range(3):
                sampler = data.distributed.DistributedSampler(
                    dataset, num_replicas=3, rank=rank, shuffle=False, drop_last=drop
                )
                orders += [list(sampler), [len(sampler)]]
        joined = data.ConcatDataset([dataset, data.Subset(dataset, [3, 1])])
        orders.append([tuple(int(one) for one in joined[i]) for i in (0, 10, 11, 12, -1)])
        both = data.default_collate([{"a": 1, "b": (2.0, [3])}, {"a": 4, "b": (5.0, [6])}])
        orders.append([both["a"].tolist(), both["b"][0].tolist(), both["b"][1][0].tolist()])
        return orders

    assert indices(tp) == indices(torch)
