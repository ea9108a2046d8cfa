"""Actors and critics learn without torch: by torch's gradients in double precision, and to the same bits everywhere."""

import copy
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from compiled import missing, native  # noqa: F401, a fixture
from gymnasium import spaces
from torch.nn import functional

from paddock.algos.common.divergence import Diverged
from paddock.algos.learning.offpolicy.learners.dense_actor_critic import DenseActorCritic
from paddock.algos.learning.replay.batch import Batch
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense import actor_critic, compiled
from paddock.algos.networks.dense.actor_critic import (
    ActorCriticObjective,
    ActorCriticShape,
    CompiledActorCritic,
    DeterministicPolicy,
    SoftPolicy,
    Transitions,
)
from paddock.algos.networks.dense.init import init_uniform
from paddock.algos.networks.flat import Activation
from paddock.algos.networks.heads import make_head
from paddock.envs.native import library
from paddock.envs.spaces.layout import Layout

OBSERVED, ACTIONS = 5, 3
SOFT = ActorCriticObjective(SoftPolicy(0.3, learned=True, target_entropy=-3.0), 2, 0.25, target_every=1, actor_every=1)
OBJECTIVES = {
    "SAC": SOFT,
    "SAC, fixed alpha, one critic": replace(
        SOFT, policy=SoftPolicy(0.125, learned=False, target_entropy=0), num_critics=1
    ),
    "SAC, late actor and copies": replace(SOFT, tau=1.0, target_every=3, actor_every=2),
    "TD3": ActorCriticObjective(DeterministicPolicy(0.2, 0.25), 2, 0.25, target_every=2, actor_every=2),
    "DDPG": ActorCriticObjective(DeterministicPolicy(0.0, 0.0), 1, 0.25, target_every=1, actor_every=1),
}


def shape_of(
    objective: ActorCriticObjective,
    hidden_sizes: tuple[int, ...] = (8, 7),
    activation: Activation = "relu",
    observed: int = OBSERVED,
) -> ActorCriticShape:
    outputs = 2 * ACTIONS if objective.soft else ACTIONS
    return ActorCriticShape((observed, *hidden_sizes, outputs), (observed + ACTIONS, *hidden_sizes, 1), activation)


def first_state(shape: ActorCriticShape, objective: ActorCriticObjective) -> dict[str, Any]:
    """Parameters and targets that differ; of a soft policy one deviation is near its greatest, where it is clipped."""
    generator = np.random.default_rng(5)
    actor, *critics = (
        2 * init_uniform(sizes, generator) for sizes in (shape.actor, *([shape.critic] * objective.num_critics))
    )
    if objective.soft:
        actor[-1] = 1.8
    both = np.concatenate(critics)
    alpha = objective.policy.alpha if isinstance(objective.policy, SoftPolicy) else 1.0
    state: dict[str, Any] = {}
    for name, x in (("actor", actor), ("critics", both), ("log_alpha", np.array([math.log(alpha)], np.float32))):
        state |= {f"{name}_parameters": x, f"{name}_steps": 0}
        state |= {f"{name}_{part}": np.zeros_like(x) for part in ("momentum", "variance")}
    target = np.zeros(0, np.float32) if objective.soft else actor * np.float32(0.75)
    rest = {"target_critics": both * np.float32(0.75), "told": np.zeros(2), "updates": 0}
    return state | {"target_actor": target, **rest}


def experience(objective: ActorCriticObjective, updates: int, rows: int, observed: int = OBSERVED) -> Transitions:
    generator = np.random.default_rng(9)
    lead = (updates, rows)
    return Transitions(
        generator.standard_normal((*lead, observed), np.float32),
        generator.uniform(-1, 1, (*lead, ACTIONS)).astype(np.float32),
        generator.standard_normal(lead, np.float32),
        generator.standard_normal((*lead, observed), np.float32),
        np.where(generator.random(lead) < 0.3, 0, 0.9).astype(np.float32),
        generator.uniform(0.3, 1, lead).astype(np.float32),
        generator.standard_normal((updates, objective.draws, rows, ACTIONS), np.float32),
    )


def some(given: Transitions, first: int, last: int) -> Transitions:
    """Those of updates first .. last - 1."""
    return Transitions(*(array[first:last] for array in vars(given).values()))


def bits(*parts: Any) -> bytes:
    """Of arrays, numbers, and states in them."""
    found = b""
    for part in parts:
        inside = part.values() if isinstance(part, dict) else vars(part).values() if hasattr(part, "__dict__") else ()
        found += bits(*inside) if inside else np.ascontiguousarray(part).tobytes()
    return found


# Gradients


