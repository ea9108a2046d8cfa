"""Evolved policies with an LSTM or convolutions, by the laws that dense ones obey."""

from typing import Any

import numpy as np
import onnxruntime as runtime
import pytest
import torch
from conftest import env_spec
from learned import algorithm
from test_es import (  # type: ignore[import-not-found]  # pytest puts this folder on the path
    advance,
    deterministic,
    openai,
    settings,
)
from torch import nn

from paddock.algos.es import ES
from paddock.algos.evolution.networks import count_parameters
from paddock.algos.evolution.strategies.ga import GASettings
from paddock.algos.networks import onnx_graph
from paddock.algos.networks.actor_critic import acting_network
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.recurrent import RecurrentPopulation
from paddock.algos.pool.serial import SerialPool
from paddock.envs.errors import ConfigError
from paddock.envs.vector import Serial

RECALL = env_spec("paddock.envs.sanity:paddock/Recall-v0", kwargs={"delay": 1})
IMAGES = env_spec("toy_envs:Scenes-v0", max_episode_steps=4)
PENDULUM = env_spec("Pendulum-v1", max_episode_steps=20)


class Convolution(nn.Module):
    """A custom encoder."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LazyConv2d(filters, 8, stride=8), nn.ReLU(), nn.Flatten())

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        encoded: torch.Tensor = self.layers(obs.permute(0, 3, 1, 2).float() / 255)
        return encoded


CUSTOM = {"_target_": "test_evolved_networks.Convolution", "filters": 2}
KINDS: dict[str, dict[str, Any]] = {
    "lstm": {"env": RECALL, "lstm": True},
    "lstm, continuous": {"env": PENDULUM, "lstm": True},
    "lstm, several agents": {"env": env_spec("paddock.envs.sanity.relay:Relay"), "lstm": True},
    "cnn": {"env": IMAGES, "encoder": "cnn"},
    "cnn, lstm": {"env": IMAGES, "lstm": True},
    "custom": {"env": IMAGES, "custom_encoder": CUSTOM},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def evolved(kind: str, **changes: Any) -> ES:
    return ES(**settings(**{"population": 6, "hidden_sizes": (4,), "episodes_per_member": 2} | KINDS[kind] | changes))


@every_kind
def test_results_depend_neither_on_tasks_nor_on_slots(kind: str) -> None:
    runs = [(1, 2), (3, 3), (1, 5)]  # pairs per task, environments per task
    rows = [advance(evolved(kind, pairs_per_task=pairs, vec=Serial(num_envs=n)), 2) for pairs, n in runs]
    assert len({deterministic(each) for each in rows}) == 1


@every_kind
def test_a_resumed_search_goes_on_with_the_same_bits(kind: str) -> None:
    whole, begun, resumed = (evolved(kind) for _ in range(3))
    rows = advance(whole, 3)
    advance(begun, 1)
    resumed.load_state_dict(begun.state_dict())
    assert deterministic(advance(resumed, 2)) == deterministic(rows[1:])
    assert resumed.policy().parameters.tobytes() == whole.policy().parameters.tobytes()


@every_kind
def test_the_first_mean_depends_on_the_seed_alone(kind: str) -> None:
    first, again, other = evolved(kind), evolved(kind, population=8), evolved(kind, seed=2)
    assert first.search.mean.tobytes() == again.search.mean.tobytes() != other.search.mean.tobytes()


def test_native_lstms_equal_the_same_networks_in_torch() -> None:
    es = evolved("lstm, continuous", hidden_sizes=(6, 5))
    architecture, draw = es.problem.network, np.random.default_rng(0)
    assert isinstance(architecture, Architecture)
    members = draw.normal(0, 0.7, (3, count_parameters(architecture))).astype(np.float32)
    together, alone = RecurrentPopulation(architecture, 3), RecurrentPopulation(architecture, 1)
    for slot, parameters in enumerate(members):
        together.load(slot, parameters)
    alone.load(0, members[1])
    network, state = acting_network(architecture), torch.zeros(1, architecture.state_width)
    nn.utils.vector_to_parameters(torch.from_numpy(members[1].copy()), network.parameters())
    for t in range(20):
        if t == 9:  # an episode begins
            together.forget(1)
            alone.forget(0)
            state = torch.zeros_like(state)
        obs = draw.standard_normal((3, 3)).astype(np.float32)
        out = together.outputs(obs)
        with torch.no_grad():
            expected, state = network.act(torch.from_numpy(obs[1:2]), state)
        np.testing.assert_array_equal(out[1:2], alone.outputs(obs[1:2]))
        np.testing.assert_allclose(out[1:2], expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "lstm, continuous", "cnn", "cnn, lstm"])
def test_evolved_policies_are_exported(kind: str) -> None:
    es = evolved(kind)
    advance(es, 1)
    policy, env = es.policy(), es.env
    env.spaces[0].seed(0)
    obs = np.array([env.spaces[0].sample() for _ in range(5)])
    model = onnx_graph.build_model(policy, obs.shape[1:], obs.dtype, {})
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    state = {"state": np.zeros((5, 8), np.float32)} if "state" in names else {}
    assert bool(state) == ("lstm" in kind)
    action, *_ = session.run(None, {"observation": obs} | state)
    np.testing.assert_allclose(action, policy.act(obs)[0], rtol=1e-4, atol=1e-5)


def test_quality_diversity_keeps_policies_with_memory() -> None:
    words = ["algo=map_elites", "env=recall", "algo.lstm=true", "algo.batch_size=8", "algo.episodes_per_member=2"]
    search = algorithm(*words, "algo.descriptors=[{of: observation.1, low: 0, high: 1, cells: 4}]")
    advance(search, 2)
    action, _, state = search.policy().act(np.zeros((1, 2), np.float32))
    assert action.shape == (1,) and np.abs(state).sum() > 0
    assert len(search.replay(SerialPool(), 3, seed=5).occupied) >= 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lstm": True, "hidden_sizes": ()}, "lstm=true needs a hidden layer"),
        ({"encoder": "cnn"}, "encoder=cnn needs images"),
        ({"encoder": "cnn", "env": IMAGES, "custom_encoder": CUSTOM}, "conflicts with custom_encoder="),
    ],
    ids=["lstm", "cnn", "custom"],
)
def test_a_network_that_does_not_fit_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ES(**settings(**change))


def test_members_that_no_memory_holds_are_refused() -> None:
    strategy = GASettings(sigma=0.1, parents=0.5, elites=1)
    with pytest.raises(ConfigError, match="population="):
        ES(**settings(strategy=strategy, population=10_000_000, hidden_sizes=(1000, 1000)))


def test_an_lstm_learns_what_no_policy_without_memory_can() -> None:
    """Recall: 0 without memory, 1 at best."""
    env = env_spec("paddock.envs.sanity:paddock/Recall-v0", kwargs={"delay": 0})
    strategy = openai(sigma=1.0, learning_rate=0.3, weight_decay=0.0)
    sizes = {"population": 64, "episodes_per_member": 4, "hidden_sizes": (8,), "vec": Serial(num_envs=64)}
    own = {"normalize_observations": False, "eval_every_iterations": 1000, "pairs_per_task": None, "eval_episodes": 50}
    es = evolved("lstm", env=env, strategy=strategy, **sizes, **own)
    advance(es, 45)
    assert es.evaluate_last()[0]["eval/return_mean"] > 0.9
