"""Rollouts of native environments in one call are those of one step after another, byte for byte."""

import functools
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from compiled import native  # noqa: F401, a fixture
from gymnasium import spaces

from paddock.algos.learning.rollouts.actors import play_inline
from paddock.algos.learning.rollouts.collector import Collector
from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.learning.rollouts.pool_actors import play_on_pool
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.heads import SoftGaussian, Tanh, make_head
from paddock.algos.networks.native_policy import make_player, stochastic_network
from paddock.algos.pool.serial import SerialPool
from paddock.envs.native import library
from paddock.envs.native.settings import native_ids
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.legal import MASK
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Native, Serial, VectorMisuse

SEED = 3
GRID = "minigrid:MiniGrid-Empty-Random-5x5-v0"
# Rows of the same bytes, of which seven are taken for what is legal: of what is ahead, which has a kind, and behind it.
MASKED = Layout.of(
    spaces.Dict(
        {
            "a": spaces.Discrete(4),
            "aa": spaces.MultiDiscrete([11, 6, 4] * 26, dtype=np.uint8),
            MASK: spaces.MultiBinary(7),
            "b": spaces.MultiDiscrete([11] * 62, dtype=np.uint8),
        }
    ),
    {},
    (),
)
CASES: dict[str, dict[str, Any]] = {
    "cartpole": {"id": "CartPole-v1", "num_envs": 37},
    "relu": {"id": "CartPole-v1", "num_envs": 16, "activation": "relu", "hidden_sizes": (33,), "max_episode_steps": 9},
    "linear": {"id": "Acrobot-v1", "num_envs": 3, "hidden_sizes": (), "max_episode_steps": 11},
    "pendulum": {"id": "Pendulum-v1", "num_envs": 21, "max_episode_steps": 13},
    "squashed": {"id": "Pendulum-v1", "num_envs": 5, "gaussian": "squashed_gaussian", "max_episode_steps": 13},
    "soft": {"id": "Pendulum-v1", "num_envs": 5, "gaussian": "soft", "activation": "relu", "max_episode_steps": 13},
    "tanh": {"id": "MountainCarContinuous-v0", "num_envs": 19, "gaussian": "tanh", "max_episode_steps": 7},
    "car": {"id": "MountainCarContinuous-v0", "num_envs": 18, "max_episode_steps": 7, "shared": True},
    "walker": {"id": "paddock.envs.bipedal:paddock/BipedalWalker-v3", "num_envs": 35, "max_episode_steps": 15},
    "rows of bytes": {"id": GRID, "num_envs": 19, "max_episode_steps": 15},
    "bits": {"id": "paddock.envs.games:paddock/MinAtarBreakout-v0", "num_envs": 19, "max_episode_steps": 15},
    "masked": {"id": GRID, "num_envs": 19, "max_episode_steps": 15, "seen": MASKED},
}


def config(
    id: str,
    num_envs: int,
    *,
    threads: int = 1,
    fused: Any = "auto",
    max_episode_steps: int | None = None,
    seen: Layout | None = None,
    **changes: Any,
) -> RolloutConfig:
    env = EnvSpec(id=id, kwargs={}, wrappers=(), max_episode_steps=max_episode_steps, fresh=False)
    if id == GRID:
        pytest.importorskip("minigrid")
        env = replace(env, wrappers=({"_target_": "paddock.envs.bindings.minigrid.Choices"},), without=("mission",))
    kind = changes.pop("gaussian", "gaussian")
    off_policy = {"soft": SoftGaussian, "tanh": Tanh}.get(kind)
    actions = env.spaces[1]
    head = off_policy.for_replay(actions) if off_policy else make_head(actions, distribution=kind)
    given: dict[str, Any] = {"hidden_sizes": (20, 9), "activation": "tanh", "shared": False, "initial_log_std": -0.4}
    seen = env.observations if seen is None else seen
    architecture = Architecture.for_spaces(seen, head, encoder="auto", lstm=False, **(given | changes))
    vec = Native(num_envs=num_envs, threads=threads)
    return RolloutConfig(env, vec, architecture, seed=SEED, num_steps=12, groups=1, fused=fused)


def weights(of: RolloutConfig, version: int, normalized: bool = True) -> Weights:
    """Some that differ from rollout to rollout, as do what observations are normalized by."""
    draw, inputs = np.random.default_rng(version), of.architecture.inputs.width
    count = of.architecture.head.num_log_std + of.architecture.policy_layout.num_parameters + 5
    parameters = (0.5 * draw.standard_normal(count)).astype(np.float32)
    mean, std = of.architecture.inputs.of_reals(draw.standard_normal(inputs), draw.uniform(0.1, 2, inputs))
    size = inputs if normalized and version % 2 else 0
    return Weights(version, parameters, mean[:size], std[:size], 1.5)


def played(of: RolloutConfig, count: int = 4) -> tuple[list[Rollout], list[ResumePoint]]:
    points, rollouts = [ResumePoint.first(of.vec.num_envs, of.policy_group)], []
    source = play_inline(of, lambda k: [weights(of, k)], points[0], 0)
    for _ in range(count):
        (rollout,), end = next(source)
        rollouts.append(rollout)
        points.append(end)
    source.close()
    return rollouts, points


def assert_same_bytes(one: Rollout, other: Rollout) -> None:
    for field in fields(Rollout):
        got, expected = getattr(one, field.name), getattr(other, field.name)
        if field.name == "start":
            assert got.same_as(expected)
        elif isinstance(expected, np.ndarray):
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), field.name
            assert got.tobytes() == expected.tobytes(), field.name
        elif not field.name.endswith("_s"):
            assert got == expected, field.name


