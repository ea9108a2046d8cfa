"""Python processes for tests, forked from a server that has imported their libraries once: a start costs 0.1 s, not 3.

`installed` has `subprocess` and `multiprocessing` of this process ask the server where they would start this Python as
`python [-B] [-P] (-m MODULE | -c CODE | FILE) ...`, also by way of os.execv. What comes is the caller's own child: its
pid, its process group, its signals, its exit code and the death of its parent are real. To that end the server forks
twice, and the second child loses the first as its parent while the caller is the nearest subreaper (prctl(2)). Such a
process has a server of its own for its children. Whatever a fork cannot imitate (other flags, variables that are read
as libraries are loaded) is started for real, and so is everything inside `real_starts`.
"""

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import itertools
import multiprocessing.util
import os
import pickle
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle

LIBRARIES = """
    Box2D alembic.command av cloudpickle cmaes cryptography.x509 dask.array dask_jobqueue distributed distributed.dashboard
    distributed.deploy.spec distributed.http.health distributed.http.prometheus distributed.http.scheduler.info
    distributed.http.scheduler.json distributed.http.scheduler.missing_bokeh
    distributed.http.scheduler.prometheus distributed.http.statics distributed.http.worker.prometheus
    faulthandler gymnasium gymnasium.envs.classic_control gymnasium.vector hydra
    hydra._internal.config_loader_impl hydra._internal.core_plugins.bash_completion
    hydra._internal.core_plugins.basic_launcher hydra._internal.core_plugins.basic_sweeper
    hydra._internal.core_plugins.file_config_source
    hydra._internal.core_plugins.importlib_resources_config_source
    hydra._internal.core_plugins.structured_config_source matplotlib.pyplot optuna optuna.storages._rdb.storage
    pandas sqlalchemy submitit tensorboard threadpoolctl tornado.platform.asyncio torch torch._dynamo
    torch._prims_common.wrappers torch._refs torch.distributed torch.utils.tensorboard wandb yaml
"""  # those of commands and workers that start no thread when they are imported
OURS = """
    paddock.algos.a2c paddock.algos.es paddock.algos.learning.rollouts.actors paddock.algos.networks.actor_critic
    paddock.algos.networks.lstm paddock.algos.pbt
    paddock.algos.dqn paddock.algos.poet paddock.algos.sac paddock.algos.pool.process paddock.algos.pool.worker paddock.algos.ppo
    paddock.compute.dask.cluster paddock.compute.recipes paddock.envs.bipedal paddock.envs.native
    paddock.envs.tasks.cartpole paddock.envs.tasks.poles paddock.envs.vector
    paddock.envs.vector.multiprocess.worker paddock.evaluate paddock.launch paddock.plot paddock.report
    paddock.rerun paddock.status paddock.sweep.launchers paddock.sweep.sweeper paddock.sweep.trial
"""  # and what these import
OTHERS = ("sitecustomize.py", "hydra_plugins", "paddock")  # on the path: what a fork would have to import anew
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of <linux/prctl.h>
HUGE_PAGE, MADV_COLLAPSE = 2 << 20, 25  # of <linux/mman.h>
# Libraries and the interpreter read these as they are loaded, but for those that a fork can follow.
READ_ONCE = ("GOMP_", "KMP_", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "MPL", "NUMEXPR_", "OMP_", "OPENBLAS_", "PYTHON")
THREADS = ("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CAN_CHANGE = {*THREADS, "MALLOC_TRIM_THRESHOLD_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHON_CPU_COUNT"}
DASKS_SEED = ("PYTHONHASHSEED", "6640")  # of all workers, and then of the process that starts some; any other is obeyed
ARGUMENTS_BYTES = 16384  # of room for the command line that `ps` shows
FLAGS = ("-B", "-IS", "-P", "-u")
CHILDLESS = "from paddock.envs.vector.multiprocess.worker import main"  # of these are most, and a server is a third of their time
FIRST_HIGH = 512  # file descriptors of the server's own
ROOT = Path(__file__).resolve().parent.parent
# Threads of OpenBLAS and torch would wait for work in a loop, on the cores of other processes.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@dataclass(frozen=True)
class Request:
    """A process to be forked.

    Attributes:
        arguments: what follows the interpreter.
        targets: the numbers that the file descriptors sent along have in the process.
        preexec: pickled; called in the process before anything else.
    """

    arguments: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    loaded: Mapping[str, str]
    targets: Sequence[int]
    parent: int
    new_session: bool
    process_group: int  # of the parent, unless it asks for another
    umask: int
    preexec: bytes


class ForkServer:
    """The caller's side of a server."""

    def __init__(self, sock: socket.socket, loaded: Mapping[str, str]) -> None:
        """Ask over a socket.

        Args:
            loaded: the environment in which the server loaded its libraries.
        """
        self.loaded = loaded
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._socket = sock

    def fork(self, request: Request, fds: Sequence[int]) -> int:
        """Have a child of this process forked; returns its pid.

        Raises:
            OSError: the server has ended.
        """
        message = pickle.dumps(request)
        with self._lock:
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._socket, [struct.pack("q", len(message))], list(fds))
                self._socket.sendall(message)
                (pid,) = struct.unpack("q", _receive(self._socket, 8))
            finally:
                _prctl(PR_SET_CHILD_SUBREAPER, 0)
        return int(pid)


