"""Compare quality diversity with pyribs: scores on the sphere, and evaluations/s on BipedalWalker.

    python scripts/bench/qd.py [--rows sphere walker] [--iterations N] [--strategy sep_cma] [--quick] [--json PATH]

`sphere` is CMA-MAE's benchmark (Fontaine & Nikolaidis 2023): 100 parameters, 100 x 100 cells, 15 emitters of 36 members.
Both sides use the same settings, Paddock its own archive and emitters without a pool. `walker` is MAP-Elites with the
gait of map_elites_bipedal; the peer is pyribs with multiprocessing.Pool, Gymnasium and a NumPy policy. Install pyribs
with `pip install ribs`; it is skipped if missing.
"""

import argparse
import functools
import multiprocessing
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from paddock.algos.common.keys import Stream, keyed_generator  # noqa: E402
from paddock.algos.evolution.archive import Archive, Grid  # noqa: E402
from paddock.algos.evolution.emitters import Improvement  # noqa: E402
from paddock.algos.evolution.strategies.cma import CMASettings  # noqa: E402
from paddock.algos.evolution.strategies.protocol import StrategySettings  # noqa: E402
from paddock.algos.evolution.strategies.sep_cma import SepCMASettings  # noqa: E402
from paddock.algos.pool.serial import SerialPool  # noqa: E402
from paddock.config.compose import compose_alone  # noqa: E402
from paddock.config.experiment import build_algorithm, read_plain  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.contenders.generation import start_processes, unflatten, walker  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

Floats = NDArray[Any]
SIZE, BOUND, CELLS, EMITTERS, BATCH = 100, 5.12, 100, 15, 36
SETTINGS: dict[str, Any] = {"sep_cma": SepCMASettings, "cma": CMASettings}
SCORE, COVERAGE = 61.0, 0.78  # of CMA-MAE after 10,000 iterations; the tutorial of pyribs has 63.2 and 0.81
RATIO = 20.0  # ours / peer, evaluations/s


def main(arguments: list[str] | None = None) -> int:
    """Run the rows; return 1 if a target is missed, else 0."""
    options = read_options(arguments)
    ribs = find_spec("ribs") is not None
    rows: Report = {}
    with threadpool_limits(1):
        if "sphere" in options.rows:
            rows["sphere"] = {"paddock": sphere(options)} | ({"ribs": sphere_of_ribs(options)} if ribs else {})
        if "walker" in options.rows:
            rows["walker"] = {"paddock": walk(options)} | ({"ribs": walk_with_ribs(options)} if ribs else {})
    for row, sides in rows.items():
        for side, figures in sides.items():
            print(f"{row:8}{side:9}" + ", ".join(f"{name} {value:,.4g}" for name, value in figures.items()), flush=True)
    settings = {name: getattr(options, name) for name in ("iterations", "generations", "strategy", "workers")}
    report = {"machine": harness.describe_machine(), "versions": harness.versions("numpy", "ribs", "gymnasium")}
    report |= {"settings": settings, "rows": rows}
    print(report["machine"], harness.list_versions(report), sep="\n")
    reached = True
    if "sphere" in rows and options.iterations >= 10_000:
        ours = rows["sphere"]["paddock"]
        reached &= ours["normalized_score"] >= SCORE and ours["coverage"] >= COVERAGE
    if len(rows.get("walker", {})) == 2:
        sides = rows["walker"]
        ratio = sides["paddock"]["evaluations_per_s"] / sides["ribs"]["evaluations_per_s"]
        print(f"walker: {ratio:.1f} times as many evaluations/s, target {RATIO:g}")
        reached &= ratio >= RATIO
    return harness.finish(report, options.json, reached)


