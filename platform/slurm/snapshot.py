"""The code as it is now, copied to a folder, so that a job which starts tomorrow runs what was submitted today."""

import errno
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

MAX_MB = 200  # of code; more than that is data that git was not told to ignore
LINKED_BYTES = 10**6  # of a file elsewhere that a link leads to; one with more is data, and stays there
CODE = {  # ends of files that are code however large they are
    *(".py", ".pyi", ".pyx", ".sh", ".so", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".rs"),
    *(".yaml", ".yml", ".toml", ".json", ".txt", ".cfg", ".ini"),
}


@dataclass(frozen=True)
class Tree:
    """A git work tree, and the files of it that are code."""

    top: Path
    files: Sequence[PurePath]  # relative to top: tracked, or new and not ignored; and the compiled libraries

    def holds(self, path: Path) -> bool:
        """Whether a file, or a folder with some of them, would be copied."""
        here = PurePath(os.path.relpath(path, self.top))
        return here in self._held

    @cached_property
    def _held(self) -> frozenset[PurePath]:
        return frozenset(path for file in self.files for path in (file, *file.parents))

    def copy(self, target: Path) -> None:
        """Copy the files, and note which commit they were edited from.

        Raises:
            ConfigError: one of them cannot be read.
        """
        for file in self.files:
            (target / file.parent).mkdir(parents=True, exist_ok=True)
            link = self.find_link(file)
            if link is None:
                _copy_file(self.top / file, target / file)
            else:
                (target / file).symlink_to(link)
        commit, diff = find_source(self.top)
        (target / SNAPSHOT).write_text(json.dumps({"folder": str(self.top), "commit": commit, "diff": diff}, indent=2))

    def find_link(self, file: PurePath) -> str | None:
        """Where a link in the copy leads: to what is copied, or to data elsewhere; None where bytes are copied.

        A link to code elsewhere, or to a small file, is a copy of it.
        """
        path = self.top / file
        if not path.is_symlink():
            return None
        there = Path(os.path.realpath(path))
        if there.is_relative_to(self.top) and self.holds(there):
            return os.path.relpath(there, path.parent)
        size = _size(there)
        return str(there) if size is None or (there.suffix not in CODE and size > LINKED_BYTES) else None


def find_tree(folder: Path, member: str, leave_out: Path) -> Tree | None:
    """The git work tree that holds `member`, a path in folder; None where git does not know or ignores it.

    Run folders that git was not told to ignore are no code, and neither is the folder `leave_out`.

    Raises:
        ConfigError: the code is too large to be copied, or git fails.
    """
    top_line = _ask_git(folder, "rev-parse", "--show-toplevel")
    if not top_line or not _ask_git(folder, "ls-files", "-co", "--exclude-standard", "--", member):
        return None
    top = Path(top_line.rstrip("\n"))
    tracked, new = _list(top)
    others = map(PurePath, leave_out_runs([str(file) for file in new]))
    aside = PurePath(leave_out.relative_to(top)) if leave_out.is_relative_to(top) else None
    code = [*tracked, *(file for file in others if aside not in file.parents)]
    # Git ignores what is compiled, which no job builds: environments, dense networks, batches of a replay.
    # Gymnasium comes with it, and takes long to import: only those who submit wait for it.
    from paddock.algos.learning.replay import library as batches
    from paddock.algos.networks.dense import library as dense
    from paddock.envs.native.library import built, find_built

    libraries = [*built(), *find_built(dense.FOLDER, "_dense"), *find_built(batches.FOLDER, "_replay")]
    compiled = [path.resolve() for path in libraries]
    code += [PurePath(path.relative_to(top)) for path in compiled if path.is_relative_to(top)]
    tree = Tree(top, [file for file in code if _size(top / file) is not None])
    sizes = {file: _size(top / file, follow=tree.find_link(file) is None) or 0 for file in tree.files}
    total_mb = sum(sizes.values()) / 1e6
    largest = max(sizes, key=lambda file: sizes[file], default=None)
    remedy = f"put what is not code into .gitignore, such as {largest}"
    require(total_mb <= MAX_MB, f"the code in {top} is {total_mb:.0f} MB and at most {MAX_MB} are copied; {remedy}")
    return tree


def _copy_file(source: Path, target: Path) -> None:
    try:
        shutil.copy2(source, target)
    except OSError as error:
        if str(error.filename) != str(source):  # it is the disk of the copy
            raise
        # One that has gone since it was listed is an editor's, or would have been gone a moment before.
        what = f"{source} cannot be copied with the code ({error.strerror})"
        require(error.errno == errno.ENOENT, f"{what}; mend that, or put it into .gitignore")


def _size(path: Path, *, follow: bool = False) -> int | None:
    """The bytes that a copy takes, with `follow` of what a link leads to; None where there is nothing to copy.

    A tracked file may be gone, and a repository in the tree is a folder.
    """
    try:
        told = os.stat(path, follow_symlinks=follow)
    except OSError:
        return None
    return told.st_size if stat.S_ISREG(told.st_mode) or stat.S_ISLNK(told.st_mode) else None


def _list(top: Path) -> tuple[list[PurePath], list[PurePath]]:
    """The files of a work tree that are tracked, and those that are new and not ignored; of repositories in it, too."""
    tracked, new = (
        [PurePath(name) for name in (_ask_git(top, "ls-files", "-z", *which) or "").split("\0") if name]
        for which in (("--cached",), ("--others", "--exclude-standard"))
    )
    # Git tells a repository in another as a single name: a submodule's among those tracked.
    for names, known in ((tuple(tracked), tracked), (tuple(new), new)):
        for name in names:
            note = top / name / ".git"
            # What a link leads to may be anywhere, and even this repository.
            if note.exists() and not (top / name).is_symlink() and not _is_worktree(note, top):
                inner, others = _list(top / name)
                known += [name / file for file in inner]
                new += [name / file for file in others]
    return tracked, new


def _is_worktree(note: Path, top: Path) -> bool:
    """Whether what git notes of a folder says that it is a work tree of the repository in `top`, once more."""
    if not note.is_file():
        return False
    noted = os.fsdecode(note.read_bytes()).removeprefix("gitdir:").strip()
    above = Path(os.path.realpath(note.parent / noted)).parent
    common = (_ask_git(top, "rev-parse", "--git-common-dir") or "").rstrip("\n")
    return above.name == "worktrees" and above.parent == Path(os.path.realpath(top / common))


def _ask_git(folder: Path, *words: str) -> str | None:
    """What git prints, names as `os.fsdecode` has them; None where there is no git, or the folder is in no work tree.

    Raises:
        ConfigError: it fails otherwise.
    """
    what, remedy = f"the code in {folder} cannot be copied, as git {words[0]}", "mend that, and submit again"
    english = os.environ | {"LC_ALL": "C"}
    try:
        answer = subprocess.run(["git", *words], cwd=folder, env=english, capture_output=True, timeout=GIT_S)
    except OSError:
        return None
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{what} does not answer within {GIT_S:g} s; {remedy}") from error
    said = " ".join(answer.stderr.decode(errors="replace").split())
    if answer.returncode == 0:
        return os.fsdecode(answer.stdout)
    if "not a git repository" in said or "must be run in a work tree" in said:
        return None
    raise ConfigError(f"{what} says: {said}; {remedy}")
