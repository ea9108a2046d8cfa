"""The check of algorithms names what is wrong: each fault is planted in one that is well, and found."""

import os
import random
import sys
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
import pytest

from paddock import check
from paddock.algos.common.keys import Stream, keyed_generator
from paddock.config.compose import compose_alone, compose_sections
from paddock.config.experiment import read_plain
from paddock.envs.errors import ConfigError
from paddock.health.algo_checks import check_algo, first_difference


class Drift:
    """Adds up numbers that the pool draws; faults are planted by name."""

    def __init__(self, *, pool: Any, seed: int, fault: str) -> None:
        self.pool, self.seed, self.fault = pool, seed, fault
        self.iteration, self.total, self.speed = 0, np.zeros(2), 0.5

    def plan(self) -> Generator[dict[str, Any], None, None]:
        if self.fault == "raises":
            raise ValueError("no wind")
        before = 0.0  # lost at a resume
        while self.fault != "ends" or self.iteration < 2:
            keys = [(self.fault, self.seed, self.iteration, index) for index in range(3)]
            ends = list(self.pool.imap_unordered(draw, keys))
            drawn = [done.value for done in sorted(ends, key=lambda done: done.index)]
            self.speed *= 1.5
            self.total = self.total + self.speed * np.mean(drawn)
            before += float(self.total[0])
            self.iteration += 1
            yield self._row(before)

    def _row(self, before: float) -> dict[str, Any]:
        step = 60 - 10 * self.iteration if self.fault == "step falls" else 10 * self.iteration
        row: dict[str, Any] = {"iteration": self.iteration, "step": step, "train/return_mean": float(self.total[0])}
        changes: dict[str, Mapping[str, Any]] = {
            "text": {"drift/mood": "calm"},
            "no group": {"total": 1.0},
            "from 0": {"iteration": self.iteration - 1},
            "a local": {"drift/before": before},
            "seconds": {"system/seconds": random.random()},
        }
        row.update(changes.get(self.fault, {}))
        if self.fault == "no step":
            del row["step"]
        return row

    def state_dict(self) -> dict[str, Any]:
        state = {"iteration": self.iteration, "total": self.total, "speed": self.speed}
        if self.fault == "forgets":
            del state["speed"]
        return state | ({"seen": {1, 2}} if self.fault == "a set" else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        if self.fault == "loads half":
            self.total = np.zeros(2)

    def policy(self) -> Any:
        return None


def draw(key: tuple[str, int, int, int]) -> float:
    """A number that its key decides, but for a fault."""
    fault, seed, iteration, index = key
    if fault == "worker":
        return float(os.getpid())
    if fault == "global":
        return random.random()
    return float(keyed_generator(seed, Stream.NOISE, iteration, index).random())


def findings(fault: str, last: str) -> dict[str, str]:
    """What the check says, by name, each with its level, as far as a line."""
    config = read_plain(compose_alone(["algo=es", "env=cartpole", "compute=serial"]))
    config["algo"] = {"_target_": f"{__name__}.Drift", "name": "drift", "fault": fault}
    compute = compose_sections(["compute"], ["compute=local", "compute.workers=2"])["compute"]
    found = {}
    for name, finding in check_algo(config, compute, 4):
        found[name] = f"{finding.level} {finding}"
        if name == last:
            break
    return found


def test_an_algorithm_without_a_fault_is_well() -> None:
    lines = findings("seconds", "workers")
    assert list(lines) == ["created", "plan", "metrics", "repeated", "state", "workers"]
    assert all(line.startswith("ok ") for line in lines.values()), lines
    assert lines["metrics"] == "ok 1 names, 40 steps"


FAULTS = {  # a fault: the line that fails, and a part of its message
    "raises": ("plan", "ValueError: no wind"),
    "ends": ("plan", "plan() ended after 2 of 4 iterations"),
    "a set": ("plan", "state_dict(): 'algorithm.seen' holds a set"),
    "text": ("metrics", "TypeError: metric 'drift/mood' is a str, not a number"),
    "no group": ("metrics", "iteration 1: 'total' has no group; rename it to group/name, such as train/total"),
    "from 0": ("metrics", "ValueError: metrics of iteration 0 follow those of 0"),
    "no step": ("metrics", "KeyError: 'step'"),
    "step falls": ("metrics", "iteration 2: 'step' decreases from 50 to 40"),
    "global": ("repeated", "second run: iteration 1: train/return_mean was"),
    "forgets": ("state", "(after loading, self.speed differ); add what plan()"),
    "a local": ("state", "resumed from the state of iteration 1: iteration 2: drift/before was"),
    "loads half": ("state", "the state of iteration 1 changes when loaded, at 'total': different values"),
}


def test_each_fault_is_named() -> None:
    for fault, (line, message) in FAULTS.items():
        lines = findings(fault, line)
        assert lines[line].startswith("FAIL ") and message in lines[line], lines
        assert all(text.startswith("ok ") for name, text in lines.items() if name != line), lines


def test_what_depends_on_the_worker_is_named() -> None:
    lines = findings("worker", "workers")
    assert lines["state"].startswith("ok ") and lines["repeated"].startswith("ok ")
    assert lines["workers"].startswith("FAIL on two workers: iteration 1: train/return_mean was "), lines
    assert lines["workers"].endswith("done.index")


def test_two_states_differ_at_a_leaf() -> None:
    state = {"a": {"b": np.arange(3)}, "c": [1.0, float("nan")], "d": None}
    assert first_difference(state, {"a": {"b": np.arange(3)}, "c": [1.0, float("nan")], "d": None}) == ""
    for other, named in (
        ({**state, "a": {"b": np.array([0, 1, 3])}}, "'a.b': different values"),
        ({**state, "a": {"b": np.arange(3.0)}}, "'a.b': int64 (3,) and float64 (3,)"),
        ({**state, "c": [2.0, float("nan")]}, "'c.0': 1.0 and 2.0"),
        ({**state, "c": [1.0]}, "'c': 2 and 1 items"),
        ({"a": state["a"], "c": state["c"]}, "'d', which is missing in one of them"),
    ):
        assert first_difference(state, other) == named


# The command


def test_what_cannot_be_checked_is_one_line() -> None:
    for word, named in {
        "compute=dask": "compute=dask is not an argument of check; known: algo, env, hydra, iterations, seed, vec",
        "vec=auto": "vec=auto depends on timing",
        "iterations=2": "iterations=2 must be an integer, at least 3",
        "speed=3": "speed=3 is not an argument of check; did you mean 'seed'?",
    }.items():
        with pytest.raises(ConfigError) as caught:
            check.read_run(["algo=es", word])
        assert named in str(caught.value) and "\n" not in str(caught.value)


def test_settings_are_small_but_for_those_that_are_given() -> None:
    words, iterations = check.read_run(["algo=pbt", "algo.members=4", "algo.member.epochs=1", "iterations=5", "seed=3"])
    assert iterations == 5 and {"algo.members=4", "algo.member.epochs=1", "seed=3"} <= set(words)
    assert {"algo.interval=1", "algo.member.num_steps=16", "env=cartpole", "vec=serial"} <= set(words)
    assert not {"algo.members=3", "algo.member.epochs=2"} & set(words)
    assert "env=poles" in check.read_run(["algo=poet"])[0]


def test_one_of_ours_passes_resumed_and_on_two_workers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["check", "algo=es"])
    assert check.main() == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["created", "plan", "metrics", "repeated", "state", "workers"]
    assert [line[:5] for line in lines] == ["ok   "] * 6 and [line[5:].partition(":")[0] for line in lines] == names
