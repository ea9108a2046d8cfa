"""Compare a generation of ES on BipedalWalker with multiprocessing.Pool and a NumPy policy.

    python scripts/bench/es.py [--native] [--quick] [--json PATH]

Each process of the peer keeps a Gymnasium environment and plays one member at a time. Both sides play the same members
(same parameters, episode seeds and cap) in interleaved runs. Paddock's time is that of a whole iteration of `ES.plan`,
with observation statistics and update; the peer's is that of the episodes alone. The members are those of the second
iteration; most episodes end with a fall, the others at the cap.

Episodes differ between the sides, since the peer's Box2D world keeps state between episodes and its actions are rounded
differently. Each side's own steps are counted, and steps/s are compared.

With --native, Paddock uses native environments, on processes or threads, whichever is faster in a pilot run, and EnvPool
with a batched NumPy policy is a second peer (contenders/generation.py). The best peer counts.

With --strategies, sampling and updating of strategies are compared with cmaes' SepCMA instead.
"""

import argparse
import functools
import multiprocessing
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

import numpy as np  # noqa: E402
from cmaes import SepCMA  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from paddock.algos.common.keys import PhiloxNoise  # noqa: E402
from paddock.algos.es import ES  # noqa: E402
from paddock.algos.evolution.strategies.protocol import StrategySettings  # noqa: E402
from paddock.algos.evolution.strategies.sep_cma import SepCMASettings  # noqa: E402
from paddock.algos.evolution.strategies.snes import SNESSettings  # noqa: E402
from paddock.algos.pool.protocol import Pool  # noqa: E402
from paddock.algos.pool.serial import SerialPool  # noqa: E402
from paddock.compute.dask.autoscale import Bounds  # noqa: E402
from paddock.compute.dask.cluster import local  # noqa: E402
from paddock.config.compose import compose_alone  # noqa: E402
from paddock.config.experiment import build_algorithm  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.contenders.generation import describe_run, play_envpool, play_processes, start_processes  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

TARGET, NATIVE_TARGET = 1.0, 10.0  # ours / best peer, environment steps/s
CHUNK_SIZES = (1, 2, 4)  # of the processes; the best counts
BATCHES = ((64, 16), (64, 32), (128, 32), (128, 64), (256, 64), (256, 128))  # EnvPool's environments and batch size
STRATEGY_TARGET, PARAMETERS, MEMBERS = 0.5, 932, 128  # time of ours / cmaes, and the size of --strategies
PACKAGES = ("paddock", "numpy", "gymnasium", "box2d", "distributed")
Peer = tuple[str, Callable[[], Report]]  # a setting, and the function that plays a generation with it
PEERS = {"peer": "multiprocessing + NumPy", "envpool": "EnvPool + NumPy"}


def main(arguments: list[str] | None = None) -> int:
    """Run all sides in turn, and print medians and their ratio; return 1 if the target is missed, else 0."""
    options = _options(arguments)
    if options.strategies:
        return measure_strategies(options)
    target = NATIVE_TARGET if options.native else TARGET
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        layout, es = choose_layout(options, stack)
        processes = stack.enter_context(spawn.Pool(options.workers, threadpool_limits, (1,)))
        start_processes(processes, options.workers)
        chunks = {
            f"chunk_size={size}": functools.partial(play_processes, processes, options.workers, es, size)
            for size in ((1,) if options.native else CHUNK_SIZES)
        }
        peers: dict[str, Peer] = {"peer": fastest(chunks)}
        if options.native and find_spec("envpool") is None:
            print("EnvPool is skipped; to include it: pip install envpool", flush=True)
        elif options.native:
            batches = {
                f"num_envs={N} batch_size={B}": functools.partial(play_envpool, es, N, B, options.workers)
                for N, B in BATCHES
            }
            peers["envpool"] = fastest(batches)
        sides = {"ours": functools.partial(play_ours, es)} | {name: play for name, (_, play) in peers.items()}
        runs = harness.in_turns(options.repeats, sides)
    medians = {name: harness.medians(its) for name, its in runs.items()}
    best = max(peers, key=lambda name: medians[name]["steps_per_s"])
    ratios = [a["steps_per_s"] / b["steps_per_s"] for a, b in zip(runs["ours"], runs[best], strict=True)]
    report = {
        "machine": harness.describe_machine(),
        "versions": harness.versions(*PACKAGES, *(["envpool"] if "envpool" in peers else [])),
        "settings": {
            **{name: getattr(options, name) for name in ("workers", "repeats", "members", "cap")},
            "pairs_per_task": es.pairs_per_task,
            "num_envs": es.vec.num_envs,
            "layout": layout,
            **{name: setting for name, (setting, _) in peers.items()},
            "hidden_sizes": list(es.problem.network.hidden_sizes),
            "env": es.env.id,
        },
        **medians,
        "best": best,
        "ratios": ratios,
        "ratio": statistics.median(ratios),
        "target": target,
    }
    print(render(report))
    return harness.finish(report, options.json, report["ratio"] >= target)


