"""One generation of ES on BipedalWalker: Paddock's local pool against multiprocessing.Pool with a NumPy policy.

    python scripts/bench_es.py [--quick] [--json PATH]

The peer is what one would write without Paddock: each process keeps a Gymnasium environment and plays one member at a
time. Both sides play the same members (same parameters, episode seeds and cap) in turn, repeatedly. Paddock's time is
that of a whole iteration of `ES.plan`, with observation statistics and update; the peer's is its episodes alone.
Members are spread around the mean of the second iteration; most episodes end by a fall, the others at the cap.

The peer's Box2D world remembers earlier episodes (Paddock's is new for each), and its actions are rounded otherwise, so
many of its episodes take another course: each side's own steps are counted, and steps/s are compared.
"""

import argparse
import functools
import itertools
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from multiprocessing.pool import Pool as ProcessPool
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf
from threadpoolctl import threadpool_limits

from algos.es import ES, STD_FLOOR
from algos.evaluate import Moments
from algos.noise import Stream, episode_seed
from algos.pool import Done, Pool
from algos.serial import SerialPool
from paddock.assembly import build_algorithm
from paddock.compose import compose_alone
from paddock.compute.cluster import local
from paddock.compute.elastic import Bounds

TARGET = 1.0  # ours / peer, environment steps/s
DRIVER_MEMBERS = 512
CHUNK_SIZES = (1, 2, 4)  # of the peer; the best of them is taken
PACKAGES = ("paddock", "numpy", "gymnasium", "box2d", "distributed")

