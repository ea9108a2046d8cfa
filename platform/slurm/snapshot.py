"""The code as it is now, copied to a folder, so that a job which starts tomorrow runs what was submitted today."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from envs.errors import require

from ..runs.provenance import SNAPSHOT, ask, find_source

MAX_MB = 200  # of code; more than that is data that git was not told to ignore
GIT_S = 60.0  # to list a large tree on a slow file system
MADE = {"multirun.yaml", "sweep.json", "provenance.json", "submission.json"}  # what a sweep's and a run's folder hold


@dataclass(frozen=True)
class Tree:
    """A git work tree, and the files of it that are code."""

    top: Path
    files: Sequence[PurePath]  # relative to top: tracked, or new and not ignored; and the compiled libraries

    def holds(self, path: Path) -> bool:
        """Whether a file, or a folder with some of them, would be copied."""
        here = PurePath(os.path.relpath(path, self.top))
        return any(here == file or here in file.parents for file in self.files)

    def copy(self, target: Path) -> None:
        """Copy the files, and note which commit they were edited from."""
        for file in self.files:
            (target / file.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.top / file, target / file, follow_symlinks=False)
        commit, diff = find_source(self.top)
        (target / SNAPSHOT).write_text(json.dumps({"folder": str(self.top), "commit": commit, "diff": diff}, indent=2))


def find_tree(folder: Path, member: str, leave_out: Path) -> Tree | None:
    """The git work tree that holds `member`, a path in folder; None where git does not know or ignores it.

    Run folders that git was not told to ignore are no code, and neither is the folder `leave_out`.

    Raises:
        ConfigError: the code is too large to be copied.
    """
    top_line = ask("git", "rev-parse", "--show-toplevel", folder=folder, timeout_s=GIT_S)
    if top_line is None or not ask(
        "git", "ls-files", "-co", "--exclude-standard", "--", member, folder=folder, timeout_s=GIT_S
    ):
        return None
    top = Path(top_line.rstrip("\n"))
    tracked = _list(top, "--cached", "--recurse-submodules")
    new = _list(top, "--others", "--exclude-standard")
    made = {file.parent for file in new if file.name in MADE}
    if leave_out.is_relative_to(top):
        made.add(PurePath(leave_out.relative_to(top)))
    code = [*tracked, *(file for file in new if made.isdisjoint(file.parents))]
    # Git ignores what is compiled, which no job builds: environments, dense networks, batches of a replay.
    # Gymnasium comes with it, and takes long to import: only those who submit wait for it.
    from algos.learning.replay import library as batches
    from algos.networks.dense import library as dense
    from envs.native.library import built, find_built

    libraries = [*built(), *find_built(dense.FOLDER, "_dense"), *find_built(batches.FOLDER, "_replay")]
    compiled = [path.resolve() for path in libraries]
    code += [PurePath(path.relative_to(top)) for path in compiled if path.is_relative_to(top)]
    sizes = {file: os.lstat(top / file).st_size for file in code if _is_file(top / file)}
    total_mb = sum(sizes.values()) / 1e6
    largest = max(sizes, key=lambda file: sizes[file], default=None)
    remedy = f"put what is not code into .gitignore, such as {largest}"
    require(total_mb <= MAX_MB, f"the code in {top} is {total_mb:.0f} MB and at most {MAX_MB} are copied; {remedy}")
    return Tree(top, list(sizes))


def _is_file(path: Path) -> bool:
    """Whether there is something to copy: a tracked file may be gone, and a repository in the tree is a folder."""
    return path.is_symlink() or path.is_file()


def _list(top: Path, *which: str) -> list[PurePath]:
    names = ask("git", "ls-files", "-z", *which, folder=top, timeout_s=GIT_S) or ""
    return [PurePath(name) for name in names.split("\0") if name]
