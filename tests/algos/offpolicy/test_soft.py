"""SAC of choices, and of quantiles of which the greatest are dropped (TQC): by autograd of plainly written losses."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from test_torch_offpolicy import (  # type: ignore[import-not-found]  # pytest puts this folder on the path
    IMAGE,
    MASKED,
    VECTOR,
    actor_critic,
    actor_of,
    architecture,
    assert_goes_on,
    make_batch,
    moves,
    table,
    values_of,
)
from torch import Tensor

from paddock.algos.common.keys import Stream
from paddock.algos.common.sample_blocks import NormalBlocks
from paddock.algos.learning.offpolicy.learners.dense_actor_critic import DenseActorCritic
from paddock.algos.learning.replay.batch import Batch
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective, SoftPolicy
from paddock.algos.networks.training import computing_with

ALPHA, TARGET = 0.3, 0.9 * math.log(3)
CHOICES, NUMBERS, HIDDEN = 3, 5, [16, 8]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with computing_with(1, torch.device("cpu")):
        yield


def dense(of: Architecture, alpha: float = ALPHA, target: float = TARGET) -> DenseActorCritic:
    objective = ActorCriticObjective(SoftPolicy(alpha, True, target), 2, 0.25, target_every=1, actor_every=1)
    return DenseActorCritic(of, 3, critic_hidden=of.hidden_sizes, objective=objective, adam_epsilon=1e-5, threads=1)


def soft(of: Architecture, alpha: float = ALPHA, target: float = TARGET, critics: int = 2, **changes: Any) -> Any:
    policy = SoftPolicy(alpha, learned=True, target_entropy=target)
    return actor_critic(of, ActorCriticObjective(policy, critics, 0.25, target_every=1, actor_every=1), **changes)


def chain(flat: Tensor, x: Tensor, widths: list[int]) -> tuple[Tensor, Tensor]:
    """Outputs [B, last] of dense layers with relu between, and the parameters that are left."""
    for k, width in enumerate(widths):
        weights, bias, flat = flat.split([x.shape[1] * width, width, len(flat) - (x.shape[1] + 1) * width])
        x = (torch.relu(x) if k else x) @ weights.reshape(width, -1).T + bias
    return x, flat


def critics_of(flat: Tensor, x: Tensor, outputs: int) -> list[Tensor]:
    found = []
    while len(flat):
        out, flat = chain(flat, x, [*HIDDEN, outputs])
        found.append(out)
    return found


def at_rest(own: Any, of: Architecture, batch: Batch) -> dict[str, Any]:
    """Learn a little, away from where targets begin, then forget moments; returns the state."""
    own.update(batch, 0.05)
    state = own.state_dict()
    state |= {f"{name}_momentum": 0 * state[f"{name}_momentum"] for name in ("actor", "critics", "log_alpha")}
    own.load_state_dict(state | {"updates": 0})
    return state


def gradient(own: Any, name: str) -> np.ndarray:
    found: np.ndarray = own.state_dict()[f"{name}_momentum"] / np.float32(1 - np.float32(0.9))
    return found


def doubles(state: dict[str, Any]) -> list[Tensor]:
    names = "actor_parameters", "critics_parameters", "log_alpha_parameters"
    return [torch.from_numpy(state[name]).double().requires_grad_() for name in names]


def test_gradients_of_quantiles_are_those_of_a_loop_over_all_pairs() -> None:
    of = actor_of(ActorCriticObjective(SoftPolicy(ALPHA, True, -2.0), 3, 0.25, 1, 1))
    B, quantiles, drop, critics_ = 6, 4, 1, 3
    own = soft(of, target=-2.0, critics=critics_, quantiles=quantiles, drop=drop)
    state, batch = at_rest(own, of, moves(of, U=1)), moves(of, U=1, B=B)
    noise = torch.from_numpy(NormalBlocks(3, Stream.UPDATE).take((2, B, 2), 0, 1)[0]).double()
    report, errors = own.update(batch, 0.0)

    actor, critics, log_alpha = doubles(state)
    alpha = float(log_alpha.detach().exp()[0])
    obs, next_obs = (torch.from_numpy(x[0]).double() for x in (batch.obs, batch.next_obs))
    reward, discount, weight = (torch.from_numpy(x[0]).double() for x in (batch.reward, batch.discount, batch.weight))

    def policy(x: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = chain(actor, x, [16, 8, 4])[0].chunk(2, 1)
        u = mean + log_std.exp() * drawn
        density = torch.distributions.Normal(mean, log_std.exp()).log_prob(u) - (1 - u.tanh() ** 2).log()
        return u.tanh(), density.sum(1)

    with torch.no_grad():
        action, logprob = policy(next_obs, noise[0])
        pool = critics_of(
            torch.from_numpy(state["target_critics"]).double(), torch.cat([next_obs, action], 1), quantiles
        )
    given = critics_of(critics, torch.cat([obs, torch.from_numpy(batch.action[0]).double()], 1), quantiles)
    loss, distance = torch.zeros((), dtype=torch.float64), []
    for b in range(B):
        least = sorted(float(each[b, m]) for each in pool for m in range(quantiles))[: critics_ * (quantiles - drop)]
        targets = [float(reward[b] + discount[b] * (value - alpha * logprob[b])) for value in least]
        for each in given:
            for m in range(quantiles):
                for target in targets:
                    u = target - each[b, m]
                    half = u**2 / 2 if abs(u) <= 1 else abs(u) - 0.5
                    share = abs((m + 0.5) / quantiles - float(u < 0))
                    loss = loss + weight[b] * share * half / (B * critics_ * quantiles * len(targets))
        distance.append(np.mean([abs(float(each[b].detach().mean()) - np.mean(targets)) for each in given]))
    action, logprob = policy(obs, noise[1])
    known = critics_of(critics.detach(), torch.cat([obs, action], 1), quantiles)
    actor_loss = (alpha * logprob - torch.stack(known).mean((0, 2))).mean()
    for each in (loss, actor_loss):
        each.backward()
    for name, expected in (("actor", actor), ("critics", critics)):
        assert expected.grad is not None and expected.grad.abs().max() > 1e-4
        np.testing.assert_allclose(gradient(own, name), expected.grad, rtol=5e-4, atol=5e-6, err_msg=name)
    told = [
        float(loss.detach()),
        float(torch.stack(given).detach().mean()),
        float(actor_loss.detach()),
        alpha,
        -float(logprob.detach().mean()),
    ]
    np.testing.assert_allclose(table(report)[0], told, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(errors[0], distance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["choices with a mask", "the same without torch", "choices by images", "quantiles"])
def test_a_restored_learner_goes_on_to_the_same_bits(kind: str) -> None:
    make: Callable[..., Any] = dense if "without torch" in kind else soft
    if kind == "quantiles":
        of = actor_of(ActorCriticObjective(SoftPolicy(ALPHA, True, -2.0), 2, 0.25, 1, 1))
        changes = {"quantiles": 3, "drop": 1}
        batch = moves(of)
    else:
        of, changes = architecture(IMAGE if "images" in kind else MASKED), {}
        batch = make_batch(of)
    assert_goes_on(lambda: make(of, **changes), batch, 0.01)


@pytest.mark.parametrize("make", [dense], ids=["dense"])
@pytest.mark.parametrize("observation", [VECTOR, MASKED], ids=["all legal", "masked"])
def test_a_learned_alpha_holds_entropy_at_its_target(observation: spaces.Space, make: Callable[..., Any]) -> None:
    """A bandit: the last choice pays, and where not all are legal the first is not."""
    of, U, B = architecture(observation), 200, 16
    own = make(of, alpha=1.0, target=0.5 * math.log(3))
    seen = np.zeros((1, 1), np.float32) if observation is MASKED else np.zeros((1, 1, NUMBERS), np.float32)
    if observation is MASKED:
        rows = of.inputs.layout.zeros(1)
        of.inputs.layout.fields(rows)["action_mask"][...] = (0, 1, 1)
        seen = rows.reshape(1, 1, *rows.shape[1:])
    obs = np.broadcast_to(seen, (U, B, *seen.shape[2:])).copy()
    action = np.random.default_rng(0).integers(observation is MASKED, CHOICES, (U, B, 1))
    reward, ones = (action[..., 0] == CHOICES - 1).astype(np.float32), np.ones((U, B), np.float32)
    report, _ = own.update(Batch(np.zeros((U, B), np.int64), obs, action, reward, obs, 0 * ones, ones), 0.01)
    legal = 2 if observation is MASKED else 3
    assert report["entropy"][-1] == pytest.approx(0.5 * math.log(legal), abs=0.05)
    out = values_of(of, own.weights(U), obs[0, :1])[0]
    share = np.exp(out - out.max()) / np.exp(out - out.max()).sum()
    assert share.argmax() == CHOICES - 1 and (observation is VECTOR or share[0] == 0)
