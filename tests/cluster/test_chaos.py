"""Runs on a Dask cluster whose workers are killed, stopped, added and retired: the numbers are those of a quiet run."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, Command, assert_same_run, rows, wait_until
from distributed import Client
from own_package import write_package

PACED = ["env=gymnasium", "env.id=mine:Paced-v0", "checkpoint.every_s=0", "budget.iterations=40"]
PPO = [
    *PACED,
    "env.max_episode_steps=30",
    "algo=ppo",
    "vec.num_envs=4",
    "algo.rollouts=actors",
    "algo.num_actors=3",
    "algo.num_steps=64",
    "algo.epochs=2",
    "algo.minibatch_size=64",
    "algo.hidden_sizes=[16]",
    "algo.eval_every_iterations=5",
    "algo.eval_episodes=8",
]
EVENT_S = 0.3  # between two events, on average
EVENTS = 15


class Cluster:
    """A scheduler and workers as processes of their own, as on a real cluster."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
        self._file = folder / "scheduler.json"
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped: list[psutil.Process] = []
        self.events: list[str] = []
        self._scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0")
        wait_until(self._file.exists)
        for _ in range(3):
            self.add()
        self._client = Client(scheduler_file=str(self._file), set_as_default=False)
        self._client.wait_for_workers(3, timeout=60)

    @property
    def file(self) -> Path:
        return self._file

    def add(self) -> None:
        name = f"worker-{next(self._numbers)}"
        options = [
            "--name",
            name,
            "--nthreads",
            "1",
            "--preload",
            "paddock.algos.pool.worker",
            "--preload-nanny",
            "paddock.algos.pool.worker",
        ]
        self._workers[name] = self._start("worker", "--host", "127.0.0.1", *options)

    def disturb(self) -> None:
        """Do one thing to one worker."""
        names = [name for name, process in self._workers.items() if process.poll() is None]
        kinds = ["kill the worker", "kill the machine", "stop", "retire", "add"]
        kind = self._chance.choice(kinds if len(names) > 2 else ["kill the worker", "add"])
        name = self._chance.choice(names or [""])
        self.events.append(kind)
        if kind == "add" or len(names) < 2:  # on a busy machine the last of them may have given up
            self.add()
            return
        process = self._workers[name]
        if kind == "kill the machine":  # nanny and worker at once
            for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        elif kind == "retire":
            with contextlib.suppress(OSError, TimeoutError, ValueError):
                self._client.retire_workers(names=[name])
        else:
            for child in psutil.Process(process.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "spawn_main" in " ".join(child.cmdline()):
                        self._stop(child) if kind == "stop" else child.kill()

    def revive(self) -> None:
        """Let a stopped process go on, as one does that was only slow."""
        if self._stopped and self._chance.random() < 0.3:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._stopped.pop(0).send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._client.close()
        for process in [*self._workers.values(), self._scheduler]:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()

    def _stop(self, child: psutil.Process) -> None:
        child.send_signal(signal.SIGSTOP)
        self._stopped.append(child)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments, "--scheduler-file", str(self._file), "--no-dashboard"]
        return subprocess.Popen(command, cwd=ROOT, env=self._environment, stderr=subprocess.DEVNULL)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    opened = Cluster(tmp_path, seed=4)
    yield opened
    opened.close()


@pytest.mark.slow
def test_numbers_survive_any_fault_of_workers(cluster: Cluster, tmp_path: Path, start: Callable[..., Command]) -> None:
    quiet, wild, slow = (tmp_path / name for name in ("quiet", "wild", "slow"))
    write_package(tmp_path, slow, pace_s=0.1)
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    code, _, err = start(*PPO, "compute=serial", f"run.dir={quiet}", **environment).wait()
    assert code == 0, err
    slow.touch()
    faults = ["compute=dask", f"compute.scheduler_file={cluster.file}", "compute.retries=100"]
    command = start(*PPO, *faults, f"run.dir={wild}", **environment)
    wait_until(lambda: rows(wild) or command.process.poll() is not None)
    chance = random.Random(5)
    for _ in range(EVENTS):
        cluster.disturb()
        cluster.revive()
        # Events come by the clock here: they are what happens to a run, whatever it is doing.
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.process.wait(chance.uniform(0.1, 2 * EVENT_S - 0.1))
    assert command.process.poll() is None, "it ended before everything had happened to it"
    slow.unlink()
    cluster.add()
    code, _, err = command.wait(200)
    print(f"{len(cluster.events)} events: {', '.join(cluster.events)}")
    assert code == 0, err
    assert_same_run(quiet, wild)