def measure_strategies(options: argparse.Namespace) -> int:
    """Measure sampling and updates for 128 members of 932 parameters; return 1 above the target, else 0.

    Workers rebuild our members from the keys of their noise, so the driver's time excludes that; it is shown.
    """
    returns = np.random.default_rng(0).standard_normal((MEMBERS // 2, 2))
    noise = functools.partial(PhiloxNoise(0, PARAMETERS), 0)
    snes = SNESSettings(sigma=0.1, learning_rate=1.0, sigma_learning_rate=None)

    def ours(settings: StrategySettings) -> None:
        search = settings.start(np.zeros(PARAMETERS), MEMBERS)
        search.sample(noise)
        search.tell(returns, noise)

    def rebuild() -> None:
        members = snes.start(np.zeros(PARAMETERS), MEMBERS).sample(noise)
        for index in range(MEMBERS):
            members.member(index, noise)

    def peer() -> None:
        search = SepCMA(np.zeros(PARAMETERS), 0.1, population_size=MEMBERS)
        search.tell([(search.ask(), value) for value in returns.ravel()])

    settings: dict[str, StrategySettings] = {"ours, sep_cma": SepCMASettings(sigma=0.1), "ours, snes": snes}
    driver = {name: functools.partial(ours, one) for name, one in settings.items()}
    medians = {}  # ms of processor time, which other processes disturb less; all sides compute in one thread
    for name, play in (driver | {"ours, rebuilt members": rebuild, "cmaes, SepCMA": peer}).items():
        seconds = timeit.repeat(play, timer=time.process_time, repeat=20, number=1)
        medians[name] = 1000 * statistics.median(seconds)
        print(f"{medians[name]:6.2f} ms  {name}")
    ratio = max(medians[name] for name in driver) / medians["cmaes, SepCMA"]
    print(f"ours / cmaes: {ratio:.2f}; target {STRATEGY_TARGET} {'reached' if ratio <= STRATEGY_TARGET else 'MISSED'}")
    return harness.finish({"medians": medians, "ratio": ratio}, options.json, ratio <= STRATEGY_TARGET)


def fastest(plays: Mapping[str, Callable[[], Report]]) -> Peer:
    """Return the fastest setting, after one trial of each if there are several."""
    setting = min(plays, key=lambda name: plays[name]()["seconds"]) if len(plays) > 1 else next(iter(plays))
    return setting, plays[setting]


def choose_layout(options: argparse.Namespace, stack: ExitStack) -> tuple[str, ES]:
    """Return the fastest layout and its ES after one iteration, with observation statistics and running workers."""

    def start(pool: Pool, *overrides: str) -> ES:
        es = build_es(pool, options.members, options.cap, [*overrides, *options.overrides])
        next(es.plan())
        return es

    pool = local(Bounds(options.workers, options.workers), retries=3, task_timeout_s=None)
    stack.callback(pool.close)
    if not options.native:
        return "processes", start(pool)
    pairs = options.members // 2
    share = -(-pairs // options.workers)
    layouts = {
        "processes": start(pool, "vec=native", "vec.threads=1", f"algo.pairs_per_task={share}"),
        "threads": start(SerialPool(), "vec=native", f"vec.threads={options.workers}", f"algo.pairs_per_task={pairs}"),
    }
    name, _ = fastest({name: functools.partial(play_ours, es) for name, es in layouts.items()})
    return name, layouts[name]


def build_es(pool: Pool, members: int, cap: int, overrides: list[str]) -> ES:
    """Build ES on BipedalWalker-v3 with the settings of conf/, except those that a benchmark must fix."""
    fixed = [f"algo.population={members}", f"algo.episode_cap={cap}", "algo.eval_every_iterations=1000000"]
    config: Any = OmegaConf.to_container(compose_alone(["algo=es", "env=bipedal", *fixed, *overrides]), resolve=True)
    return build_algorithm(config, pool)


def play_ours(es: ES) -> Report:
    """Run one iteration, and restore the state of `es`."""
    before = es.state_dict()
    started = time.perf_counter()
    metrics = next(es.plan())
    seconds = time.perf_counter() - started
    es.load_state_dict(before)
    steps = int(metrics["step"]) - before["step"]
    busy = metrics["system/worker_s"] / (es.pool.size * seconds)
    return describe_run(es, seconds, steps, metrics["train/return_mean"], busy)


def render(report: Report) -> str:
    """Format the report as a table."""
    settings = report["settings"]
    sides = {"ours": "paddock"} | {name: title for name, title in PEERS.items() if name in report}
    lines = [
        report["machine"],
        harness.list_versions(report),
        ", ".join(f"{name}={value}" for name, value in settings.items()),
        "",
        f"{'median':24}{'seconds':>9}{'steps':>9}{'return':>9}{'busy':>7}{'evaluations/s':>15}{'steps/s':>10}",
    ]
    for name, title in sides.items():
        side = report[name]
        lines.append(
            f"{title:24}{side['seconds']:9.2f}{side['steps']:9.0f}{side['return_mean']:9.2f}{side['busy']:7.0%}"
            f"{side['evaluations_per_s']:15.1f}{side['steps_per_s']:10,.0f}"
        )
    ratios = " ".join(f"{ratio:.3f}" for ratio in report["ratios"])
    verdict = "reached" if report["ratio"] >= report["target"] else "MISSED"
    peer = sides[report["best"]]
    target = f"target {report['target']:.2f} {verdict}"
    return "\n".join([*lines, "", f"steps/s, paddock / {peer}: median {report['ratio']:.3f} of {ratios}; {target}"])


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = harness.command_line(__doc__, "under a minute: 3 repeats of 96 members")
    parser.add_argument("overrides", nargs="*", help="overrides of Paddock's side, such as vec.num_envs=4")
    parser.add_argument("--native", action="store_true", help="use native environments, and EnvPool as a second peer")
    parser.add_argument("--strategies", action="store_true", help="measure strategies instead of a generation")
    parser.add_argument("--workers", type=harness.positive_int, default=2, help="processes on each side (2)")
    parser.add_argument("--repeats", type=harness.positive_int, help="runs of each side (5)")
    parser.add_argument("--members", type=harness.positive_int, help="members, even (256; with --native 512)")
    parser.add_argument("--cap", type=harness.positive_int, default=400, help="step limit of an episode (400)")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (3 if options.quick else 5)
    options.members = options.members or (96 if options.quick else 512 if options.native else 256)
    return options


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
