"""Contenders in separate processes: each uses its fastest setting, and rates are compared in interleaved runs."""

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType
from typing import Any

from paddock.envs.errors import ConfigError, install
from scripts.bench.harness import ROOT, Report

PEERS = ROOT / "scripts" / "bench" / "peers"
OURS = "paddock_ppo.py"
SPLIT = {"env": "environment", "policy": "policy", "learn": "learning", "wait": "waiting"}
TRIES = 2  # of each setting, interleaved; the fastest one counts
TRIAL_STEPS = 64  # longest rollout when trying settings


@dataclass(frozen=True)
class Contender:
    """Program that trains by a recipe, and the settings to choose from, except those that it refuses."""

    title: str
    file: str  # in scripts/bench/peers/
    recipe: Report
    grid: list[Any]
    updates: int
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)  # environment variables of its process

    def trial(self) -> Report:
        """Return a recipe with shorter rollouts to try settings, with the same updates per step and environments."""
        steps = self.recipe.get("num_steps")
        return self.recipe | ({} if steps is None else {"num_steps": min(steps, TRIAL_STEPS)})


class Missing(Exception):
    """Error of a peer that is not installed."""


class Refused(Exception):
    """Error of a setting that a contender does not support."""


class Player:
    """Process of a contender, which answers one request at a time."""

    def __init__(
        self, file: str, python: str = sys.executable, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Start the process without waiting for its imports."""
        self._file = file
        command = [python, "-W", "ignore", str(PEERS / file)]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, **request: Any) -> Report:
        """Return the answer to a request.

        Raises:
            Missing: the process ended with an ImportError.
            Refused: it does not support the recipe with this setting.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if answer:
            given: Report = json.loads(answer)
            if "refused" in given:
                raise Refused(given["refused"])
            return given
        self._process.wait()
        self._log.seek(0)
        raise failure(self._file, self._process.returncode, self._log.read())

    def close(self) -> None:
        """Close the process's input, and wait until it exits."""
        self._process.communicate()
        self._log.close()


def failure(what: str, code: int, stderr: str) -> Exception:
    """Return the error of a process that exited early: a missing package, or another error."""
    _, traceback, rest = stderr.rpartition("Traceback (most recent call last):\n")
    raised = [line for line in rest.splitlines() if traceback and line[:1].strip()]
    first = (raised or stderr.strip().splitlines()[-1:] or ["no output"])[0]
    if first.startswith(("ModuleNotFoundError", "ImportError")):
        return Missing(first)
    return RuntimeError(f"{what} ended with {code}: {first}")


def ask_alone(file: str, python: str, **request: Any) -> Report:
    """Start a process for a single request, and return its answer.

    Raises:
        ConfigError: a package is missing.
    """
    with contextlib.closing(Player(file, python)) as player:
        try:
            return player.ask(**request)
        except Missing as missing:
            remedy = f"{install('bench')}, or pass an interpreter that has it: --peers PYTHON"
            raise ConfigError(f"{missing}; {remedy}") from missing


def measure(title: str, contenders: list[Contender], repeats: int, clock: str = "seconds") -> Report:
    """Measure steps/s of each contender at its fastest setting, in `repeats` interleaved runs.

    `clock` is the denominator of rates: `seconds`, or `cpu_s` for processor time.
    """
    rates: dict[str, list[Report]] = {}
    chosen: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        players = {one.title: Player(one.file, one.python, one.environment) for one in contenders}
        for player in players.values():
            stack.callback(player.close)

        def play(one: Contender, recipe: Report, setting: Any, updates: int, seed: int) -> Report:
            run = players[one.title].ask(recipe=recipe, setting=setting, updates=updates, seed=seed)
            return run | {"rate": run["steps"] / run[clock]}

        for one in contenders:
            # Also warms up, and detects missing packages.
            trial, updates = one.trial(), math.ceil(one.updates / 4)
            tried: list[tuple[float, Any]] = []
            try:
                for setting in one.grid * TRIES:
                    try:
                        tried.append((play(one, trial, setting, updates, 0)["rate"], setting))
                    except Refused as refused:
                        skipped[one.title] = str(refused)
            except Missing as missing:
                skipped[one.title] = str(missing)
            if tried:
                skipped.pop(one.title, None)
                chosen[one.title], rates[one.title] = max(tried, key=lambda pair: pair[0])[1], []
            elif one.file == OURS:
                raise RuntimeError(f"{one.title} could not be measured: {skipped[one.title]}")
        for repeat in range(repeats):
            for one in contenders:
                if one.title in chosen:
                    rates[one.title].append(play(one, one.recipe, chosen[one.title], one.updates, repeat + 1))
    contestants = {name: summarize(runs) | {"setting": chosen[name]} for name, runs in rates.items()}
    return {"title": title, "unit": "steps/s", "contenders": contestants, "skipped": skipped}


def render(row: Report) -> str:
    """Format a row as a table."""
    extra = f"{'process':>10}{'steps':>10}" if row["unit"] == "seconds" else ""
    lines = [row["title"], f"{'median (least-most)':24}{row['unit']:>30}{extra}   time per task"]
    for title, side in row["contenders"].items():
        digits = 1 if row["unit"] == "seconds" else 0
        low, middle, high = (f"{value:,.{digits}f}" for value in (min(side["all"]), side["median"], max(side["all"])))
        more = f"{side['process_s']:10.1f}{side['steps']:10,.0f}" if extra else ""
        shares = ", ".join(f"{SPLIT[name]} {share:.0%}" for name, share in side["split"].items())
        setting = "" if side["setting"] in (None, []) else f"   with {phrase(side['setting'])}"
        lines.append(f"{title:24}{f'{middle} ({low}-{high})':>30}{more}   {shares}{setting}")
    lines += [f"{title:24}skipped: {reason}" for title, reason in row["skipped"].items()]
    return "\n".join([*lines, *map(render_claim, row["claims"])])


def render_claim(one: Report) -> str:
    """Format a claim in one line."""
    ratios = " ".join(f"{ratio:.2f}" for ratio in one["ratios"])
    verdict = "reached" if one["reached"] else "MISSED"
    return f"{one['what']}: median {one['ratio']:.2f} of {ratios}; target {one['target']:g} {verdict}"


def describe(recipe: Report) -> str:
    """Describe a recipe in one line."""
    batch = f"{recipe['num_envs']} x {recipe['num_steps']} steps, minibatches of {recipe['minibatch_size']}"
    epochs, hidden = recipe["epochs"], "-".join(map(str, recipe.get("hidden_sizes", (64, 64))))
    network = f"{epochs} epoch{'s' if epochs > 1 else ''}, {hidden} {recipe.get('activation', 'tanh')} each"
    return f"{batch}, {network}" + (", normalized" if recipe["normalize"] else "")


def summarize(runs: list[Report]) -> Report:
    """Return medians of runs, with all rates."""
    every = [run["rate"] for run in runs]
    names = runs[0].get("split", {})
    return {
        "median": median(every),
        "all": every,
        "steps": median(run["steps"] for run in runs),
        "process_s": median(run.get("process_s", 0.0) for run in runs),
        "split": {name: median(run["split"][name] for run in runs) for name in names},
    }


def compare(row: Report, ours: str, targets: Mapping[str, float]) -> list[Report]:
    """Return the claims about our rate relative to each measured peer's."""
    sides = row["contenders"]
    claims = []
    for peer, target in targets.items():
        if peer in sides:
            ratios = [own / other for own, other in zip(sides[ours]["all"], sides[peer]["all"], strict=True)]
            claims.append(claim(f"{ours} / {peer}", ratios, target))
    return claims


def claim(what: str, ratios: list[float], target: float) -> Report:
    """Return the claim that the median of these ratios reaches the target."""
    ratio = median(ratios)
    return {"what": what, "ratios": ratios, "ratio": ratio, "target": target, "reached": ratio >= target}


def phrase(setting: Any) -> str:
    """Format a setting: our overrides, threads, or PufferLib's environments, workers and threads."""
    if isinstance(setting, int):
        return f"{setting} thread{'s' if setting > 1 else ''}"
    if all(isinstance(part, str) for part in setting):
        return " ".join(setting)
    more = f", {phrase(setting[2])}" if len(setting) > 2 else ""
    return f"{setting[0]} environments, {setting[1] or 'no'} workers{more}"
