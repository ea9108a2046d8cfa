"""Compare what sweeps claim with what fresh seeds show: a search alone, and a shorter search with finals.

    python scripts/bench/runs/finals.py [--quick] [--json PATH] [--rows NAME ...]

For each task, one search of PPO with 360 trials on a single seed, without pruning. Compared on the same ten held-out
seeds: (A) the best of all 360 trials, (B) the best of the first 120, and (C) the winner of the finals among the best
eight of the first 96, which costs 96 + 24 = 120 runs. Sampler, choice of
finalists and rounds are those of a sweep. With --json an interrupted benchmark resumes.

The target is reached if C is on no task worse than B by more than 2 % of the task's range of scores, better on average
over all tasks, and the mean gap between the value of the choice and the held-out score is at most half of B's.
"""

import json
import math
import sys
import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

import optuna  # noqa: E402
import yaml  # noqa: E402
from hydra.core.override_parser.overrides_parser import OverridesParser  # noqa: E402

from paddock import CONF  # noqa: E402
from paddock.reports.statistics import interquartile_mean  # noqa: E402
from paddock.sweep.finals import HELD_OUT, compute_standing, pick_finalists  # noqa: E402
from paddock.sweep.samplers import make_sampler  # noqa: E402
from paddock.sweep.space import read_space, suggest  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402
from scripts.bench.peers.paddock_replay import built_from  # noqa: E402

TASKS = {
    "cartpole": 20_000,
    "acrobot": 40_000,
    "pendulum": 40_000,
    "minigrid_empty": 40_000,
    "minatar_breakout": 100_000,
}
FULL = {"long": 360, "short": 120, "search": 96, "finalists": 8, "held_out": 10}
QUICK = {"long": 12, "short": 6, "search": 4, "finalists": 2, "held_out": 2}
TPE = {"n_startup_trials": 10, "multivariate": True, "group": True}  # as in conf/hydra/sweeper/optuna.yaml
FIXED = [
    "algo=ppo",
    "vec=native",
    "vec.num_envs=8",
    "compute=serial",
    "algo.threads=1",
    "algo.eval_every_iterations=100000",
]
TOLERANCE, GAP = 0.02, 0.5


class Runs:
    """Scores of runs of one task, kept in a file."""

    def __init__(self, task: str, steps: int, file: Path | None) -> None:
        self._task, self._steps, self._file = task, steps, file
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        self._known = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def score(self, overrides: list[str], seed: int) -> float:
        """Train, and return the mean return of an evaluation of the last policy."""
        key = json.dumps([self._steps, seed, *overrides])
        if key not in self._known:
            words = [*FIXED, f"env={self._task}", f"budget.steps={self._steps}", *overrides, f"seed={seed}"]
            with built_from(words) as algorithm, closing(algorithm.plan()) as plan:
                next(row for row in plan if row["step"] >= self._steps)
                [row] = algorithm.evaluate_last()
            self._known[key] = float(row["eval/return_mean"])
            if self._file is not None:
                with open(self._file, "a") as file:
                    file.write(f"{key} {self._known[key]}\n")
        return self._known[key]


def compare(task: str, steps: int, sizes: Mapping[str, int], file: Path | None) -> Report:
    """Search, play the finals, and measure the three choices on held-out seeds."""
    runs = Runs(task, steps, file)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    params = yaml.safe_load((CONF / "sweep" / "ppo.yaml").read_text())["hydra"]["sweeper"]["params"]
    _, space = read_space(OverridesParser.create().parse_overrides([f"{key}={text}" for key, text in params.items()]))
    study = optuna.create_study(direction="maximize")
    chosen: list[list[str]] = []
    for number in range(sizes["long"]):
        study.sampler = make_sampler("tpe", TPE, 0, number)
        trial = study.ask()
        chosen.append(suggest(trial, space))
        study.tell(trial, runs.score(chosen[number], 0))
    trials = study.get_trials(deepcopy=False)
    best = {k: pick_finalists(trials[: sizes[k]], True, 1)[0] for k in ("long", "short")}
    finalists = pick_finalists(trials[: sizes["search"]], True, sizes["finalists"])
    scores: dict[tuple[int, int], float] = {}
    while missing := compute_standing(finalists, scores, 0, 0).missing:
        scores |= {(number, seed): runs.score(chosen[number], seed) for number, seed in missing}
    standing = compute_standing(finalists, scores, 0, 0)
    assert standing.winner is not None
    claims = {
        "A": (best["long"], trials[best["long"]].value),
        "B": (best["short"], trials[best["short"]].value),
        "C": (standing.winner, standing.rounds[-1].means[standing.winner]),
    }
    values = [trial.value or 0.0 for trial in trials]
    report: Report = {"range": max(values) - min(values)}
    for side, (number, claim) in claims.items():
        held_out = [runs.score(chosen[number], HELD_OUT + k) for k in range(sizes["held_out"])]
        iqm = float(interquartile_mean([[score] for score in held_out]))
        report[side] = {"trial": number, "claim": claim, "held_out": iqm, "overrides": chosen[number]}
    return report


def main(arguments: list[str] | None = None) -> int:
    """Print a row per task; return 1 if the target is missed."""
    parser = harness.command_line(__doc__, "one small task, under a minute; does not check the target")
    parser.add_argument("--rows", nargs="+", choices=TASKS, default=list(TASKS), metavar="NAME")
    options = parser.parse_args(arguments)
    sizes, names = (QUICK, options.rows[:1]) if options.quick else (FULL, options.rows)
    report: Report = {"machine": harness.describe_machine(), **sizes, "rows": {}}
    print(f"{report['machine']}\n\n{'task':18}{'':8}{'trial':>6}{'claimed':>10}{'held out':>10}")
    with ProcessPoolExecutor(2) as pool:
        files = {name: options.json and options.json.with_suffix(f".{name}.runs") for name in names}
        rows = {name: pool.submit(compare, name, TASKS[name], sizes, files[name]) for name in names}
        for name, row in rows.items():
            report["rows"][name] = row.result()
            for side in "ABC":
                one = report["rows"][name][side]
                print(f"{name:18}{side:8}{one['trial']:6}{one['claim']:10.4g}{one['held_out']:10.4g}", flush=True)
    normalized = {
        side: {
            name: {key: row[side][key] / (row["range"] or math.inf) for key in ("claim", "held_out")}
            for name, row in report["rows"].items()
        }
        for side in "ABC"
    }
    gains = [normalized["C"][name]["held_out"] - normalized["B"][name]["held_out"] for name in names]
    gaps = {s: sum(abs(one["claim"] - one["held_out"]) for one in normalized[s].values()) / len(names) for s in "ABC"}
    scores = {side: sum(one["held_out"] for one in normalized[side].values()) / len(names) for side in "ABC"}
    reached = min(gains) >= -TOLERANCE and sum(gains) > 0 and gaps["C"] <= GAP * gaps["B"]
    report |= {"gaps": gaps, "gains": gains, "scores": scores}
    print(
        f"\nC - B, share of the range: {', '.join(f'{gain:+.3f}' for gain in gains)}; A - C: {scores['A'] - scores['C']:+.3f}"
    )
    print(f"mean gap between claimed and held out: A {gaps['A']:.3f}, B {gaps['B']:.3f}, C {gaps['C']:.3f}")
    print(f"target: {'not checked' if options.quick else 'reached' if reached else 'MISSED'}")
    return harness.finish(report, options.json, reached or options.quick)


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
