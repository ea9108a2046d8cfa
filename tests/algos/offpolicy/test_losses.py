"""The C learners minimize the losses of the algorithm files, which are computed here in double precision."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import call_main
from gymnasium import spaces
from test_torch_offpolicy import (  # type: ignore[import-not-found]  # pytest puts this folder on the path
    MASKED,
    OBJECTIVES,
    VECTOR,
    actor_of,
    architecture,
    make_batch,
    moves,
)

from paddock.algos.common.keys import Stream
from paddock.algos.common.sample_blocks import NormalBlocks
from paddock.algos.dqn import dqn_loss
from paddock.algos.learning.offpolicy.learners.dense_actor_critic import DenseActorCritic
from paddock.algos.learning.offpolicy.learners.dense_q import DenseQLearner
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.offpolicy.learners.torch_batch import TorchBatch
from paddock.algos.learning.offpolicy.learners.torch_networks import ActorCriticNetworks, QNetworks
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective, SoftPolicy
from paddock.algos.sac import discrete_sac_losses, sac_losses
from paddock.algos.td3 import td3_losses

HOW: dict[str, Any] = {"adam_epsilon": 1e-5, "precision": "float32", "device": "cpu"}
SEED = 3


def doubled(network: torch.nn.Module, parameters: np.ndarray) -> torch.nn.Module:
    """Give a network these parameters in double precision."""
    network.double()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(parameters).double(), network.parameters())
    return network


def gradient_of(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([part.grad.flatten() for part in network.parameters() if part.grad is not None])


def in_double(batch: Any, of: Architecture, noise: np.ndarray | None = None) -> TorchBatch:
    [one] = TorchBatch.split(batch, of, torch.device("cpu"))
    drawn = torch.zeros(0) if noise is None else torch.from_numpy(noise).double()
    rows = {name: getattr(one, name).double() for name in ("obs", "reward", "next_obs", "discount", "weight", "action")}
    return TorchBatch(**rows, bootstraps=True, noise=drawn, update=1)


@pytest.mark.parametrize(
    ("observation", "shared", "double", "huber"),
    [(VECTOR, False, False, None), (VECTOR, True, True, 0.5), (MASKED, True, False, 0.5), (MASKED, False, True, None)],
)
def test_c_learns_by_dqn_loss(observation: spaces.Space, shared: bool, double: bool, huber: float | None) -> None:
    of, objective = architecture(observation, shared=shared), QObjective(double, huber, 1.0, 100, None)
    own = DenseQLearner(of, objective, SEED, adam_epsilon=1e-5, threads=1)
    own.update(make_batch(of, U=5, seed=1), 0.05)  # away from the targets
    state, batch = own.state_dict(), make_batch(of, U=1, B=100)
    networks = QNetworks(of, SEED, **HOW)
    doubled(networks.online, state["parameters"])
    doubled(networks.target, state["targets"])
    loss, expected = dqn_loss(networks, in_double(batch, of), objective)
    loss.backward()

    own.load_state_dict({**state, "momentum": np.zeros_like(state["momentum"])})
    metrics, errors = own.update(batch, 0.001)
    gradient = own.state_dict()["momentum"] / np.float32(1 - np.float32(0.9))
    np.testing.assert_allclose(gradient, gradient_of(networks.online), rtol=2e-4, atol=2e-6)
    np.testing.assert_allclose(errors[0], expected.pop("td_error").detach(), rtol=1e-4, atol=1e-5)
    for name, value in expected.items():
        assert metrics[name][0] == pytest.approx(value.item(), rel=2e-5), name


CHOICES = ActorCriticObjective(SoftPolicy(0.3, learned=True, target_entropy=0.9), 2, 0.25, 1, 1)
CASES: dict[str, tuple[ActorCriticObjective, spaces.Space, bool]] = {
    name: (objective, VECTOR, False) for name, objective in OBJECTIVES.items()
}
CASES |= {"choices": (CHOICES, VECTOR, True), "choices with a mask": (CHOICES, MASKED, True)}


@pytest.mark.parametrize("case", CASES)
def test_c_learns_by_the_losses_of_sac_and_td3(case: str) -> None:
    objective, observation, chooses = CASES[case]
    of = architecture(observation) if chooses else actor_of(objective)
    loss: Any = discrete_sac_losses if chooses else sac_losses if objective.soft else td3_losses
    own = DenseActorCritic(of, SEED, critic_hidden=of.hidden_sizes, objective=objective, adam_epsilon=1e-5, threads=1)
    first, batch = (make_batch(of, U=4, seed=1), make_batch(of, U=1)) if chooses else (moves(of), moves(of, U=1))
    own.update(first, 0.05)  # away from the targets
    state, still = own.state_dict(), objective.actor_every - 1  # so that the next update moves the actor
    state |= {name: np.zeros_like(state[name]) for name in state if name.endswith("_momentum")}
    own.load_state_dict(state | {"updates": still})
    metrics, errors = own.update(batch, 0.0)  # the actor learns from the critics as they were

    networks = ActorCriticNetworks(of, SEED, objective=objective, **HOW)
    doubled(networks.actor, state["actor_parameters"])
    doubled(networks._critics, state["critics_parameters"])
    doubled(networks._target_critics, state["target_critics"])
    if not objective.soft:
        doubled(networks.target_actor, state["target_actor"])
    doubled(networks.learned["log_alpha"], state["log_alpha_parameters"])
    rows = batch.reward.shape[1]
    noise = NormalBlocks(SEED, Stream.UPDATE).take((objective.draws, rows, networks._actions), still, 1)[0]
    given = in_double(batch, of, noise)
    object.__setattr__(given, "update", still + 1)
    for losses, expected in loss(networks, given, objective):
        for name, value in losses.items():
            network = networks.learned[name]
            network.zero_grad()
            value.backward(inputs=list(network.parameters()))
            found = own.state_dict()[f"{name}_momentum"] / np.float32(1 - np.float32(0.9))
            np.testing.assert_allclose(found, gradient_of(network), rtol=5e-4, atol=3e-6, err_msg=name)
        for name, value in expected.items():
            if name == "td_error":
                np.testing.assert_allclose(errors[0], value.detach(), rtol=1e-4, atol=1e-5)
            else:
                assert metrics[name][0] == pytest.approx(value.item(), rel=1e-4, abs=1e-5), name


LOSSES = """
def halved(network, batch, settings):
    q = network(batch.obs).squeeze(2).gather(1, batch.action.long()).squeeze(1)
    with network.no_grad():
        y = batch.reward + batch.discount * network.target(batch.next_obs).squeeze(2).amax(1)
    return 0.25 * (q - y).square().mean(), {"own": (q - y).abs().mean()}


