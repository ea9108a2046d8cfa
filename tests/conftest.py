"""What several test files share: the command, its processes, and waiting for them without sleeping blindly."""

import asyncio
import contextlib
import errno
import gc
import importlib
import itertools
import json
import logging
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import composed
import forkserver
import psutil
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from lanes import pytest_addoption, pytest_collection_modifyitems  # noqa: F401, pytest calls them

from paddock.compute.recipes import Slurm
from paddock.envs.spec import EnvSpec
from paddock.launch import main
from paddock.runs.checkpoint import read

pytest.register_assert_rewrite("vector_cases")  # whose asserts tell what they compared, as those of tests do

ROOT = Path(__file__).resolve().parent.parent
TINY = [  # a run of the real thing that takes about a second, or 12 ms an iteration
    "algo=es",
    "env=cartpole",
    "algo.population=16",
    "algo.hidden_sizes=[8]",
    "algo.pairs_per_task=2",
    "algo.eval_every_iterations=2",
    "algo.eval_episodes=3",
    "algo.observation_sampling=0.5",
    "checkpoint.every_s=0",
    "env.max_episode_steps=20",  # however well it has learned
]
BEGAN = pytest.StashKey[float]()
Main = Callable[..., tuple[int, str, str]]  # calls a command: exit code, standard output and error
CERTIFICATES = {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}  # in the folder of the fixture


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Have pytest-xdist's processes forked, so that libraries are imported once for all of them, and Hydra remember."""
    composed.keep()
    if session.config.pluginmanager.hasplugin("dsession"):
        server = contextlib.ExitStack()
        server.enter_context(forkserver.installed())
        session.config.add_cleanup(server.close)
    # Pytest adds its handlers to each logger that does not propagate, and Dask silences those of its own and Bokeh's.
    for logger in logging.Logger.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.fixture(scope="session", autouse=True)
def fork_server() -> Iterator[None]:
    """Have every Python process forked that a test starts, and what those start, but for tests marked `real_start`."""
    with forkserver.installed():
        yield


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """Take back the variables that a test leaves, or a library it imported: with some of them no start is a fork."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def same_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget modules that a test imported from temporary folders: another test's package may have the same name."""
    before = set(sys.modules)
    yield
    temporary = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - before:
        spec = vars(sys.modules[name]).get("__spec__")
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])]
        if any(str(place).startswith(temporary) for place in places):
            del sys.modules[name]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Have the garbage collector leave alone what is imported and collected, from the beginning to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the processor time that a test and its children took, for scripts/durations.py."""
    real = item.get_closest_marker("real_start") is not None
    with forkserver.real_starts() if real else contextlib.nullcontext():
        item.stash[BEGAN] = _processor_s()
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    item.user_properties.append(("processor_s", f"{_processor_s() - item.stash[BEGAN]:.2f}"))
    return result


def _processor_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def env_section(name: str) -> dict[str, Any]:
    """The section `env` that an option of conf/env gives."""
    keys: dict[str, Any] = yaml.safe_load((ROOT / "conf" / "env" / f"{name}.yaml").read_text())
    keys.pop("defaults", None)
    return keys


def env_spec(id: str, **changes: Any) -> EnvSpec:
    """An environment as Gymnasium makes it, but for what is changed."""
    given: dict[str, Any] = {"kwargs": {}, "wrappers": (), "max_episode_steps": None, "fresh": False}
    return EnvSpec(id=id, **(given | changes))


def last_of_each(words: Iterable[str]) -> list[str]:
    """The words of a command, of each key the last."""
    return list({word.partition("=")[0]: word for word in words}.values())


def deterministic(row: Mapping[str, float]) -> dict[str, float]:
    """What equal runs have in common in a row."""
    return {name: value for name, value in row.items() if not name.startswith("system/")}


def refuse_write(monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """Have the disk refuse the nth write of a replay from now on, and no other."""
    write, numbers = os.pwrite, itertools.count(1)

    def pwrite(*given: Any) -> int:
        if next(numbers) == nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(*given)

    monkeypatch.setattr(os, "pwrite", pwrite)


def wait_until(condition: Callable[[], Any], timeout_s: float = 180.0, say: Callable[[], str] = str) -> Any:
    """Poll until the condition is true; returns its value. Only a failure waits as long as the timeout.

    Polling takes at most a twenty-fifth of a core, measured by processor time so that a busy machine does not slow it
    further, and less where the wait is long, as for Slurm. A failure reports what `say` returns.
    """
    began = time.monotonic()
    while True:
        before = _processor_s()
        if value := condition():
            return value
        waited_s = time.monotonic() - began
        if waited_s > timeout_s:
            raise TimeoutError(f"not true within {timeout_s} s: {condition} {say()}")
        time.sleep(min(max(0.01, 24 * (_processor_s() - before), (waited_s - 5.0) / 10), 2.0))


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


def assert_same_run(run: Path, other: Path) -> None:
    """The same rows and events to the byte, and the same arrays in the last checkpoint."""
    assert (run / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    events, others = ([path.read_bytes() for path in each.glob("events.jsonl")] for each in (run, other))
    assert events == others
    assert final_state(run) == final_state(other)


def call_main(*arguments: str) -> int:
    """`paddock` in this process, which stays as it was; its exit code."""
    before = logging.root.level, logging.root.handlers[:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["paddock", *arguments])
        patch.setattr(sys, "orig_argv", [sys.executable, "-m", "platform", *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "1")
        GlobalHydra.instance().clear()
        try:
            return main()
        except SystemExit as ended:  # as Hydra does after --version and --hydra-help
            return int(ended.code or 0)
        finally:
            HydraConfig.instance().cfg = None  # a sweep's would be the next test's
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
        return [process for process in self.processes() if "spawn_main" in command_line(process)]

    def interrupt(self) -> None:
        """Ctrl-C, as a terminal sends it: to every process of the group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait_for(self, run: Path, iteration: int, timeout_s: float = 180.0) -> None:
        """Wait until the run in a folder has come so far, or has ended before."""
        wait_until(lambda: len(rows(run)) >= iteration or self.process.poll() is not None, timeout_s)

    def kill(self) -> None:
        """`kill -9` of the run alone, and wait for its workers, which end with it."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: not self.processes())

    def kill_group(self) -> None:
        """End everything, however the test went."""
        for process in self.processes():
            process.kill()
        self.process.wait()


def kill_and_resume(begin: Callable[[], Command], run: Path, kills: int, furthest: int, chance: random.Random) -> int:
    """Kill a run so often, each time 2 to `furthest` rows further on, then let it end; its rows at the last kill.

    The second row comes after the first checkpoint.
    """
    reached = 0
    for _ in range(kills):
        command = begin()
        command.wait_for(run, reached + chance.randint(2, furthest))
        command.kill()
        reached = len(rows(run))
    code, out, err = begin().wait()
    assert code == 0, err
    assert "resuming in" in out
    return reached


def _group(process: psutil.Process) -> int:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return -1


def command_line(process: psutil.Process) -> str:
    """The words of a process, or nothing where it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def alive(process: psutil.Process) -> bool:
    """Whether a process still runs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


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


@pytest.fixture
def call_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Main:
    """Call `python -m paddock.NAME ARGUMENTS` in this process: its exit code, standard output and error."""

    def call(name: str, *arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capfd.readouterr()
        code = importlib.import_module(f"paddock.{name}").main()
        return code, *capfd.readouterr()

    return call


def launch(*command: str, cwd: Path, **environment: str) -> subprocess.Popen:
    """A process of Dask's, in a process group of its own."""
    output = open(cwd / "dask.log", "ab")  # noqa: SIM115
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *command],
        cwd=cwd,
        env=os.environ | environment,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def stop(process: subprocess.Popen) -> None:
    """End such a process and its children."""
    for child in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        child.kill()
    process.wait()


