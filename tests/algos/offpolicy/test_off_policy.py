"""DQN, SAC, TD3 and DDPG, by the laws they obey."""

import random
import re
import shutil
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import learned
import numpy as np
import pytest
from conftest import Command, assert_same_run, call_main, deterministic, kill_and_resume, last_of_each, refuse_write
from gymnasium import spaces

from paddock.algos.learning.offpolicy.exploration import EpsilonGreedy
from paddock.algos.learning.offpolicy.update_schedule import UpdateSchedule
from paddock.algos.networks.heads import LOWEST, make_head
from paddock.algos.pool.serial import SerialPool
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain
from paddock.envs.errors import DISK_FULL, ConfigError
from paddock.evaluation.fresh_episodes import evaluate
from paddock.runs.checkpoint import Checkpoints

SMALL = [  # a run of the real thing that takes a second or two
    "vec.num_envs=4",
    "algo.num_steps=4",
    "algo.hidden_sizes=[8]",
    "algo.log_every_steps=16",
    "algo.eval_every_steps=48",
    "algo.eval_episodes=2",
    "checkpoint.every_s=0",
]
REPLAY = [
    "algo.buffer_size=96",
    "algo.learning_starts=32",
    "algo.batch_size=8",
]  # what is kept goes round several times
CARTPOLE = ["algo=dqn", "env=cartpole", "algo.target_every=3", "algo.epsilon_steps=100"]
PENDULUM = ["env=pendulum", "env.max_episode_steps=13"]
RECURRENT = [
    *("algo=r2d2", "env=cartpole", "algo.burn_in=2", "algo.sequence_length=4", "algo.n_step=2", "algo.target_every=3"),
    *("algo.updates_per_step=0.1", "algo.learning_starts=48"),
]
PARALLEL = ["algo=pqn", "env=cartpole", "algo.minibatch_size=8", "algo.epsilon_steps=100"]
VARIANTS = {
    "dqn": CARTPOLE,
    "prioritized": [*CARTPOLE, "algo.priority_exponent=0.6", "algo.n_step=3", "algo.importance_updates=50"],
    "c51": [
        *(*CARTPOLE, "algo.atoms=7", "algo.v_min=0", "algo.v_max=20", "algo.n_step=3", "env.max_episode_steps=9"),
        *("algo.priority_exponent=0.6", "algo.updates_per_step=0.25"),
    ],
    "quantiles": [*CARTPOLE, "algo.quantiles=5", "algo.dueling=true", "algo.rollouts=prefetch", "algo.tau=0.5"],
    "rainbow": [
        *("experiment=rainbow_cartpole", "algo.atoms=7", "algo.noisy_sigma=0.4", "algo.importance_updates=50"),
        *("env.max_episode_steps=9", "algo.rollouts=actors", "algo.updates_per_step=0.25"),
    ],
    "threads": [
        *(*CARTPOLE, "algo.rollouts=threads", "algo.epsilon_ladder=true", "algo.priority_exponent=0.6"),
        *("vec.num_envs=2", "algo.num_actors=2", "algo.staleness=2", "algo.sync_every=12"),
    ],
    "sac": ["algo=sac", *PENDULUM],
    "choices": ["algo=sac", "env=cartpole", "env.max_episode_steps=9", "algo.updates_per_step=0.3"],
    "td3": ["algo=td3", *PENDULUM],
    "policies": [
        *(
            "algo=dqn",
            "env=relay",
            "algo.policies={two: [runner_0, runner_2], one: runner_1}",
            "algo.learning_starts=34",
        ),
        *("algo.priority_exponent=0.6", "algo.epsilon_steps=100", "algo.rollouts=actors"),
    ],
    "r2d2": [*RECURRENT, "algo.epsilon_ladder=true", "env.max_episode_steps=9"],
    "pqn": [*PARALLEL, "algo.layer_norm=false", "env.max_episode_steps=9"],
    "normed": [*PARALLEL, "algo.rollouts=actors", "algo.q_lambda=0.9", "algo.reward_scale=0.1"],
}


def arguments(variant: str, *more: str) -> list[str]:
    replay = () if "algo=pqn" in VARIANTS[variant] else REPLAY
    return last_of_each([*SMALL, *replay, *VARIANTS[variant], *more])


def command(variant: str, run: Path, *more: str) -> list[str]:
    return [*arguments(variant, *more), "budget.steps=320", f"run.dir={run}"]


def algorithm(variant: str, folder: Path, *more: str) -> Any:
    return learned.algorithm(*arguments(variant, *more), folder=folder)