Layers = list[tuple[NDArray[np.float32], NDArray[np.float32]]]  # weights [in, out] and bias [out] of each
Scale = tuple[NDArray[np.float32], NDArray[np.float32], float]  # observations' mean [O], deviation [O], and clip
Report = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run both sides in turn, print medians and their ratio; returns 1 if ours is below the target, else 0."""
    options = _options(arguments)
    pool = local(Bounds(options.workers, options.workers), retries=3, task_timeout_s=None)
    try:
        es = build_es(pool, options.members, options.cap, options.overrides)
        next(es.plan())  # starts everything, and gives the observations a scale
        spawn = multiprocessing.get_context("spawn")
        with spawn.Pool(options.workers, initializer=threadpool_limits, initargs=(1,)) as processes:
            play_peer(processes, es, 1)
            chunk_size = min(CHUNK_SIZES, key=lambda size: play_peer(processes, es, size)["seconds"])
            runs = [(play_ours(es), play_peer(processes, es, chunk_size)) for _ in range(options.repeats)]
        driver = measure_driver(pool, options.repeats, options.overrides)
    finally:
        pool.close()
    ratios = [ours["steps_per_s"] / peer["steps_per_s"] for ours, peer in runs]
    report = {
        "machine": describe_machine(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "settings": {
            "workers": options.workers,
            "repeats": options.repeats,
            "members": options.members,
            "cap": options.cap,
            "pairs_per_task": es.pairs_per_task,
            "num_envs": es.vec.num_envs,
            "chunk_size": chunk_size,
            "hidden": list(es.hidden),
            "env": es.env.id,
        },
        "ours": _medians([ours for ours, _ in runs]),
        "peer": _medians([peer for _, peer in runs]),
        "ratios": ratios,
        "ratio": statistics.median(ratios),
        "target": TARGET,
        "driver": driver,
    }
    print(render(report))
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if report["ratio"] >= TARGET else 1


def build_es(pool: Pool, members: int, cap: int, overrides: list[str]) -> ES:
    """ES on BipedalWalker-v3 with the settings of conf/, except those that a benchmark must fix."""
    fixed = [f"algo.population={members}", f"algo.episode_cap={cap}", "algo.eval_every=1000000"]
    config: Any = OmegaConf.to_container(compose_alone(["algo=es", "env=bipedal", *fixed, *overrides]), resolve=True)
    return build_algorithm(config, pool)


def play_ours(es: ES) -> Report:
    """One whole iteration; `es` is left in the state it had before."""
    before = es.state_dict()
    started = time.perf_counter()
    metrics = next(es.plan())
    seconds = time.perf_counter() - started
    es.load_state_dict(before)
    steps = int(metrics["step"]) - before["step"]
    return _run(es, seconds, steps, metrics["train/return_mean"], metrics["system/worker_s"])


def play_peer(processes: ProcessPool, es: ES, chunk_size: int) -> Report:
    """The episodes that the next iteration of `es` would play."""
    scale = (es.observed.mean.astype(np.float32), es.observed.std(STD_FLOOR).astype(np.float32), es.observation_clip)
    play = functools.partial(play_member, es.problem.mlp.sizes, scale, es.episode_cap)
    returns = np.zeros(es.population)
    steps, worker_s = 0, 0.0
    started = time.perf_counter()
    for index, member_return, length, member_s in processes.imap_unordered(play, members(es), chunk_size):
        returns[index] = member_return
        steps += length
        worker_s += member_s
    seconds = time.perf_counter() - started
    return _run(es, seconds, steps, float(returns.mean()), worker_s)


def members(es: ES) -> Iterator[tuple[int, NDArray[np.float32], int]]:
    """Index, parameters [P] and episode seed of each member of the next iteration."""
    noise, mean, sigma = es.problem.make_noise(), es.mean.astype(np.float32), np.float32(es.sigma)
    for pair in range(es.population // 2):
        seed = episode_seed(es.seed, Stream.EPISODE, es.iteration, pair)
        direction = sigma * noise(es.iteration, pair)
        yield 2 * pair, mean + direction, seed
        yield 2 * pair + 1, mean - direction, seed


def play_member(
    sizes: tuple[int, ...], scale: Scale, cap: int | None, member: tuple[int, NDArray[np.float32], int]
) -> tuple[int, float, int, float]:
    """One episode in a process of the peer: index, return, steps, seconds."""
    started = time.perf_counter()
    index, parameters, seed = member
    env, layers, (mean, std, clip) = walker(), unflatten(parameters, sizes), scale
    obs, _ = env.reset(seed=seed)
    total, steps, ended = 0.0, 0, False
    while not ended and (cap is None or steps < cap):
        x = np.clip((obs - mean) / std, -clip, clip)
        for weights, bias in layers:
            x = np.tanh(x @ weights + bias)
        obs, reward, terminated, truncated, _ = env.step(x)
        total += float(reward)
        steps += 1
        ended = terminated or truncated
    return index, total, steps, time.perf_counter() - started


@functools.cache
def walker() -> gymnasium.Env:
    """The environment that a process of the peer keeps."""
    return gymnasium.make("BipedalWalker-v3", disable_env_checker=True)


def unflatten(parameters: NDArray[np.float32], sizes: tuple[int, ...]) -> Layers:
    """Cut flat parameters [P] into layers."""
    layers, start = [], 0
    for fan_in, fan_out in itertools.pairwise(sizes):
        bias = start + fan_in * fan_out
        layers.append((parameters[start:bias].reshape(fan_in, fan_out), parameters[bias : bias + fan_out]))
        start = bias + fan_out
    return layers


def measure_driver(pool: Pool, repeats: int, overrides: list[str]) -> Report:
    """What a generation of 512 members costs beside its episodes, in two parts.

    `update_ms`: a whole iteration on a pool that answers at once: tasks, ranks, noise drawn again, gradient, Adam.
    `dispatch_ms`: its tasks through the workers with no pair in them: pickling, Dask, the way there and back.
    """
    answering = AnsweringPool()
    es = build_es(answering, DRIVER_MEMBERS, cap=1, overrides=overrides)
    update_s = _times(lambda: next(es.plan()), repeats)
    fn, tasks = answering.asked
    empty = [(centre, start, start) for centre, start, _ in tasks]
    dispatch_s = _times(lambda: list(pool.imap_unordered(fn, empty)), repeats)
    return {
        "members": DRIVER_MEMBERS,
        "tasks": len(tasks),
        "update_ms": 1000 * statistics.median(update_s),
        "dispatch_ms": 1000 * statistics.median(dispatch_s),
    }


class AnsweringPool(SerialPool):
    """A pool that knows its answers in advance, and keeps what it was asked last."""

    asked: tuple[Callable[[Any], Any], list[Any]]

    def __init__(self) -> None:
        self._answers: list[Done] = []

    def imap_unordered(self, fn: Callable[[Any], Any], tasks: Iterable[Any], **_: Any) -> Iterator[Done]:
        self.asked = fn, list(tasks)
        if not self._answers:
            problem = fn.args[0]  # type: ignore[attr-defined]
            random = np.random.default_rng(0)
            for index, (_, start, stop) in enumerate(self.asked[1]):
                shape, width = (stop - start, 2), problem.mlp.sizes[0]
                moments = [Moments(100, random.normal(size=width), random.uniform(size=width))]
                self._answers.append(Done(index, (random.normal(size=shape), np.full(shape, 100), moments)))
        yield from self._answers


def _times(call: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of each call; one more call before them warms up."""
    call()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return times


