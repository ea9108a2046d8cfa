"""The parts of Rainbow that learn in torch: the distribution of returns over atoms, and noisy networks."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from test_torch_offpolicy import (  # type: ignore[import-not-found]  # pytest puts this folder on the path
    IMAGE,
    MASKED,
    VECTOR,
    architecture,
    assert_goes_on,
    learner,
    make_batch,
    table,
    values_of,
)
from torch import Tensor

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.dqn import project
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.networks.actor import DenseActor, make_actor
from paddock.algos.networks.actor_critic import TorchActor
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.noisy import ACTING, ONLINE, TARGET
from paddock.algos.networks.support import Support
from paddock.algos.networks.training import computing_with

SUPPORT = Support(7, -2.0, 4.0)
CHOICES = 3
PLAIN = QObjective(double=False, huber=None, tau=1.0, target_every=100, max_grad_norm=None)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with computing_with(1, torch.device("cpu")):
        yield


def spread(observation: spaces.Space = VECTOR, **changes: Any) -> Architecture:
    return architecture(observation, support=SUPPORT, **changes)


def moved_by_hand(shares: np.ndarray, reward: float, discount: float, support: Support) -> np.ndarray:
    """Project one distribution [N] by algorithm 1 of Bellemare et al. 2017, but for what that loses at l = u."""
    out, spacing = np.zeros(support.atoms), (support.v_max - support.v_min) / (support.atoms - 1)
    for j in range(support.atoms):
        atom = support.v_min + j * spacing
        at = (min(max(reward + discount * atom, support.v_min), support.v_max) - support.v_min) / spacing
        below = int(np.floor(at))
        if below == at:
            out[below] += shares[j]
        else:
            out[below] += shares[j] * (below + 1 - at)
            out[below + 1] += shares[j] * (at - below)
    return out


# Atoms


def test_projected_shares_are_those_of_the_slow_loop_and_none_is_lost() -> None:
    generator = np.random.default_rng(0)
    shares = generator.dirichlet(np.ones(SUPPORT.atoms), 300)
    reward, discount = generator.uniform(-4, 6, 300), generator.choice([0, 0.5, 0.9, 1], 300)
    reward[:100] = np.rint(reward[:100])  # so that at discount 0, 0.5 and 1 atoms meet atoms
    shares_, reward_, discount_ = (torch.from_numpy(each).float() for each in (shares, reward, discount))
    found = project(shares_, reward_, discount_, SUPPORT, torch.from_numpy(SUPPORT.values)).numpy()
    expected = [moved_by_hand(*row, SUPPORT) for row in zip(shares, reward, discount, strict=True)]
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(found.sum(1), 1, atol=2e-6)


def test_projection_keeps_mass_on_and_beyond_the_atoms() -> None:
    shares = torch.tensor([[0.25, 0.5, 0, 0, 0, 0, 0.25]] * 4)
    reward, discount = torch.tensor([0.0, 1.0, 3.0, 9.0]), torch.tensor([1.0, 1.0, 0.0, 1.0])
    found = project(shares, reward, discount, SUPPORT, torch.from_numpy(SUPPORT.values)).tolist()
    assert found[0] == shares[0].tolist()
    assert found[1] == [0, 0.25, 0.5, 0, 0, 0, 0.25]
    assert found[2] == [0, 0, 0, 0, 0, 1, 0]  # an end: the reward is all there is
    assert found[3] == [0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("noisy", "double", "changes"),
    [(None, False, {}), (None, True, {"shared": True}), (0.5, True, {"observation": MASKED, "shared": True})],
    ids=["plain", "dueling", "noisy masked dueling"],
)
def test_gradients_of_atoms_are_those_of_the_loss_as_it_is_written_down(
    changes: dict[str, Any], double: bool, noisy: float | None
) -> None:
    of = spread(**changes)
    own = learner(of, QObjective(double, None, 1.0, 2, None), noisy_sigma=noisy)
    own.update(make_batch(of, U=1, seed=1), 0.3)  # away from where targets begin
    before, batch = own.state_dict(), make_batch(of, U=1, B=30)
    learned, targets = (torch.from_numpy(before[name]).double() for name in ("parameters", "targets"))
    online = learned.requires_grad_()
    if noisy:
        noise = [torch.from_numpy(noise_by_hand(of, 0, whose)) for whose in (ONLINE, TARGET)]
        online, targets = (
            each[: len(n)] + each[len(n) :] * n for each, n in zip((online, targets), noise, strict=True)
        )
    inputs = [of.prepare(x[0], own.weights(0)) for x in (batch.obs, batch.next_obs)]
    obs, next_obs = (torch.from_numpy(x).double() for x in inputs)
    atoms = torch.linspace(SUPPORT.v_min, SUPPORT.v_max, SUPPORT.atoms, dtype=torch.float64)
    with torch.no_grad():
        later = torch.softmax(logits_by_hand(of, targets, next_obs), 2)
        choosing = torch.softmax(logits_by_hand(of, online, next_obs), 2) if double else later
        scores = choosing @ atoms
        if of.inputs.legal_width:
            scores = torch.where(next_obs[:, 5:] != 0, scores, -1e30)
        best = later[torch.arange(30), scores.argmax(1)].numpy()
    rewards = zip(best, batch.reward[0].astype(float), batch.discount[0].astype(float), strict=True)
    target = torch.from_numpy(np.array([moved_by_hand(*row, SUPPORT) for row in rewards]))
    out = logits_by_hand(of, online, obs)[torch.arange(30), torch.from_numpy(batch.action[0, :, 0])]
    shares = torch.softmax(out, 1)
    losses = -(target * shares.log()).sum(1)
    loss = (torch.from_numpy(batch.weight[0]).double() * losses).mean()
    loss.backward()
    expected = learned.grad
    assert expected is not None

    own.load_state_dict({**before, "momentum": 0 * before["momentum"], "updates": 0})
    report, distance = own.update(batch, 0.001)
    gradient = own.state_dict()["momentum"] / np.float32(1 - np.float32(0.9))
    np.testing.assert_allclose(gradient, expected, rtol=2e-4, atol=2e-6)
    told = [loss, (shares @ atoms).mean(), (target @ atoms).mean(), expected.norm()]
    np.testing.assert_allclose(table(report), [[float(each.detach()) for each in told]], rtol=2e-5, atol=1e-6)
    divergence = (target * ((target + 1e-300).log() - shares.log())).sum(1).detach()
    np.testing.assert_allclose(distance[0], divergence, rtol=1e-4, atol=2e-5)
    assert (divergence > 0.01).all()


def logits_by_hand(of: Architecture, flat: Tensor, rows: Tensor) -> Tensor:
    """Logits [B, A, N] of a dense network whose hidden layers are 16 and 8 wide."""

    def layer(x: Tensor, fan_out: int) -> Tensor:
        nonlocal flat
        weights, bias, flat = flat.split([x.shape[1] * fan_out, fan_out, len(flat) - (x.shape[1] + 1) * fan_out])
        return x @ weights.reshape(fan_out, -1).T + bias

    x = rows[:, :5]
    for width in (16, 8):
        x = torch.tanh(layer(x, width)) if of.activation == "tanh" else torch.relu(layer(x, width))
    out = layer(x, CHOICES * SUPPORT.atoms).reshape(-1, CHOICES, SUPPORT.atoms)
    if of.shared:
        out = out - out.mean(1, keepdim=True) + layer(x, SUPPORT.atoms).unsqueeze(1)
    assert not len(flat)
    return out


@pytest.mark.parametrize(("observation", "shared"), [(VECTOR, False), (MASKED, True), (IMAGE, True)])
def test_actors_play_the_expected_returns(observation: spaces.Space, shared: bool) -> None:
    of = spread(observation, shared=shared)
    own, batch = learner(of), make_batch(of)
    own.update(batch, 0.05)
    assert isinstance(make_actor(of), TorchActor if observation is IMAGE else DenseActor)
    seen = batch.obs[0]
    atoms = torch.linspace(SUPPORT.v_min, SUPPORT.v_max, SUPPORT.atoms)
    with torch.no_grad():
        prepared = torch.from_numpy(of.prepare(seen, own.weights(0)))
        expected = (torch.softmax(own.networks(prepared), 2) @ atoms).numpy()
    played = values_of(of, own.weights(1), seen)
    legal = played > -1e30
    assert legal.any(1).all() and legal.all() == (observation is not MASKED)
    np.testing.assert_allclose(played[legal], expected[legal], rtol=1e-5, atol=1e-5)


# Noise


def noise_by_hand(of: Architecture, number: int, whose: int) -> np.ndarray:
    """Noise [P] of a dense network, layer by layer, as in equations 10 and 11 of Fortunato et al. 2018."""
    drawn = keyed_generator(3, Stream.UPDATE, number, whose).standard_normal(999, dtype=np.float32)
    normal, noise = iter(drawn.astype(float)), []
    for inputs, outputs in [(5, 16), (16, 8), (8, of.outputs)] + [(8, SUPPORT.atoms)] * of.shared:
        f = [np.sign(x) * abs(x) ** 0.5 for x in islice(normal, outputs + inputs)]
        noise += [f[o] * f[outputs + i] for o in range(outputs) for i in range(inputs)] + f[:outputs]
    return np.array(noise)


def test_actors_play_the_noise_of_their_rollout_and_evaluations_none() -> None:
    of = spread()
    own, batch = learner(of, noisy_sigma=0.5), make_batch(of)
    own.update(batch, 0.01)
    mean, deviation = np.split(own.state_dict()["parameters"], 2)
    assert own.weights(7).parameters.tobytes() == mean.tobytes()
    seventh, eighth = own.weights(7, explore=True), own.weights(8, explore=True)
    np.testing.assert_allclose(seventh.parameters, mean + deviation * noise_by_hand(of, 7, ACTING), atol=1e-6)
    assert seventh.version == 7 and (seventh.parameters != eighth.parameters).all()
    other = learner(of, noisy_sigma=0.5)
    other.load_state_dict(own.state_dict())
    assert other.weights(7, explore=True).parameters.tobytes() == seventh.parameters.tobytes()
    assert isinstance(make_actor(of), DenseActor)
    plain = learner(of)
    assert plain.weights(7, explore=True).parameters.tobytes() == plain.weights(7).parameters.tobytes()


@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["numbers", "image"])
def test_a_restored_noisy_learner_goes_on_to_the_same_bits(observation: spaces.Space) -> None:
    of = spread(observation, shared=True)
    assert_goes_on(lambda: learner(of, noisy_sigma=0.5), make_batch(of), 0.01)
