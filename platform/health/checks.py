"""What `paddock.doctor` looks at: each check is a function that tries the thing itself and says what it found."""

import fcntl
import importlib.metadata
import netrc
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from paddock.algos.pool.calls import Witness
from paddock.envs.errors import PaddockError

from ..runs.state import is_held
from .installed import Finding, in_words, last_line

LEAST_GB = 2.0  # free where runs are kept: checkpoints and videos of a few runs
CLOCK_S = 1.0  # by so much a worker's clock may differ before timestamps mislead
WANDB = "wandb"
ANSWER_S = 20.0  # a command that has not answered by then does not


def check_box2d() -> Finding:
    """Gymnasium's Box2D environments can be made and stepped."""
    import gymnasium

    try:
        env = gymnasium.make("BipedalWalker-v3")
        env.reset(seed=0)
        env.step(np.zeros(4, np.float32))
        env.close()
    except Exception as error:
        return Finding("FAIL", in_words(error), "pip install 'gymnasium[box2d]'")
    return Finding("ok", "BipedalWalker-v3 steps")


def check_native() -> Finding:
    """What is compiled was built and gives the recorded bits, and native environments can be stepped."""
    from paddock.algos.learning.replay import library as replay
    from paddock.algos.networks.dense import library as dense
    from paddock.envs.native import library
    from paddock.envs.spec import EnvSpec
    from paddock.envs.vector import Native

    if not library.built():
        return Finding("warn", "not built: vec=native cannot be used", "install gcc and run pip install again")
    try:
        refused = [reason for name in library.available() if (reason := library.refusal(name))]
        if refused:
            return Finding("FAIL", "; ".join(refused), library.OTHER_COMPILER)
        refused = [name for name in library.available() if dense.is_refused(name)]
        if refused:
            said = f"dense networks: {', '.join(refused)} instructions compute other bits than recorded"
            return Finding("FAIL", said, library.OTHER_COMPILER)
        replay.load()
        instructions = library.widest()
        env = EnvSpec(id="CartPole-v1", kwargs={}, wrappers=(), max_episode_steps=None, fresh=False)
        vec = Native(num_envs=1, threads=1).make(env)
        vec.reset(seed=0)
        vec.step(np.zeros(1, np.int64))
        vec.close()
    except Exception as error:
        return Finding("FAIL", in_words(error))
    return Finding("ok", f"{instructions} instructions, {library.describe('walker').lanes} walkers at once")


def check_video() -> Finding:
    """Frames can be made an MP4, and read again."""
    try:
        import av

        from ..evaluation.video import Mp4

        film = Mp4(fps=50)
        for brightness in (0, 127, 255):
            film.add(np.full((64, 96, 3), brightness, np.uint8))
        with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
            file.write(film.finish())
            file.flush()
            with av.open(file.name) as container:
                sizes = [(frame.width, frame.height) for frame in container.decode(video=0)]
            size = os.path.getsize(file.name)
    except Exception as error:
        return Finding("FAIL", in_words(error), "pip install --force-reinstall av")
    if sizes != [(96, 64)] * 3:
        return Finding("FAIL", f"3 frames of 96x64 were read again as {sizes}", "pip install --force-reinstall av")
    if film.codec == "mpeg4":
        return Finding("warn", "MPEG-4 only, which browsers do not play", "install an av with libx264")
    return Finding("ok", f"{film.codec}, 3 frames in {size} bytes")


def check_gpu() -> Finding:
    """A GPU, where there is one, computes."""
    import torch

    if not torch.cuda.is_available():
        if Path("/dev/nvidiactl").exists():
            remedy = "install a torch for CUDA (pytorch.org) and a driver that suits it"
            return Finding("FAIL", f"there is one, but torch {torch.__version__} cannot use it", remedy)
        return Finding("ok", "none; device=cpu")
    try:
        names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
        for k in range(len(names)):
            if torch.ones(8, 8, device=f"cuda:{k}").mm(torch.ones(8, 8, device=f"cuda:{k}")).sum().item() != 512:
                return Finding("FAIL", f"cuda:{k} multiplies wrongly", "look at it with nvidia-smi")
    except Exception as error:
        return Finding("FAIL", in_words(error), "compare the driver (nvidia-smi) with torch.version.cuda")
    return Finding("ok", f"{', '.join(names)}; CUDA {torch.version.cuda}")


def check_wandb() -> Finding:
    """W&B is installed, and whether it would be online."""
    try:
        version = importlib.metadata.version(WANDB)
    except importlib.metadata.PackageNotFoundError:
        return Finding("FAIL", "not installed", "pip install wandb")
    mode = os.environ.get("WANDB_MODE", "online")
    if mode != "online":
        return Finding("ok", f"{version}, WANDB_MODE={mode}")
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        known = netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        known = False
    if not known and not os.environ.get("WANDB_API_KEY"):
        return Finding("warn", f"{version}, no key: track=wandb works offline", "`wandb login` to sync")
    return Finding("ok", f"{version}, with a key for {host}")


