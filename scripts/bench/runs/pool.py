"""Measure the dispatch overhead and scaling of Paddock's pool.

    python scripts/bench/runs/pool.py [--quick] [--json PATH] [--parts NAME ...] [--repeats N] [--sizes N ...]

dispatch   Paddock's direct dispatch and Dask's `Client.map` on the same three workers.
overhead   the experiment of the Fiber paper (arXiv:2003.11164): 5 workers and sleeping tasks, one second per worker in
           total, in tasks of 1 s to 1 ms. A pilot run finds the best dispatch method of each peer: chunks, views.
scaling    2,048 tasks of an ES generation on 32 to 1,024 workers, which share two processes
           (contenders/emulated_workers.py) and sleep as long as measured episodes of BipedalWalker, or one second on
           average. The times include the workers' own overhead. Efficiency is the time of the same tasks without any
           overhead, in the same order, over the measured time. The same episodes with ipyparallel, with the faster
           one of its views and engines that share two processes (contenders/emulated_engines.py). Emulation measures
           dispatch with all workers on these cores; it leaves out the episodes' processor time, the network, and the
           transfer of parameters and update of ES. The Fiber paper's 50 generations: --repeats 50.
"""

import argparse
import functools
import heapq
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

import numpy as np  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402

from paddock.algos.evolution.population import SearchDistribution, play_pairs  # noqa: E402
from paddock.algos.pool.serial import SerialPool  # noqa: E402
from paddock.compute.dask.cluster import configure_dask, connect  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.contenders.pools import CONTENDERS, WORKERS, Run, Ways  # noqa: E402
from scripts.bench.es import build_es  # noqa: E402
from scripts.bench.harness import Report, in_turns, seconds_of  # noqa: E402

BATCHES = ((30, 0.1), (300, 0.01), (1500, 0.001))  # tasks, and seconds of each
QUICK_CONTENDERS = ["paddock", "multiprocessing.Pool", "ProcessPoolExecutor"]  # the others start slowly
DURATIONS = (1.0, 0.1, 0.01, 0.001)  # seconds of a task
OVERHEAD_TARGET = 1.05  # ours over multiprocessing.Pool's best, at most
POPULATION = 2048
SIZES = (32, 64, 128, 256, 512, 1024)
SCALING_TARGETS = {"episodes": (256, 0.9), "seconds": (1024, 0.8)}  # number of workers, efficiency
PEER_TARGET, PEER_SIZES = 1.0, range(32, 257)  # ipyparallel's time over ours, at least, by number of workers
HOSTS = 2  # processes of emulated workers


def main(arguments: list[str] | None = None) -> int:
    """Run the parts, and print their tables; return 1 if a target is missed, else 0."""
    options = read_options(arguments)
    report: Report = {"machine": harness.describe_machine(), "load_before": os.getloadavg()[0], "quick": options.quick}
    print(f"{report['machine']}, load {report['load_before']:.1f}", flush=True)
    for part in options.parts:
        report[part] = PARTS[part](options)
        print(render(part, report[part]), flush=True)
    return harness.finish(report, options.json, all(report[part]["reached"] for part in options.parts))


def measure_dispatch(options: argparse.Namespace) -> Report:
    """Measure the seconds of batches on three workers, with `Client.map` and with Paddock."""
    workers = 3
    rows: dict[str, Report] = {}
    configure_dask()  # preloads the pool in the workers
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None))
        client = stack.enter_context(Client(cluster, set_as_default=False))
        pool = connect(cluster.scheduler_address, retries=3, task_timeout_s=None)
        stack.callback(pool.close)

        def by_client(count: int, duration: float) -> None:
            client.gather(client.map(time.sleep, [duration] * count, pure=False))

        def by_pool(count: int, duration: float) -> None:
            assert sum(done.error is None for done in pool.imap_unordered(time.sleep, [duration] * count)) == count

        for count, duration in BATCHES:
            sides = {
                "Client.map": functools.partial(seconds_of, functools.partial(by_client, count, duration)),
                "paddock": functools.partial(seconds_of, functools.partial(by_pool, count, duration)),
            }
            medians = {name: statistics.median(taken) for name, taken in in_turns(options.repeats, sides).items()}
            rows[f"{count} x {1000 * duration:g} ms"] = {"ideal": count * duration / workers, **medians}
    return {"rows": rows, "reached": all(row["paddock"] <= row["Client.map"] for row in rows.values())}


