"""Recurrent Q-learning, against a computation step by step."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from paddock.algos.learning.offpolicy.learners.objectives import QObjective, RecurrentObjective
from paddock.algos.learning.offpolicy.learners.torch_learner import TorchOffPolicyLearner
from paddock.algos.learning.offpolicy.learners.torch_networks import RecurrentQNetworks
from paddock.algos.learning.replay.batch import SequenceBatch
from paddock.algos.networks.actor_critic import ActorCritic
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.heads import make_head
from paddock.algos.pool.serial import SerialPool
from paddock.algos.r2d2 import original, r2d2_loss, rescaled
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain
from paddock.envs.spaces.layout import Layout

BURN_IN, LENGTH, N_STEP, B, EPSILON = 3, 4, 2, 3, 1e-3
GAMMA = np.float32(0.9)


def architecture(lstm: bool = True, observation: spaces.Space[Any] | None = None) -> Architecture:
    observation = observation or spaces.Box(-1, 1, (3,), np.float32)
    rest: dict[str, Any] = {"hidden_sizes": (6,), "activation": "tanh", "shared": True, "initial_log_std": 0.0}
    head = make_head(spaces.Discrete(3))
    return Architecture.for_spaces(Layout.of(observation, {}, ()), head, encoder="auto", lstm=lstm, **rest)


def learner(
    of: Architecture, objective: QObjective, dueling: bool = True, rescale: float | None = EPSILON
) -> TorchOffPolicyLearner:
    networks = partial(RecurrentQNetworks, of, 1, dueling=dueling, precision="float32", adam_epsilon=1e-8)
    settings = RecurrentObjective(**vars(objective), burn_in=BURN_IN, rescale=rescale)
    return TorchOffPolicyLearner(networks, r2d2_loss, settings, device="cpu", threads=1)


def make_batch(of: Architecture, seed: int = 0) -> tuple[SequenceBatch, dict[str, np.ndarray]]:
    """Sequences of random episodes, and how their steps ended: 1 terminated, 2 truncated."""
    generator, L = np.random.default_rng(seed), BURN_IN + LENGTH + N_STEP
    end = generator.choice(3, (L - 1, B), p=[0.6, 0.2, 0.2])
    reward = generator.standard_normal((L - 1, B)).astype(np.float32) * 5
    start = np.zeros((L, B), np.bool_)
    start[1:] = end > 0
    final = generator.standard_normal((L - 1, B, 3)).astype(np.float32)
    total, discount, last = np.zeros((LENGTH, B), np.float32), np.zeros((LENGTH, B), np.float32), np.zeros((LENGTH, B))
    for t, b in np.ndindex(LENGTH, B):
        for m in range(N_STEP):
            at = BURN_IN + t + m
            total[t, b] += GAMMA**m * reward[at, b]
            if end[at, b]:
                break
        discount[t, b], last[t, b] = 0 if end[at, b] == 1 else GAMMA ** (m + 1), t + m
    cut = np.argwhere(end[BURN_IN:] == 2)
    batch = SequenceBatch(
        ids=np.zeros((1, B), np.int64),
        obs=generator.standard_normal((L, B, 3)).astype(np.float32),
        start=start,
        state=generator.standard_normal((B, of.state_width)).astype(np.float32),
        action=generator.integers(0, 3, (LENGTH, B, 1)),
        reward=total,
        discount=discount,
        last=last.astype(np.int64),
        final_at=cut,
        final_obs=final[BURN_IN:][tuple(cut.T)],
        weight=generator.uniform(0.2, 1, B).astype(np.float32),
    )
    return batch, {"end": end, "reward": reward, "final": final}


def network_of(of: Architecture, parameters: np.ndarray) -> ActorCritic:
    network = ActorCritic(of, 0)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(parameters.copy()), network.parameters())
    return network


def action_values(network: ActorCritic, obs: Tensor, state: Tensor, dueling: bool) -> tuple[Tensor, Tensor]:
    """Of one observation."""
    out, value, after = network.step(obs[None], state[None])
    return (out[0] - out[0].mean() + value[0]) if dueling else out[0], after[0]


def expected(
    networks: tuple[ActorCritic, ActorCritic],
    batch: SequenceBatch,
    world: dict[str, np.ndarray],
    objective: QObjective,
    dueling: bool,
    burn_in_with_gradient: bool = False,
) -> tuple[Tensor, np.ndarray]:
    """The loss, and errors [LENGTH, B], of one step of one sequence after another."""
    losses, errors = [], np.zeros((LENGTH, B))
    for b in range(B):
        values: list[list[Tensor]] = [[], []]  # of each network, at each step
        finals: list[list[Tensor]] = [[], []]  # and at what it led to where that is not the next one
        for k, network in enumerate(networks):
            state = torch.from_numpy(batch.state[b])
            for t, obs in enumerate(torch.from_numpy(batch.obs[:, b])):
                with torch.set_grad_enabled(k == 0 and (t >= BURN_IN or burn_in_with_gradient)):
                    state = torch.zeros_like(state) if batch.start[t, b] else state
                    value, state = action_values(network, obs, state, dueling)
                values[k].append(value)
                if t < len(world["final"]):
                    with torch.no_grad():
                        final = torch.from_numpy(world["final"][t, b])
                        finals[k].append(action_values(network, final, state, dueling)[0])
        for t in range(LENGTH):
            at, total = BURN_IN + t, 0.0
            for m in range(N_STEP):
                total += float(GAMMA) ** m * world["reward"][at + m, b]
                if world["end"][at + m, b]:
                    break
            ended = world["end"][at + m, b]
            place = [finals[k][at + m] if ended == 2 else values[k][at + m + 1] for k in (0, 1)]
            best = int(place[0 if objective.double else 1].argmax())
            following = 0.0 if ended == 1 else float(GAMMA) ** (m + 1) * invert(float(place[1][best]))
            error = values[0][at][int(batch.action[t, b, 0])] - squeeze(total + following)
            errors[t, b] = abs(float(error.detach()))
            limit = objective.huber
            straight = limit is not None and errors[t, b] > limit
            loss = limit * (error.abs() - limit / 2) if straight and limit else error**2 / 2
            losses.append(float(batch.weight[b]) * loss)
    return torch.stack(losses).mean(), errors


def squeeze(x: float) -> float:
    return float(np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + EPSILON * x)


def invert(x: float) -> float:
    """As the paper has it, in float64."""
    root = (np.sqrt(1 + 4 * EPSILON * (abs(x) + 1 + EPSILON)) - 1) / (2 * EPSILON)
    return float(np.sign(x) * (root**2 - 1))


@pytest.mark.parametrize(
    ("objective", "dueling"),
    [(QObjective(True, None, 1.0, 100, None), True), (QObjective(False, 0.5, 1.0, 100, None), False)],
    ids=["double and dueling", "huber"],
)
def test_loss_gradient_and_errors_are_those_of_one_step_after_another(objective: QObjective, dueling: bool) -> None:
    of = architecture()
    own = learner(of, objective, dueling=dueling)
    own.update(make_batch(of, seed=7)[0], 0.05)  # so that targets differ
    state = own.state_dict()
    own.load_state_dict({**state, "momentum": np.zeros_like(state["momentum"])})
    batch, world = make_batch(of)
    assert {0, 1, 2} <= set(world["end"][BURN_IN:].ravel().tolist()) and batch.start[: BURN_IN + 1].any()
    networks = network_of(of, state["parameters"]), network_of(of, state["targets"])
    loss, errors = expected(networks, batch, world, objective, dueling)
    loss.backward()
    gradient = flat_gradient(networks[0])
    report, distance = own.update(batch, 0.05)
    assert report["loss"][0] == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(distance[0], 0.9 * errors.max(0) + 0.1 * errors.mean(0), rtol=1e-4)
    found = own.state_dict()["momentum"] / (1 - 0.9)  # Adam's, which was 0
    np.testing.assert_allclose(found, gradient, rtol=1e-3, atol=1e-6)

    networks = network_of(of, state["parameters"]), networks[1]
    expected(networks, batch, world, objective, dueling, burn_in_with_gradient=True)[0].backward()
    assert np.abs(flat_gradient(networks[0]) - found).max() > 1e-4  # which the test would have seen


def flat_gradient(network: ActorCritic) -> np.ndarray:
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters()]
    return torch.cat([part.flatten() for part in parts]).numpy()


def test_rescaled_numbers_come_back_in_float32() -> None:
    size = np.geomspace(1e-6, 1e6, 2_000)
    x = torch.from_numpy(np.concatenate([-size, [0], size]).astype(np.float32))
    for epsilon in (0.0, 1e-3, 1e-2):
        np.testing.assert_allclose(original(rescaled(x, epsilon), epsilon), x, rtol=1e-5)
        np.testing.assert_allclose(rescaled(original(x / 1e3, epsilon), epsilon), x / 1e3, rtol=1e-5)
    numbers = [rescaled(torch.tensor(value), EPSILON).item() for value in (3.0, -3.0, 99.0)]
    assert numbers == pytest.approx([1.003, -1.003, 9.099], rel=1e-6)


def test_what_may_not_be_taken_is_never_the_best_and_counts_in_no_mean() -> None:
    masked = spaces.Dict({"seen": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(3)})
    of = architecture(observation=masked)
    batch, _ = make_batch(of)

    def rows(shape: tuple[int, ...], seen: np.ndarray, last: int) -> Any:
        found = of.inputs.layout.zeros(int(np.prod(shape)))
        fields = of.inputs.layout.fields(found)
        fields["seen"][...] = seen.reshape(-1, 3)
        fields["action_mask"][...] = (1, 1, last)
        return found.reshape(shape + found.shape[1:])

    action = np.random.default_rng(0).integers(0, 2, batch.action.shape)
    for legal in (0, 1):
        obs, final = (rows(part.shape[:-1], part, legal) for part in (batch.obs, batch.final_obs))
        reports = []
        for change in (0, 3):
            own = learner(of, QObjective(False, None, 1.0, 100, None), rescale=None)
            state = own.state_dict()
            network = network_of(of, state["parameters"])
            with torch.no_grad():
                network.policy_head.bias[2] += change  # of the action that is legal in the second round alone
            parameters = torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy()
            own.load_state_dict({**state, "parameters": parameters, "targets": parameters})
            metrics, _ = own.update(replace(batch, obs=obs, final_obs=final, action=action), 0.01)
            reports.append([*metrics.values()])
        assert np.isfinite(reports).all() and np.array_equal(reports[0], reports[1]) == (not legal)


def test_memory_solves_recall(tmp_path: Path) -> None:
    shape = ["algo.num_steps=6", "algo.sequence_length=6", "algo.burn_in=3", "algo.n_step=2", "algo.hidden_sizes=[32]"]
    pace = ["algo.learning_starts=400", "algo.epsilon_steps=2500", "algo.updates_per_step=0.05", "algo.target_every=20"]
    rest = ["env.kwargs.delay=1", "vec.num_envs=16", "algo.learning_rate=3e-3", "algo.eval_episodes=100"]
    words = ["algo=r2d2", "env=recall", *shape, *pace, *rest]
    algo: Any = build_algorithm(read_plain(compose_alone(words)), SerialPool(), folder=tmp_path)
    plan = algo.plan()
    while next(plan)["step"] < 4800:
        pass
    plan.close()
    reached = algo.evaluate_last()[-1]["eval/return_mean"]
    print(f"{reached:.2f}")
    assert reached >= 0.95
