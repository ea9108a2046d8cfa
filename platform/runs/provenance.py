"""Provenance of a run: command, code, packages and machine."""

import contextlib
import datetime
import importlib.metadata
import json
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from .checkpoint import FORMAT, write_atomically

COMPUTING = {  # modules whose version may change results
    *("numpy", "scipy", "torch", "gymnasium"),
    *("Box2D", "ale_py", "crafter", "dm_control", "envpool", "minatar", "mujoco"),
    *("brax", "gymnax", "jax", "pgx"),
}
RUN_FILES = {
    "lock",
    "multirun.yaml",
    "sweep.json",
    "provenance.json",
    "submission.json",
}  # in folders of sweeps and runs
CODE = (".py", ".yaml")  # suffixes of untracked files that count as edits
MAX_NEW_BYTES, MAX_NEW_FILES = 100_000, 1000  # limits on their size and number
DIFF = ("--no-color", "--no-ext-diff")
GIT_S = 60.0  # timeout, for large trees on slow file systems
SNAPSHOT = ".submitted.json"  # in the top folder of a code snapshot: its origin


def format_command(words: Sequence[str]) -> str:
    """Format a process's command as typed, without the paths of the interpreter and of the script."""
    python, rest = Path(words[0]).name, list(words[1:])
    if rest[:1] == ["-u"]:  # added by launchers
        del rest[0]
    if rest and Path(rest[0]).is_absolute() and Path(rest[0]).name == "paddock":
        return shlex.join(["paddock", *rest[1:]])
    return shlex.join([re.sub(r"^python[\d.]+$", "python", python), *rest])


def ask(*command: str, folder: Path | None = None, timeout_s: float = 10.0, index: str | None = None) -> str | None:
    """Return the output of a command; None if it is missing, fails or times out. `index` replaces git's index."""
    environment = os.environ if index is None else os.environ | {"GIT_INDEX_FILE": index}
    try:
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.decode(errors="surrogateescape") if result.returncode == 0 else None


def find_source(folder: Path) -> tuple[str | None, str | None]:
    """Return the commit of the code in a folder and its uncommitted edits, new files included; None if unknown.

    In a snapshot, return those recorded when it was copied.
    """
    for above in (folder, *folder.parents):
        if (above / SNAPSHOT).exists():
            noted = json.loads((above / SNAPSHOT).read_text())
            return noted["commit"], noted["diff"]
    answer = ask("git", "rev-parse", "HEAD", "--show-toplevel", "--absolute-git-dir", folder=folder, timeout_s=GIT_S)
    if answer is None:
        return None, None
    commit, top, git = answer.rstrip("\n").split("\n")
    listed = ask("git", "ls-files", "-z", "--others", "--exclude-standard", folder=Path(top), timeout_s=GIT_S)
    new = [file for file in leave_out_runs((listed or "").split("\0"), CODE) if _size(top, file) <= MAX_NEW_BYTES]
    with tempfile.TemporaryDirectory() as scratch:
        index = f"{scratch}/index"
        with contextlib.suppress(OSError):
            shutil.copy2(f"{git}/index", index)
        # New files are added to a copy of the index, so that the diff contains them.
        added = ask("git", "add", "-N", "--", *new[:MAX_NEW_FILES], folder=Path(top), timeout_s=GIT_S, index=index)
        known = index if new and added is not None else None
        diff = ask("git", "diff", *DIFF, "HEAD", "--", ":/", folder=Path(top), timeout_s=GIT_S, index=known)
    return commit, diff


def leave_out_runs(files: Sequence[str], ends: str | tuple[str, ...] = "") -> list[str]:
    """Return the files (relative, with slashes) with one of the suffixes `ends` outside folders of runs and sweeps."""
    runs = {PurePath(file).parent for file in files if PurePath(file).name in RUN_FILES}
    return [file for file in files if file.endswith(ends) and runs.isdisjoint(PurePath(file).parents)]


def _size(top: str, file: str) -> float:
    try:
        return os.lstat(f"{top}/{file}").st_size
    except OSError:
        return math.inf


def write_provenance(path: Path, commit: str | None, command: str | None, extra: Mapping[str, Any]) -> None:
    """Write provenance.json into a run's folder."""
    process = format_command(sys.orig_argv)
    provenance = {
        "format": FORMAT,
        **({"command": process} if command is None else {"command": command, "process": process}),
        "folder": os.getcwd(),
        "started": now(),
        **extra,
        "commit": commit,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": _gpus(),
        "packages": dict(sorted(_packages(), key=lambda item: item[0].lower())),
    }
    write_atomically(path / "provenance.json", json.dumps(provenance, indent=2).encode())


def changed_surroundings(old: Mapping[str, Any], modules: Collection[str], on_gpu: bool) -> list[str]:
    """Describe changes of packages and processors since a run began (its provenance) that may change its results."""
    used = {_as_package(name) for name in (*(COMPUTING & sys.modules.keys()), *modules)}
    noted = old.get("packages")
    then, here = (
        {_as_package(name): version for name, version in packages}
        for packages in (noted.items() if isinstance(noted, dict) else (), _packages())
    )
    changes = [(name, then[name], here[name]) for name in sorted(used & then.keys() & here.keys())]
    if "torch" in sys.modules:  # without torch, results do not depend on the processor
        changes.append(("the processor", old.get("cpu"), _cpu_model()))
    if on_gpu:
        before, after = (", ".join(sorted({str(name) for name in gpus or ()})) for gpus in (old.get("gpus"), _gpus()))
        changes.append(("the GPU", before, after))
    return [f"{what} was {was} and is now {now}" for what, was, now in changes if was and now and was != now]


def _as_package(name: str) -> str:
    return name.lower().replace("_", "-")


def _gpus() -> list[str]:
    return (ask("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines()


def _packages() -> Iterator[tuple[str, str]]:
    """Yield the name and version of every package; parsing all metadata would take a third of a second."""
    for package in importlib.metadata.distributions():
        text = package.read_text("METADATA") or package.read_text("PKG-INFO") or ""
        name, version = (re.search(rf"^{field}: *(.+?) *$", text, re.M) for field in ("Name", "Version"))
        if name and version:
            yield name[1], version[1]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def now() -> str:
    """Return the local time to the second, with its time zone."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
