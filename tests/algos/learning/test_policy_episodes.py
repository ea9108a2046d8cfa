"""Whole episodes of policies: native code plays those that it can, to the bytes of those that are stepped."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from conftest import deterministic

from paddock.algos.learning import policy_episodes
from paddock.algos.learning.episodes import Episodes
from paddock.algos.learning.policy_episodes import EvaluationSpec, evaluate_policy
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.flat import MLP, FlatPolicy
from paddock.algos.networks.heads import make_head
from paddock.algos.pool.serial import SerialPool
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain
from paddock.envs.errors import ConfigError, PaddockError
from paddock.envs.native import library
from paddock.envs.native import rollout as native
from paddock.envs.native.networks import Normalizer
from paddock.envs.spec import EnvSpec

SEEDS = list(range(100, 119))  # no multiple of any width


def spec(id: str, max_episode_steps: int | None = None, **kwargs: Any) -> EnvSpec:
    return EnvSpec(id=id, kwargs=kwargs, wrappers=(), max_episode_steps=max_episode_steps, fresh=False)


WALKER = spec("paddock.envs.bipedal:paddock/BipedalWalker-v3", 50)
HARDCORE = spec("paddock.envs.bipedal:paddock/BipedalWalkerHardcore-v3", 50)
CARTPOLE, PENDULUM = (
    spec("paddock.envs.native:paddock/NativeCartPole-v1", 90),
    spec("paddock.envs.native:paddock/NativePendulum-v1", 30),
)
CHOICES = {"_target_": "paddock.envs.bindings.minigrid.Choices"}
OBSTACLES = spec("minigrid:MiniGrid-Dynamic-Obstacles-5x5-v0", 60)
GRID = replace(OBSTACLES, wrappers=(CHOICES,), without=("mission",))  # rows of bytes


def is_built() -> bool:
    try:
        library.load()
    except ConfigError:
        return False
    return True


natively = pytest.mark.skipif(not is_built(), reason="there is no compiled library")


def actor(
    env: EnvSpec,
    key: int = 0,
    *,
    hidden_sizes: tuple[int, ...] = (16, 12),
    activation: Literal["tanh", "relu"] = "tanh",
    gaussian: str = "gaussian",
    normalized: bool = True,
    shared: bool = False,
    lstm: bool = False,
) -> ActorPolicy:
    """What PPO would have learned, at random; of a dense network the value's parameters are left out."""
    architecture = Architecture.for_spaces(
        env.observations,
        make_head(env.spaces[1], distribution=gaussian),
        encoder="auto",
        hidden_sizes=hidden_sizes,
        activation=activation,
        shared=shared,
        lstm=lstm,
        initial_log_std=0.0,
    )
    draw = np.random.default_rng(key)
    count = architecture.head.num_log_std + architecture.policy_layout.num_parameters
    if lstm:
        from paddock.algos.networks.actor_critic import ActorCritic

        count = sum(p.numel() for p in ActorCritic(architecture, seed=0).parameters())
    inputs = architecture.inputs
    mean, std = inputs.of_reals(draw.uniform(-0.1, 0.1, inputs.width), draw.uniform(0.1, 0.5, inputs.width))
    if not normalized:
        mean = std = np.zeros(0, np.float32)
    parameters = 0.4 * draw.standard_normal(count)
    weights = Weights(key, parameters.astype(np.float32), mean, std, 1.5)
    return ActorPolicy(architecture, weights)


def flat(env: EnvSpec, key: int = 0, normalizer: Normalizer | None = None) -> FlatPolicy:
    """What ES would have learned, at random."""
    mlp = MLP.for_spaces(env.observations, env.spaces[1], (16,), "tanh")
    parameters = 0.4 * np.random.default_rng(key).standard_normal(mlp.num_parameters)
    return FlatPolicy(mlp, parameters.astype(np.float32), normalizer)


def performance(env: EnvSpec, policy: Any, **changes: Any) -> EvaluationSpec:
    return EvaluationSpec(**{"env": env, "policy": policy, "max_steps": 1000, "stochastic": False} | changes)


def as_bytes(played: Episodes) -> tuple[bytes, ...]:
    return tuple(array.tobytes() for array in (played.returns, played.lengths, played.env_metrics))


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on nothing has a native version, and every environment is stepped as it is made."""
    return lambda: monkeypatch.setattr(policy_episodes, "exact_task", lambda spec, native_anyway=False: None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Episodes in each call of native code."""
    played, counts = native.play_episodes, []

    def count(task: Any, network: Any, parameters: Any, member: Any, seeds: Any, **settings: Any) -> Any:
        counts.append(len(seeds))
        return played(task, network, parameters, member, seeds, **settings)

    monkeypatch.setattr(native, "play_episodes", count)
    return counts


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"normalized": False},
    "normalized": {},
    "relu": {"activation": "relu", "hidden_sizes": (33,), "shared": True},
    "squashed": {"gaussian": "squashed_gaussian"},
}


@natively
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("env", [WALKER, CARTPOLE, PENDULUM], ids=["walker", "cartpole", "pendulum"])
def test_learned_policies_play_natively_to_the_bytes_of_steps(
    env: EnvSpec, shape: str, stepped: Callable[[], None], calls: list[int]
) -> None:
    """Of steps in Box2D, too, alone and side by side."""
    what = performance(env, actor(env, 1, **SHAPES[shape]))
    whole = evaluate_policy(what, SEEDS)
    assert calls == [len(SEEDS)] and len(set(whole.returns)) > 5
    for threads in (2, 3):
        assert as_bytes(evaluate_policy(what, SEEDS, threads)) == as_bytes(whole)
    few, six = evaluate_policy(replace(what, max_steps=7), SEEDS), evaluate_policy(what, SEEDS[:6])
    calls.clear()
    stepped()
    for batched in (False, True):
        again = evaluate_policy(replace(what, batched=batched), SEEDS[:6])
        assert as_bytes(again) == as_bytes(six)
    assert as_bytes(evaluate_policy(replace(what, max_steps=7), SEEDS)) == as_bytes(few)
    assert not calls and few.lengths.max() == 7


