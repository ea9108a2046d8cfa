"""PQN: what it learns towards, and networks with layer norm."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_off_policy import advance, algorithm  # type: ignore[import-not-found]  # pytest puts this folder on the path

from paddock.algos.networks.architecture import Weights
from paddock.algos.pool.serial import SerialPool
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain


@pytest.mark.parametrize("norm", ["true", "false"])
def test_targets_are_lambda_returns_of_the_best_actions_values(norm: str, tmp_path: Path) -> None:
    changes = [f"algo.layer_norm={norm}", "algo.num_steps=32", "env.max_episode_steps=13", "algo.reward_scale=0.5"]
    changes.append("algo.epsilon_steps=100000")  # at first actions are random, and episodes of all lengths
    algo = algorithm("pqn", tmp_path, *changes)
    advance(algo, 2)
    [rollout] = next(algo.actors.rollouts())
    assert rollout.terminated.any() and rollout.truncated.any()
    target, policy = algo._targets(rollout), algo.policy()

    def best(obs: np.ndarray) -> float:
        return float(policy.outputs(obs[None])[0].max())

    finals = {tuple(at): obs for at, obs in zip(rollout.final_at.tolist(), rollout.final_obs, strict=True)}
    T, N = target.shape
    for n in range(N):
        later = 0.0
        for t in range(T - 1, -1, -1):
            expected = 0.5 * rollout.reward[t, n]
            if rollout.truncated[t, n]:
                expected += algo.gamma * best(finals[t, n])
            elif not rollout.terminated[t, n]:
                following = best(rollout.obs[t + 1, n] if t < T - 1 else rollout.last_obs[n])
                later = later if t < T - 1 else following
                expected += algo.gamma * ((1 - algo.q_lambda) * following + algo.q_lambda * later)
            later = expected
            assert target[t, n] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_every_step_is_learned_from_once_an_epoch(tmp_path: Path) -> None:
    algo, seen = algorithm("pqn", tmp_path, "algo.epochs=3"), []
    learn = algo.learning[0].learner.update

    def look(batch: Any, rate: float) -> Any:
        seen.append(batch)
        return learn(batch, rate)

    algo.learning[0].learner.update = look
    rows = advance(algo, 1)
    assert rows[0]["train/updates"] == 3 * 2 and len(seen) == 3
    assert all(sorted(batch.ids.ravel()) == list(range(16)) for batch in seen)
    assert len({batch.ids.tobytes() for batch in seen}) == 3


def test_what_acts_gives_the_values_that_were_learned() -> None:
    words = ["algo=pqn", "env=cartpole", "algo.hidden_sizes=[8,7]", "vec.num_envs=4"]
    algo: Any = build_algorithm(read_plain(compose_alone(words)), SerialPool(), folder=None)
    for parameter in algo.learner.networks.online.parameters():
        parameter.data.normal_(generator=torch.Generator().manual_seed(len(parameter)))
    obs = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    with torch.no_grad():
        wanted = algo.learner.networks(torch.from_numpy(obs))[..., 0].numpy()
    np.testing.assert_allclose(algo.policy().outputs(obs)[0], wanted, rtol=1e-5, atol=1e-6)
    weights: Weights = algo.learner.weights(3)
    assert weights.version == 3