def saved(point: ResumePoint, of: RolloutConfig) -> dict[str, bytes]:
    """Everything that a checkpoint keeps of a point, as bytes."""

    def leaves(tree: Any, at: str = "") -> dict[str, bytes]:
        if isinstance(tree, dict):
            return {path: leaf for key, part in tree.items() for path, leaf in leaves(part, f"{at}.{key}").items()}
        return {at: tree.tobytes() if isinstance(tree, np.ndarray) else repr(tree).encode()}

    return leaves(point.state_dict(of.policy_group))


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return CASES[request.param]


def test_a_fused_rollout_is_that_of_single_steps_and_so_is_where_it_ends(case: dict[str, Any]) -> None:
    by_steps, stepped = played(config(**case, fused="never"))
    assert sum(len(rollout.returns) for rollout in by_steps) > 0
    if "max_episode_steps" in case:
        assert sum(len(rollout.final_at) for rollout in by_steps) > 0
    of = config(**case)
    assert Collector(of)._player is not None
    fused, points = played(of)
    for one, other in zip(fused, by_steps, strict=True):
        assert_same_bytes(one, other)
        assert one.env_s > 0 < one.policy_s
    assert [saved(point, of) for point in points] == [saved(point, of) for point in stepped]


@pytest.mark.parametrize("name", ["cartpole", "walker", "masked"])
def test_threads_and_instructions_change_no_byte(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = played(config(**CASES[name]), 2)
    for lanes in library.available():
        for threads in (1, 2, 3):
            monkeypatch.setenv(library.SET_VARIABLE, lanes)
            for one, other in zip(played(config(**CASES[name], threads=threads), 2)[0], expected, strict=True):
                assert_same_bytes(one, other)


def test_one_goes_on_where_the_other_left(case: dict[str, Any]) -> None:
    undisturbed, points = played(config(**case, fused="never"))
    for fused in ("auto", "never"):
        of = config(**case, fused=fused)
        for bare in (points[2], replace(points[2], saved=(None,))):  # by what was saved, and by actions
            elsewhere = Collector(of)
            for k in (2, 3):
                (rollout,), bare = elsewhere.collect([weights(of, k)], bare, k)
                assert_same_bytes(rollout, undisturbed[k])
            elsewhere.close()


def test_actors_on_a_pool_play_what_they_play_by_single_steps() -> None:
    found = []
    for fused in ("auto", "never"):
        of = config(**CASES["cartpole"], fused=fused)
        first = ResumePoint.first(2 * of.vec.num_envs, of.policy_group)
        versions = functools.partial(lambda of, k: [weights(of, k)], of)
        source = play_on_pool(of, SerialPool(), 2, versions, first, 0)
        found.append([next(source)[0][0] for _ in range(3)])
        source.close()
    for one, other in zip(*found, strict=True):
        assert_same_bytes(one, other)


@pytest.mark.parametrize("name", ["pendulum", "squashed"])
def test_what_is_no_number_is_named_as_by_single_steps(name: str) -> None:
    said = []
    for fused in ("auto", "never"):
        of = config(**CASES[name], fused=fused, threads=2)
        spoilt = weights(of, 0)
        spoilt.parameters[-6] = np.nan  # the bias of the policy's output
        collector = Collector(of)
        with pytest.raises(VectorMisuse, match=r"action of environment 0 is \[nan\]; pass finite numbers") as error:
            collector.collect([spoilt], ResumePoint.first(of.vec.num_envs, of.policy_group), 0)
        said.append(str(error.value))
        (rollout,), _ = collector.collect([weights(of, 0)], ResumePoint.first(of.vec.num_envs, of.policy_group), 0)
        assert np.isfinite(rollout.logprob).all()
        collector.close()
    assert said[0] == said[1]


def test_all_native_environments_are_fused_and_others_are_not() -> None:
    for id in native_ids():
        env = EnvSpec(id=id, kwargs={}, wrappers=(), max_episode_steps=None, fresh=False)
        head = make_head(env.spaces[1])
        options: dict[str, Any] = {"hidden_sizes": (4,), "activation": "tanh", "shared": False, "initial_log_std": 0.0}
        architecture = Architecture.for_spaces(env.observations, head, encoder="auto", lstm=False, **options)
        assert stochastic_network(architecture) is not None, id
    lstm = Architecture.for_spaces(env.observations, head, encoder="auto", lstm=True, **options)
    assert stochastic_network(lstm) is None
    venv = Serial(num_envs=2).make(env)
    assert make_player(architecture, venv) is None
    venv.close()
    masked = Layout.of(spaces.Dict({"x": spaces.Box(-1, 1, (3,), np.float32), MASK: spaces.MultiBinary(2)}), {}, ())
    for observations, action in (
        (masked, spaces.Discrete(2)),
        (Layout.of(spaces.Box(-1, 1, (3,), np.float64), {}, ()), spaces.Discrete(2)),
        (env.observations, spaces.Discrete(2, start=1)),
        (env.observations, spaces.MultiDiscrete([2, 3])),
        (env.observations, spaces.Box(-1, 1, (2,), np.float64)),
        (env.observations, spaces.Dict({"a": spaces.Discrete(2)})),
    ):
        made: Callable[..., Any] = Architecture.for_spaces
        assert (
            stochastic_network(made(observations, make_head(action), encoder="auto", lstm=False, **options)) is None
        ), action
