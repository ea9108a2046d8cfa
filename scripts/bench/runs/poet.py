"""How long workers wait in POET when niches are unequal: ours against the order of the authors' code.

    python scripts/bench/runs/poet.py [--quick] [--json PATH]

Eight niches whose episodes last from 5 to 80 steps, four workers. Steps sleep in place of computing, so that workers
have a processor each on any machine, and all time is known: idle is what is left of workers x seconds. Both sides
play the same steps and evaluations on the same pool: ours as `POET.plan` does, the other as the authors' `ind_es_step`
(github.com/uber-research/poet): all populations at once, then niche by niche the wait for its own and its evaluation.
"""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from omegaconf import OmegaConf  # noqa: E402

from paddock.algos.evolution.population import play_members  # noqa: E402
from paddock.algos.learning.flow import Together  # noqa: E402
from paddock.algos.poet import POET  # noqa: E402
from paddock.algos.pool.protocol import Pool  # noqa: E402
from paddock.compute.dask.autoscale import Bounds  # noqa: E402
from paddock.compute.dask.cluster import local  # noqa: E402
from paddock.config.build import build  # noqa: E402
from paddock.config.compose import compose_alone  # noqa: E402
from paddock.envs.vector import Serial  # noqa: E402
from scripts.bench.harness import (  # noqa: E402
    Report,
    command_line,
    describe_machine,
    finish,
    in_turns,
    medians,
    run_script,
    versions,
)
from scripts.bench.loads.naps import Naps  # noqa: E402

WORKERS = 4
STEPS = (5, 10, 15, 20, 30, 40, 60, 80)  # of an episode, in each niche
TARGET = 0.10  # idle share of the workers, at most


def main(arguments: list[str] | None = None) -> int:
    """Run both sides in turn, print medians; returns 1 if ours idles above the target, else 0."""
    options = command_line(__doc__, "one round, under a minute").parse_args(arguments)
    rounds, iterations = (1, 3) if options.quick else (3, 8)
    pool = local(Bounds(WORKERS, WORKERS), retries=3, task_timeout_s=None)
    try:
        play_ours(pool, 1)  # starts everything
        sides = {"ours": partial(play_ours, pool, iterations), "in turns": partial(play_in_turns, pool, iterations)}
        runs = in_turns(rounds, sides)
    finally:
        pool.close()
    middle = {side: medians(its) for side, its in runs.items()}
    report: Report = {
        "machine": describe_machine(),
        "versions": versions("paddock", "numpy", "distributed"),
        "settings": {"workers": WORKERS, "episode_steps": STEPS, "iterations": iterations, "rounds": rounds},
        "idle": {side: its["idle"] for side, its in middle.items()},
        "seconds": {side: its["seconds"] for side, its in middle.items()},
        "runs": runs,
        "target": TARGET,
    }
    report["ratio"] = report["seconds"]["in turns"] / report["seconds"]["ours"]
    print(report["machine"])
    for side in ("ours", "in turns"):
        print(f"{side:8}  idle {report['idle'][side]:6.1%}   {report['seconds'][side]:6.2f} s")
    print(f"in turns / ours, seconds: {report['ratio']:.2f}; idle share at most {TARGET:.0%}")
    return finish(report, options.json, report["idle"]["ours"] <= TARGET)


def build_poet(pool: Pool, iterations: int) -> POET:
    """POET with a niche for each length of episode; no niche begins more than so many iterations."""
    fixed = ["population=64", "eval_episodes=5", "pairs_per_task=1", "transfer_every=1000"]
    meeting = f"reproduce_every={iterations + 1}"  # which is not reached
    overrides = ["algo=poet", "env=poles", *(f"algo.{setting}" for setting in (*fixed, meeting))]
    config: Any = OmegaConf.to_container(compose_alone(overrides), resolve=True)
    section = {key: value for key, value in config["algo"].items() if key != "name"}
    poet: POET = build("algo", section, family=Naps(), vec=Serial(num_envs=1), pool=pool, seed=0)
    poet._found()
    first = poet.niches.pop(0)
    for steps in STEPS:
        niche = poet._make(first, {"steps": steps})
        poet.niches[niche.number] = niche
    poet.iteration = 1
    return poet


def play_ours(pool: Pool, iterations: int) -> Report:
    """As many iterations of the plan."""
    plan = build_poet(pool, iterations).plan()
    started = time.perf_counter()
    rows = [next(plan) for _ in range(iterations)]
    seconds = time.perf_counter() - started
    worker_s = sum(row["system/worker_s"] for row in rows)
    plan.close()
    return _run(seconds, worker_s)


def play_in_turns(pool: Pool, iterations: int) -> Report:
    """The same steps and evaluations, in the order of the authors' code."""
    poet = build_poet(pool, iterations)
    together: Together[Any, Any] = Together(pool, play_members)
    started = time.perf_counter()
    for t in range(1, iterations + 1):
        for number, niche in poet.niches.items():
            together.add(number, poet.jobs.step(niche, niche.mean, niche.adam, t))
        stepped: dict[int, Any] = {}
        ends = iter(together)
        for number, niche in poet.niches.items():
            while number not in stepped:
                key, end = next(ends)
                stepped[key] = end
            together.add(-number, poet.jobs.score(niche, stepped[number].mean, t))
            while -number not in stepped:
                key, end = next(ends)
                stepped[key] = end
    seconds = time.perf_counter() - started
    together.close()
    return _run(seconds, together.worker_s)


def _run(seconds: float, worker_s: float) -> Report:
    return {"seconds": seconds, "worker_s": worker_s, "idle": 1 - worker_s / (WORKERS * seconds)}


if __name__ == "__main__":
    sys.exit(run_script(main))
