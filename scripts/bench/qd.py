"""Compare quality diversity with pyribs: scores on the sphere, LunarLander and BipedalWalker, and evaluations/s.

    python scripts/bench/qd.py [--rows sphere walker lander scores] [--quick] [--json PATH]

sphere   CMA-MAE's benchmark (Fontaine & Nikolaidis 2023): 100 parameters, 100 x 100 cells, 15 emitters of 36 members,
         with the same settings on both sides; Paddock's archive and emitters run without a pool
walker   speed of map_elites_bipedal; pyribs plays on multiprocessing.Pool and in EnvPool, with NumPy policies
scores   QD score of map_elites_bipedal after 200,000 members, with Paddock's emitter and with that of pyribs
lander   cma_me_lunarlander on Dask and pyribs' tutorial on the same episode, which evaluates on Dask, or on
         multiprocessing.Pool with environments that are reused

Install pyribs with `pip install ribs`; without it there are no peers.
"""

import argparse
import contextlib
import functools
import itertools
import multiprocessing
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from paddock.algos.common.keys import Stream, episode_seed, keyed_generator  # noqa: E402
from paddock.algos.evolution.archive import Archive, Grid  # noqa: E402
from paddock.algos.evolution.emitters import Improvement  # noqa: E402
from paddock.algos.evolution.strategies.sep_cma import SepCMASettings  # noqa: E402
from paddock.algos.pool.serial import SerialPool  # noqa: E402
from paddock.compute.dask.autoscale import Bounds  # noqa: E402
from paddock.compute.dask.cluster import local  # noqa: E402
from paddock.config.compose import compose_alone  # noqa: E402
from paddock.config.experiment import build_algorithm, read_plain  # noqa: E402
from paddock.envs.bindings.lunarlander import Impact  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.contenders.generation import play_batches, start_processes, unflatten, walker  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

Floats = NDArray[Any]
SIZE, BOUND, CELLS, EMITTERS, BATCH = 100, 5.12, 100, 15, 36
SCORE, COVERAGE = 61.0, 0.78  # of CMA-MAE after 10,000 iterations; the tutorial of pyribs has 63.2 and 0.81
ROWS = ["sphere", "walker", "lander", "scores"]
RATIOS = {  # ours / peer
    "walker": {"evaluations_per_s": {"ribs": 20.0, "envpool": 7.0}},
    "scores": {"qd_score": {"ribs": 0.97}},
    "lander": {"evaluations_per_s": {"tutorial": 1.25}},
}


def main(arguments: list[str] | None = None) -> int:
    """Run the rows; return 1 if a target is missed, else 0."""
    options = read_options(arguments)
    sides: dict[str, dict[str, Callable[[argparse.Namespace], Report]]] = {
        "sphere": {"paddock": sphere, "ribs": sphere_of_ribs},
        "walker": {"paddock": walk, "ribs": walk_with_ribs, "envpool": walk_with_envpool},
        "lander": {"paddock": land, "ribs": land_with_ribs, "tutorial": land_as_tutorial},
        "scores": {"paddock": score_walkers, "ribs": functools.partial(score_walkers, ribs=True)},
    }
    missing = {name for name in ("ribs", "envpool") if find_spec(name) is None}
    missing |= {"tutorial", "envpool"} if "ribs" in missing else set()
    reached, rows = True, dict[str, Report]()
    with threadpool_limits(1):
        for row in options.rows:
            rows[row] = {side: play(options) for side, play in sides[row].items() if side not in missing}
            for side, figures in rows[row].items():
                text = ", ".join(f"{name} {value:,.5g}" for name, value in figures.items())
                print(f"{row:8}{side:9}{text}", flush=True)
            ours = rows[row]["paddock"]
            for figure, targets in RATIOS.get(row, {}).items():
                for side in targets.keys() & rows[row].keys():
                    ratio = ours[figure] / rows[row][side][figure]
                    reached &= ratio >= targets[side]
                    print(f"{row}: {figure} {ratio:.2f} times that of {side}, target {targets[side]:g}")
    settings = {name: getattr(options, name) for name in ("iterations", "generations", "landings", "workers", "seed")}
    report = {"machine": harness.describe_machine(), "versions": harness.versions("numpy", "ribs", "gymnasium")}
    report |= {"settings": settings, "rows": rows}
    print(report["machine"], harness.list_versions(report), sep="\n")
    if "sphere" in rows and options.iterations >= 10_000:
        ours = rows["sphere"]["paddock"]
        reached &= ours["normalized_score"] >= SCORE and ours["coverage"] >= COVERAGE
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
    start = np.zeros(SIZE, np.float32)
    emitters = [
        Improvement(SepCMASettings(sigma=0.5), BATCH, start, filters=False, basic=True) for _ in range(EMITTERS)
    ]
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
    rules = {"ranker": "imp", "selection_rule": "mu", "restart_rule": "basic", "batch_size": BATCH, "es": "sep_cma_es"}
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
    ms = 1e3 * seconds / options.iterations
    return {"normalized_score": normalized, "coverage": coverage, "ms_per_iteration": ms}


