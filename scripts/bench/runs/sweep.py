"""Measure the savings by pruning: the same sweep of PPO with and without it, in environment steps and best value.

The random sampler depends on the trial's number alone, so that all sweeps try the same settings and differ only in
pruning. Every trial is a run in a separate process, as in any sweep.

python scripts/bench/runs/sweep.py
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

from optuna.trial import TrialState  # noqa: E402

from paddock.sweep.study import open_study  # noqa: E402
from scripts.bench.harness import Report, command_line, describe_machine, finish, run_script  # noqa: E402

TARGET_SAVING = 0.3  # of the environment steps
PRUNERS = ("none", "median", "successive_halving")
ROUNDS = 1  # with different samples
FULL = {"trials": 24, "steps": 40_000}
QUICK = {"trials": 5, "steps": 4_000}
LINE = ["sweep=ppo", "algo=ppo", "env=cartpole", "vec.num_envs=8", "compute=serial"]
# An evaluation at least every thirteenth of the budget, which costs about as much as the learning.
SPACE = ["algo.num_steps=32,64", "algo.eval_every_iterations=6"]


def main(arguments: list[str] | None = None) -> int:
    """Run the sweeps in turn; return 1 below the target."""
    options = command_line(__doc__, "one small round, under a minute; does not check the target").parse_args(arguments)
    sizes, rounds, pruners = (QUICK, 1, PRUNERS[:2]) if options.quick else (FULL, ROUNDS, PRUNERS)
    report: Report = {"machine": describe_machine(), **sizes, "rounds": []}
    print(
        f"{report['machine']}\n{sizes['trials']} trials of PPO on CartPole-v1, {sizes['steps']:,} steps each at most\n"
    )
    print(f"{'round':6}{'pruner':20}{'steps':>12}{'saved':>8}{'pruned':>8}{'best':>8}{'seconds':>9}")
    for number in range(rounds):
        figures: dict[str, dict[str, float]] = {}
        for pruner in pruners:
            found = figures[pruner] = _sweep(pruner, number, **sizes)
            saved = 1 - found["steps"] / figures["none"]["steps"]
            line = f"{number:<6}{pruner:20}{found['steps']:>12,.0f}{saved:>8.0%}{found['pruned']:>8}"
            print(f"{line}{found['best']:>8.1f}{found['seconds']:>9.0f}", flush=True)
        report["rounds"].append(figures)
    verdict = True
    for pruner in pruners[1:]:
        rows = [(figures[pruner], figures["none"]) for figures in report["rounds"]]
        saving = 1 - sum(one["steps"] for one, _ in rows) / sum(other["steps"] for _, other in rows)
        kept = all(one["best"] >= other["best"] for one, other in rows)
        met = saving >= TARGET_SAVING and kept
        report[pruner] = {"saving": saving, "best_kept": kept}
        print(
            f"\n{pruner} saves {saving:.0%} of the steps; the best value is {'not worse' if kept else 'WORSE'}", end=""
        )
        verdict = verdict and (met or pruner != "median")
    outcome = "not checked" if options.quick else "reached" if verdict else "MISSED"
    print(f"\ntarget: median saves {TARGET_SAVING:.0%} without a worse best value: {outcome}")
    return finish(report, options.json, verdict or options.quick)


def _sweep(pruner: str, seed: int, trials: int, steps: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        keys = {"sampler": "random", "seed": seed, "pruner": pruner, "n_trials": trials, "finals": 0, "held_out": 0}
        chosen = [f"hydra.sweeper.{key}={value}" for key, value in keys.items()]
        command = [sys.executable, "-m", "paddock", "--multirun", *LINE, *SPACE, *chosen, f"budget.steps={steps}"]
        begun = time.perf_counter()
        done = subprocess.run([*command, f"hydra.sweep.dir={folder}"], cwd=ROOT, capture_output=True, text=True)
        seconds = time.perf_counter() - begun
        if done.returncode != 0:
            raise SystemExit(f"the sweep failed:\n{done.stdout}{done.stderr}")
        found = open_study(Path(folder)).get_trials()
        return {
            "steps": sum(trial.user_attrs["steps"] for trial in found),
            "pruned": sum(trial.state == TrialState.PRUNED for trial in found),
            "best": max(trial.value or 0.0 for trial in found if trial.state == TrialState.COMPLETE),
            "seconds": seconds,
        }


if __name__ == "__main__":
    sys.exit(run_script(main))