_server: ForkServer | None = None
_real = 0  # depth of `real_starts`


@contextlib.contextmanager
def real_starts() -> Iterator[None]:
    """Have every process of this one start as it would without the server."""
    global _real
    _real += 1
    try:
        yield
    finally:
        _real -= 1


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Have this process's Python children forked, where the system is Linux; the server imports meanwhile.

    A process that was forked itself, as pytest-xdist's are, has a server already.
    """
    if sys.platform != "linux" or (_server is not None and _server.owner == os.getpid()):
        yield
        return
    ours, theirs = socket.socketpair()
    boot = f"import sys; sys.path[0] = {os.path.dirname(__file__)!r}; import forkserver; forkserver.serve()"
    command = [sys.executable, "-c", boot, str(theirs.fileno()), "-" * ARGUMENTS_BYTES]
    with ours:
        with theirs, open(os.devnull, "r+b") as null:
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=null, stdout=null)
        _install(ForkServer(ours, dict(os.environ)))
        try:
            yield
        finally:
            _uninstall()
            process.kill()
            process.wait()


_popen_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_popen_names = list(inspect.signature(_popen_execute).parameters)[1:]
_spawn = multiprocessing.util.spawnv_passfds


def _install(server: ForkServer) -> None:
    global _server
    _server = server
    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
    multiprocessing.util.spawnv_passfds = _spawnv_passfds


def _uninstall() -> None:
    global _server
    _server = None
    subprocess.Popen._execute_child = _popen_execute  # type: ignore[attr-defined]
    multiprocessing.util.spawnv_passfds = _spawn


def _execute_child(process: Any, *values: Any) -> None:
    """In the place of `Popen._execute_child`."""
    given = dict(zip(_popen_names, values, strict=True))
    p2cread, c2pwrite, errwrite = given["p2cread"], given["c2pwrite"], given["errwrite"]
    plain = not given["shell"] and not given["executable"] and given["close_fds"]
    plain = plain and given["gid"] is given["gids"] is given["uid"] is None
    args = given["args"]
    if not plain or isinstance(args, (str, bytes, os.PathLike)):
        return _popen_execute(process, *values)
    streams = [p2cread if p2cread != -1 else 0, c2pwrite if c2pwrite != -1 else 1, errwrite if errwrite != -1 else 2]
    pid = _fork(
        [os.fsdecode(arg) for arg in args],
        [*streams, *given["pass_fds"]],
        [0, 1, 2, *given["pass_fds"]],
        given["env"],
        given["cwd"],
        new_session=given["start_new_session"],
        process_group=-1 if given.get("process_group") is None else given["process_group"],
        umask=given["umask"],
        preexec=_pickled(given["preexec_fn"]),
    )
    if pid is None:
        return _popen_execute(process, *values)
    process.pid, process._child_created = pid, True
    process._close_pipe_fds(*(given[name] for name in _popen_names if name.startswith(("p2c", "c2p", "err"))))
    return None


def _spawnv_passfds(path: Any, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """In the place of `multiprocessing.util.spawnv_passfds`."""
    fds = [0, 1, 2, *passfds]
    pid = _fork([os.fsdecode(arg) for arg in [path, *args[1:]]], fds, fds, None, None)
    return _spawn(path, args, passfds) if pid is None else pid


def _fork(
    command: Sequence[str], fds: Sequence[int], targets: Sequence[int], env: Any, cwd: Any, **rest: Any
) -> int | None:
    """The pid of a process that was forked for a command, or None if it has to be started for real."""
    server = _server
    if server is None or _real or server.owner != os.getpid() or command[0] != sys.executable:
        return None
    environment = {os.fsdecode(k): os.fsdecode(v) for k, v in (os.environ if env is None else env).items()}
    changed = {name for name, _ in (environment.items() ^ server.loaded.items()) - {DASKS_SEED}} - CAN_CHANGE
    if not _understood(command[1:]) or any(name.startswith(READ_ONCE) for name in changed):
        return None
    where = os.path.abspath(os.fsdecode(cwd) if cwd is not None else os.getcwd())
    if not os.path.isdir(where) or not all(_is_open(fd) for fd in fds):
        return None
    entries = {where, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))}
    if any(os.path.exists(os.path.join(entry, name)) for entry in entries for name in OTHERS):
        return None
    copies = {os.path.join(entry, "paddock.py") for entry in entries}
    if any(os.path.exists(copy) and not os.path.samefile(copy, ROOT / "paddock.py") for copy in copies):
        return None
    usual: dict[str, Any] = {"new_session": False, "process_group": -1, "umask": -1, "preexec": _pickled(None)}
    if rest.get("process_group", -1) < 0:
        rest["process_group"] = os.getpgrp()
    request = Request(command[1:], where, environment, server.loaded, targets, os.getpid(), **usual | rest)
    try:
        return server.fork(request, fds)
    except OSError:  # it was killed, with all of its process's children
        return None


def _pickled(function: Callable[[], object] | None) -> bytes:
    """Pickled, what has no name too."""
    return pickle.dumps(None) if function is None else cloudpickle.dumps(function)


class _Executed(BaseException):
    """A process has turned into another Python."""


def _execv(path: Any, args: Sequence[Any]) -> NoReturn:
    """In the place of `os.execv`, in a process that was forked."""
    words = [os.fsdecode(arg) for arg in args]
    if path == sys.executable and _understood(words[1:]):
        raise _Executed(*words[1:])
    _real_execv(path, list(args))


_real_execv = os.execv


def _understood(arguments: Sequence[str]) -> bool:
    if arguments[0] == "-IS":  # bare, for code that turns into something else at once
        return arguments[1] == "-c" and "os.execv(sys.executable" in arguments[2]
    match _split(arguments)[1]:
        case ["-m", _, *_]:
            return True
        case ["-c", code, *_]:
            return "sys.modules" not in code  # a question of what was imported
        case [first, *_]:
            return not first.startswith("-")
    return False


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The flags that a fork can follow, and what comes after them."""
    rest = list(itertools.dropwhile(lambda word: word in FLAGS, arguments))
    return list(arguments[: len(arguments) - len(rest)]), rest


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