def walk(options: argparse.Namespace) -> Report:
    """Run MAP-Elites on BipedalWalker natively; `driver_share` is that of archive and emitters."""
    algorithm = build_walkers(options)
    plan = algorithm.plan()
    next(plan)  # builds the environments
    rows = [next(plan) for _ in range(options.generations)]
    seconds, learning = (sum(row[f"system/{name}_s"] for row in rows) for name in ("iteration", "learn"))
    return {"evaluations_per_s": len(rows) * algorithm.population / seconds, "driver_share": learning / seconds}


def score_walkers(options: argparse.Namespace, ribs: bool = False) -> Report:
    """Run MAP-Elites on BipedalWalker to its end, for its score."""
    algorithm = build_walkers(options)
    if ribs:
        algorithm._emitters = [IsoLineOfRibs(algorithm)]
    *_, last = itertools.islice(algorithm.plan(), 1 if options.quick else 1563)
    return {"qd_score": last["qd/score"], "coverage": last["qd/coverage"], "best": last["qd/objective_max"]}


def build_walkers(options: argparse.Namespace) -> Any:
    """Build map_elites_bipedal without evaluations."""
    words = [f"vec.threads={options.workers}", f"seed={options.seed}", "algo.eval_every_iterations=1000000"]
    return build_algorithm(read_plain(compose_alone(["experiment=map_elites_bipedal", *words])), SerialPool())


def make_ribs(algorithm: Any) -> tuple[Any, Any]:
    """Return pyribs' archive and emitter for the same search."""
    size, batch = algorithm.problem.network.num_parameters, algorithm.population
    archive = import_module("ribs.archives").GridArchive(solution_dim=size, dims=(32, 32), ranges=[(0, 1)] * 2)
    first = algorithm.initial_std * np.random.default_rng(algorithm.seed).standard_normal((batch, size))
    rules = {"iso_sigma": algorithm.sigma, "line_sigma": algorithm.line_sigma, "seed": algorithm.seed}
    emitter = import_module("ribs.emitters").IsoLineEmitter(archive, initial_solutions=first, batch_size=batch, **rules)
    return archive, emitter


class IsoLineOfRibs:
    """Emitter of Paddock whose members pyribs proposes from the same elites."""

    search = None

    def __init__(self, algorithm: Any) -> None:
        self._archive, self._emitter = make_ribs(algorithm)

    def ask(self, archive: Archive, generator: np.random.Generator) -> Floats:
        """Return members, after the elites have been copied."""
        cells = archive.occupied
        if len(cells):
            self._archive.add(archive.solutions[cells], archive.objective[cells], archive.descriptors[cells])
        return np.asarray(self._emitter.ask(), np.float32)

    def tell(self, archive: Archive, objective: Floats, improvement: Floats, generator: np.random.Generator) -> bool:
        """Return False: there is no restart."""
        return False


def walk_with_ribs(options: argparse.Namespace) -> Report:
    """Run the same with pyribs' archive and emitter, and episodes on processes."""
    with multiprocessing.get_context("spawn").Pool(options.workers, threadpool_limits, (1,)) as processes:
        start_processes(processes, options.workers)

        def evaluate(algorithm: Any, solutions: Floats, seeds: range) -> Floats:
            play = functools.partial(play_walker, algorithm.problem.network.sizes)
            return np.array(processes.starmap(play, zip(solutions, seeds, strict=True), 1))

        return search_with_ribs(options, evaluate)


def walk_with_envpool(options: argparse.Namespace) -> Report:
    """Run the same with episodes in EnvPool."""

    def evaluate(algorithm: Any, solutions: Floats, seeds: range) -> Floats:  # seeds are not supported
        network, members = algorithm.problem.network, zip(itertools.count(), solutions, seeds, strict=False)
        sizes = network.inputs.width, *network.hidden_sizes, network.head.width
        scale = np.zeros(1, np.float32), np.ones(1, np.float32), np.inf
        played = play_batches(sizes, scale, members, len(seeds), (64, 32, options.workers), 1600, 0)
        return np.column_stack([played.returns, played.sums[:, [8, 13]] / played.lengths[:, None]])

    return search_with_ribs(options, evaluate)


