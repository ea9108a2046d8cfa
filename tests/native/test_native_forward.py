"""One network on many rows, exp, log, tanh, sums along time: the same bits natively on every width."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import missing, native  # noqa: F401, a fixture
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.native import library
from paddock.envs.native.forward import FORWARD_ROWS, DenseForward, expand
from paddock.envs.native.functions import fast_exp, fast_log, fast_tanh
from paddock.envs.native.networks import DenseLayout, Normalizer
from paddock.envs.native.series import carry_back, discount, moments
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.sparse import SparseFeatures

Array = NDArray[np.float32]
On = Callable[[str], None]
LAYOUTS = {
    "cartpole": DenseLayout((4, 64, 64, 2), out_first=True),
    "walker": DenseLayout((24, 40, 33, 4), out_first=True),
    "one_layer": DenseLayout((3, 1)),
    "of_nothing": DenseLayout((0, 40, 2), out_first=True),
    "one_of_nothing": DenseLayout((0, 1)),
    "wide": DenseLayout((2, 130, 1), out_first=True),
}
ROWS = (1, 2, 5, FORWARD_ROWS, FORWARD_ROWS + 1, 300)
each_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
each_activation = pytest.mark.parametrize("activation", ["tanh", "relu"])


def ways() -> list[str]:
    """Each set of instructions that can compute here."""
    return library.available()


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> On:
    load = library.load

    def choose(way: str) -> None:
        monkeypatch.setattr(library, "load", missing if way == "numpy" else load)
        monkeypatch.setenv(library.SET_VARIABLE, "" if way == "numpy" else way)

    return choose


def case(layout: DenseLayout, rows: int = max(ROWS)) -> tuple[Array, Array]:
    """Parameters [P] and observations [B, O] of all sizes."""
    draw = np.random.default_rng(7)
    obs = draw.standard_normal((rows, layout.sizes[0])) * draw.choice([1e-30, 0.1, 1.0, 50.0], (rows, 1))
    return (0.5 * draw.standard_normal(layout.num_parameters)).astype(np.float32), obs.astype(np.float32)


@each_layout
@each_activation
def test_every_way_gives_the_same_bits_for_any_number_of_rows(layout: DenseLayout, activation: str, on: On) -> None:
    parameters, obs = case(layout)
    found = []
    for way in ways():
        on(way)
        forward = DenseForward(layout, activation)
        forward.load(np.append(parameters, np.float32(9)))
        found.append(forward(obs))
        for rows in ROWS:
            assert forward(obs[-rows:]).tobytes() == found[-1][-rows:].tobytes()
        assert forward(np.asfortranarray(obs)).tobytes() == found[-1].tobytes()
    assert len(found) >= 2 and found[0].shape == (len(obs), layout.sizes[-1]) and found[0].dtype == np.float32
    assert all(out.tobytes() == found[0].tobytes() for out in found)
    on("numpy")
    forward = DenseForward(layout, activation)
    forward.load(parameters)
    np.testing.assert_allclose(forward(obs), found[0], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("sign", [1, -1])
def test_fused_operations_round_once(sign: int, on: On) -> None:
    # In double precision c + a b is halfway between c and a neighbour, to which a second rounding would go.
    a, b, c = sign * 2.0**-12 * (1 - 2.0**-23), 2.0**-12 * (1 + 2.0**-23), 1 + 2.0**-23
    assert np.float32(a * b + c) != c
    for way in ways():
        on(way)
        forward = DenseForward(DenseLayout((1, 1)), "relu")
        forward.load(np.array([b, c], np.float32))
        assert forward(np.full((1, 1), a, np.float32)).item() == c


SPACE = spaces.Dict(
    far=spaces.Box(-9, 9, (3,), np.float64),
    seen=spaces.MultiDiscrete([11, 6, 3] * 5, dtype=np.uint8),
    way=spaces.Discrete(4, start=-1),
    bits=spaces.MultiBinary(7),
    grey=spaces.Box(0, 255, (2, 2), np.uint8),
    said=spaces.Text(5),
    held=spaces.Sequence(spaces.MultiDiscrete([5, 9])),
)


def test_rows_of_bytes_have_the_same_features_with_and_without_the_zeros(on: On) -> None:
    layout = Layout.of(SPACE, {"held": 40}, ())
    features = SparseFeatures.of(layout.leaves, layout.itemsize)
    assert features is not None and not features.ones
    rows, draw = layout.zeros(40), np.random.default_rng(5)
    write = layout.writer(rows)
    SPACE.seed(3)
    for i in range(len(rows)):
        write(i, SPACE.sample())
    full, real = layout.features(rows), layout.is_real
    mean, std = (np.where(real, draw.uniform(0.5, 2, len(real)), plain).astype(np.float32) for plain in (0, 1))
    sizes = DenseLayout((full.shape[1], 37, 5), out_first=True)
    parameters, _ = case(sizes, 1)
    found = []
    for way in ways():
        on(way)
        forward = DenseForward(sizes, "tanh")
        forward.load(parameters)
        for normalizer in (None, Normalizer(mean, std, 1.5), Normalizer(mean, std, 0.5)):
            seen = full if normalizer is None else normalizer(full)
            sparse = expand(features, layout.octets(rows), normalizer)
            assert [b"".join(part.tobytes() for part in sparse.row(k)) for k in range(len(rows))] == [
                np.flatnonzero(row).astype(np.uint16).tobytes() + row[row != 0].tobytes() for row in seen
            ]
            found.append(forward(sparse).tobytes())
            assert found[-1] == forward(seen).tobytes() == found[(len(found) - 1) % 3]


def test_sparse_features_are_used_for_one_hot_inputs_alone(on: On) -> None:
    layout = Layout.of(spaces.MultiDiscrete([11, 6, 3] * 5, dtype=np.uint8), {}, ())
    features = SparseFeatures.of(layout.leaves, layout.itemsize)
    assert features is not None and features.ones and features.most == 15
    rows = np.zeros((70, layout.itemsize), np.uint8)
    rows[:, ::3], rows[3, 1], rows[4, 2] = np.arange(70)[:, None] % 13, 200, 3  # some are no choice, and nothing then
    sizes = DenseLayout((100, 130, 2))
    parameters, _ = case(sizes, 1)
    found = set()
    for way in ways():
        on(way)
        sparse = expand(features, rows, None)
        assert sparse.value is None and len(sparse) == 70
        forward = DenseForward(sizes, "relu")
        forward.load(parameters)
        found |= {forward(sparse).tobytes(), forward(features.spread(rows)).tobytes()}
        assert forward(sparse.pick(np.array([69, 3]))).tobytes() == forward(features.spread(rows[[69, 3]])).tobytes()
    assert len(found) == 1
    for space in (
        spaces.MultiDiscrete([9]),
        spaces.Box(0, 255, (9, 9), np.uint8),
        spaces.Box(-1, 1, (99,), np.float16),
    ):
        other = Layout.of(spaces.Dict(a=space, b=spaces.Discrete(8)), {}, ())
        assert SparseFeatures.of(other.leaves, other.itemsize) is None


def test_weights_may_change_afterwards_and_networks_go_to_other_processes() -> None:
    layout = LAYOUTS["cartpole"]
    parameters, obs = case(layout, 9)
    forward = DenseForward(layout, "tanh")
    forward.load(parameters)
    expected = forward(obs)
    other = pickle.loads(pickle.dumps(forward))
    other.load(parameters)
    parameters[:] = 0
    assert forward(obs).tobytes() == other(obs).tobytes() == expected.tobytes()
    forward.load(parameters)
    assert not forward(obs).any()


def test_functions_have_the_same_bits_in_any_shape(on: On) -> None:
    draw, everywhere = np.random.default_rng(1), ways()
    x = np.concatenate(
        [draw.standard_normal(5002) * 30, [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38, 89, -104, 1]]
    ).astype(np.float32)
    for function, exact in ((fast_exp, np.exp), (fast_log, np.log), (fast_tanh, np.tanh)):
        found = []
        for way in everywhere:
            on(way)
            found.append(function(x))
            strided = function(np.repeat(x, 2)[::2])
            assert strided.tobytes() == found[-1].tobytes() and strided.dtype == np.float32
            assert function(x.reshape(-1, 3)[:, 1]).tobytes() == found[-1][1::3].tobytes()
            assert function(np.full((), 0.5, np.float32)) == function(np.full(1, 0.5, np.float32))[0]
            assert function(x[:0]).shape == (0,)
        assert all(np.array_equal(y, found[0], equal_nan=True) for y in found)
        assert all((np.signbit(y) == np.signbit(found[0]))[~np.isnan(y)].all() for y in found)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(found[0], exact(x.astype(np.float64)).astype(np.float32), rtol=1e-6, atol=1e-44)


@pytest.mark.parametrize(("T", "B"), [(1, 1), (7, 3), (100, 1), (40, 33)])
def test_series_have_the_same_bits_in_native_code(T: int, B: int, on: On) -> None:
    draw = np.random.default_rng(2)
    found: list[list[Any]] = []
    delta, carry = (draw.standard_normal((T, B)).astype(np.float32) for _ in range(2))
    ended, before = draw.random((T, B)) < 0.1, draw.standard_normal(B)
    for way in (ways()[-1], "numpy"):
        on(way)
        given = before.copy()
        sums, (returns, running) = carry_back(delta, carry), discount(delta, ended, 0.9, given)
        assert np.array_equal(given, before)
        assert carry_back(np.asfortranarray(delta), carry).tobytes() == sums.tobytes()
        parts = [moments(rows) for rows in (delta, returns, np.asfortranarray(returns), delta[:, :1])]
        found.append([sums, returns, running, *(array for part in parts for array in part)])
    assert all(one.tobytes() == other.tobytes() for one, other in zip(*found, strict=True))
    sums, returns, running, mean, m2 = found[0][:5]
    assert sums[-1].tobytes() == delta[-1].tobytes()
    assert np.array_equal(sums[:-1], delta[:-1] + carry[:-1] * sums[1:])
    assert np.array_equal(running, np.where(ended[-1], 0, returns[-1]))
    expected = before
    for t in range(T):
        expected = expected * 0.9 + delta[t]
        assert np.array_equal(returns[t], expected)
        expected = np.where(ended[t], 0, expected)
    np.testing.assert_allclose(mean, delta.astype(np.float64).mean(axis=0), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(m2, len(delta) * delta.astype(np.float64).var(axis=0), rtol=1e-11, atol=1e-25)