# The server's side


def serve() -> None:
    """Be the server: import, fork whenever asked, and end with the caller."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=int(sys.argv[1]))
    _show(["fork server of", str(os.getppid())])
    for name in (LIBRARIES + OURS).split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _loaded_libraries()
    _warm_starts()
    # What libraries would take apart at an end, torch its 174 operators, goes with the process, and in half the time.
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    gc.collect()
    gc.freeze()
    _collapse_pages()
    run = _serve(sock, sys.path[1:])
    try:
        run()
        code: Any = 0
    except SystemExit as ended:
        code = ended.code or 0
    if not isinstance(code, int):
        sys.exit(code)
    # What an interpreter does at its end, but for taking a large heap apart, which takes longer than all the rest.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


def _warm_starts() -> None:
    """Work out once what every command and worker would as it starts: what composes, and which instructions compute."""
    with contextlib.suppress(Exception):  # each of them will say itself what is wrong
        importlib.import_module("paddock.envs.native.library").widest()
        importlib.import_module("paddock.algos.networks.dense.library").load()
        importlib.import_module("composed").keep()
        importlib.import_module("paddock.runs.folder").find_source(ROOT / "platform/runs")
        compose = importlib.import_module("paddock.config.compose").compose_alone
        for overrides in (["algo=es", "env=cartpole"], ["algo=ppo", "env=cartpole", "compute=serial"]):
            compose([*overrides, "checkpoint.every_s=0", "algo.hidden_sizes=[8]"])


def _collapse_pages() -> None:
    """Have memory lie in huge pages (madvise(2), MADV_COLLAPSE): a fork has a tenth as many to enter, and to leave."""
    libc = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, *_, name = f"{line} ".split(" ", 5)
        begin, end = (int(edge, 16) for edge in span.split("-"))
        if access == "rw-p" and name.strip() in ("", "[heap]"):
            for at in range(-(-begin // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE):
                libc.madvise(
                    ctypes.c_void_p(at), ctypes.c_size_t(HUGE_PAGE), MADV_COLLAPSE
                )  # or not, where it is refused


def _serve(sock: socket.socket, bare_path: list[str]) -> Callable[[], None]:
    """Fork until the caller has ended; returns, in each process that was forked, what it has to do."""
    while True:
        try:
            header, fds, _, _ = socket.recv_fds(sock, 8, 256)
            if not header:
                os._exit(0)
            request: Request = pickle.loads(_receive(sock, *struct.unpack("q", header)))
        except OSError:
            os._exit(0)
        told, tell = os.pipe()
        go, may_go = os.pipe()
        between = _fork_quietly()
        if between:
            for fd in (*fds, tell, go):
                os.close(fd)
            pid = os.read(told, 8)
            os.waitpid(between, 0)  # only now the caller is the parent
            os.write(may_go, b".")
            os.close(may_go)
            os.read(told, 1)  # whoever asks for the group of its child must not be told this one's
            os.close(told)
            sock.sendall(pid)
            continue
        if _fork_quietly():
            os._exit(0)
        os.write(tell, struct.pack("q", os.getpid()))
        os.close(may_go)
        os.read(go, 1)
        # Not before the process in between has ended: a group that loses its last parent outside of it is orphaned,
        # and Linux hangs up an orphaned group's stopped processes and lets them go on.
        if request.new_session:
            os.setsid()
        else:
            os.setpgid(0, request.process_group)
        os.write(tell, b".")
        parent = os.getpid()
        ours, theirs = socket.socketpair()
        sock.detach()  # closed with all the others, and its number taken again
        if any(CHILDLESS in word for word in request.arguments):  # what such a one starts all the same is no fork
            theirs.close()
            return functools.partial(_become, request, fds, bare_path, ours)
        own_server = _fork_quietly()
        if own_server:
            theirs.detach()
            atexit.register(_end, own_server)
            return functools.partial(_become, request, fds, bare_path, ours)
        # The server of the process that was forked, before that has done anything.
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        os.setpgid(0, 0)  # signals to the process's group are none of its business
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        ours.detach()
        _keep_open([theirs.fileno()])
        _show(["fork server of", str(parent)])
        sock = theirs


def _end(pid: int) -> None:
    """End the server of a process that ends in peace; where that is killed, the kernel does it a little later."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork_quietly() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads: BLAS has some, and ends them before a fork
        return os.fork()


