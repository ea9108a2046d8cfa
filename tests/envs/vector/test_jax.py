"""vec=jax: gymnax's, Pgx's and Brax's environments behind the contract of all vectors."""

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command, assert_same_run, call_main, env_spec, kill_and_resume
from gymnasium.vector import AutoresetMode
from vector_cases import N, actions_for, assert_same, make_fixture, play_in_rows  # noqa: F401

from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Jax, Serial, VectorMisuse
from paddock.evaluation.fresh_episodes import evaluate

JAX = Jax(num_envs=N)
CARTPOLE = env_spec("gymnax:CartPole-v1", max_episode_steps=20)  # some episodes end before, some at the limit


def need(id: str) -> EnvSpec:
    """Return the recipe of an environment; skip the test where its library is not installed."""
    for package in ("jax", id.partition(":")[0]):
        reason = f"{package} is not installed: pip install 'paddock[jax]' (brax: pip install brax)"
        pytest.importorskip(package, reason=reason, exc_type=ImportError)
    return CARTPOLE if id == CARTPOLE.id else env_spec(id, max_episode_steps=20)


@pytest.fixture
def cartpole() -> EnvSpec:
    return need("gymnax:CartPole-v1")


@pytest.mark.parametrize("id", ["gymnax:CartPole-v1", "gymnax:Pendulum-v1", "pgx:2048"])
def test_results_equal_those_of_single_environments(id: str, make: Any) -> None:
    env = need(id)
    batched, serial = make(JAX, env), make(Serial(num_envs=N), env)
    for start in ("begin", "reset"):
        seed = {"seed": 5} if start == "reset" else {"seed": 5, "episodes": [3] * N}
        assert_same(getattr(batched, start)(**seed), getattr(serial, start)(**seed))
        for actions in actions_for(batched, 45):
            assert_same(batched.step(actions), serial.step(actions))


def test_results_are_independent_of_num_envs(cartpole: EnvSpec, make: Any) -> None:
    few, many = make(JAX, cartpole), make(Jax(num_envs=67), cartpole)
    few.begin(1), many.begin(1)
    for actions in actions_for(many, 60):
        ours, theirs = few.step(actions[:N]), many.step(actions)
        assert_same(ours[:4], tuple(array[:N] for array in theirs[:4]))


def test_rows_equal_those_of_single_environments(make: Any) -> None:
    env = need("pgx:2048")
    batched, serial = (make(vec, env, packed=True) for vec in (JAX, Serial(num_envs=N)))
    assert list(play_in_rows(batched, env, 45)) == list(play_in_rows(serial, env, 45))


def test_time_limit_truncates_and_a_fall_terminates(cartpole: EnvSpec, make: Any) -> None:
    vec = make(JAX, cartpole)
    vec.begin(0)
    ends = [0, 0]
    for actions in actions_for(vec, 60):
        _, _, terminated, truncated, infos = vec.step(actions)
        for i in np.flatnonzero(terminated | truncated):
            fell = abs(infos["final_obs"][i][2]) > 12 * np.pi / 180
            length = infos["final_info"]["episode"]["l"][i]
            assert (terminated[i], truncated[i]) == (fell, length == 20)
            ends[int(truncated[i])] += 1
    assert min(ends) > 0


def test_key_starts_any_episode(cartpole: EnvSpec, make: Any) -> None:
    vec = make(JAX, cartpole)
    vec.begin(9)
    starts: list[list[Any]] = [[] for _ in range(N)]
    for actions in actions_for(vec, 70):
        obs, _, terminated, truncated, _ = vec.step(actions)
        for i in np.flatnonzero(terminated | truncated):
            starts[i].append(obs[i])
    again, _ = vec.begin(9, episodes=[3] * N)
    np.testing.assert_array_equal(again, [each[2] for each in starts])


