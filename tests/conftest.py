"""What several test files share: the command, its processes, and waiting for them without sleeping blindly."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hydra.core.global_hydra import GlobalHydra

from paddock.checkpoint import read
from paddock.launch import main

ROOT = Path(__file__).resolve().parent.parent
TINY = [  # a run of the real thing that takes about a second
    "algo=es",
    "env=cartpole",
    "algo.population=16",
    "algo.hidden=[8]",
    "algo.pairs_per_task=2",
    "algo.eval_every=2",
    "algo.eval_episodes=3",
    "algo.observation_sampling=0.5",
    "checkpoint.every_s=0",
]


def wait_until(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Poll until the condition is true; returns its value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {timeout_s} s: {condition}")
        time.sleep(0.01)
    return value


def rows(run: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The whole rows of a journal, an incomplete last one left out."""
    path = run / name
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def final_state(run: Path) -> dict[str, bytes]:
    """The bytes of every array in the last checkpoint, by its path in the state."""

    def arrays(state: dict[str, Any], path: str) -> Iterator[tuple[str, bytes]]:
        for name, value in state.items():
            if isinstance(value, dict):
                yield from arrays(value, f"{path}{name}.")
            elif hasattr(value, "tobytes"):
                yield f"{path}{name}", value.tobytes()

    return dict(arrays(read(max((run / "checkpoints").glob("*.npz")))["algorithm"], ""))


def call_main(*arguments: str) -> int:
    """`paddock` in this process, which stays as it was; its exit code."""
    before = logging.root.level, logging.root.handlers[:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["paddock", *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "1")
        GlobalHydra.instance().clear()
        try:
            return main()
        except SystemExit as ended:  # as Hydra does after --version and --hydra-help
            return int(ended.code or 0)
        finally:
            logging.root.level, logging.root.handlers[:] = before


class Command:
    """`python -m platform` in a process group of its own, started in the repository's root."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "platform", *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def wait(self, timeout_s: float = 120.0) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err

    def processes(self) -> list[psutil.Process]:
        """All live processes of the group: the run itself, its workers, and their helpers."""
        return [
            process
            for process in psutil.process_iter()
            if _group(process) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE
        ]

    def workers(self) -> list[psutil.Process]:
        """The processes that compute: Dask's workers, which are spawned."""
        return [process for process in self.processes() if "spawn_main" in " ".join(_command_line(process))]

    def interrupt(self) -> None:
        """Ctrl-C, as a terminal sends it: to every process of the group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill_group(self) -> None:
        """End everything, however the test went."""
        for process in self.processes():
            process.kill()
        self.process.wait()


def _group(process: psutil.Process) -> int:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return -1


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def start() -> Iterator[Callable[..., Command]]:
    """Start commands; whatever is left of them is killed after the test."""
    started: list[Command] = []

    def begin(*arguments: str, **environment: str) -> Command:
        started.append(Command(*arguments, **environment))
        return started[-1]

    yield begin
    for command in started:
        command.kill_group()
