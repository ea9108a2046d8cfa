"""scripts/bench/runs/pool.py measures what it says it does."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from scripts.bench.runs import pool as bench_pool
from scripts.bench.runs.pool import emulated, hand_out, main, measure_memory, measure_overhead, read_options, render


def test_tasks_are_handed_to_whoever_is_free_first() -> None:
    # Two workers, in order: 3 to A, 1 to B, 1 to B (at 1), 1 to B (at 2); then 2 to either at 3: 5 in all.
    assert hand_out(np.array([3.0, 1, 1, 1, 2]), 2) == 5.0
    assert hand_out(np.array([4.0, 1, 1]), 3) == 4.0


def test_contenders_take_turns_and_ours_is_held_to_the_best_way_of_the_pool() -> None:
    options = argparse.Namespace(contenders=["paddock", "multiprocessing.Pool"], durations=(0.02,), repeats=2)
    report = measure_overhead(options)
    assert set(report["medians"]) == {"paddock", "multiprocessing.Pool"}
    assert all(len(times[0.02]) == 2 and min(times[0.02]) >= 1.0 for times in report["times"].values())
    assert (
        report["ratios"][0.02] == report["medians"]["paddock"][0.02] / report["medians"]["multiprocessing.Pool"][0.02]
    )
    assert "ours / Pool" in render("overhead", report)


def test_emulated_workers_are_many() -> None:
    with emulated(12) as pool:
        assert pool.size == 12
        assert sorted(done.value for done in pool.imap_unordered(abs, range(-40, 0))) == list(range(1, 41))


def test_memory_is_sampled_over_the_generations() -> None:
    report = measure_memory(argparse.Namespace(generations=10))
    assert [sample["generation"] for sample in report["samples"]] == list(range(11))
    assert report["growth_mb"] == report["samples"][-1]["driver_mb"] - report["samples"][1]["driver_mb"]


@pytest.mark.parametrize(("reached", "code"), [(True, 0), (False, 1)])
def test_a_missed_target_is_the_exit_code(
    reached: bool, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figures = {"samples": [], "growth_mb": 0.0, "workers_growth_mb": 0.0, "reached": reached}
    monkeypatch.setattr(bench_pool, "measure_memory", lambda _: figures)
    assert main(["--parts", "memory", "--json", str(tmp_path / "figures.json")]) == code
    assert json.loads((tmp_path / "figures.json").read_text())["memory"]["reached"] is reached


def test_a_quick_look_measures_less() -> None:
    quick, whole = read_options(["--quick"]), read_options([])
    assert (
        len(quick.sizes) < len(whole.sizes) and quick.generations < whole.generations and quick.repeats < whole.repeats
    )
