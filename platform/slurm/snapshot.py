"""A copy of the code, so that a job which starts tomorrow runs what was submitted today."""

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

MAX_MB = 200  # of code; more is data that git was not told to ignore


@dataclass(frozen=True)
class Tree:
    """A git work tree, and the files of it that are code."""

    top: Path
    files: Sequence[PurePath]  # relative to top: tracked, or new and not ignored; and the compiled libraries

    def holds(self, path: Path) -> bool:
        """Return whether a file, or a folder with some of them, is copied."""
        return PurePath(os.path.relpath(path, self.top)) in self._held

    @cached_property
    def _held(self) -> frozenset[PurePath]:
        return frozenset(path for file in self.files for path in (file, *file.parents))

    def copy(self, target: Path) -> None:
        """Copy the files and note their commit; links that lead out of the tree stay links."""
        for file in self.files:
            source = self.top / file
            (target / file.parent).mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                there = Path(os.path.realpath(source))
                inside = there.is_relative_to(self.top) and self.holds(there)
                (target / file).symlink_to(os.path.relpath(there, source.parent) if inside else there)
            elif source.exists():  # an editor's file may have gone
                shutil.copy2(source, target / file)
        commit, diff = find_source(self.top)
        (target / SNAPSHOT).write_text(json.dumps({"folder": str(self.top), "commit": commit, "diff": diff}, indent=2))


def find_tree(folder: Path, member: str, leave_out: Path) -> Tree | None:
    """Find the git work tree that holds `member`, a path in folder; None where git does not know or ignores it.

    Run folders that git was not told to ignore are left out, and so is the folder `leave_out`.

    Raises:
        ConfigError: the code is too large to be copied, or git fails.
    """
    top_line = _ask_git(folder, "rev-parse", "--show-toplevel")
    if not top_line or not _ask_git(folder, "ls-files", "-co", "--exclude-standard", "--", member):
        return None
    top = Path(top_line.rstrip("\n"))
    tracked, new = (
        [name for name in (_ask_git(top, "ls-files", "-z", *which) or "").split("\0") if name]
        for which in (("--cached", "--recurse-submodules"), ("--others", "--exclude-standard"))
    )
    aside = PurePath(leave_out.relative_to(top)) if leave_out.is_relative_to(top) else None
    code = [PurePath(name) for name in (*tracked, *leave_out_runs(new))]
    code = [file for file in code if aside not in file.parents]
    # Git ignores compiled libraries, which no job builds. The modules are slow to import.
    from paddock.algos.learning.replay import library as batches
    from paddock.algos.networks.dense import library as dense
    from paddock.envs.native.library import built, find_built

    libraries = [*built(), *find_built(dense.FOLDER, "_dense"), *find_built(batches.FOLDER, "_replay")]
    compiled = [path.resolve() for path in libraries]
    code += [PurePath(path.relative_to(top)) for path in compiled if path.is_relative_to(top)]
    sizes = {file: size for file in code if (size := _size(top / file)) is not None}
    total_mb = sum(sizes.values()) / 1e6
    remedy = f"put what is not code into .gitignore, such as {max(sizes, key=lambda file: sizes[file], default=None)}"
    require(total_mb <= MAX_MB, f"the code in {top} is {total_mb:.0f} MB and at most {MAX_MB} are copied; {remedy}")
    return Tree(top, list(sizes))


def _size(path: Path) -> int | None:
    """Return the bytes that a copy takes; None for files that have gone, and for folders."""
    try:
        told = os.lstat(path)
    except OSError:
        return None
    return told.st_size if stat.S_ISREG(told.st_mode) or stat.S_ISLNK(told.st_mode) else None


def _ask_git(folder: Path, *words: str) -> str | None:
    """Return what git prints; None if there is no git, or the folder is in no work tree.

    Raises:
        ConfigError: it fails otherwise.
    """
    try:
        answer = subprocess.run(
            ["git", *words], cwd=folder, env=os.environ | {"LC_ALL": "C"}, capture_output=True, timeout=GIT_S
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"git {words[0]} in {folder} does not answer within {GIT_S:g} s; submit again") from error
    said = " ".join(answer.stderr.decode(errors="replace").split())
    if answer.returncode == 0:
        return os.fsdecode(answer.stdout)
    if "not a git repository" in said or "must be run in a work tree" in said:
        return None
    raise ConfigError(f"the code in {folder} cannot be copied, as git {words[0]} says: {said}")