def network(flat: torch.Tensor, sizes: tuple[int, ...], x: torch.Tensor, activation: str) -> torch.Tensor:
    at, last = 0, len(sizes) - 2
    for k, (wide, out) in enumerate(itertools.pairwise(sizes)):
        weight, bias = flat[at : at + wide * out].view(out, wide), flat[at + wide * out : at + (wide + 1) * out]
        x, at = functional.linear(x, weight, bias), at + (wide + 1) * out
        if k < last:
            x = torch.relu(x) if activation == "relu" else torch.tanh(x)
    return x


def drawn(out: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Squashed actions, and their log-density, by torch's own distributions."""
    mean, log_std = out.chunk(2, dim=-1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
    u = mean + normal.stddev * noise
    squash = torch.distributions.TanhTransform()
    return torch.tanh(u), (normal.log_prob(u) - squash.log_abs_det_jacobian(u, torch.tanh(u))).sum(-1)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_gradients_and_reports_are_those_of_torch_in_double_precision(
    objective: ActorCriticObjective, activation: Activation
) -> None:
    objective = replace(objective, actor_every=1)
    shape, policy = shape_of(objective, activation=activation), objective.policy
    state, given = first_state(shape, objective), experience(objective, 1, 70)
    backend = CompiledActorCritic(shape, objective, state, adam_epsilon=1e-5, threads=1)
    report, apart = backend.update(given, 0.001)
    after = backend.read()

    def q_values(flat: torch.Tensor, obs: torch.Tensor, action: torch.Tensor) -> list[torch.Tensor]:
        x = torch.cat([obs, action], -1)
        return [network(each, shape.critic, x, activation)[:, 0] for each in flat.chunk(objective.num_critics)]

    rows = {name: torch.from_numpy(array[0]).double() for name, array in vars(given).items()}
    actor, critics, moved, target_actor, target_critics = (
        torch.from_numpy(flat).double().requires_grad_()
        for flat in (
            *(state["actor_parameters"], state["critics_parameters"], after["critics_parameters"]),
            *(state["target_actor"], state["target_critics"]),
        )
    )
    alpha = policy.alpha if isinstance(policy, SoftPolicy) else 0.0
    with torch.no_grad():
        if isinstance(policy, SoftPolicy):
            out = network(actor, shape.actor, rows["next_observation"], activation)
            action, logprob = drawn(out, rows["noise"][0])
        else:
            out = network(target_actor, shape.actor, rows["next_observation"], activation)
            limit = policy.target_noise_clip
            action = (torch.tanh(out) + (policy.target_noise * rows["noise"][0]).clamp(-limit, limit)).clamp(-1, 1)
            logprob = torch.zeros(70)
        following = torch.stack(q_values(target_critics, rows["next_observation"], action)).amin(0)
        target = rows["reward"] + rows["discount"] * (following - alpha * logprob)
    q = torch.stack(q_values(critics, rows["observation"], rows["action"]))
    critic_loss = (0.5 if objective.soft else 1) * (rows["weight"] * (q - target) ** 2).mean(1).sum()
    critic_loss.backward()

    out = network(actor, shape.actor, rows["observation"], activation)
    if objective.soft:
        action, logprob = drawn(out, rows["noise"][1])
        values = torch.stack(q_values(moved, rows["observation"], action)).amin(0)
        assert (out[:, ACTIONS:] > 2).any()  # so that clipping is seen
    else:
        action, logprob = torch.tanh(out), torch.zeros(70)
        values = q_values(moved, rows["observation"], action)[0]
    actor_loss = (alpha * logprob - values).mean()
    actor_loss.backward()

    for name, theirs in (("critics", critics), ("actor", actor)):
        assert theirs.grad is not None and after[f"{name}_steps"] == 1
        np.testing.assert_allclose(
            after[f"{name}_momentum"] / np.float32(1 - np.float32(0.9)), theirs.grad, rtol=2e-4, atol=2e-5
        )
    told = [
        float(torch.as_tensor(each).detach()) for each in (critic_loss, q.mean(), actor_loss, alpha, -logprob.mean())
    ]
    np.testing.assert_allclose(report[0], told, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(apart[0], (q - target).abs().mean(0).detach(), rtol=1e-4, atol=1e-5)


# Steps


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_four_updates_at_once_are_four_one_by_one(objective: ActorCriticObjective) -> None:
    shape, given = shape_of(objective), experience(objective, 4, 40)
    state = first_state(shape, objective)
    found = []
    for portions in ([4], [1, 1, 1, 1], [3, 1]):
        backend, told, first = CompiledActorCritic(shape, objective, state, adam_epsilon=1e-5, threads=1), [], 0
        for count in portions:
            told.append(backend.update(some(given, first, first + count), 0.003))
            first += count
        found.append(bits(*(np.concatenate(parts) for parts in zip(*told, strict=True)), backend.read()))
    assert found[0] == found[1] == found[2]


def test_targets_and_actor_move_every_policy_delay_updates() -> None:
    objective = replace(OBJECTIVES["TD3"], actor_every=2, target_every=3, tau=0.25)
    shape, given = shape_of(objective), experience(objective, 6, 40)
    backend = CompiledActorCritic(shape, objective, first_state(shape, objective), adam_epsilon=1e-5, threads=1)
    before, losses = backend.read(), []
    for u in range(6):
        report, _ = backend.update(some(given, u, u + 1), 0.003)
        losses.append(report[0, 2])
        after = backend.read()
        assert (bits(after["actor_parameters"]) != bits(before["actor_parameters"])) == (u in (1, 3, 5))
        for name in ("actor", "critics"):
            old, new = (state[f"target_{name}"] for state in (before, after))
            own = after[f"{name}_parameters"]
            expected = old + np.float32(0.25) * (own - old) if u in (2, 5) else old
            assert new.tobytes() == expected.tobytes(), (u, name)
        before = after
    assert before["actor_steps"] == 3 and before["critics_steps"] == before["updates"] == 6
    # What is told of the actor is of its last step; before the first it is 0.
    assert losses[0] == 0 and losses[1] == losses[2] != losses[3] == losses[4] != losses[5]

    copies = replace(objective, tau=1.0)
    backend = CompiledActorCritic(shape, copies, first_state(shape, copies), adam_epsilon=1e-5, threads=1)
    backend.update(some(given, 0, 3), 0.003)
    state = backend.read()
    assert bits(state["target_actor"], state["target_critics"]) == bits(
        state["actor_parameters"], state["critics_parameters"]
    )


def test_alpha_takes_the_step_that_is_worked_by_hand_and_is_used_before_it() -> None:
    shape, given = shape_of(SOFT), experience(SOFT, 2, 40)
    for entropy in (-50.0, 50.0):  # far more than it wants, and far less
        objective = replace(SOFT, policy=SoftPolicy(0.3, learned=True, target_entropy=entropy))
        backend = CompiledActorCritic(shape, objective, first_state(shape, objective), adam_epsilon=1e-5, threads=1)
        first, second = (backend.update(some(given, u, u + 1), 0.01)[0][0] for u in (0, 1))
        # Adam's first step is the rate, against the gradient of -log(alpha) (log pi + H): too much entropy, less alpha.
        sign = -1 if entropy < 0 else 1
        assert np.sign(entropy - first[4]) == sign
        assert first[3] == pytest.approx(0.3, rel=1e-6)
        assert second[3] == pytest.approx(math.exp(math.log(0.3) + sign * 0.01), rel=1e-5)
        gradient = first[4] - entropy
        momentum = float(backend.read()["log_alpha_momentum"][0])
        assert momentum == pytest.approx(0.09 * gradient + 0.1 * (second[4] - entropy), rel=1e-5)


# Bits


def backends(
    shape: ActorCriticShape, objective: ActorCriticObjective, monkeypatch: pytest.MonkeyPatch, most_threads: int = 3
) -> Iterator[tuple[str, CompiledActorCritic]]:
    """Every instruction set of this processor, on several numbers of threads."""
    state = first_state(shape, objective)
    monkeypatch.setattr(compiled, "usable_cores", lambda: most_threads)
    monkeypatch.setattr(actor_critic, "MIN_WORK", 1)
    for name in library.available():
        monkeypatch.setenv(library.SET_VARIABLE, name)
        for threads in range(1, most_threads + 1):
            yield (
                f"{name}, {threads} threads",
                CompiledActorCritic(shape, objective, state, adam_epsilon=1e-5, threads=threads),
            )


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize(
    ("observed", "hidden_sizes", "activation", "rows"),
    [
        *((OBSERVED, (33, 20), "relu", 100), (OBSERVED, (), "relu", 7), (0, (17,), "tanh", 45)),
    ],
    ids=lambda value: str(value),
)
def test_instruction_sets_and_thread_counts_give_the_same_bits(
    observed: int,
    hidden_sizes: tuple[int, ...],
    activation: Activation,
    rows: int,
    objective: ActorCriticObjective,
    native: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape, given = shape_of(objective, hidden_sizes, activation, observed), experience(objective, 6, rows, observed)
    found: dict[str, bytes] = {}
    for name, backend in backends(shape, objective, monkeypatch):
        told = [backend.update(some(given, *part), 0.003) for part in ((0, 1), (1, 6))]
        state = backend.read()
        found[name] = bits(*itertools.chain(*told), state, backend.actor())
        assert state["updates"] == 6 and all(np.isfinite(report).all() for report, _ in told)
        assert bits(backend.actor()) == bits(state["actor_parameters"])
    assert len(found) > 1 and len(set(found.values())) == 1, sorted(found)


def test_numbers_that_are_not_finite_have_the_same_fate_everywhere(
    native: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for wrong, value in (("reward", np.nan), ("observation", np.inf)):
        found = []
        shape, given = shape_of(SOFT), experience(SOFT, 2, 40)
        getattr(given, wrong)[0, 0] = value
        for _, backend in backends(shape, SOFT, monkeypatch):
            report, distance = backend.update(given, 0.003)
            state = backend.read()
            arrays = (report, distance, state["actor_parameters"], state["critics_parameters"])
            found.append(bits(*(np.isfinite(array) for array in arrays)))
            assert not np.isfinite(report).all(), wrong
        assert len(set(found)) == 1, wrong


# The learner


def architecture(soft: bool, hidden_sizes: tuple[int, ...] = (16, 12)) -> Architecture:
    """With outputs for `ACTIONS` numbers, and where they are drawn for their deviations too."""
    box = spaces.Box(-1, 1, (2 * ACTIONS if soft else ACTIONS,), np.float32)
    seen = Layout.of(spaces.Box(-9, 9, (OBSERVED,), np.float32), {}, ())
    head = make_head(box, stochastic=False)
    words: Any = {"encoder": "mlp", "lstm": False, "initial_log_std": 0.0, "shared": False, "activation": "relu"}
    return Architecture.for_spaces(seen, head, hidden_sizes=hidden_sizes, **words)


def learner(objective: ActorCriticObjective, seed: int = 3, threads: int = 1) -> DenseActorCritic:
    return DenseActorCritic(
        architecture(objective.soft), seed, critic_hidden=(20,), objective=objective, adam_epsilon=1e-8, threads=threads
    )


def batch(updates: int, rows: int = 40) -> Batch:
    given = experience(SOFT, updates, rows)
    ids = np.zeros((updates, rows), np.int64)
    return Batch(
        ids, given.observation, given.action, given.reward, given.next_observation, given.discount, given.weight
    )


def of_updates(batch: Batch, first: int, last: int) -> Batch:
    return Batch(*(array[first:last] for array in vars(batch).values()))


@pytest.mark.parametrize("name", ["SAC", "TD3", "DDPG"])
def test_a_learner_that_is_saved_goes_on_to_the_same_bits(name: str) -> None:
    objective, given = OBJECTIVES[name], batch(70, 33)  # noise of two blocks
    whole = learner(objective)
    told = whole.update(given, 0.003)
    first = learner(objective)
    parts = [first.update(of_updates(given, 0, 63), 0.003)]
    second = learner(objective)
    second.update(of_updates(given, 4, 9), 0.01)  # of which nothing may stay
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.updates == 63
    parts.append(second.update(of_updates(given, 63, 70), 0.003))
    metrics = [np.concatenate([each[0][name] for each in parts]) for name in told[0]]
    assert bits(*told[0].values(), told[1]) == bits(*metrics, *[np.concatenate([each[1] for each in parts])])
    assert whole.state_dict().keys() == second.state_dict().keys()
    for key, value in whole.state_dict().items():
        assert bits(value) == bits(second.state_dict()[key]), key
    assert bits(whole.weights(7)) == bits(second.weights(7))
    with whole.training_context():
        assert whole.updates == 70 and told[1].shape == (70, 33)


def test_a_learner_begins_with_torchs_default_and_targets_that_are_copies() -> None:
    objective = OBJECTIVES["TD3"]
    own = learner(objective, seed=11)
    state, generator = own.state_dict(), np.random.default_rng(11)
    actor, *critics = (
        init_uniform(sizes, generator)
        for sizes in ((OBSERVED, 16, 12, ACTIONS), (OBSERVED + ACTIONS, 20, 1), (OBSERVED + ACTIONS, 20, 1))
    )
    assert bits(actor, *critics) == bits(state["actor_parameters"], state["critics_parameters"])
    assert bits(actor, *critics) == bits(state["target_actor"], state["target_critics"])
    weights = own.weights(4)
    assert bits(weights.parameters) == bits(actor) and weights.version == 4 and weights.normalizer is None
    assert np.abs(actor[: 5 * 16]).max() <= 5**-0.5 and np.std(actor[: 5 * 16]) == pytest.approx(15**-0.5, rel=0.2)
    own.update(batch(1), 0.01)
    assert bits(weights.parameters) == bits(actor)  # a copy


def test_a_non_finite_loss_is_an_error_that_names_its_update() -> None:
    own, given = learner(SOFT), batch(3)
    given.reward[1, 5] = np.nan
    own.update(of_updates(given, 0, 1), 0.003)
    with pytest.raises(Diverged, match=r"^in update 2 the critic_loss is nan: "):
        own.update(of_updates(given, 1, 3), 0.003)
