"""MAP-Elites, CMA-ME and CMA-MAE: results, resumption, descriptors and errors."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import call_main, env_spec

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.evolution.archive import Archive, Grid
from paddock.algos.evolution.emitters import Improvement
from paddock.algos.evolution.ranks import EvaluationLost
from paddock.algos.evolution.strategies.sep_cma import SepCMASettings
from paddock.algos.map_elites import MAPElites
from paddock.algos.pool.protocol import Done
from paddock.algos.pool.serial import SerialPool
from paddock.api import defaults
from paddock.envs.errors import ConfigError
from paddock.envs.vector import Native, Serial
from paddock.health.algo_checks import first_difference
from paddock.rerun import compare
from paddock.runs.checkpoint import Checkpoints

WALKER = env_spec("paddock.envs.bipedal:paddock/BipedalWalker-v3")
GAIT = tuple({"of": f"observation.{k}", "low": 0.0, "high": 1.0, "cells": 8} for k in (8, 13))
KILLED = """
import os, signal, sys
from paddock.launch import prepare
from paddock.session import run_session

def plan_until_killed():
    for row in plan():
        if row["iteration"] > 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield row

if __name__ == "__main__":
    experiment = prepare(sys.argv[1:])
    plan, experiment.algorithm.plan = experiment.algorithm.plan, plan_until_killed
    run_session(experiment, progress=False)
