"""Heads, networks and actors: NumPy's half and torch's say the same."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from paddock.algos.networks.actor import DenseActor, make_actor
from paddock.algos.networks.actor_critic import ActorCritic, TorchActor
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.heads import make_head
from paddock.envs.spaces.layout import Layout

SPACES = {
    "discrete": spaces.Discrete(3, start=5),
    "multi_discrete": spaces.MultiDiscrete([2, 3, 4]),
    "binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-1, -2], np.float32), np.array([1, 2], np.float32)),
}
HEADS: dict[str, Any] = {name: make_head(space) for name, space in SPACES.items()}
NOTHING = np.zeros(0, np.float32)
VECTOR = spaces.Box(-np.inf, np.inf, (6,), np.float32)
IMAGE = spaces.Box(0, 255, (12, 10, 3), np.uint8)


def architecture(observation: spaces.Space = VECTOR, action: str = "discrete", **changes: Any) -> Architecture:
    given: dict[str, Any] = {
        "encoder": "auto",
        "hidden_sizes": (8, 7),
        "activation": "tanh",
        "shared": False,
        "lstm": False,
        "initial_log_std": -0.3,
    }
    return Architecture.for_spaces(Layout.of(observation, {}, ()), HEADS[action], **(given | changes))


def weights_of(network: ActorCritic, mean: np.ndarray = NOTHING, std: np.ndarray = NOTHING) -> Weights:
    flat = torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy()
    return Weights(0, flat.copy(), mean, std, 10.0)


def jolted(arch: Architecture, seed: int = 0) -> ActorCritic:
    """A network none of whose parameters is zero."""
    network = ActorCritic(arch, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return network


def layer_of(network: ActorCritic) -> torch.nn.Linear:
    """The second dense layer."""
    layer = network.policy_encoder[3]
    assert isinstance(layer, torch.nn.Linear)
    return layer


def test_choices_are_drawn_by_their_probabilities() -> None:
    head = HEADS["multi_discrete"]
    out = np.log(np.array([0.2, 0.8, 0.5, 0.3, 0.2, 0.1, 0.2, 0.3, 0.4], np.float32))[None].repeat(40_000, 0)
    drawn = head.sample(out, NOTHING, head.sample_noise(np.random.default_rng(1), (40_000,)))
    for k, expected in enumerate([[0.2, 0.8], [0.5, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4]]):
        shares = np.bincount(drawn[:, k]) / 40_000
        np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 / 40_000))


@pytest.mark.parametrize("action", SPACES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_dense_actor_computes_what_the_network_does(action: str, shared: bool, activation: str) -> None:
    arch = architecture(action=action, shared=shared, activation=activation)
    network = jolted(arch)
    actor = make_actor(arch)
    assert isinstance(actor, DenseActor)
    mean, std = np.array([1, 2, 3, 4, 5, 6], np.float32), np.array([1, 2, 1, 2, 1, 2], np.float32)
    obs = np.random.default_rng(0).standard_normal((9, 6)).astype(np.float32) * 3
    for weights in (weights_of(network), weights_of(network, mean, std)):
        actor.load(weights)
        out, _ = actor.act(obs, np.zeros((9, 0), np.float32))
        expected, _ = network(torch.from_numpy(weights.normalize(obs)))
        np.testing.assert_allclose(out, expected.detach(), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(actor.log_std, network.log_std.detach())


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_images_and_memory_go_through_torch(lstm: bool, shared: bool) -> None:
    arch = architecture(IMAGE, lstm=lstm, shared=shared)
    assert arch.encoder == "cnn"
    network, actor = jolted(arch), make_actor(arch)
    assert isinstance(actor, TorchActor)
    actor.load(weights_of(network))
    obs = np.random.default_rng(0).integers(0, 256, (3, 12, 10, 3), np.uint8)
    state = np.random.default_rng(1).standard_normal((3, arch.state_width)).astype(np.float32)
    out, after = actor.act(obs, state)
    expected, _, remembered = network.step(torch.from_numpy(obs), torch.from_numpy(state))
    np.testing.assert_array_equal(out, expected.detach())
    np.testing.assert_array_equal(after, remembered.detach())
    assert bool(np.any(after != state)) == lstm


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
)
@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["numbers", "image"])
@pytest.mark.parametrize("lstm", [False, True])
def test_threads_act_on_a_device_beside_each_other(device: str, observation: spaces.Space, lstm: bool) -> None:
    """Each with weights of its own: what one is given tells nothing of another's."""
    arch, count = architecture(observation, lstm=lstm), 3
    generator = np.random.default_rng(0)
    observation.seed(0)
    obs = np.stack([observation.sample() for _ in range(16)])
    state = generator.standard_normal((16, arch.state_width)).astype(np.float32)

    def play(k: int) -> list[np.ndarray]:
        actor, found = TorchActor(arch, device), []
        for turn in range(5):
            actor.load(weights_of(jolted(arch, seed=k)))
            found.append(np.concatenate(actor.act(np.roll(obs, k + turn, 0), state), 1))
        assert actor.log_std.shape == (arch.head.num_log_std,)
        return found

    with ThreadPoolExecutor(count) as pool:
        together = list(pool.map(play, range(count)))
    for k, found in enumerate(together):
        network = jolted(arch, seed=k)
        for turn, given in enumerate(found):
            seen = torch.from_numpy(np.roll(obs, k + turn, 0))
            expected = torch.cat(network.act(seen, torch.from_numpy(state)), 1).detach().numpy()
            np.testing.assert_allclose(given, expected, rtol=0, atol=2e-3 if device == "cuda" else 1e-5)


def test_a_sequence_is_its_steps_with_an_empty_memory_at_each_start() -> None:
    arch = architecture(lstm=True)
    network = jolted(arch)
    obs = torch.randn((5, 2, 6), generator=torch.Generator().manual_seed(0))
    state = torch.randn((2, arch.state_width), generator=torch.Generator().manual_seed(1))
    start = torch.tensor([[False, True], [False, False], [True, False], [False, False], [False, True]])
    out, value, states = network.unroll(obs, state, start)
    for t in range(5):
        state = torch.where(start[t][:, None], torch.zeros_like(state), state)
        expected_out, expected_value, state = network.step(obs[t], state)
        torch.testing.assert_close((out[t], value[t], states[t]), (expected_out, expected_value, state))


def test_networks_begin_orthogonal_with_their_gains() -> None:
    network = ActorCritic(architecture(hidden_sizes=(16, 16)), 0)
    first = layer_of(network).weight
    torch.testing.assert_close(first @ first.T, 2 * torch.eye(16), atol=1e-5, rtol=0)
    for layer, gain in ((network.policy_head, 0.01), (network.value_head, 1.0)):
        product = layer.weight @ layer.weight.T
        torch.testing.assert_close(product, gain**2 * torch.eye(len(product)), atol=1e-5, rtol=0)
        assert not layer.bias.any()
    again = ActorCritic(architecture(hidden_sizes=(16, 16)), 0)
    other = ActorCritic(architecture(hidden_sizes=(16, 16)), 1)
    assert torch.equal(first, layer_of(again).weight)
    assert not torch.equal(first, layer_of(other).weight)


def test_workers_of_dense_policies_start_without_torch() -> None:
    code = "import sys, paddock.algos.learning.rollouts.actors, paddock.algos.learning.async_evaluation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_first_weights_are_the_same_bits_however_many_threads_there_are() -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(
                [p.detach().numpy().tobytes() for p in ActorCritic(architecture(hidden_sizes=(64, 64)), 0).parameters()]
            )
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]