def launch_scheduler(folder: Path, *options: str, host: str = "127.0.0.1") -> tuple[subprocess.Popen, str]:
    """A scheduler that listens at a port that was free, and its address, which `scheduler.json` in the folder has."""
    file = folder / "scheduler.json"
    arguments = ["--host", host, "--port", "0", "--no-dashboard", "--scheduler-file", str(file), *options]
    process = launch("scheduler", *arguments, cwd=folder, PYTHONPATH=str(ROOT))
    try:
        found = wait_until(
            lambda: process.poll() is None and file.exists() and re.search(r'"address": "(.+?)"', file.read_text())
        )
    except BaseException:
        stop(process)
        raise
    return process, found[1]


def assert_refuses_strangers(address: str) -> None:
    """Assert that a process of a cluster answers neither plain connections nor those with other certificates."""
    from distributed import Security, comm

    async def ask(address: str, security: Security) -> object:
        connection = await comm.connect(address, 2, **security.get_connection_args("client"))
        await connection.write({"op": "identity"})
        return await asyncio.wait_for(connection.read(), 2)

    place = address.removeprefix("tls://")
    for caller, security in (f"tcp://{place}", Security()), (f"tls://{place}", Security.temporary()):
        with pytest.raises(OSError):
            asyncio.run(ask(caller, security))


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler without workers."""
    process, address = launch_scheduler(tmp_path_factory.mktemp("scheduler"))
    yield address
    stop(process)


@pytest.fixture
def worker(scheduler: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Start a worker, with extra files first on its path; returns its address."""
    # Imported by the time that pytest has set logging up, which Dask changes.
    Client = pytest.importorskip("distributed").Client
    started = []

    def begin(*arguments: str, **files: str) -> str:
        folder = tmp_path_factory.mktemp("worker")
        for name, text in files.items():
            path = folder / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        with Client(scheduler, set_as_default=False) as client:
            known = set(client.scheduler_info(n_workers=-1)["workers"])
            entries = os.pathsep.join([str(folder), str(ROOT)])
            command = ["worker", scheduler, "--nthreads", "1", "--no-nanny", "--no-dashboard", *arguments]
            started.append(launch(*command, cwd=folder, PYTHONPATH=entries))
            new = wait_until(lambda: set(client.scheduler_info(n_workers=-1)["workers"]) - known)
        return next(iter(new))

    yield begin
    for process in started:
        stop(process)
    with Client(scheduler, set_as_default=False) as client:
        wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"])


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: an authority's, one of its making with a key, and another key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl: apt-get install openssl")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=60)

    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(*new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca-key.pem", "-out", "ca.pem")
    openssl(*new, "-subj", "/CN=paddock", "-keyout", "key.pem", "-out", "request.pem")
    signed = ["-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-days", "2"]
    openssl("x509", "-req", "-in", "request.pem", *signed, "-out", "cert.pem")
    openssl("ec", "-in", "key.pem", "-aes128", "-passout", "pass:secret", "-out", "locked.pem")
    return folder


def job_recipe(tls: dict[str, str] | None = None, **changes: Any) -> Slurm:
    """A recipe for workers that are Slurm jobs, small ones."""
    small: dict[str, Any] = {"workers": 1, "cpus": 1, "memory_gb": 1.0, "gpus": 0, "time_min": 60, "host": "127.0.0.1"}
    rest: dict[str, Any] = {"partition": None, "account": None, "qos": None, "setup": [], "additional": {}}
    return Slurm(**small | rest | changes, wait_s=60.0, retries=3, task_timeout_s=None, tls=tls)