def test_only_one_choice_or_numbers_of_one_kind_are_for_native_code() -> None:
    from gymnasium import spaces

    from paddock.algos.networks.native_policy import network_of
    from paddock.envs.spaces.layout import Layout

    box = spaces.Box(-1, 1, (3,), np.float32)
    actions: list[tuple[Any, bool]] = [
        (spaces.Discrete(3), True),
        (box, True),
        (spaces.MultiDiscrete([2, 3]), False),
        (spaces.MultiBinary(2), False),
        (spaces.Tuple((spaces.Discrete(2), box)), False),
    ]
    seen: list[tuple[Any, bool]] = [
        (box, True),
        (spaces.Box(-1, 1, (3,), np.float64), False),  # which is rounded after it was normalized
        (spaces.Dict({"a": box}), False),
    ]
    for (action, acts), (observation, sees) in itertools.product(actions, seen):
        architecture = Architecture.for_spaces(
            Layout.of(observation, {}, ()),
            make_head(action),
            encoder="auto",
            hidden_sizes=(4,),
            activation="tanh",
            shared=False,
            lstm=False,
            initial_log_std=0.0,
        )
        assert (network_of(architecture) is not None) == (acts and sees)


@natively
def test_native_play_of_byte_observations_equals_stepping(stepped: Callable[[], None], calls: list[int]) -> None:
    pytest.importorskip("minigrid")
    what = [
        performance(GRID, actor(GRID, key, activation="relu", hidden_sizes=(40,), normalized=False)) for key in (1, 2)
    ]
    what.append(performance(GRID, actor(GRID, 3, hidden_sizes=())))
    whole = [evaluate_policy(one, SEEDS) for one in what]
    assert calls == [len(SEEDS)] * 3 and len({*np.concatenate([part.lengths for part in whole])}) > 3
    assert [as_bytes(evaluate_policy(one, SEEDS, 3)) for one in what] == [as_bytes(part) for part in whole]
    five = [evaluate_policy(one, SEEDS[:5]) for one in what]
    calls.clear()
    stepped()
    assert [as_bytes(played) for played in five] == [as_bytes(evaluate_policy(one, SEEDS[:5])) for one in what]
    assert not calls


@natively
@pytest.mark.parametrize("env", [WALKER, PENDULUM], ids=["walker", "pendulum"])
def test_an_action_that_is_not_finite_is_named(env: EnvSpec) -> None:
    policy = actor(env)
    policy.parameters[-1] = np.nan  # the bias of the last output
    broken = performance(env, ActorPolicy(policy.architecture, policy.weights))
    with pytest.raises(PaddockError, match=r"the action of environment 0 is \[.*nan.*\]; pass finite numbers"):
        evaluate_policy(broken, SEEDS)


SHORT = ["vec=native", "vec.num_envs=2", "vec.threads=1", "env.max_episode_steps=40"]
WALK, CART = ["env=bipedal", *SHORT], ["env=cartpole", "env.id=paddock.envs.native:paddock/NativeCartPole-v1", *SHORT]
EVALUATED = ["algo.num_steps=8", "algo.hidden_sizes=[8]", "algo.eval_every_iterations=1", "algo.eval_episodes=9"]
MEMBERS = ["algo=pbt", "algo.members=2", "algo.interval=1", "algo.eval_episodes=9", "algo.member.num_steps=8"]
RUNS = {
    "ppo": ["algo=ppo", "algo.minibatch_size=8", "algo.normalize_observations=true", *EVALUATED, *WALK],
    "ppo on carts": ["algo=ppo", "algo.minibatch_size=8", *EVALUATED, *CART],
    "a2c": ["algo=a2c", *EVALUATED, *WALK],
    "pbt": [*MEMBERS, "algo.member.minibatch_size=8", *WALK],
}


@natively
@pytest.mark.parametrize("run", RUNS)
def test_rows_are_the_same_with_native_evaluations(
    run: str, stepped: Callable[[], None], calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows() -> tuple[list[dict[str, float]], int]:
        calls.clear()
        algorithm = build_algorithm(read_plain(compose_alone(RUNS[run])), SerialPool())
        plan = algorithm.plan()
        found = [deterministic(next(plan)) for _ in range(3)]
        plan.close()
        return found, len(calls)

    whole, count = rows()
    assert count and sum("eval/return_mean" in row for row in whole) >= 2
    monkeypatch.setattr("paddock.algos.learning.async_evaluation.FULL_BATCH", 4)
    parts, more = rows()
    assert parts == whole and more >= count
    stepped()
    assert rows() == (whole, 0)


@natively
@pytest.mark.parametrize("vec", ["native", "serial"])
def test_runs_in_native_environments_are_evaluated_in_them(vec: str, calls: list[int]) -> None:
    words = ["algo=ppo", "algo.minibatch_size=8", "env=cartpole", *EVALUATED, *SHORT, f"vec={vec}"]
    words = [word for word in words if vec == "native" or not word.startswith("vec.threads")]
    plan = build_algorithm(read_plain(compose_alone(words)), SerialPool()).plan()
    rows = [next(plan) for _ in range(3)]
    plan.close()
    assert sum("eval/return_mean" in row for row in rows) >= 2 and bool(calls) == (vec == "native")