def check_disk(root: Path, least_gb: float = LEAST_GB) -> Finding:
    """Runs can be written where they will be: files, locks, atomic replacement, and space."""
    folder = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    remedy = "choose another place with run.root="
    try:
        with tempfile.TemporaryDirectory(prefix=".paddock-", dir=folder) as trial:
            old, new = Path(trial, "old"), Path(trial, "new")
            old.write_bytes(b"old")
            with open(new, "wb") as file:
                file.write(b"new")
                file.flush()
                os.fsync(file.fileno())
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not is_held(new):
                    return Finding("FAIL", f"{folder}: two processes can hold one lock", remedy)
            os.replace(new, old)
            if old.read_bytes() != b"new":
                return Finding("FAIL", f"{folder}: a replaced file keeps its old content", remedy)
        free_gb = shutil.disk_usage(folder).free / 1e9
    except OSError as error:
        return Finding("FAIL", f"{folder} cannot be written ({error.strerror})", remedy)
    if free_gb < least_gb:
        return Finding("warn", f"{folder} has {free_gb:.1f} GB free, less than {least_gb:g}", f"make room, or {remedy}")
    return Finding("ok", f"{folder}: {free_gb:.0f} GB free, locks and replaces")


def check_memory() -> Finding:
    """Memory can be shared between processes, as vec=multiprocess does."""
    try:
        file = os.memfd_create("paddock-doctor")
        try:
            os.posix_fallocate(file, 0, 1 << 24)
        finally:
            os.close(file)
    except (AttributeError, OSError) as error:
        return Finding(
            "warn", f"none can be shared ({in_words(error)})", "use vec=serial; vec=multiprocess needs Linux"
        )
    return Finding("ok", "memfd, 16 MB at once")


def check_cores(cgroup: Path = Path("/sys/fs/cgroup/cpu.max")) -> Finding:
    """This process may use the cores that workers are counted by."""
    cores = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    quota = _cgroup_cores(cgroup)
    usable = min(allowed, quota or allowed)
    threads = os.environ.get("OMP_NUM_THREADS")
    if usable < cores:
        why = "a cgroup" if quota is not None and quota < allowed else "taskset or a scheduler"
        return Finding("warn", f"{usable:g} of {cores}, as {why} allows", f"set compute.workers={max(int(usable), 1)}")
    return Finding("ok", f"{cores}" + (f", OMP_NUM_THREADS={threads}" if threads else ""))


def check_slurm() -> Finding:
    """Slurm, where it is installed, has a controller that answers."""
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        return Finding("ok", "not here")
    answers = []
    for command in ([sbatch, "--version"], ["sinfo", "--noheader", "--format=%P %D %t"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Finding("warn", f"{sbatch} is here, but {in_words(error)}", "ask who runs the cluster")
        if done.returncode != 0:
            remedy = "set SLURM_CONF to the cluster's slurm.conf"
            return Finding("warn", f"{sbatch} is here, but answers: {last_line(done.stderr)}", remedy)
        answers.append(" ".join(done.stdout.split()))
    return Finding("ok", f"{answers[0]}; partitions, nodes, state: {answers[1]}")


def check_compute(recipe: Any, imports: Sequence[str] = ("paddock",)) -> Iterator[tuple[str, Finding]]:
    """The workers of a pool are there, are like this process, answer, and agree on the time.

    Args:
        recipe: what `build` makes of the section compute.
    """
    try:
        pool = recipe.open(imports)
    except PaddockError as error:
        yield "workers", Finding("FAIL", str(error))
        return
    try:
        yield "workers", Finding("ok", pool.describe())
        started = time.monotonic()
        witnesses = [pool.stateful(Witness) for _ in range(pool.size)]
        offsets: dict[tuple[str, int], float] = {}
        for witness in witnesses:
            asked = time.time()
            host, pid, clock = witness.call("tell")()
            # Its clock can be anywhere within the question and the answer.
            offsets[host, pid] = max(asked - clock, clock - time.time(), 0.0)
            witness.close()
        if len(offsets) < len(witnesses):
            yield "tasks", Finding("warn", f"{len(offsets)} of {len(witnesses)} workers were met", "are they busy?")
        else:
            hosts = sorted({host for host, _ in offsets})
            seconds = time.monotonic() - started
            yield "tasks", Finding("ok", f"one on each of {len(offsets)} ({', '.join(hosts)}) in {seconds:.2f} s")
        (host, _), worst = max(offsets.items(), key=lambda item: item[1])
        if worst > CLOCK_S:
            yield "clock", Finding("warn", f"that of {host} is {worst:.1f} s off", "let NTP set it")
        else:
            yield "clock", Finding("ok", "the workers' clocks agree with this one")
    except PaddockError as error:
        yield "tasks", Finding("FAIL", str(error))
    finally:
        pool.close()


def _cgroup_cores(path: Path) -> float | None:
    """Cores that a control group allows; None: no bound."""
    try:
        quota, period = path.read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)
