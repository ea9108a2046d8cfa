"""Networks give the same bits in native code on every width, and the same numbers in NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
from compiled import missing, native  # noqa: F401, a fixture
from numpy.typing import NDArray

from paddock.envs.native import library
from paddock.envs.native.networks import Network, Networks

S = 11  # networks: no multiple of any width
Array = NDArray[np.float32]
Make = Callable[[str, Network, int], Networks]
SHAPES = {
    "walker": Network((24, 40, 40, 4), "tanh", "bounded"),
    "choices": Network((4, 8, 2), "relu", "discrete"),
    "one_layer": Network((3, 1), "tanh", "bounded"),
    "to_one": Network((17, 33, 1), "tanh", "unbounded"),
    "of_nothing": Network((0, 5, 1), "tanh", "unbounded"),
    "one_of_nothing": Network((0, 1), "tanh", "unbounded"),
    "wide": Network((2, 130, 65), "relu", "bounded"),
}
each_shape = pytest.mark.parametrize("network", SHAPES.values(), ids=SHAPES)


def ways() -> list[str]:
    """Each set of instructions that can run networks here."""
    return library.available()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    def of(way: str, network: Network, slots: int) -> Networks:
        with monkeypatch.context() as patch:
            patch.setattr(library, "load", missing if way == "numpy" else library.load)
            patch.setenv(library.SET_VARIABLE, "" if way == "numpy" else way)
            return Networks(network, slots)

    return of


def case(network: Network, slots: int = S) -> tuple[Array, Array]:
    """Parameters [S, P] and observations [S, O] of all sizes."""
    draw = np.random.default_rng(7)
    parameters = draw.standard_normal((slots, network.num_parameters)) * draw.choice([0.01, 0.3, 3.0], (slots, 1))
    obs = draw.standard_normal((slots, network.sizes[0])) * draw.choice([1e-30, 0.1, 1.0, 50.0], (slots, 1))
    return parameters.astype(np.float32), obs.astype(np.float32)


def run(networks: Networks, parameters: Array, obs: Array) -> Array:
    networks.parameters[:] = parameters
    return networks(obs)


@each_shape
def test_every_way_gives_the_same_bits(network: Network, make: Make) -> None:
    parameters, obs = case(network)
    found = [run(make(way, network, S), parameters, obs) for way in ways()]
    assert len(found) >= 2 and found[0].shape == (S, network.sizes[-1]) and found[0].dtype == np.float32
    assert all(out.tobytes() == found[0].tobytes() for out in found)


@each_shape
def test_it_is_the_network_that_is_meant(network: Network, make: Make) -> None:
    parameters, obs = case(network)
    hidden, start = obs.astype(np.float64), 0
    pairs = list(zip(network.sizes, network.sizes[1:], strict=False))
    for k, (fan_in, fan_out) in enumerate(pairs):
        weights = parameters[:, start : start + fan_in * fan_out].reshape(S, fan_in, fan_out)
        start += fan_in * fan_out
        hidden = np.einsum("si,sio->so", hidden, weights) + parameters[:, start : start + fan_out]
        start += fan_out
        if k < len(pairs) - 1:
            hidden = np.tanh(hidden) if network.activation == "tanh" else np.maximum(hidden, 0)
    expected = np.tanh(hidden) if network.head == "bounded" else hidden
    for way in (*ways(), "numpy"):
        np.testing.assert_allclose(run(make(way, network, S), parameters, obs), expected, rtol=2e-4, atol=2e-4)
