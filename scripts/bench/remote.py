"""Compare environments at a local server with the same in worker processes, and time the recovery from a lost server.

    python scripts/bench/remote.py [--quick] [--json PATH] [--rows NAME ...]

walkers  env=bipedal with random actions and equally many workers, in one group and in two that step alternately
small    1,024 CartPoles, and 1,024 native walkers
lost     seconds until 64 walkers of 300 steps continue at a restarted server
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

from scripts.bench import harness  # noqa: E402

harness.require_package("grpc", "remote")

from paddock.config.build import build  # noqa: E402
from paddock.config.compose import compose_sections  # noqa: E402
from paddock.envs.machine import usable_cores  # noqa: E402
from paddock.envs.spec import EnvSpec  # noqa: E402
from paddock.envs.vector import Vec, VectorEnv, in_groups  # noqa: E402
from paddock.envs.vector.recipes import largest_divisor  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

WALKER = EnvSpec("paddock.envs.bipedal:paddock/BipedalWalker-v3", {}, (), None, False)
CARTPOLE = EnvSpec("CartPole-v1", {}, (), None, False)
WALKERS = {(16, 1): 0.6, (64, 1): 0.8, (256, 1): 0.9, (64, 2): 0.7}  # (N, groups) -> target ratio
ROUNDS, PLAY_S = 31, 0.25  # short rounds, since other load on the machine lasts for seconds
STEPS_BEFORE = 300


class Server:
    """Process that runs `python -m paddock.serve`."""

    def __init__(self, *overrides: str) -> None:
        """Start the server, with `vec=multiprocess` and 1,024 environments unless overridden."""
        self.address = "127.0.0.1:0"
        self._overrides = overrides
        self.process: subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        """Start the server at its previous address, if any."""
        words = ["vec=multiprocess", "vec.num_envs=1024", *self._overrides, f"serve.address={self.address}"]
        command = [sys.executable, "-u", "-m", "paddock.serve", *words]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("serving "):
                self.address = line.split(" at ")[1].partition(",")[0]
                return
        raise SystemExit(f"cannot start a server with {' '.join(words)}")

    def __enter__(self) -> "Server":
        """Return the server."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Kill the server."""
        self.process.kill()
        self.process.wait()


def vec(name: str, *overrides: str) -> Vec:
    """Return the vectorization of `vec=NAME` and overrides."""
    made: Vec = build("vec", compose_sections(["vec"], [f"vec={name}", *overrides])["vec"])
    return made


def workers_here(num_envs: int) -> Vec:
    """Return worker processes on this machine."""
    workers = largest_divisor(num_envs, usable_cores())
    return vec("multiprocess", f"vec.num_envs={num_envs}", f"vec.workers={workers}")


def remote(server: Server, num_envs: int, *overrides: str) -> Vec:
    """Return environments at a server."""
    return vec("remote", f"vec.num_envs={num_envs}", f"vec.address={server.address}", *overrides)


def rate(venv: VectorEnv, groups: int, play_s: float) -> float:
    """Return environment steps/s with random actions, sampled in advance."""
    size = venv.num_envs // groups
    slices = [slice(start, start + size) for start in range(0, venv.num_envs, size)]
    venv.action_space.seed(0)
    actions = [venv.action_space.sample() for _ in range(32)]
    for rows in slices:
        venv.send(actions[0][rows], rows)
    started, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - started) < play_s:
        steps += 1
        for rows in slices:
            venv.recv(rows)
            venv.send(actions[steps % 32][rows], rows)
    for rows in slices:
        venv.recv(rows)
    return steps * venv.num_envs / passed


class Bench:
    """Measured figures, with name, value, target and whether it is reached."""

    def __init__(self, quick: bool) -> None:
        """Set the number and length of rounds."""
        self.rounds, self.play_s = (1, 0.3) if quick else (ROUNDS, PLAY_S)
        self.rows: list[Report] = []

    def compare(self, name: str, spec: EnvSpec, here: Vec, there: Vec, target: float, groups: int = 1) -> None:
        """Run both sides interleaved, and add the median ratio of the second to the first."""
        with ExitStack() as stack:
            plays = {}
            for side, recipe in {"here": here, "there": there}.items():
                venv = stack.enter_context(closing(in_groups(recipe, groups).make(spec, copy=False)))
                venv.begin(0)
                plays[side] = partial(rate, venv, groups, self.play_s)
                plays[side]()
            rates = harness.in_turns(self.rounds, plays)
        ratio = statistics.median(there / here for here, there in zip(rates["here"], rates["there"], strict=True))
        self.add(name, ratio, target, ratio >= target, rates=rates)

    def add(self, name: str, value: float, target: float, reached: bool, **more: Any) -> None:
        """Add a figure and print it."""
        self.rows.append({"name": name, "value": value, "target": target, "reached": reached, **more})
        print(f"{name}: {value:.3g} (target {target:g}){'' if reached else ' MISSED'}", flush=True)


def walkers(bench: Bench) -> None:
    """Compare walkers at a server with worker processes here."""
    with Server("env=bipedal") as server:
        for (N, groups), target in WALKERS.items():
            name = f"{N} walkers{' in two groups' if groups > 1 else ''}, server / workers here"
            bench.compare(name, WALKER, workers_here(N), remote(server, N), target, groups)


def small(bench: Bench) -> None:
    """Compare environments with cheap steps."""
    N = 1024
    with Server("env=cartpole") as server:
        bench.compare(f"{N} CartPoles, server / workers here", CARTPOLE, workers_here(N), remote(server, N), 0.6)
    with Server("env=bipedal", "vec=native") as server:
        native = vec("native", f"vec.num_envs={N}", "vec.threads=1")
        bench.compare(f"{N} native walkers, server / here", WALKER, native, remote(server, N), 0.8)


def lost(bench: Bench) -> None:
    """Measure how soon walkers continue after the server was killed and restarted."""
    with Server("env=bipedal") as server, closing(remote(server, 64).make(WALKER)) as venv:
        actions = np.random.default_rng(0).uniform(-1, 1, (32, 64, 4)).astype(np.float32)
        venv.begin(0)
        for t in range(STEPS_BEFORE):
            venv.step(actions[t % 32])
        server.process.kill()
        server.process.wait()
        server.start()
        started = time.perf_counter()
        venv.step(actions[0])
        passed = time.perf_counter() - started
    bench.add(f"64 walkers of {STEPS_BEFORE} steps continue at another server after, s", passed, 10.0, passed <= 10.0)


ROWS: dict[str, Callable[[Bench], None]] = {"walkers": walkers, "small": small, "lost": lost}


def main(arguments: list[str] | None = None) -> int:
    """Print medians and ratios; return 1 if a target is missed, else 0."""
    parser = harness.command_line(__doc__, "one short round")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME", help=", ".join(ROWS))
    options: argparse.Namespace = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    print(harness.describe_machine())
    harness.warn_if_busy()
    bench = Bench(options.quick)
    for name in options.rows:
        ROWS[name](bench)
    report: Report = {"machine": harness.describe_machine(), "load_before": load, "rows": bench.rows}
    report["versions"] = harness.versions("grpcio", "numpy", "msgpack")
    print(harness.list_versions(report))
    return harness.finish(report, options.json, all(row["reached"] for row in bench.rows))


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