def advance(algo: Any, rows: int) -> list[dict[str, float]]:
    plan = algo.plan()
    found = [deterministic(next(plan)) for _ in range(rows)]
    plan.close()
    return found


def acting(algo: Any) -> np.ndarray:
    return np.concatenate([one.parameters for one in algo.weights()])


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in ("dqn", "pqn")])
def test_interrupted_after_any_row_it_goes_on_the_same(variant: str, tmp_path: Path) -> None:
    whole = algorithm(variant, tmp_path / "whole")
    expected = advance(whole, 10)
    assert any("eval/return_mean" in row for row in expected) and expected[-1]["train/updates"] > 8
    assert len({row["step"] for row in expected}) == 10
    first = algorithm(variant, tmp_path / "run")
    assert advance(first, 5) == expected[:5]
    (tmp_path / "run").mkdir(exist_ok=True)
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints", keep=1)
    checkpoints.save(5, first.state_dict())
    advance(first, 3)  # which another process that went on had written when it was killed
    second = algorithm(variant, tmp_path / "run")
    second.load_state_dict(checkpoints.load())
    assert advance(second, 5) == expected[5:]
    np.testing.assert_array_equal(acting(second), acting(whole))


@pytest.mark.parametrize("variant", ["prioritized", "sac", "r2d2"])
def test_where_environments_step_and_on_how_many_threads_changes_no_number(variant: str, tmp_path: Path) -> None:
    walker = ["env=bipedal"] if variant == "sac" else []  # which has the same bits in C
    here = [["vec=serial"], ["vec=multiprocess", "vec.workers=2"]]
    torch = variant == "r2d2"  # which has other last bits on two threads
    threads = ["vec.threads=2"] if torch else ["vec.threads=2", "algo.threads=2"]
    native = [["vec=native", *threads], ["vec=native", "algo.fused=never"]]
    for group in ([*here, *native],) if walker else (here, native):
        found = [advance(algorithm(variant, tmp_path / "-".join(words), *walker, *words), 8) for words in group]
        assert all(rows == found[0] for rows in found)


def test_who_plays_ahead_changes_no_number(tmp_path: Path) -> None:
    ahead = ["algo.num_actors=1", "algo.staleness=1"]
    found = [
        advance(algorithm("rainbow", tmp_path / m, f"algo.rollouts={m}", *ahead), 8) for m in ("prefetch", "actors")
    ]
    assert found[0] == found[1]


def test_actors_in_threads_and_on_a_pool_play_the_same(tmp_path: Path) -> None:
    same = ["algo.num_actors=2", "algo.staleness=1", "vec.num_envs=2"]
    found = [advance(algorithm("threads", tmp_path / m, f"algo.rollouts={m}", *same), 8) for m in ("threads", "actors")]
    assert found[0] == found[1]


@pytest.mark.parametrize("variant", ["prioritized", pytest.param("policies", marks=pytest.mark.nightly)])
def test_killed_and_resumed_equals_undisturbed(variant: str, tmp_path: Path, start: Callable[..., Command]) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    assert call_main(*command(variant, undisturbed, "compute=serial")) == 0
    begin = partial(start, *command(variant, run, "compute=serial"))
    kill_and_resume(begin, run, kills=1, furthest=4, chance=random.Random(variant))
    assert_same_run(run, undisturbed)


