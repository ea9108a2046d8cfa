"""What tests of algorithms and of their rollouts share."""

import copy
import functools
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conftest import deterministic

from paddock.algos.learning.rollouts.actors import play_inline
from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.actor_critic import ActorCritic
from paddock.algos.networks.architecture import Weights
from paddock.algos.pool.serial import SerialPool
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain


def algorithm(*words: str, pool: Any = None, folder: Path | None = None) -> Any:
    """What a command's words build, on a pool; the same words are composed once, which takes longer than building."""
    return build_algorithm(copy.deepcopy(_composed(words)), pool or SerialPool(), folder=folder)


@functools.cache
def _composed(words: tuple[str, ...]) -> dict[str, Any]:
    return read_plain(compose_alone([*words]))


def advance(algo: Any, iterations: int) -> list[dict[str, float]]:
    plan = algo.plan()
    metrics = [next(plan) for _ in range(iterations)]
    plan.close()
    return [deterministic(row) for row in metrics]


def parameters(algo: Any) -> np.ndarray:
    return algo.learner.parameters()


def leaves(state: Any, at: str = "") -> dict[str, bytes]:
    """Everything in a state, as bytes."""
    if isinstance(state, dict):
        return {path: leaf for key, part in state.items() for path, leaf in leaves(part, f"{at}.{key}").items()}
    return {at: state.tobytes() if isinstance(state, np.ndarray) else repr(state).encode()}


def weights(of: RolloutConfig, version: int = 0) -> Weights:
    network = ActorCritic(of.architecture, seed=version)
    nothing = np.zeros(0, np.float32)
    flat = torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy().copy()
    return Weights(version, flat, nothing, nothing, 0.0)


def assert_same(one: Rollout, other: Rollout) -> None:
    for field in fields(Rollout):
        got, expected = getattr(one, field.name), getattr(other, field.name)
        if field.name == "start":
            assert got.same_as(expected)
        elif not field.name.endswith("_s"):
            np.testing.assert_array_equal(got, expected, err_msg=field.name)


def followed(of: RolloutConfig, count: int) -> tuple[list[Rollout], list[ResumePoint]]:
    """Some rollouts from the beginning, and the points between which they lie."""
    points = [ResumePoint.first(of.vec.num_envs, of.policy_group)]
    source, rollouts = play_inline(of, lambda k: [weights(of, k)], points[0], 0), []
    for _ in range(count):
        (rollout,), end = next(source)
        rollouts.append(rollout)
        points.append(end)
    source.close()
    return rollouts, points


def played(of: RolloutConfig, count: int) -> list[Rollout]:
    return followed(of, count)[0]