def measure_overhead(options: argparse.Namespace) -> Report:
    """Measure the seconds by contender and duration of a task, in interleaved runs."""
    times: dict[str, dict[float, list[float]]] = {}
    ways: dict[str, dict[float, str]] = {}
    missing = {}
    with ExitStack() as stack:
        runs: dict[str, Ways] = {}
        for name in options.contenders:
            try:
                runs[name] = stack.enter_context(CONTENDERS[name]())
            except ImportError as error:
                missing[name] = str(error)
        for duration in options.durations:
            count = round(WORKERS / duration)
            for name in runs:
                pilot = {way: timed(run, duration, count)() for way, run in runs[name].items()}
                ways.setdefault(name, {})[duration] = min(pilot, key=lambda way: pilot[way])
            sides = {name: timed(runs[name][ways[name][duration]], duration, count) for name in runs}
            for name, taken in in_turns(options.repeats, sides).items():
                times.setdefault(name, {})[duration] = taken
    medians = {name: {d: statistics.median(its) for d, its in row.items()} for name, row in times.items()}
    ours, pool = medians["paddock"], medians["multiprocessing.Pool"]
    ratios = {d: ours[d] / pool[d] for d in ours}
    others = [name for name in medians if name not in ("paddock", "multiprocessing.Pool")]
    ahead = all(ours[d] <= medians[name][d] for name in others for d in ours)
    return {
        "medians": medians,
        "ways": ways,
        "times": times,
        "ratios": ratios,
        "missing": missing,
        "reached": ahead and all(ratio <= OVERHEAD_TARGET for ratio in ratios.values()),
    }


def timed(run: Run, duration: float, count: int) -> Callable[[], float]:
    """Return a function that returns the seconds of a run."""
    return functools.partial(seconds_of, functools.partial(run, duration, count))


def measure_scaling(options: argparse.Namespace) -> Report:
    """Measure a generation by number of workers, for measured episodes and for episodes of one second."""
    episodes = measure_episodes(options.population, 32 if options.quick else 128)
    loads = {"episodes": episodes, "seconds": episodes / episodes.mean()}
    rows: dict[str, dict[int, Report]] = {name: {} for name in loads}
    for size in options.sizes:
        with emulated(size) as pool, engines(size) as views:
            for name, tasks in loads.items():
                floor = ideal_time(tasks, size)
                repeats = 1 if floor > 20 or options.quick else options.repeats
                list(pool.imap_unordered(time.sleep, [0.01] * 4 * size))
                sides = {"paddock": functools.partial(_generation, pool, tasks)}
                if views and name == "episodes":
                    plays = [functools.partial(seconds_of, functools.partial(view, tasks.tolist())) for view in views]
                    sides["ipyparallel"] = min(plays, key=lambda play: play())
                times = in_turns(repeats, sides)
                median = {side: statistics.median(its) for side, its in times.items()}
                seconds, load = median.pop("paddock"), os.getloadavg()[0]
                row: Report = {"seconds": seconds, "times": times, "floor": floor, "load": load}
                rows[name][size] = row | {"efficiency": floor / seconds, **median}
                shown = {"ideal": floor, "paddock": seconds, **median, "load": load}
                print(f"{name}, {size} workers:", *(f"{key} {value:.2f}" for key, value in shown.items()), flush=True)
    falls = all(a["seconds"] > b["seconds"] for row in rows.values() for a, b in itertools.pairwise(row.values()))
    met = all(
        rows[name][size]["efficiency"] >= least for name, (size, least) in SCALING_TARGETS.items() if size in rows[name]
    )
    ratios = {n: row["ipyparallel"] / row["seconds"] for n, row in rows["episodes"].items() if "ipyparallel" in row}
    rates = {name: options.population / min(row[size]["seconds"] for size in row) for name, row in rows.items()}
    return {
        "rows": rows,
        "population": options.population,
        "episode_mean_s": float(episodes.mean()),
        "episode_deviation_s": float(episodes.std()),
        "tasks_per_s": rates,
        "falls": falls,
        "ratios": ratios,
        "reached": falls and met and all(ratio >= PEER_TARGET for size, ratio in ratios.items() if size in PEER_SIZES),
    }