@pytest.mark.parametrize("id", ["gymnax:CartPole-v1", "pgx:minatar-breakout", "brax:inverted_pendulum"])
def test_loaded_state_continues_bit_identically(id: str, make: Any) -> None:
    env = need(id)
    vec, other = make(JAX, env), make(JAX, env)
    vec.begin(2)
    actions = actions_for(vec, 60)
    for action in actions[:30]:
        vec.step(action)
    other.load_state_dict(vec.state_dict())
    for action in actions[30:]:
        assert_same(vec.step(action), other.step(action))
    wider = make(Jax(num_envs=N + 1), env)
    with pytest.raises(VectorMisuse, match="state of other environments"):
        wider.load_state_dict(vec.state_dict())


def test_chosen_environments_are_stepped_and_restarted(cartpole: EnvSpec, make: Any) -> None:
    batched, serial = (make(vec, cartpole, autoreset=AutoresetMode.DISABLED) for vec in (JAX, Serial(num_envs=N)))
    vecs = batched, serial
    for vec in vecs:
        vec.reset(seed=10)
    for chosen in ([4, 0], [1], [5, 3, 2, 1]):
        ids = np.array(chosen)
        for vec in vecs:
            vec.send(ids % 2, ids)
        assert_same(batched.recv(ids), serial.recv(ids))
    options = {"reset_mask": np.isin(np.arange(N), [1, 3])}
    seeds = [None, 77, None, None, None, None]  # the third is restarted on the seed after its last
    assert_same(*(vec.reset(seed=seeds, options=dict(options)) for vec in vecs))
    assert_same(*(vec.step(np.ones(N, int)) for vec in vecs))


@pytest.mark.parametrize(
    ("id", "changes", "message"),
    [
        ("gymnax:CartPol-v1", {}, "not an environment of gymnax; did you mean 'CartPole-v1'"),
        ("pgx:2084", {}, "not an environment of pgx; did you mean '2048'"),
        ("pgx:tic_tac_toe", {}, "a game of 2 players"),
        ("gymnax:CartPole-v1", {"kwargs": {"gravitas": 1}}, "rejects env.kwargs"),
        ("gymnax:CartPole-v1", {"wrappers": [{"_target_": "toy_envs.KeepActions"}]}, "cannot wrap"),
        ("CartPole-v1", {}, "env.id=CartPole-v1 is none of them"),
    ],
)
def test_unsupported_environments_are_one_clear_line(id: str, changes: dict[str, Any], message: str) -> None:
    need(id if ":" in id else "gymnax:")
    with pytest.raises(ConfigError, match=message) as caught:
        JAX.make(env_spec(id, **changes))
    assert "\n" not in str(caught.value)


def test_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [*sys.modules]:
        if module.endswith(".jax_"):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "jax", None)
    for make in (env_spec("gymnax:CartPole-v1").make, partial(JAX.make, env_spec("gymnax:CartPole-v1"))):
        with pytest.raises(ConfigError, match=r"pip install 'paddock\[jax\]'"):
            make()


SMALL = ["algo.num_steps=16", "algo.minibatch_size=32", "vec.num_envs=4", "algo.eval_episodes=2"]
RUN = ["experiment=ppo_gymnax_cartpole", *SMALL, "checkpoint.every_s=0", "budget.iterations=12"]


def test_killed_and_resumed_equals_undisturbed(
    cartpole: EnvSpec, tmp_path: Path, start: Callable[..., Command]
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert call_main(*RUN, "compute=serial", f"run.dir={whole}") == 0
    begin = partial(start, *RUN, "compute=local", "compute.workers=1", f"run.dir={run}")
    assert kill_and_resume(begin, run, kills=1, furthest=6, chance=random.Random(0)) < 12
    assert_same_run(whole, run)
    assert evaluate(run, episodes=3).returns.tolist() == evaluate(whole, episodes=3).returns.tolist()


@pytest.mark.slow
def test_ppo_solves_gymnax_cartpole(cartpole: EnvSpec, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert call_main("experiment=ppo_gymnax_cartpole", "compute=serial", f"run.dir={run}") == 0
    returns = evaluate(run, episodes=20, seed=100, which="best").returns
    print(f"{returns.mean():.1f} over 20 fresh episodes, {returns.mean() - 475:+.1f} to spare")
    assert returns.mean() >= 475
