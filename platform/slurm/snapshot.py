"""Snapshot of the code at submission, from which the job runs."""

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath

from paddock.envs.errors import ConfigError, require

from ..runs.provenance import GIT_S, SNAPSHOT, find_source, leave_out_runs

MAX_MB = 200  # size limit; a larger tree probably contains data missing from .gitignore


@dataclass(frozen=True)
class Tree:
    """Git work tree and its code files."""

    top: Path
    files: Sequence[PurePath]  # relative to top: files that git does not ignore, and compiled libraries

    def holds(self, path: Path) -> bool:
        """Return whether the snapshot contains a file or any file of a folder."""
        return PurePath(os.path.relpath(path, self.top)) in self._paths

    @cached_property
    def _paths(self) -> frozenset[PurePath]:
        return frozenset(path for file in self.files for path in (file, *file.parents))

    def copy(self, target: Path) -> None:
        """Copy the files and record the commit; symbolic links that leave the tree keep their targets."""
        for file in self.files:
            source = self.top / file
            (target / file.parent).mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                linked = Path(os.path.realpath(source))
                inside = linked.is_relative_to(self.top) and self.holds(linked)
                (target / file).symlink_to(os.path.relpath(linked, source.parent) if inside else linked)
            elif source.exists():  # a temporary file may have been deleted meanwhile
                shutil.copy2(source, target / file)
        commit, diff = find_source(self.top)
        (target / SNAPSHOT).write_text(json.dumps({"folder": str(self.top), "commit": commit, "diff": diff}, indent=2))


def find_tree(folder: Path, member: str, leave_out: Path) -> Tree | None:
    """Find the git work tree of `member`, a path relative to `folder`; return None if git ignores it or there is none.

    Run folders and `leave_out` are excluded.
    """
    top_line = _run_git(folder, "rev-parse", "--show-toplevel")
    if not top_line or not _run_git(folder, "ls-files", "-co", "--exclude-standard", "--", member):
        return None
    top = Path(top_line.rstrip("\n"))
    tracked, untracked = (
        [name for name in (_run_git(top, "ls-files", "-z", *options) or "").split("\0") if name]
        for options in (("--cached", "--recurse-submodules"), ("--others", "--exclude-standard"))
    )
    excluded = PurePath(leave_out.relative_to(top)) if leave_out.is_relative_to(top) else None
    code = [PurePath(name) for name in (*tracked, *leave_out_runs(untracked))]
    code = [file for file in code if excluded not in file.parents]
    # Jobs need the compiled libraries, which git ignores. These modules are slow to import.
    from paddock.algos.learning.replay import library as batches
    from paddock.algos.networks.dense import library as dense
    from paddock.envs.native.library import built, find_built

    libraries = [*built(), *find_built(dense.FOLDER, "_dense"), *find_built(batches.FOLDER, "_replay")]
    compiled = [path.resolve() for path in libraries]
    code += [PurePath(path.relative_to(top)) for path in compiled if path.is_relative_to(top)]
    sizes = {file: size for file in code if (size := _size(top / file)) is not None}
    total_mb = sum(sizes.values()) / 1e6
    remedy = f"add data to .gitignore, such as {max(sizes, key=lambda file: sizes[file], default=None)}"
    require(total_mb <= MAX_MB, f"the code in {top} takes {total_mb:.0f} MB, over the limit of {MAX_MB} MB; {remedy}")
    return Tree(top, list(sizes))


def _size(path: Path) -> int | None:
    """Return a file's size in bytes; None for missing files and folders."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) else None


def _run_git(folder: Path, *arguments: str) -> str | None:
    """Run git and return its output; None if git is not installed or the folder is not in a work tree."""
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=folder, env=os.environ | {"LC_ALL": "C"}, capture_output=True, timeout=GIT_S
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"git {arguments[0]} in {folder} took more than {GIT_S:g} s; submit again") from error
    message = " ".join(result.stderr.decode(errors="replace").split())
    if result.returncode == 0:
        return os.fsdecode(result.stdout)
    if "not a git repository" in message or "must be run in a work tree" in message:
        return None
    raise ConfigError(f"cannot copy the code in {folder}: git {arguments[0]} failed: {message}")
