"""Measure put and get of a queue that another process created, beside other queues.

    python scripts/bench/runs/queues.py [--quick] [--json PATH] [--ray PYTHON]

A child process puts and gets items of 100 bytes and 1 MB, one after the other, and takes the median. The peers are
`multiprocessing.Queue`, `multiprocessing.Manager().Queue`, `distributed.Queue`, whose items go through Dask's scheduler,
here in the measuring process, and Ray's queue, measured in its own interpreter. The target is to be faster than
`distributed.Queue` with 100 bytes.
"""

import argparse
import inspect
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

from scripts.bench import harness  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

OURS, SCHEDULER = "paddock.compute.Queue", "distributed.Queue"
RAY = """
import json, statistics, time, ray
from ray.util.queue import Queue
ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
{measure}
print(json.dumps(measure(Queue(), {repeats})))
"""


def measure(queue, repeats):
    """Return the median microseconds of a put and a get by size of the item; also runs in Ray's interpreter."""
    medians = {}
    for name, size in (("100 B", 100), ("1 MB", 1_000_000)):
        item, times = b"x" * size, []
        for _ in range(repeats):
            begun = time.perf_counter()
            queue.put(item)
            queue.get()
            times.append(time.perf_counter() - begun)
        medians[name] = 1e6 * statistics.median(times[repeats // 5 :])
    return medians


def measure_in_child(mp: Any, queue: Any, repeats: int) -> dict[str, float]:
    """Measure a queue in a child process."""
    near, far = mp.Pipe()
    child = mp.Process(target=send_figures, args=(far, queue, repeats))
    child.start()
    figures: dict[str, float] = near.recv()
    child.join()
    return figures


def send_figures(connection: Any, queue: Any, repeats: int) -> None:
    """Measure a queue, and send the figures."""
    connection.send(measure(queue, repeats))


def run(options: argparse.Namespace) -> Report:
    """Measure every queue in turns, and return the medians over the rounds."""
    from distributed import Client, LocalCluster, Queue

    from paddock import compute

    spawn = multiprocessing.get_context("spawn")
    rounds: dict[str, list[dict[str, float]]] = {}
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client, spawn.Manager() as manager:
        for _ in range(options.rounds):
            for name, figures in (
                ("multiprocessing.Queue", measure_in_child(spawn, spawn.Queue(), options.repeats)),
                ("multiprocessing.Manager().Queue", measure_in_child(spawn, manager.Queue(), options.repeats)),
                (OURS, measure_in_child(compute, compute.Queue(), options.repeats)),
                (SCHEDULER, measure(Queue(client=client), options.repeats)),
            ):
                rounds.setdefault(name, []).append(figures)
    if options.ray is not None:
        code = RAY.format(measure=inspect.getsource(measure), repeats=options.repeats)
        done = subprocess.run([options.ray, "-c", code], check=True, capture_output=True, text=True)
        rounds["ray.util.queue.Queue"] = [json.loads(done.stdout.splitlines()[-1])]
    rows = {
        name: {size: statistics.median(figures[size] for figures in its) for size in its[0]}
        for name, its in rounds.items()
    }
    reached = rows[OURS]["100 B"] < rows[SCHEDULER]["100 B"]
    return {"rows": rows, "reached": reached, "machine": harness.describe_machine()}


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return 1 below the target."""
    parser = harness.command_line(__doc__, "under a minute: one round and few repeats")
    parser.add_argument("--ray", type=harness.interpreter, metavar="PYTHON", help="interpreter that has Ray")
    options = parser.parse_args(arguments)
    options.rounds, options.repeats = (1, 50) if options.quick else (5, 200)
    report = run(options)
    print(report["machine"])
    print(f"{'microseconds of a put and a get':34}{'100 B':>10}{'1 MB':>10}")
    for name, row in report["rows"].items():
        print(f"{name:34}" + "".join(f"{us:10.0f}" for us in row.values()))
    print(f"faster than {SCHEDULER} with 100 bytes: {'reached' if report['reached'] else 'MISSED'}")
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2))
    return 0 if report["reached"] else 1


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
