"""PPO and A2C, by the laws they obey."""

import contextlib
import copy
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command, assert_same_run, call_main, deterministic, kill_and_resume, rows
from learned import advance, algorithm, leaves, parameters

from paddock.algos.common.divergence import Diverged
from paddock.algos.learning.dense_learner import DenseLearner
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.architecture import Weights
from paddock.algos.pool.serial import SerialPool
from paddock.algos.ppo import PPO
from paddock.envs.errors import ConfigError
from paddock.envs.vector import EnvError
from paddock.runs.results import read_columns, read_metrics, read_runs

SMALL = [  # a run of the real thing that takes a second or two
    "algo=ppo",
    "env=cartpole",
    "vec.num_envs=4",
    "algo.num_steps=16",
    "algo.minibatch_size=32",
    "algo.hidden_sizes=[8]",
    "algo.eval_every_iterations=3",
    "algo.eval_episodes=3",
    "algo.normalize_observations=true",
    "algo.normalize_rewards=true",
    "checkpoint.every_s=0",
]
VARIANTS = {
    "inline": [],
    "prefetch": ["algo.rollouts=prefetch", "algo.groups=2"],
    "threads": ["algo.rollouts=threads", "algo.staleness=0"],
    "actors": ["algo.rollouts=actors"],
    "lstm": ["algo.lstm=true"],
    "observed": ["algo.observe_first=true", "algo.rollouts=prefetch"],
    "continuous": ["env=pendulum", "env.max_episode_steps=30"],
    "squashed": ["env=pendulum", "env.max_episode_steps=30", "algo.continuous_distribution=squashed_gaussian"],
    "native": ["vec=native", "algo.rollouts=prefetch"],
    "box2d": ["env=bipedal", "env.max_episode_steps=30"],
    "vtrace": ["algo.rollouts=actors", "algo.advantage=vtrace", "algo.staleness=2"],
    "a2c": ["algo=a2c", "~algo.minibatch_size", "~algo.normalize_observations", "~algo.normalize_rewards"],
}


def arguments(variant: str, *more: str) -> list[str]:
    words = [*SMALL, *VARIANTS[variant], *more]
    left_out = {word[1:] for word in words if word.startswith("~")}
    return [word for word in words if not word.startswith("~") and word.partition("=")[0] not in left_out]


@pytest.mark.parametrize("variant", ["inline", "prefetch", "continuous", "a2c"])
def test_native_rollouts_in_one_call_change_neither_rows_nor_checkpoints(variant: str) -> None:
    found = []
    for fused, threads in (("auto", 2), ("never", 1)):
        words = ["vec=native", f"algo.fused={fused}", f"vec.threads={threads}", "vec.num_envs=18"]
        algo = algorithm(*arguments(variant, *words))
        found.append((advance(algo, 5), leaves(algo.state_dict())))
    assert found[0] == found[1] and all(np.isfinite(list(row.values())).all() for row in found[0][0])


@pytest.mark.parametrize("variant", ["inline", "prefetch", "vtrace"])
def test_rollouts_before_normalization_only_update_statistics(variant: str) -> None:
    algo = algorithm(*arguments(variant, "algo.observe_first=true"))
    drawn, blind = parameters(algo).copy(), 1 + algo.actors.staleness
    told = advance(algo, blind)
    np.testing.assert_array_equal(parameters(algo), drawn)
    assert algo.learning[0].normalization.seen.count == blind * 16 * algo.actors.num_rows
    assert not any("ppo/policy_loss" in row for row in told)
    (row,) = advance(algo, 1)
    assert "ppo/policy_loss" in row and not np.array_equal(parameters(algo), drawn)


def test_observing_first_is_for_what_is_normalized() -> None:
    with pytest.raises(ConfigError, match="observe_first=true needs normalize_observations=true"):
        algorithm("algo=ppo", "env=cartpole", "algo.observe_first=true")


@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_after_any_yield_it_goes_on_the_same(variant: str) -> None:
    whole, expected, states = algorithm(*arguments(variant)), [], []
    with contextlib.closing(whole.plan()) as plan:
        for row in itertools.islice(plan, 7):
            expected.append(deterministic(row))
            states.append(copy.deepcopy(whole.state_dict()))
    assert any("eval/return_mean" in row for row in expected) or variant == "a2c"
    for at in (1, 3, 4):  # the third iteration's policy is evaluated
        resumed = algorithm(*arguments(variant))
        resumed.load_state_dict(states[at - 1])
        assert advance(resumed, 7 - at) == expected[at:]
        np.testing.assert_array_equal(parameters(resumed), parameters(whole))