def evaluate_sphere(solutions: Floats) -> tuple[Floats, Floats]:
    """Return objectives [B] in [.., 100] and descriptors [B, 2], the sums of the clipped halves."""
    x, shift = solutions.astype(np.float64), 0.4 * BOUND
    objective = (1 - np.sum((x - shift) ** 2, axis=1) / (SIZE * (BOUND + shift) ** 2)) * 100
    clipped = np.where(np.abs(x) <= BOUND, x, BOUND / np.where(x == 0, 1, x))
    return objective, clipped.reshape(len(x), 2, SIZE // 2).sum(axis=2)


def sphere(options: argparse.Namespace) -> Report:
    """Run CMA-MAE on the sphere with Paddock's archive and emitters."""
    high = np.full(2, SIZE / 2 * BOUND)
    archive = Archive(Grid(-high, high, (CELLS, CELLS)), SIZE, 0.01, 0.0)
    settings: StrategySettings = SETTINGS[options.strategy](sigma=0.5)
    start = np.zeros(SIZE, np.float32)
    emitters = [Improvement(settings, BATCH, start, filters=False, basic=True) for _ in range(EMITTERS)]
    started = time.perf_counter()
    for i in range(options.iterations):
        draws = [keyed_generator(0, Stream.EMITTER, i, k) for k in range(EMITTERS)]
        solutions = np.concatenate([one.ask(archive, draw) for one, draw in zip(emitters, draws, strict=True)])
        objective, descriptors = evaluate_sphere(solutions)
        improvement = archive.add(solutions, objective, descriptors, i).improvement
        split = np.split(objective, EMITTERS), np.split(improvement, EMITTERS)
        for one, returns, improvements, draw in zip(emitters, *split, draws, strict=True):
            one.tell(archive, returns, improvements, draw)
    cells, seconds = CELLS**2, time.perf_counter() - started
    return _score(archive.score(0) / cells, len(archive.occupied) / cells, seconds, options)


def sphere_of_ribs(options: argparse.Namespace) -> Report:
    """Run the same with pyribs."""
    archives, emitters, schedulers = (import_module(f"ribs.{name}") for name in ("archives", "emitters", "schedulers"))
    high = SIZE / 2 * BOUND
    grid: dict[str, Any] = {"solution_dim": SIZE, "dims": (CELLS, CELLS), "ranges": [(-high, high)] * 2}
    archive = archives.GridArchive(**grid, learning_rate=0.01, threshold_min=0.0)
    result = archives.GridArchive(**grid)
    rules = {"ranker": "imp", "selection_rule": "mu", "restart_rule": "basic", "batch_size": BATCH}
    rules["es"] = f"{options.strategy}_es"
    sources = [
        emitters.EvolutionStrategyEmitter(archive, x0=np.zeros(SIZE), sigma0=0.5, seed=k, **rules)
        for k in range(EMITTERS)
    ]
    scheduler = schedulers.Scheduler(archive, sources, result_archive=result)
    started = time.perf_counter()
    for _ in range(options.iterations):
        scheduler.tell(*evaluate_sphere(scheduler.ask()))
    seconds = time.perf_counter() - started
    return _score(float(result.stats.norm_qd_score), float(result.stats.coverage), seconds, options)


def _score(normalized: float, coverage: float, seconds: float, options: argparse.Namespace) -> Report:
    return {
        "normalized_score": normalized,
        "coverage": coverage,
        "ms_per_iteration": 1e3 * seconds / options.iterations,
    }


def walk(options: argparse.Namespace) -> Report:
    """Run MAP-Elites on BipedalWalker natively; `driver_share` is that of archive and emitters."""
    words = ["experiment=map_elites_bipedal", f"vec.threads={options.workers}", "algo.eval_every_iterations=1000000"]
    algorithm = build_algorithm(read_plain(compose_alone(words)), SerialPool())
    plan = algorithm.plan()
    next(plan)  # builds the environments
    rows = [next(plan) for _ in range(options.generations)]
    seconds = sum(row["system/iteration_s"] for row in rows)
    return {
        "evaluations_per_s": len(rows) * algorithm.population / seconds,
        "driver_share": sum(row["system/learn_s"] for row in rows) / seconds,
    }


def walk_with_ribs(options: argparse.Namespace) -> Report:
    """Run the same with pyribs' archive and emitter, and episodes on processes."""
    archives, emitters = import_module("ribs.archives"), import_module("ribs.emitters")
    algorithm = build_algorithm(read_plain(compose_alone(["experiment=map_elites_bipedal"])), SerialPool())
    sizes, size, batch = algorithm.problem.network.sizes, algorithm.problem.network.num_parameters, algorithm.population
    archive = archives.GridArchive(solution_dim=size, dims=(32, 32), ranges=[(0, 1)] * 2)
    first = 0.1 * np.random.default_rng(0).standard_normal((batch, size))
    emitter = emitters.IsoLineEmitter(
        archive, iso_sigma=0.1, line_sigma=0.5, initial_solutions=first, batch_size=batch, seed=0
    )
    with multiprocessing.get_context("spawn").Pool(options.workers, threadpool_limits, (1,)) as processes:
        start_processes(processes, options.workers)
        started = time.perf_counter()
        for generation in range(options.generations):
            solutions = emitter.ask()
            seeds = range(generation * batch, (generation + 1) * batch)
            played = processes.starmap(functools.partial(play_walker, sizes), zip(solutions, seeds, strict=True), 1)
            results = np.array(played)
            archive.add(solutions, results[:, 0], results[:, 1:3])
        seconds = time.perf_counter() - started
    return {"evaluations_per_s": options.generations * batch / seconds}


def play_walker(sizes: tuple[int, ...], parameters: Floats, seed: int) -> tuple[float, float, float]:
    """Play an episode with NumPy; return its return, and the mean contact of each foot."""
    env, layers = walker(), unflatten(parameters.astype(np.float32), sizes)
    obs, _ = env.reset(seed=seed)
    total, contacts, steps, ended = 0.0, np.zeros(2), 0, False
    while not ended:
        contacts += obs[[8, 13]]
        x = obs
        for weights, bias in layers:
            x = np.tanh(x @ weights + bias)
        obs, reward, terminated, truncated, _ = env.step(x)
        total, steps, ended = total + float(reward), steps + 1, terminated or truncated
    return total, *(contacts / steps)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = harness.command_line(__doc__, "under a minute: 100 iterations of the sphere, 1 generation of walkers")
    parser.add_argument("--rows", nargs="+", choices=("sphere", "walker"), default=["sphere", "walker"])
    parser.add_argument("--iterations", type=harness.positive_int, default=10_000, help="of the sphere")
    parser.add_argument("--generations", type=harness.positive_int, default=10, help="of the walker")
    parser.add_argument("--workers", type=harness.positive_int, default=2, help="threads, and the peer's processes")
    parser.add_argument("--strategy", choices=SETTINGS, default="sep_cma", help="of the emitters")
    options = parser.parse_args(arguments)
    if options.quick:
        options.iterations, options.generations = 100, 1
    return options


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