"""
LENGTH = ({"of": "length", "low": 0.0, "high": 100.0, "cells": 20},)


def make(algo: str = "map_elites", **changes: Any) -> MAPElites:
    settings = defaults(f"algo={algo}") | {"descriptors": LENGTH, "batch_size": 8, "hidden_sizes": (4,)}
    if algo != "map_elites":
        settings |= {"strategy": SepCMASettings(sigma=0.5), "emitters": 2}
    objects = {"env": env_spec("CartPole-v1"), "vec": Serial(num_envs=4), "pool": SerialPool(), "seed": 1}
    return MAPElites(**{**settings, **objects, "eval_every_iterations": 100, **changes})


def advance(algorithm: MAPElites, iterations: int) -> list[dict[str, float]]:
    plan = algorithm.plan()
    return [next(plan) for _ in range(iterations)]


class LosingPool(SerialPool):
    """Pool that loses every task with the first pair of members."""

    def imap_unordered(self, fn: Any, tasks: Any, **place: Any) -> Any:
        for index, task in enumerate(tasks):
            yield Done(index, error=RuntimeError("gone")) if task[1] == 0 else Done(index, fn(task))


def test_native_descriptors_equal_those_of_stepped_episodes() -> None:
    options: dict[str, Any] = {"env": WALKER, "descriptors": GAIT, "episode_cap": 60, "episodes_per_member": 2}
    native = make(**options, vec=Native(num_envs=64, threads=1))
    stepped = make(**options, pairs_per_task=1)
    for one in (native, stepped):
        advance(one, 2)
    assert first_difference(native.state_dict(), stepped.state_dict()) == ""
    assert len(native.elites.occupied) > 1


def test_descriptors_are_means_over_a_member_s_episodes() -> None:
    one = make(episodes_per_member=3, initial_std=1.0)
    advance(one, 1)
    elites = one.elites
    # CartPole's reward is 1 per step, so the mean length is the mean return.
    np.testing.assert_array_equal(elites.descriptors[elites.occupied, 0], elites.objective[elites.occupied])


def test_impacts_of_landers_are_descriptors_by_their_metrics() -> None:
    wrappers = [{"_target_": "paddock.envs.bindings.lunarlander.Impact"}]
    env = env_spec("LunarLander-v3", wrappers=wrappers, metrics=["impact_x", "impact_y_velocity"])
    ranges = {"metric.impact_x": (-1.0, 1.0), "metric.impact_y_velocity": (-3.0, 0.0)}
    descriptors = tuple({"of": of, "low": low, "high": high, "cells": 9} for of, (low, high) in ranges.items())
    one = make("cma_me", env=env, descriptors=descriptors, same_episodes=True)
    [row] = advance(one, 1)
    assert row["qd/new"] == len(one.elites.occupied) > 1 and row["qd/lost_members"] == 0
    lander, steps = env.make(), list[Any]()
    lander.reset(seed=3)
    while not steps or not any(steps[-1][2:4]):
        steps.append(lander.step(0))
    touching = [(obs[0], obs[3]) for obs, *_ in steps if obs[6:8].any()]
    assert (steps[-1][4]["impact_x"], steps[-1][4]["impact_y_velocity"]) == touching[0]


def test_a_lost_member_enters_nothing() -> None:
    whole, losing = make(initial_std=1.0), make(initial_std=1.0, pool=LosingPool(), pairs_per_task=2)
    [row] = advance(losing, 1)
    assert row["qd/lost_members"] == 2
    advance(whole, 1)
    first = keyed_generator(1, Stream.EMITTER).standard_normal((8, whole.elites.solutions.shape[1]), dtype=np.float32)
    for archive, lost in ((whole.elites, False), (losing.elites, True)):
        kept = {tuple(solution) for solution in archive.solutions[archive.occupied]}
        assert kept <= {tuple(member) for member in first[2 if lost else 0 :]}
    with pytest.raises(EvaluationLost, match="every member"):
        advance(make(pool=LosingPool(), batch_size=2), 1)


@pytest.mark.parametrize("algo", ["map_elites", "cma_me"])
def test_a_killed_run_resumes_with_other_workers_to_the_same_archive(algo: str, tmp_path: Path) -> None:
    words = [f"algo={algo}", "env=cartpole", "env.max_episode_steps=50", "algo.batch_size=8", "algo.hidden_sizes=[4]"]
    words += ["algo.eval_every_iterations=2", "budget.iterations=4", "checkpoint.every_s=0", "vec=serial"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert call_main(*words, "compute=serial", f"run.dir={whole}") == 0
    workers = ["compute=local", "compute.workers=2", f"run.dir={killed}"]
    assert subprocess.run([sys.executable, "-c", KILLED, *words, *workers]).returncode == -signal.SIGKILL
    assert call_main(*words, "compute=serial", "algo.pairs_per_task=1", f"run.dir={killed}") == 0
    assert not compare(whole, killed, 4)
    one, other = (Checkpoints(path / "checkpoints", 1).load() for path in (whole, killed))
    assert one and other and first_difference(one["algorithm"], other["algorithm"]) == ""


def test_init_from_starts_all_emitters_at_the_policy() -> None:
    source = make(seed=2, initial_std=1.0)
    advance(source, 2)
    for algo in ("map_elites", "cma_me"):
        one = make(algo)
        one.start_from(source.initial_policy())
        advance(one, 1)
        distance = one.policy().parameters - source.policy().parameters
        assert np.abs(distance).max() < 5 * (0.02 if algo == "map_elites" else 0.5)


def test_an_emitter_without_accepted_members_restarts_at_an_elite() -> None:
    archive = Archive(Grid(np.zeros(1), np.ones(1), (2,)), 3, 1.0, float("-inf"))
    elite = np.full((1, 3), 7, np.float32)
    archive.add(elite, np.array([5.0]), np.array([[0.1]]), 1)
    start = np.zeros(3, np.float32)
    for basic in (False, True):
        emitter = Improvement(SepCMASettings(sigma=0.5), 8, start, filters=True, basic=basic)
        draw = keyed_generator(1, Stream.EMITTER)
        emitter.ask(archive, draw)
        assert emitter.tell(archive, np.arange(8.0), np.arange(8.0) - 8, draw) is not basic
        np.testing.assert_array_equal(emitter.search.mean, start if basic else elite[0])


def test_the_best_improvement_attracts_a_strategy_and_new_cells_come_first() -> None:
    archive = Archive(Grid(np.zeros(1), np.ones(1), (2,)), 3, 1.0, float("-inf"))
    emitter = Improvement(SepCMASettings(sigma=0.5), 4, np.zeros(3, np.float32), filters=True, basic=True)
    draw = keyed_generator(1, Stream.EMITTER)
    members = emitter.ask(archive, draw)
    # The second member, in a new cell, is the only parent but for the third, which is better than its elite.
    emitter.tell(archive, np.array([9.0, -9, 3, np.nan]), np.array([-1.0, np.inf, 1, np.nan]), draw)
    weights = np.log(3) - np.log([1, 2])
    expected = np.average(members[[1, 2]], axis=0, weights=weights)
    np.testing.assert_allclose(emitter.search.mean, expected, atol=1e-6)


def test_emitters_draw_independently() -> None:
    one = make("cma_me")
    draws = [keyed_generator(1, Stream.EMITTER, 0, k) for k in range(2)]
    asked = [emitter.ask(one.elites, draw) for emitter, draw in zip(one._emitters, draws, strict=True)]
    assert not np.isin(asked[0], asked[1]).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"descriptors": ()}, r"descriptors=\[\] is empty"),
        ({"descriptors": ({**LENGTH[0], "of": "lenght"},)}, "did you mean 'length'"),
        ({"descriptors": ({**LENGTH[0], "of": "observation.4"},)}, "is unknown; did you mean"),
        ({"descriptors": ({**LENGTH[0], "of": "metric.x"},)}, r"env.metrics=\[x\]"),
        ({"descriptors": ({**LENGTH[0], "low": 100.0},)}, "must be below"),
        ({"descriptors": ({**LENGTH[0], "cells": None},)}, "must have the keys"),
        ({"descriptors": ({**LENGTH[0], "cells": 10**15},)}, "reduce it"),
        ({"archive": "cvt", "cells": 9}, "must have the keys"),
        ({"cells": 9}, "cells=9 is for archive=cvt"),
        ({"archive_learning_rate": 0.5}, "needs threshold_min"),
        ({"strategy": SepCMASettings(sigma=1.0)}, "use algo=cma_me"),
        ({"selection": "mu"}, "selection=mu is for a strategy"),
        ({"batch_size": 7}, "must be even; try 8"),
    ],
)
def test_a_contradiction_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**changes)