def test_what_is_owed_is_a_formula_of_counters() -> None:
    for warmup in (0, 7, 32):
        for ratio in (Fraction(1, 4), Fraction(1, 3), Fraction(1), Fraction(5, 2)):
            whole, made = UpdateSchedule(warmup, ratio, 64), []
            for step in range(1, 60):
                whole.step = step
                made.append(whole.owed)
                whole.updates += whole.owed
            assert sum(made) == int(max(59 - warmup, 0) * ratio) and max(made) <= -(-ratio // 1)
            resumed = UpdateSchedule(warmup, ratio, 64)
            resumed.load_state_dict(whole.state_dict())
            assert resumed.owed == 0


def test_epsilon_is_the_share_of_random_legal_actions() -> None:
    head = make_head(spaces.Discrete(3))
    out = np.tile(np.array([5.0, 9.0, LOWEST], np.float32), (1, 1))
    explore = EpsilonGreedy(learning_starts=100, start=0.9, end=0.1, anneal_steps=1000, ladder=0)
    for step, epsilon in ((0, 1.0), (99, 1.0), (100, 0.82), (500, 0.5), (1000, 0.1), (5000, 0.1)):
        noise = explore.sample_noise(head, np.random.default_rng(step), (4000, 2), step, 0).reshape(-1, 3)
        taken = head.sample(np.repeat(out, len(noise), axis=0), np.zeros(0, np.float32), noise)[:, 0]
        assert set(taken) <= {0, 1}
        assert (taken == 0).mean() == pytest.approx(epsilon / 2, abs=4 * np.sqrt(0.25 / len(noise)))


@pytest.mark.parametrize(("count", "expected"), [(1, [0.4]), (2, [0.4, 0.4**8]), (256, [0.4, 0.4**8])])
def test_the_ladder_spreads_epsilon_over_all_environments(count: int, expected: list[float]) -> None:
    ladder = EpsilonGreedy(learning_starts=0, start=1, end=1, anneal_steps=0, ladder=count).epsilon(
        10, np.arange(count)
    )
    assert ladder[[0, -1][: len(expected)]] == pytest.approx(expected, rel=1e-5)
    assert all(one > other for one, other in pairwise(ladder))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["algo=dqn", "env=pendulum"], "the algorithm needs a discrete action space"),
        (["algo=sac", "env=cartpole", "algo.quantiles=25"], "algo.quantiles=25 needs continuous actions; use algo=dqn"),
        (
            ["algo=sac", "env=pendulum", "algo.quantiles=5", "algo.num_dropped_quantiles=5"],
            "algo.num_dropped_quantiles=5 must be below algo.quantiles",
        ),
        (["algo=dqn", "algo.buffer_size=32", "algo.batch_size=64"], "algo.buffer_size=32"),
        (["algo=dqn", "algo.backend=torch", "algo.rollouts=prefetch", "algo.threads=2"], "use threads=1"),
        (
            ["algo=dqn", "algo.num_steps=32", "algo.sync_every=400"],
            "sync_every=400 is not a multiple of algo.num_steps",
        ),
        (["algo=dqn", "algo.backend=dense", "algo.quantiles=3"], "algo.quantiles=3: only torch supports this"),
        (["algo=dqn", "algo.atoms=51", "algo.quantiles=3"], "are mutually exclusive"),
        (
            ["algo=pqn", "algo.minibatch_size=100", "vec.num_envs=8"],
            "size=100 does not divide the 256 steps of a rollout",
        ),
        (["algo=r2d2", "algo.num_steps=8"], "algo.sequence_length=20 must be a multiple of algo.num_steps=8"),
        (["algo=r2d2", "algo.backend=dense"], "algo=r2d2 learns in torch"),
        (["algo=r2d2", "vec.num_envs=80"], "algo.learning_starts=2000 leaves nothing to sample; increase it by 481"),
    ],
)
def test_bad_settings_are_one_line(words: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")) as caught:
        build_algorithm(read_plain(compose_alone(words)), SerialPool(), folder=None)
    assert "\n" not in str(caught.value)


def test_a_policy_is_loaded_without_its_replay(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert call_main(*command("sac", run, "compute=serial")) == 0
    assert list((run / "replay").iterdir())
    shutil.rmtree(run / "replay")
    fresh = evaluate(run, episodes=3, seed=1)
    assert len(fresh.returns) == 3 and np.isfinite(fresh.returns).all()


def test_a_replay_too_large_for_the_disk_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    free, run = 300_000, tmp_path / "run"
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    words = [*arguments("prioritized", "compute=serial", "algo.updates_per_step=0.02"), f"run.dir={run}"]
    fits: re.Match[str] | None = None
    for more in ("dry_run=true", "dry_run=false"):
        assert call_main(*words, "budget.steps=20000", "algo.buffer_size=20000", more) == 2
        err = capfd.readouterr().err
        fits = re.search(
            r"^paddock: algo.buffer_size=20000 needs 1.0 MB in .*/replay, where .* use at most (\d+), or ", err
        )
        assert fits is not None and err.count("\n") == 1 and not run.exists(), err
        assert "are free besides 0.1 MB for checkpoints and other files; use" in err
    assert fits is not None
    fitting = [*words, "budget.steps=64", f"algo.buffer_size={fits[1]}"]
    assert call_main(*fitting, "dry_run=true") == 0 and call_main(*fitting) == 0
    assert call_main(*words, "budget.steps=128", f"algo.buffer_size={int(fits[1]) + 8}", "dry_run=true") == 2


def test_a_run_on_a_full_disk_ends_and_resumes_once_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert call_main(*command("dqn", whole, "compute=serial")) == 0
    capfd.readouterr()
    refuse_write(monkeypatch, 9)
    # By this a sweep knows that it is no fault of the trial's.
    assert call_main(*command("dqn", run, "compute=serial")) == DISK_FULL
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and "cannot be written (No space left on device); free disk space" in err
    assert call_main(*command("dqn", run, "compute=serial")) == 0
    assert_same_run(run, whole)