def measure_episodes(population: int, played: int) -> np.ndarray:
    """Return the seconds [population] of an ES generation's episodes on BipedalWalker, sampled from measured ones."""
    es = build_es(SerialPool(), played, 1600, [])
    lengths, took = [], []
    pairs = es.population // 2
    distribution = SearchDistribution(es.problem, 0, es.search.sample(es.problem.noise(0)))
    for pair in range(pairs):
        started = time.process_time()
        _, steps, *_ = play_pairs(distribution, pair, pair + 1)
        took.append((time.process_time() - started) / steps.sum())
        lengths += [float(n) for n in steps.ravel()]
    drawn = np.random.default_rng(0).choice(lengths, population)
    return np.asarray(drawn) * statistics.median(took)


def ideal_time(tasks: np.ndarray, workers: int) -> float:
    """Return the time of the tasks without overhead, with each started on the first free worker."""
    free = [0.0] * workers
    for task in tasks:
        heapq.heapreplace(free, free[0] + float(task))
    return max(free)


def _generation(pool: Any, tasks: np.ndarray) -> float:
    started = time.perf_counter()
    assert sum(done.error is None for done in pool.imap_unordered(time.sleep, [float(t) for t in tasks])) == len(tasks)
    return time.perf_counter() - started


@contextmanager
def emulated(workers: int) -> Iterator[Any]:
    """Open a pool on emulated workers in a few processes, with a scheduler in another one."""
    # The folder is deleted last, since the killed processes do not clean up.
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "scheduler.json"
        command = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0"]
        stack.enter_context(_process([*command, "--no-dashboard", "--scheduler-file", str(file)]))
        while not file.exists() or not file.read_text():
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        start_hosts(stack, "emulated_workers.py", workers, lambda share: [address, str(share), folder])
        pool = connect(address, retries=3, task_timeout_s=None)
        stack.callback(pool.close)
        while pool.size < workers:
            time.sleep(0.05)
        yield pool


