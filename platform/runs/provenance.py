"""Where a run comes from: command, code, packages, machine."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .checkpoint import write_atomically

COMPUTING = {  # modules of which another version may give other numbers
    *("numpy", "scipy", "torch", "gymnasium"),
    *("Box2D", "ale_py", "crafter", "dm_control", "envpool", "minatar", "mujoco"),
}
MADE = {"multirun.yaml", "sweep.json", "provenance.json", "submission.json"}  # what a sweep's and a run's folder hold
BEGUN = ("lock", "config.yaml")  # what the folder of a run holds together from its first moment
CODE = (".py", ".yaml")  # of new files, those that are told with the edits
NEW_BYTES = 10**6  # of them, at most
NEW_S = 20.0  # to find them, at most
GIT_S = 60.0  # to look through a large tree on a slow file system
SNAPSHOT = ".submitted.json"  # in the top folder of a copy of the code: where it is from


def spell_command(words: Sequence[str]) -> str:
    """A process's command as people type it: without the places of the interpreter and of Paddock's own script."""
    python, rest = Path(words[0]).name, list(words[1:])
    if rest[:1] == ["-u"]:  # what launchers add, for output that is not held back
        del rest[0]
    if rest and Path(rest[0]).is_absolute() and Path(rest[0]).name == "paddock":
        return shlex.join(["paddock", *rest[1:]])
    return shlex.join([re.sub(r"^python[\d.]+$", "python", python), *rest])


def ask(*command: str, folder: Path | None = None, timeout_s: float = 10.0) -> str | None:
    """What a command prints, in a folder; None where there is none, it fails, or does not answer in time.

    Bytes that are no UTF-8 stand in it as in names of files: `errors="surrogateescape"` gives them again.
    """
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.decode(errors="surrogateescape") if result.returncode == 0 else None


def find_source(folder: Path) -> tuple[str | None, str | None]:
    """The commit of the code in a folder and its edits since, as git tells them; of a copy, as when it was made.

    Returns:
        None for what is not known: both outside a repository, the edits where git fails.
    """
    for above in (folder, *folder.parents):
        if (above / SNAPSHOT).exists():
            noted = json.loads((above / SNAPSHOT).read_text())
            return noted["commit"], noted["diff"]
    told = ask("git", "rev-parse", "HEAD", "--show-toplevel", folder=folder, timeout_s=GIT_S)
    if told is None:
        return None, None
    commit, top = told.split("\n")[0], Path(told.split("\n")[1])
    diff = ask("git", "diff", "--no-color", "--no-ext-diff", "HEAD", "--", ":/", folder=top, timeout_s=GIT_S)
    new = ask("git", "ls-files", "-z", "--others", "--exclude-standard", folder=top, timeout_s=NEW_S)
    if diff is None or (new is None and not diff):
        return commit, None
    if new is None:
        return commit, f"{diff}new files are not known: git did not tell them\n"
    return commit, diff + "".join(_tell_new(top, leave_out_runs(new.split("\0"), CODE)))


def leave_out_runs(files: Sequence[str], ends: str | tuple[str, ...] = "") -> list[str]:
    """Those of some files, with one of these ends, that are in no folder of a run or of a sweep: those tell their own.

    Args:
        files: relative to one folder, with slashes; as text, for there may be a hundred thousand.
    """
    split = [file.rpartition("/") for file in files]
    made = {folder for folder, _, name in split if name in MADE}
    locked, set_up = ({folder for folder, _, name in split if name == one} for one in BEGUN)
    made |= locked & set_up
    code = [(folder, file) for (folder, _, _), file in zip(split, files, strict=True) if file.endswith(ends)]
    outside = {folder for folder in {folder for folder, _ in code} if made.isdisjoint(_with_parents(folder))}
    return [file for folder, file in code if folder in outside]


def _with_parents(folder: str) -> Iterator[str]:
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""


def _tell_new(top: Path, files: Sequence[str]) -> Iterator[str]:
    """Yield new files as edits that git can make again, or, of one for which there is no room, its name."""
    room = NEW_BYTES
    for file in sorted(files):
        try:
            told = os.lstat(f"{top}/{file}")  # there may be many, and to make a path takes longer than to look
            content = _read(top / file, told.st_mode) if told.st_size <= room else None
        except FileNotFoundError:  # it has gone since it was listed
            continue
        except OSError as error:
            yield f"new, and left out: {_quote(file)} ({error.strerror})\n"
            continue
        if content is None or b"\0" in content:  # git makes no edits of bytes like these
            yield f"new, and left out: {_quote(file)} ({told.st_size} bytes)\n"
            continue
        room -= max(told.st_size, NEW_BYTES // 100)  # nor are they too many
        yield _tell_file(file, told.st_mode, content)


def _read(path: Path, mode: int) -> bytes:
    return os.fsencode(os.readlink(path)) if stat.S_ISLNK(mode) else path.read_bytes()


def _tell_file(name: str, mode: int, content: bytes) -> str:
    """A new file as git tells it; a process of git for each would take longer than all else."""
    kind = "120000" if stat.S_ISLNK(mode) else "100755" if mode & stat.S_IXUSR else "100644"
    new = _quote(f"b/{name}")
    head = f"diff --git {_quote(f'a/{name}')} {new}\nnew file mode {kind}\n"
    if not content:
        return head
    *lines, rest = content.decode(errors="surrogateescape").split("\n")
    end = f"+{rest}\n\\ No newline at end of file\n" if rest else ""
    tab = "\t" if " " in name else ""  # else what is behind a space may be a date
    head += f"--- /dev/null\n+++ {new}{tab}\n@@ -0,0 +1,{len(lines) + bool(rest)} @@\n"
    return head + "".join(f"+{line}\n" for line in lines) + end


def _quote(name: str) -> str:
    """A name as git spells it in its edits."""
    raw = name.encode(errors="surrogateescape")
    quoted = re.sub(rb'[\x00-\x1f\x7f-\xff"\\]', lambda found: b"\\%03o" % found[0][0], raw)
    return name if quoted == raw else f'"{quoted.decode()}"'


def write_provenance(path: Path, commit: str | None, command: str | None, beside: Mapping[str, Any]) -> None:
    """Write down where the run in a folder comes from; see `RunFolder.begin`."""
    process = spell_command(sys.orig_argv)
    provenance = {
        **({"command": process} if command is None else {"command": command, "process": process}),
        "folder": os.getcwd(),
        "started": now(),
        **beside,
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
    """Return what is not as it was when a run began, and may change its numbers: packages, processors.

    Args:
        old: its provenance then, of which anything may be missing.
        modules: that its environment and its algorithm are from.
        on_gpu: whether it learns on one.
    """
    used = {_as_package(name) for name in (*(COMPUTING & sys.modules.keys()), *modules)}
    noted = old.get("packages")
    then, here = (
        {_as_package(name): version for name, version in packages}
        for packages in (noted.items() if isinstance(noted, dict) else (), _packages())
    )
    changes = [(name, then[name], here[name]) for name in sorted(used & then.keys() & here.keys())]
    if "torch" in sys.modules:  # what computes without it has the same bits on all of them
        changes.append(("the processor", old.get("cpu"), _cpu_model()))
    if on_gpu:
        before, after = (", ".join(sorted({str(name) for name in gpus or ()})) for gpus in (old.get("gpus"), _gpus()))
        changes.append(("the GPU", before, after))
    return [f"{what} was {was} and is now {now}" for what, was, now in changes if was and now and was != now]


def _as_package(name: str) -> str:
    """The name of a package as all its spellings have it, of a module that of the package called like it."""
    return name.lower().replace("_", "-")


def _gpus() -> list[str]:
    return (ask("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines()


def _packages() -> Iterator[tuple[str, str]]:
    """Yield the name and version of every package; to parse their metadata whole takes a third of a second."""
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
    """Return the time here, to the second, with its zone."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