def _become(request: Request, fds: list[int], bare_path: list[str], sock: socket.socket) -> None:
    """Turn a fork of the server into what `python ...` would be, and run it."""
    if request.umask >= 0:
        os.umask(request.umask)
    _install(ForkServer(_place(fds, request.targets, sock), request.loaded))
    os.execv = _execv
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _follow_environment(request.loaded)
    preexec = pickle.loads(request.preexec)
    if preexec is not None:
        preexec()
    arguments = request.arguments
    while True:
        try:
            return _run(arguments, bare_path)
        except _Executed as executed:
            arguments = executed.args


def _run(arguments: Sequence[str], bare_path: list[str]) -> None:
    """Be `python ARGUMENTS`."""
    _show([sys.executable, *arguments])
    sys.orig_argv = [sys.executable, *arguments]
    flags, (first, *rest) = _split(arguments)
    _open_streams("-u" in flags)
    sys.dont_write_bytecode = "-B" in flags or bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    safe = "-P" in flags
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [os.path.abspath(entry) for entry in entries] + bare_path
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main  # the second is multiprocessing's
    if first == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        _add_first("", safe)
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv[:] = ["-m", *rest[1:]]
        _add_first(os.getcwd(), safe)
        warnings.filterwarnings("ignore", r".*found in sys\.modules after import", RuntimeWarning, "runpy")
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    else:
        sys.argv[:] = [first, *rest]
        _add_first(os.path.dirname(os.path.abspath(first)), safe)
        main.__dict__["__file__"] = os.path.abspath(first)
        main.__dict__["__cached__"] = None
        exec(compile(Path(first).read_bytes(), first, "exec"), main.__dict__)