def start_hosts(stack: ExitStack, script: str, workers: int, arguments: Callable[[int], list[str]]) -> None:
    """Start a script of contenders/ in a few processes that share the workers, and wait until they are ready."""
    path = str(Path(__file__).parents[1] / "contenders" / script)
    shares = [workers // HOSTS + (k < workers % HOSTS) for k in range(HOSTS)]
    hosts = [stack.enter_context(_process([sys.executable, path, *arguments(share)])) for share in shares]
    for host in hosts:
        assert host.stdout is not None and host.stdout.readline() == b"ready\n", f"{script} did not start"


@contextmanager
def engines(count: int) -> Iterator[list[Callable[[list[float]], Any]]]:
    """Start ipyparallel with emulated engines; yield its methods to run tasks, none if it is not installed."""
    if find_spec("ipyparallel") is None:
        print("ipyparallel is skipped; to include it: pip install ipyparallel", flush=True)
        yield []
        return
    import ipyparallel

    quiet = ["--HeartMonitor.period=5000", "--HeartMonitor.max_heartmonitor_misses=1000", "--nodb"]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = ipyparallel.Cluster(n=0, profile_dir=folder, log_level=50, controller_args=quiet)
        cluster.start_controller_sync()
        stack.callback(cluster.stop_controller_sync)
        client = stack.enter_context(cluster.connect_client_sync())  # waits for the controller
        file = cluster.controller.connection_files["engine"]
        start_hosts(stack, "emulated_engines.py", count, lambda share: [file, str(share)])
        client.wait_for_engines(count, timeout=300)
        balanced = functools.partial(client.load_balanced_view().map_sync, time.sleep, ordered=False)
        yield [balanced, functools.partial(client[:].map_sync, time.sleep)]


@contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()


PARTS = {"dispatch": measure_dispatch, "overhead": measure_overhead, "scaling": measure_scaling}


def render(part: str, report: Report) -> str:
    """Format a part's table."""
    if part == "dispatch":
        lines = [f"{'three workers, seconds':24}{'ideal':>9}{'Client.map':>12}{'paddock':>9}"]
        for name, row in report["rows"].items():
            lines.append(f"{name:24}{row['ideal']:9.2f}{row['Client.map']:12.2f}{row['paddock']:9.2f}")
        lines.append(f"faster than Client.map: {_verdict(report)}")
    elif part == "overhead":
        durations = list(report["ratios"])
        lines = [f"{'seconds; ideal: 1':24}" + "".join(f"{1000 * d:>9g} ms" for d in durations)]
        for name, row in report["medians"].items():
            lines.append(f"{name:24}" + "".join(f"{row[d]:12.3f}" for d in durations))
        lines.append(f"{'ours / Pool':24}" + "".join(f"{report['ratios'][d]:12.3f}" for d in durations))
        lines += [f"{name} is skipped: {reason}" for name, reason in report["missing"].items()]
        lines.append(f"target {OVERHEAD_TARGET}, and faster than all others: {_verdict(report)}")
    else:
        mean, deviation = report["episode_mean_s"], report["episode_deviation_s"]
        lines = [f"{report['population']} tasks; episodes: mean {mean:.3f} s, standard deviation {deviation:.3f} s"]
        for name, row in report["rows"].items():
            lines.append(f"{name:10}" + "".join(f"{size:>9}" for size in row) + "  workers")
            lines.append(f"{'':10}" + "".join(f"{its['seconds']:9.2f}" for its in row.values()) + "  seconds")
            lines.append(f"{'':10}" + "".join(f"{its['floor']:9.2f}" for its in row.values()) + "  without overhead")
            lines.append(f"{'':10}" + "".join(f"{its['efficiency']:9.2f}" for its in row.values()) + "  efficiency")
            lines.append(f"{'':10}{report['tasks_per_s'][name]:9.0f} tasks/s at most")
        shown = ", ".join(f"{size} workers: {ratio:.2f}" for size, ratio in report["ratios"].items())
        target = f"target {PEER_TARGET} up to {PEER_SIZES[-1]} workers"
        lines.append(f"ipyparallel / paddock, episodes: {shown or '-'}; {target}")
        lines.append(f"time decreases with every size, targets {SCALING_TARGETS}: {_verdict(report)}")
    return "\n".join(lines) + "\n"


def _verdict(report: Report) -> str:
    return "reached" if report["reached"] else "MISSED"


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line; --quick changes the sizes."""
    parser = harness.command_line(__doc__, "under a minute: fewer durations and workers")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=harness.positive_int, default=5)
    parser.add_argument("--sizes", nargs="+", type=harness.positive_int, metavar="N", help="workers, for scaling")
    options = parser.parse_args(arguments)
    options.contenders = QUICK_CONTENDERS if options.quick else list(CONTENDERS)
    options.durations = (0.01, 0.001) if options.quick else DURATIONS
    options.population = 256 if options.quick else POPULATION
    options.sizes = options.sizes or ((32, 64) if options.quick else SIZES)
    options.repeats = min(options.repeats, 2) if options.quick else options.repeats
    return options


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