def search_with_ribs(options: argparse.Namespace, evaluate: Callable[[Any, Floats, range], Floats]) -> Report:
    """Run MAP-Elites by pyribs; `evaluate` returns the return and descriptors of each solution."""
    algorithm = build_walkers(options)
    (archive, emitter), batch = make_ribs(algorithm), algorithm.population
    started = time.perf_counter()
    for generation in range(options.generations):
        solutions = emitter.ask()
        results = evaluate(algorithm, solutions, range(generation * batch, (generation + 1) * batch))
        archive.add(solutions, results[:, 0], results[:, 1:3])
    return {"evaluations_per_s": options.generations * batch / (time.perf_counter() - started)}


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


def land(options: argparse.Namespace) -> Report:
    """Run CMA-ME on LunarLander with Dask workers."""
    words = ["experiment=cma_me_lunarlander", f"seed={options.seed}", "algo.eval_every_iterations=1000000"]
    with contextlib.closing(local(Bounds(options.workers, options.workers), retries=3, task_timeout_s=None)) as pool:
        algorithm = build_algorithm(read_plain(compose_alone(words)), pool)
        plan = algorithm.plan()
        rows = [next(plan) for _ in range(options.landings)]
    seconds = sum(row["system/iteration_s"] for row in rows)
    scores = {"qd_score": rows[-1]["qd/score"], "coverage": rows[-1]["qd/coverage"]}
    return {"evaluations_per_s": 150 * options.landings / seconds} | scores


def land_with_ribs(options: argparse.Namespace) -> Report:
    """Run the same with pyribs on processes."""
    play = functools.partial(play_lander, episode_seed(options.seed, Stream.EPISODE, 0, 0))
    with multiprocessing.get_context("spawn").Pool(options.workers, threadpool_limits, (1,)) as processes:
        return land_by(lambda solutions: processes.map(play, solutions, chunksize=15), options)


def land_as_tutorial(options: argparse.Namespace) -> Report:
    """Run the same with pyribs on Dask, with a task and a new environment per member."""
    play = functools.partial(play_lander, episode_seed(options.seed, Stream.EPISODE, 0, 0), new=True)
    cluster = LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        return land_by(lambda solutions: client.gather(client.map(play, list(solutions), pure=False)), options)


def land_by(evaluate: Callable[[Floats], Any], options: argparse.Namespace) -> Report:
    """Run CMA-ME by pyribs, with the settings of its tutorial."""
    archives, emitters, schedulers = (import_module(f"ribs.{name}") for name in ("archives", "emitters", "schedulers"))
    grid: dict[str, Any] = {"dims": (50, 50), "ranges": [(-1, 1), (-3, 0)], "qd_score_offset": -600}
    archive = archives.GridArchive(solution_dim=36, **grid)
    rules: dict[str, Any] = {"ranker": "2imp", "sigma0": 1.0, "batch_size": 30}
    sources = [emitters.EvolutionStrategyEmitter(archive, x0=np.zeros(36), seed=k, **rules) for k in range(5)]
    scheduler = schedulers.Scheduler(archive, sources)
    evaluate(np.zeros((60, 36)))  # workers import their packages
    started = time.perf_counter()
    for _ in range(options.landings):
        results = np.array(evaluate(scheduler.ask()))
        scheduler.tell(results[:, 0], results[:, 1:])
    seconds = time.perf_counter() - started
    scores = {"qd_score": float(archive.stats.qd_score), "coverage": float(archive.stats.coverage)}
    return {"evaluations_per_s": 150 * options.landings / seconds} | scores


def play_lander(seed: int, parameters: Floats, new: bool = False) -> tuple[float, float, float]:
    """Play an episode with a linear policy; return its return, and place and speed of the impact."""
    if new:
        lander.cache_clear()
    env, weights = lander(), parameters.reshape(4, 9)
    obs, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        obs, reward, terminated, truncated, info = env.step(int(np.argmax(weights[:, :8] @ obs + weights[:, 8])))
        total, ended = total + float(reward), terminated or truncated
    return total, info["impact_x"], info["impact_y_velocity"]


@functools.cache
def lander() -> gymnasium.Env:
    """Return the environment of a process of the peer."""
    return Impact(gymnasium.make("LunarLander-v3", disable_env_checker=True))


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = harness.command_line(__doc__, "under a minute: 100 iterations of the sphere, 1 generation of walkers")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS[:2])
    parser.add_argument("--iterations", type=harness.positive_int, default=10_000, help="of the sphere")
    parser.add_argument("--generations", type=harness.positive_int, default=10, help="of the walker")
    parser.add_argument("--landings", type=harness.positive_int, default=300, help="iterations of the lander")
    parser.add_argument("--seed", type=int, default=0, help="of the walkers and landers")
    parser.add_argument("--workers", type=harness.positive_int, default=2, help="threads, and the peer's processes")
    options = parser.parse_args(arguments)
    if options.quick:
        options.iterations, options.generations, options.landings = 100, 1, 2
    return options


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