def together(network, batch, settings):
    action, log_pi = network.sample(batch.obs, batch.noise[1])
    q = network.critics(batch.obs, batch.action).squeeze(2)
    losses = {"critics": (q - batch.reward).square().mean(), "actor": (network.alpha * log_pi).mean()}
    return losses, {"own": log_pi.mean()}
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package outside the repository with two losses."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "lossy.py").write_text(LOSSES)
    monkeypatch.syspath_prepend(tmp_path / "outside")
    return "lossy"


FEW = [
    "compute=serial",
    "algo.hidden_sizes=[8]",
    "algo.learning_starts=32",
    "algo.batch_size=8",
    "algo.log_every_steps=64",
    "budget.steps=128",
]


@pytest.mark.parametrize(
    ("words", "name"), [(["algo=dqn", "env=cartpole"], "halved"), (["algo=sac", "env=pendulum"], "together")]
)
def test_a_loss_of_a_users_own_package_is_minimized(
    words: list[str], name: str, package: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*words, *FEW, f"algo.loss={package}.{name}", f"run.dir={tmp_path / 'run'}"]
    assert call_main(*words, "algo.backend=dense") == 2
    assert f"algo.loss={package}.{name}: only torch supports this" in capfd.readouterr().err
    assert call_main(*words) == 0
    assert f'"{words[0][5:]}/own"' in (tmp_path / "run" / "metrics.jsonl").read_text()
