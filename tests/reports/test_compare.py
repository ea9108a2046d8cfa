"""`python -m paddock.compare`: exit codes, pairing of runs, and verdicts on scores made by hand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from run_folders import CONFIG, write

from paddock.compare import compare, main
from paddock.envs.errors import ConfigError
from paddock.reports import statistics
from paddock.reports.comparison import read_results, store_results

SCORES: NDArray[np.float64] = np.random.default_rng(0).normal(size=10)


def runs(
    folder: Path, scores: Sequence[float] | NDArray[np.float64], task: str = "CartPole-v1", rows: int = 2, **algo: Any
) -> Path:
    """Ended runs of one experiment, seed k with the last score `scores[k]`."""
    for seed, score in enumerate(scores):
        config = CONFIG | {"seed": seed, "env": {"id": task}, "algo": CONFIG["algo"] | algo}
        values = [{"eval/return_mean": 0.0}] * (rows - 1) + [{"eval/return_mean": float(score)}]
        write(folder / f"{task}-{seed}", values, config)
    return folder


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["compare", *map(str, arguments)])
    return main()


def test_runs_are_no_worse_than_themselves_and_not_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = runs(tmp_path / "a", SCORES)
    assert call(monkeypatch, a, a) == 0
    assert call(monkeypatch, a, a, "gate=no_worse") == 0
    assert call(monkeypatch, a, a, "gate=better") == 1


def test_two_deviations_at_ten_seeds_decide_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = runs(tmp_path / "a", SCORES), runs(tmp_path / "b", SCORES[::-1] - 2)
    assert call(monkeypatch, b, a, "gate=no_worse") == 1
    assert call(monkeypatch, a, b, "gate=no_worse") == call(monkeypatch, a, b, "gate=better") == 0


def test_stored_results_compare_like_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = runs(tmp_path / "a", SCORES), runs(tmp_path / "b", SCORES + 0.5)
    assert call(monkeypatch, b, f"json={tmp_path}/b.json") == 0
    stored, folders = compare(a, tmp_path / "b.json"), compare(a, b)
    assert (stored.probability, stored.interval) == (folders.probability, folders.interval)
    assert compare(b, tmp_path / "b.json").same


def test_probability_is_averaged_over_tasks_with_any_number_of_seeds(tmp_path: Path) -> None:
    for task, shift, seeds in (("CartPole-v1", 0.0, 5), ("Acrobot-v1", 1.0, 4)):
        runs(tmp_path / "a", SCORES[:seeds] + shift, task)
        runs(tmp_path / "b", SCORES[5:], task)
    comparison = compare(tmp_path / "a", tmp_path / "b")
    shares = [np.mean(np.subtract.outer(SCORES[:n] + shift, SCORES[5:]) > 0) for shift, n in ((1.0, 4), (0.0, 5))]
    assert [task.task for task in comparison.tasks] == ["Acrobot-v1", "CartPole-v1"]
    assert comparison.probability == pytest.approx(np.mean(shares))
    assert comparison.interval[0] <= comparison.probability <= comparison.interval[1]


def test_interval_of_tasks_with_equal_seeds_agrees_with_the_matrix() -> None:
    x, y = (np.random.default_rng(seed).normal(size=(8, 3)) for seed in range(2))
    expected = statistics.improvement_interval(x, y)
    assert statistics.mean_improvement_interval(list(zip(x.T, y.T, strict=True))) == pytest.approx(expected, abs=0.03)


def test_published_score_inside_the_interval_is_no_worse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # RL-Zoo's DQN: 500 on CartPole after 50,000 steps; a row of these runs is 10 steps.
    near, far = runs(tmp_path / "near", [499, 500, 500, 500]), runs(tmp_path / "far", [400, 410, 420, 430])
    for folder, code in ((near, 0), (far, 1)):
        results = read_results(folder)
        seeds = [{**vars(seed), "steps": [25_000, 50_000]} for seed in results[0].seeds]
        stored = json.loads(store_results(results))
        stored["results"][0]["seeds"] = seeds
        file = tmp_path / f"{folder.name}.json"
        file.write_text(json.dumps(stored))
        assert call(monkeypatch, file, "reference:rl_zoo_dqn", "gate=no_worse") == code


def test_pairs_prefer_equal_settings(tmp_path: Path) -> None:
    for side, rates in (("a", (0.1, 0.2)), ("b", (0.2, 0.1))):
        for rate in rates:
            runs(tmp_path / side / str(rate), SCORES[:4] + rate, rate=rate)
    tasks = compare(tmp_path / "a", tmp_path / "b").tasks
    assert len(tasks) == 2 and all(task.same and not task.differences for task in tasks)


@pytest.mark.parametrize("why", ["seeds", "steps", "task", "unfinished", "score", "ambiguous", "stored"])
def test_incomparable_sides_are_refused(tmp_path: Path, why: str) -> None:
    a, b = runs(tmp_path / "a", SCORES[:4]), tmp_path / "b"
    score = None
    match why:
        case "seeds":
            runs(b, SCORES[:2])
        case "steps":
            runs(b, SCORES[:4], rows=3)
        case "task":
            runs(b, SCORES[:4], "Acrobot-v1")
        case "unfinished":
            (runs(b, SCORES[:4]) / "CartPole-v1-0" / "done.json").unlink()
        case "score":
            runs(b, SCORES[:4])
            score = "eval/return_men"
        case "ambiguous":
            runs(b / "1", SCORES[:4], rate=1)
            runs(b / "2", SCORES[:4], rate=2)
        case "stored":
            b = tmp_path / "b.json"
            b.write_text('{"format": 1')
    with pytest.raises(ConfigError):
        compare(a, b, score=score)


def test_runs_of_different_lengths_compare_at_a_common_step(tmp_path: Path) -> None:
    a, b = runs(tmp_path / "a", SCORES[:4]), runs(tmp_path / "b", SCORES[:4], rows=3)
    [task] = compare(a, b, at=20).tasks
    assert task.a.tolist() == SCORES[:4].tolist() and task.b.tolist() == [0.0] * 4  # B's score comes at step 30
    for seed, score in enumerate(SCORES[:4]):  # evaluated at other steps
        rows = [{}, {"eval/return_mean": float(score)}, {}, {"eval/return_mean": 0.0}]
        write(tmp_path / "c" / str(seed), rows, CONFIG | {"seed": seed, "env": {"id": "CartPole-v1"}})
    [task] = compare(b, tmp_path / "c", at=30).tasks
    assert task.a.tolist() == task.b.tolist() == SCORES[:4].tolist()


def test_different_metrics_are_not_compared(tmp_path: Path) -> None:
    a = runs(tmp_path / "a", SCORES[:4])
    for seed in range(4):
        rows = [{"train/return_mean": 0.0}] * 2
        write(tmp_path / "b" / str(seed), rows, CONFIG | {"seed": seed, "env": {"id": "CartPole-v1"}})
    with pytest.raises(ConfigError, match="train/return_mean"):
        compare(a, tmp_path / "b")