def _run(es: ES, seconds: float, steps: int, return_mean: float, worker_s: float) -> Report:
    return {
        "seconds": seconds,
        "steps": steps,
        "return_mean": return_mean,
        "evaluations_per_s": es.population / seconds,
        "steps_per_s": steps / seconds,
        "busy": worker_s / (es.pool.size * seconds),  # share of the workers' time spent in tasks
    }


def _medians(runs: list[Report]) -> Report:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]} | {
        "all_seconds": [run["seconds"] for run in runs]
    }


def describe_machine() -> str:
    """Processor, cores, and how many processes wanted them lately."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.system()} {platform.release()}"


def render(report: Report) -> str:
    """The report as a table."""
    settings, driver = report["settings"], report["driver"]
    lines = [
        report["machine"],
        ", ".join(f"{name} {number}" for name, number in report["versions"].items()),
        ", ".join(f"{name}={value}" for name, value in settings.items()),
        "",
        f"{'median':24}{'seconds':>9}{'steps':>9}{'return':>9}{'busy':>7}{'evaluations/s':>15}{'steps/s':>10}",
    ]
    for name, title in (("ours", "paddock"), ("peer", "multiprocessing + NumPy")):
        side = report[name]
        lines.append(
            f"{title:24}{side['seconds']:9.2f}{side['steps']:9.0f}{side['return_mean']:9.2f}{side['busy']:7.0%}"
            f"{side['evaluations_per_s']:15.1f}{side['steps_per_s']:10,.0f}"
        )
    ratios = " ".join(f"{ratio:.3f}" for ratio in report["ratios"])
    verdict = "reached" if report["ratio"] >= report["target"] else "MISSED"
    lines += [
        "",
        f"steps/s, paddock / peer: median {report['ratio']:.3f} of {ratios}; target {report['target']:.2f} {verdict}",
        f"driver, a generation of {driver['members']} members in {driver['tasks']} tasks: "
        f"update {driver['update_ms']:.1f} ms, dispatch {driver['dispatch_ms']:.1f} ms",
    ]
    return "\n".join(lines)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("overrides", nargs="*", help="other settings of Paddock's side, such as vec.num_envs=4")
    parser.add_argument("--quick", action="store_true", help="under a minute: 3 repeats of 96 members")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    parser.add_argument("--workers", type=int, default=2, help="processes on each side (2)")
    parser.add_argument("--repeats", type=int, help="runs of each side (5)")
    parser.add_argument("--members", type=int, help="members of the generation, even (256)")
    parser.add_argument("--cap", type=int, default=400, help="steps after which an episode is cut off (400)")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (3 if options.quick else 5)
    options.members = options.members or (96 if options.quick else 256)
    return options


if __name__ == "__main__":
    sys.exit(main())