@pytest.mark.parametrize("variant", ["inline", "continuous", "squashed", "lstm"])
def test_the_policy_that_acts_is_the_policy_that_learns(variant: str) -> None:
    for row in advance(algorithm(*arguments(variant)), 4):
        assert abs(row["ppo/stale_kl"]) < 1e-6 and row["ppo/staleness"] == 0


def test_actors_say_how_many_workers_they_could_use(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(SerialPool, "ask", lambda self, workers: asked.append(workers))
    advance(algorithm(*arguments("actors", "algo.num_actors=3")), 2)
    assert asked == [3]


def test_a_policy_that_lags_behind_says_so() -> None:
    measured = advance(algorithm(*arguments("prefetch", "algo.learning_rate=0.01")), 6)
    assert [row["ppo/staleness"] for row in measured] == [0, 1, 1, 1, 1, 1]
    assert max(row["ppo/stale_kl"] for row in measured) > 1e-3


def test_the_first_minibatch_follows_the_gradient_of_the_advantage() -> None:
    """With one whole minibatch and one epoch the ratio is 1: clipping cannot matter, and neither can its width."""
    one = ["algo.minibatch_size=64", "algo.epochs=1"]
    narrow, wide = (algorithm(*arguments("inline", *one, f"algo.clip_coef={clip}")) for clip in (0.01, 10.0))
    advance(narrow, 1), advance(wide, 1)
    np.testing.assert_allclose(parameters(narrow), parameters(wide), rtol=1e-6)


@pytest.mark.parametrize("variant", ["inline", "vtrace"])
def test_explained_variance_is_of_the_values_targets(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algo = algorithm(*arguments(variant))
    met: list[tuple[Any, Any]] = []

    def batch(*given: Any) -> Any:
        met.append((PPO._batch(algo, *given), given[-1]))
        return met[-1][0]

    monkeypatch.setattr(algo, "_batch", batch)
    rows = advance(algo, 5)
    for row, ((made, _), judged) in zip(rows, met, strict=True):
        target = made.target
        expected = 1 - np.var(target - judged.value) / np.var(target)
        assert row["ppo/explained_variance"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("variant", ["inline", "vtrace"])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_what_comes_after_a_cut_counts_or_does_not(
    variant: str, bootstrap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every episode is cut after its first step, so that a target is the reward, and what is expected of going on."""
    cut = ["env=pendulum", "env.max_episode_steps=1", "algo.normalize_rewards=false"]
    algo = algorithm(*arguments(variant, *cut, f"algo.bootstrap_truncated={str(bootstrap).lower()}"))

    def batch(rollout: Any, reward: Any, learned: Any, values: Any) -> Any:
        made = PPO._batch(algo, rollout, reward, learned, values)
        assert rollout.truncated.all() and not rollout.terminated.any()
        expected = reward + np.float32(algo.gamma * bootstrap) * values.next_value
        np.testing.assert_allclose(made[0].target, expected, rtol=1e-5, atol=1e-5)
        met.append(made)
        return made

    met: list[Any] = []
    monkeypatch.setattr(algo, "_batch", batch)
    advance(algo, 1)
    assert len(met) == 1


def test_annealing_ends_at_zero() -> None:
    annealed = algorithm(
        *arguments("inline", "algo.learning_rate_schedule=linear", "algo.clip_schedule=linear", "budget.steps=256")
    )
    metrics = advance(annealed, 5)
    assert [row["ppo/learning_rate"] for row in metrics] == pytest.approx([2.5e-4 * k / 4 for k in (4, 3, 2, 1, 0)])
    assert [row["ppo/clip"] for row in metrics] == pytest.approx([0.2 * k / 4 for k in (4, 3, 2, 1, 0)])


def test_a_linear_schedule_extends_with_the_budget(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    linear = [*arguments("inline", "algo.learning_rate_schedule=linear"), "compute=serial", f"run.dir={tmp_path}/run"]
    for steps in (128, 256):  # two rollouts, then two more
        assert call_main(*linear, f"budget.steps={steps}") == 0
    rates = [row["ppo/learning_rate"] for row in rows(tmp_path / "run") if "ppo/learning_rate" in row]
    assert rates == pytest.approx([2.5e-4 * share for share in (1, 1 / 2, 1 / 2, 1 / 4)])
    assert "budget.steps was 128 and is now 256" in capfd.readouterr().err


def test_a_divergence_beyond_its_target_ends_the_epochs() -> None:
    eager = advance(algorithm(*arguments("inline", "algo.learning_rate=0.01", "algo.epochs=50")), 1)[0]
    bounded = advance(
        algorithm(*arguments("inline", "algo.learning_rate=0.01", "algo.epochs=50", "algo.target_kl=0.001")), 1
    )[0]
    assert eager["ppo/descents"] == 100 and bounded["ppo/descents"] < 20


def test_the_best_policy_is_the_one_that_was_evaluated() -> None:
    algo = algorithm(*arguments("inline"))
    with pytest.raises(Exception, match="which=best is"):
        algo.policy("best")
    metrics = advance(algo, 9)
    best = max((row for row in metrics if "eval/return_mean" in row), key=lambda row: row["eval/return_mean"])
    (kept,) = algo.evaluation.best
    assert kept.version == best["eval/of_iteration"]
    np.testing.assert_array_equal(algo.policy("best").parameters, kept.parameters)


@pytest.mark.parametrize("env", ["env=gymnasium env.id=FrozenLake-v1", "env=gymnasium env.id=Blackjack-v1"])
def test_observations_that_are_no_arrays_are_flattened(env: str) -> None:
    assert np.isfinite(advance(algorithm(*arguments("inline"), *env.split()), 2)[1]["ppo/policy_loss"])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["algo.num_steps=0"], "algo.num_steps=0 must be at least 1"),
        (["algo.clip_coef=0"], "algo.clip_coef=0 must be positive"),
        (["algo.gamma=1.5"], r"algo.gamma=1.5 must be in \[0, 1\]"),
        (["algo.target_kl=-1"], "algo.target_kl=-1 must be positive, or null"),
        (["algo.rollouts=actors", "algo.num_actors=0"], "algo.num_actors=0 must be at least 1"),
        (["algo.rollouts=actors", "algo.staleness=9"], "algo.staleness=9 must be between 0 and 8"),
        (["algo.learners=65"], "algo.learners=65 must be between 1 and 64"),
        (["algo.minibatch_size=100000"], "is more than the"),
        (["algo.clip_schedule=linear"], "set budget.steps="),
        (["algo.device=abacus"], "algo.device=abacus is not a device"),
        (["algo.device=cuda:64"], "use algo.device=cpu"),
        (["algo.actor_device=cuda"], "algo.rollouts=threads"),
        (["algo.rollouts=threads", "algo.actor_device=cuda:64"], "PyTorch finds"),
        (["algo.rollouts=elsewhere"], "inline, prefetch, threads, actors"),
        (["algo.rollouts=prefetch", "algo.staleness=0"], "needs staleness >= 1"),
        (["algo.encoder=cnn"], "encoder=cnn needs images"),
    ],
)
def test_bad_settings_are_one_line(words: list[str], named: str) -> None:
    with pytest.raises(Exception, match=named) as caught:
        algorithm(*arguments("inline", *words))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["algo.value_clip_coef=0.05"],
        ["algo.shared=true", "algo.activation=relu"],
        ["algo.normalize_advantages=false", "algo.entropy_coef=0", "algo.clip_coef=0.02"],
        ["env=pendulum", "env.max_episode_steps=20"],
        ["env=pendulum", "env.max_episode_steps=20", "algo.value_clip_coef=0.05", "algo.entropy_coef=0.1"],
        [
            "env=pendulum",
            "env.max_episode_steps=20",
            "algo.continuous_distribution=squashed_gaussian",
            "algo.entropy_coef=0.1",
        ],
    ],
    ids=lambda words: " ".join(words) or "plain",
)
def test_with_torch_or_without_the_parameters_are_the_same(words: list[str]) -> None:
    dense, by_torch = (
        algorithm(*arguments("inline", "algo.learning_rate=0.003", f"algo.backend={backend}", *words))
        for backend in ("dense", "torch")
    )
    assert isinstance(dense.learner, DenseLearner) and not isinstance(by_torch.learner, DenseLearner)
    for row, expected in zip(advance(dense, 3), advance(by_torch, 3), strict=True):
        assert row == pytest.approx(expected, rel=1e-3, abs=1e-4)
    np.testing.assert_allclose(parameters(dense), parameters(by_torch), atol=3e-5)


@pytest.mark.parametrize(
    "words", [["algo.lstm=true"], ["algo.precision=bfloat16"], ["algo.learners=2"], ["algo.hidden_sizes=[513]"]]
)
def test_what_is_not_dense_or_too_wide_is_left_to_torch(words: list[str]) -> None:
    assert not isinstance(algorithm(*arguments("inline", *words)).learner, DenseLearner)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algo.lstm=true"], "backend=dense is for"),
        (["algo.precision=bfloat16"], "backend=dense is for"),
        (["algo.learners=2"], "algo.learners=2: only torch supports this"),
    ],
)
def test_what_is_not_dense_cannot_be_asked_to_be(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        algorithm(*arguments("inline", "algo.backend=dense", *words))


def test_a_distribution_is_named_or_given_by_its_path() -> None:
    words = ["env=pendulum", "env.max_episode_steps=20"]
    named, given = (
        algorithm(*arguments("inline", *words, f"algo.continuous_distribution={name}"))
        for name in ("squashed_gaussian", "paddock.algos.networks.heads.squashed_gaussian.SquashedGaussian")
    )
    found = advance(named, 2)
    assert advance(given, 2) == found
    # Nothing was learned from a rollout of the first weights: NumPy's log-probabilities are torch's.
    assert found[0]["ppo/stale_kl"] == pytest.approx(0, abs=1e-5) and found[1]["ppo/approx_kl"] > 0
    with pytest.raises(ConfigError, match=r"algo\.continuous_distribution=gausian is not an option; did you mean"):
        algorithm(*arguments("inline", *words, "algo.continuous_distribution=gausian"))


@pytest.mark.parametrize(
    ("algo", "words"), [("inline", ["algo.backend=dense"]), ("inline", ["algo.backend=torch"]), ("a2c", [])]
)
def test_what_is_no_number_is_named_and_not_learned_from(algo: str, words: list[str]) -> None:
    for part, said in (
        ("reward", r"environment 0 returned the reward nan in step 9 of a rollout"),
        ("observation", r"environment 0 returned an observation with (-?inf|nan) in step 10 of a rollout"),
    ):
        spoilt = f"env.wrappers=[{{_target_: toy_envs.Spoil, part: {part}}}]"
        made = algorithm(*arguments(algo, *words, spoilt, "vec.num_envs=2"))
        with pytest.raises(EnvError, match=said):
            advance(made, 1)
        assert np.isfinite(parameters(made)).all()
    made = algorithm(*arguments(algo, *words, "algo.learning_rate=1e38", "algo.max_grad_norm=1e38"))
    with pytest.raises(Diverged, match=r"training diverged; reduce algo.learning_rate") as caught:
        advance(made, 20)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("variant", ["inline", "continuous", "squashed", "a2c"])
def test_the_learner_finds_the_log_probabilities_that_actors_found(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    algo, met = algorithm(*arguments(variant)), []
    evaluate = algo.learner.evaluate_batch

    def evaluate_as_another(rollout: Rollout, weights: Weights) -> Any:
        values = evaluate(replace(rollout, version=-1), weights)
        met.append(values.logprob.tobytes() == rollout.logprob.tobytes())
        return values

    monkeypatch.setattr(algo.learner, "evaluate_batch", evaluate_as_another)
    advance(algo, 3)
    assert met == [True] * 3


# Whole runs


LONGER = "budget.iterations=40"  # of a run that has not ended when somebody gets to kill it, or its workers


def command(variant: str, run: Path, *more: str) -> list[str]:
    return [*arguments(variant, *more), "budget.iterations=12", f"run.dir={run}"]


# What actors play on workers: `test_killed_and_resumed_equals_undisturbed`.
@pytest.mark.parametrize("variant", ["prefetch", pytest.param("actors", marks=pytest.mark.nightly)])
def test_the_numbers_are_the_same_wherever_it_computes(variant: str, tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    assert call_main(*command(variant, here, "compute=serial", "vec=serial")) == 0
    assert call_main(*command(variant, elsewhere, "compute=local", "compute.workers=2", "vec=multiprocess")) == 0
    assert_same_run(here, elsewhere)


@pytest.mark.parametrize("variant", ["inline", "actors"])
def test_killed_and_resumed_equals_undisturbed(variant: str, tmp_path: Path, start: Callable[..., Command]) -> None:
    place = ["compute=local", "compute.workers=2"] if variant == "actors" else ["compute=serial"]
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    assert call_main(*command(variant, undisturbed, "compute=serial"), LONGER) == 0
    begin = partial(start, *command(variant, run, *place), LONGER)
    kill_and_resume(begin, run, kills=1, furthest=4, chance=random.Random(variant))
    assert_same_run(run, undisturbed)


def test_actors_are_made_again_when_their_workers_die(tmp_path: Path, start: Callable[..., Command]) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    assert call_main(*command("actors", undisturbed, "compute=serial"), LONGER) == 0
    begun = start(*command("actors", run, "compute=local", "compute.workers=2"), LONGER)
    for goal in (1, 3):
        begun.wait_for(run, goal)
        begun.workers()[0].kill()
    code, _, err = begun.wait()
    assert code == 0, err
    assert_same_run(run, undisturbed)


# The policy that a run ends with


def evaluations(run: Path) -> list[tuple[int, int, float]]:
    return [
        (r["iteration"], r["eval/of_iteration"], r["eval/return_mean"]) for r in rows(run) if "eval/return_mean" in r
    ]


def test_a_run_reports_its_pending_and_its_last_evaluation(tmp_path: Path) -> None:
    run, longer = tmp_path / "run", tmp_path / "longer"
    words = [*arguments("inline"), "compute=serial"]
    assert call_main(*words, "budget.iterations=8", f"run.dir={run}") == 0
    assert [place[:2] for place in evaluations(run)] == [(6, 3), (8, 6), (8, 8)]
    last = rows(run)[-1]
    assert json.loads((run / "done.json").read_text())["metrics"]["eval/return_mean"] == last["eval/return_mean"]
    # Readers put each in the row of its policy.
    frame = read_metrics(run).drop_nulls("eval/of_iteration")
    assert frame["iteration"].to_list() == frame["eval/of_iteration"].to_list() == [3, 6, 8]
    assert np.flatnonzero(np.isfinite(read_columns(run)["eval/return_mean"])).tolist() == [2, 5, 7]
    assert read_runs(run)["eval/return_mean"].to_list() == [last["eval/return_mean"]]
    # Whoever goes on has the rows and the state of a run that never stopped.
    assert call_main(*words, "budget.iterations=10", f"run.dir={run}") == 0
    assert call_main(*words, "budget.iterations=10", f"run.dir={longer}") == 0
    assert [place[:2] for place in evaluations(run)] == [(6, 3), (9, 6), (10, 9), (10, 10)]
    assert_same_run(run, longer)


def test_a_run_killed_before_its_end_repeats_its_last_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    words = [*arguments("inline"), "compute=serial", "budget.iterations=4", f"run.dir={run}"]
    assert call_main(*words) == 0
    whole, done = (run / "metrics.jsonl").read_bytes(), json.loads((run / "done.json").read_text())
    for kept in (0, 1):  # of the rows that the end has added
        (run / "done.json").unlink()
        lines = whole.splitlines(keepends=True)
        (run / "metrics.jsonl").write_bytes(b"".join(lines[: 4 + kept]))
        assert call_main(*words) == 0
        assert (run / "metrics.jsonl").read_bytes() == whole
        again = json.loads((run / "done.json").read_text())
        assert (again["reason"], again["metrics"]) == (done["reason"], done["metrics"])


SHORT = {  # what else keeps an iteration short
    "ppo": ["algo.num_steps=4", "algo.minibatch_size=4"],
    "a2c": ["algo.num_steps=4"],
    "es": ["algo.population=2", "algo.episode_cap=4"],
    "pbt": ["algo.members=2", "algo.interval=1", "algo.eval_episodes=10"],
}


@pytest.mark.parametrize("algo", SHORT)
def test_an_episode_that_never_ends_is_cut_off_and_counted(algo: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    endless = ["env=gymnasium", "env.id=toy_envs:Forever-v0", "algo.eval_max_steps=7"]
    small = ["compute=serial", "budget.iterations=1", "vec.num_envs=2", f"run.dir={run}"]
    assert call_main(f"algo={algo}", *endless, *small, *SHORT[algo]) == 0
    count = 20 if algo == "pbt" else 10
    assert (rows(run)[-1]["eval/cut"], rows(run)[-1]["eval/return_mean"]) == (count, 7)
    log = (run / "log.txt").read_text()
    assert f"{count} of {count} evaluation episodes were truncated after 7 steps" in log
    assert "increase algo.eval_max_steps=, or set env.max_episode_steps=" in log


def test_what_plays_ahead_and_what_learns_share_no_threads(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["algo=ppo", "env=cartpole", "algo.rollouts=prefetch", "algo.threads=2", "dry_run=true"]
    by_torch = [*words, "algo.backend=torch"]
    assert call_main(*by_torch, "compute=serial", f"run.root={tmp_path}") == 2
    assert "use threads=1, rollouts=inline or compute=local" in capfd.readouterr().err
    assert call_main(*by_torch, "compute=local", f"run.root={tmp_path}") == 0
    assert call_main(*words, "compute=serial", f"run.root={tmp_path}") == 0  # dense networks have threads of their own
