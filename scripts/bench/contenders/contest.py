"""Contenders in processes of their own, of which each chooses a setting, and whose rates are compared turn by turn."""

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
OURS = "paddock_ppo.py"  # in it
SPLIT = {"env": "environment", "policy": "policy", "learn": "learning", "wait": "waiting"}
TRIES = 2  # of each setting, in turn; the fastest one counts
TRIAL_STEPS = 64  # of a rollout, at most; see `Contender.trial`


@dataclass(frozen=True)
class Contender:
    """Who plays a recipe, and the settings that he may choose from: those that he does not refuse."""

    title: str
    file: str  # in scripts/bench/peers/
    recipe: Report
    grid: list[Any]
    updates: int
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of his process

    def trial(self) -> Report:
        """A recipe of shorter rollouts to try settings with: as much learning for a step, in as many environments."""
        steps = self.recipe.get("num_steps")
        return self.recipe | ({} if steps is None else {"num_steps": min(steps, TRIAL_STEPS)})


class Missing(Exception):
    """A peer is not installed."""


class Refused(Exception):
    """A setting is none of a contender's."""


class Player:
    """A contender's process, which answers one request at a time."""

    def __init__(
        self, file: str, python: str = sys.executable, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Start it; it has not imported anything yet when this returns."""
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
        """The answer to a request.

        Raises:
            Missing: it ended by an ImportError.
            Refused: it does not take the recipe with this setting.
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
        """End the process, which sees the end of its input."""
        self._process.communicate()
        self._log.close()


def failure(what: str, code: int, said: str) -> Exception:
    """Return what it is that a process ended with a code: a missing package, or another error.

    Args:
        said: all that it wrote to its standard error stream, where an error may have several lines, and others follow.
    """
    _, traceback, rest = said.rpartition("Traceback (most recent call last):\n")
    raised = [line for line in rest.splitlines() if traceback and line[:1].strip()]
    first = (raised or said.strip().splitlines()[-1:] or ["no output"])[0]
    if first.startswith(("ModuleNotFoundError", "ImportError")):
        return Missing(first)
    return RuntimeError(f"{what} ended with {code}: {first}")


def ask_alone(file: str, python: str, **request: Any) -> Report:
    """Return the answer of a player who is started for this request, and who has to be there.

    Raises:
        ConfigError: a package of its own is missing.
    """
    with contextlib.closing(Player(file, python)) as player:
        try:
            return player.ask(**request)
        except Missing as missing:
            remedy = f"{install('bench')}, or name an interpreter that has it: --peers PYTHON"
            raise ConfigError(f"{missing}; {remedy}") from missing


def measure(title: str, contenders: list[Contender], repeats: int, clock: str = "seconds") -> Report:
    """Steps/s of each contender at his fastest setting, in turn and `repeats` times.

    Args:
        clock: what a rate is of: `seconds`, or `cpu_s` of his process, where he says so.
    """
    rates: dict[str, list[Report]] = {}
    chosen: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        players = {who.title: Player(who.file, who.python, who.environment) for who in contenders}
        for player in players.values():
            stack.callback(player.close)

        def play(who: Contender, recipe: Report, setting: Any, updates: int, seed: int) -> Report:
            run = players[who.title].ask(recipe=recipe, setting=setting, updates=updates, seed=seed)
            return run | {"rate": run["steps"] / run[clock]}

        for who in contenders:
            # With one setting this is where it gets warm, and shows whether it is installed.
            trial, updates = who.trial(), math.ceil(who.updates / 4)
            tried: list[tuple[float, Any]] = []
            try:
                for setting in who.grid * TRIES:
                    try:
                        tried.append((play(who, trial, setting, updates, 0)["rate"], setting))
                    except Refused as refused:
                        skipped[who.title] = str(refused)
            except Missing as missing:
                skipped[who.title] = str(missing)
            if tried:
                skipped.pop(who.title, None)
                chosen[who.title], rates[who.title] = max(tried, key=lambda one: one[0])[1], []
            elif who.file == OURS:
                raise RuntimeError(f"{who.title} could not be measured: {skipped[who.title]}")
        for repeat in range(repeats):
            for who in contenders:
                if who.title in chosen:
                    rates[who.title].append(play(who, who.recipe, chosen[who.title], who.updates, repeat + 1))
    contestants = {name: summarize(runs) | {"setting": chosen[name]} for name, runs in rates.items()}
    return {"title": title, "unit": "steps/s", "contenders": contestants, "skipped": skipped}


def render(row: Report) -> str:
    """A row as a table."""
    extra = f"{'process':>10}{'steps':>10}" if row["unit"] == "seconds" else ""
    lines = [row["title"], f"{'median (least-most)':24}{row['unit']:>30}{extra}   where the time goes"]
    for title, side in row["contenders"].items():
        digits = 1 if row["unit"] == "seconds" else 0
        low, middle, high = (f"{value:,.{digits}f}" for value in (min(side["all"]), side["median"], max(side["all"])))
        more = f"{side['process_s']:10.1f}{side['steps']:10,.0f}" if extra else ""
        shares = ", ".join(f"{SPLIT[name]} {share:.0%}" for name, share in side["split"].items())
        setting = "" if side["setting"] in (None, []) else f"   with {phrase(side['setting'])}"
        lines.append(f"{title:24}{f'{middle} ({low}-{high})':>30}{more}   {shares}{setting}")
    lines += [f"{title:24}left out: {why}" for title, why in row["skipped"].items()]
    return "\n".join([*lines, *map(render_claim, row["claims"])])


def render_claim(one: Report) -> str:
    """A claim in one line."""
    ratios = " ".join(f"{ratio:.2f}" for ratio in one["ratios"])
    verdict = "reached" if one["reached"] else "MISSED"
    return f"{one['what']}: median {one['ratio']:.2f} of {ratios}; target {one['target']:g} {verdict}"


def describe(recipe: Report) -> str:
    """A recipe in one line."""
    batch = f"{recipe['num_envs']} x {recipe['num_steps']} steps, minibatches of {recipe['minibatch_size']}"
    epochs, hidden = recipe["epochs"], "-".join(map(str, recipe.get("hidden_sizes", (64, 64))))
    network = f"{epochs} epoch{'s' if epochs > 1 else ''}, {hidden} {recipe.get('activation', 'tanh')} each"
    return f"{batch}, {network}" + (", normalized" if recipe["normalize"] else "")


def summarize(runs: list[Report]) -> Report:
    """Medians of some runs, with all rates."""
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
    """What is claimed of our rate over each peer's that was there."""
    sides = row["contenders"]
    claims = []
    for peer, target in targets.items():
        if peer in sides:
            ratios = [mine / other for mine, other in zip(sides[ours]["all"], sides[peer]["all"], strict=True)]
            claims.append(claim(f"{ours} / {peer}", ratios, target))
    return claims


def claim(what: str, ratios: list[float], target: float) -> Report:
    """What is claimed: that the median of these ratios reaches the target."""
    ratio = median(ratios)
    return {"what": what, "ratios": ratios, "ratio": ratio, "target": target, "reached": ratio >= target}


def phrase(setting: Any) -> str:
    """A setting in words: our overrides, threads, or PufferLib's environments, workers and threads."""
    if isinstance(setting, int):
        return f"{setting} thread{'s' if setting > 1 else ''}"
    if all(isinstance(part, str) for part in setting):
        return " ".join(setting)
    more = f", {phrase(setting[2])}" if len(setting) > 2 else ""
    return f"{setting[0]} environments, {setting[1] or 'no'} workers{more}"