def _follow_environment(loaded: Mapping[str, str]) -> None:
    """Have what libraries took from the environment and from chance as they were loaded be this process's own."""
    for name in ("numpy.random", "random"):
        if name in sys.modules:
            sys.modules[name].seed()
    changed = {name for name, _ in os.environ.items() ^ loaded.items()}
    if "dask" in sys.modules and any(name.startswith("DASK_") for name in changed):
        sys.modules["dask"].config.refresh()
    threads = next((os.environ[name] for name in THREADS if name in os.environ), "")
    if threads.isdigit() and not changed.isdisjoint(THREADS):
        _loaded_libraries().limit(limits=int(threads))
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(int(threads))


@functools.cache
def _loaded_libraries() -> Any:
    """Those of arithmetic that the server has loaded, which takes it a while to find."""
    return sys.modules["threadpoolctl"].ThreadpoolController()


def _add_first(entry: str, safe: bool) -> None:
    if not safe:
        sys.path.insert(0, entry)
    for entry in sys.path:  # the rest is as the server found it, and too much to write to
        sys.path_importer_cache.pop(entry, None)
    # This repository has a folder of that name, which stands in for the standard library's module where it comes first.
    if PathFinder.find_spec("platform", sys.path[:1]) is not None:
        sys.modules.pop("platform", None)


def _place(fds: Sequence[int], targets: Sequence[int], sock: socket.socket) -> socket.socket:
    """Have the file descriptors at their numbers, and besides them only the socket, out of the way."""
    above = max(max(targets) + 1, FIRST_HIGH)
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in (*fds, sock.fileno())]
    sock.detach()
    _keep_open(high)
    for fd, target in zip(high, targets, strict=False):
        os.dup2(fd, target)
        os.close(fd)
    return socket.socket(fileno=high[-1])


def _keep_open(fds: Sequence[int]) -> None:
    """Close every file descriptor beyond the standard streams but these."""
    edges = [2, *sorted(fds), os.sysconf("SC_OPEN_MAX")]
    for low, high in itertools.pairwise(edges):
        os.closerange(low + 1, high)


def _open_streams(unbuffered: bool) -> None:
    for fd, name, mode, errors in (
        (0, "stdin", "r", "strict"),
        (1, "stdout", "w", "strict"),
        (2, "stderr", "w", "backslashreplace"),
    ):
        lines = name == "stderr" or os.isatty(fd)
        stream: Any = open(fd, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        stream.reconfigure(line_buffering=lines, write_through=unbuffered)
        stream.buffer.raw.name = f"<{name}>"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _show(command: Sequence[str]) -> None:
    """Have `ps` show a command line in the place of the server's."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    shown = b"\0".join(map(os.fsencode, command))[: end - begin - 1]
    ctypes.memmove(begin, shown.ljust(end - begin, b"\0"), end - begin)


def _receive(sock: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            raise ConnectionError("the fork server has ended")
        parts += part
    return parts


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
