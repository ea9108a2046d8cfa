"""The copy of the code that jobs run: what is in it, what links and repositories in it become."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from paddock.algos.learning.replay import library as replay_library
from paddock.algos.networks.dense import library as dense_library
from paddock.envs.errors import ConfigError
from paddock.envs.native import library
from paddock.slurm.snapshot import MAX_MB, find_tree


def test_a_copy_of_the_code_is_code_alone(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    made = ["sweep/multirun.yaml", "sweep/0/metrics.jsonl", "runs/a/provenance.json", "runs/a/checkpoints/1.npz"]
    made += ["sweeps/es/sweep.json", "sweeps/es/code/0/here/tool.py"]
    code = ["tool.py", "deep/er.py", ".gitignore"]
    for name in [*code, *made, "ignored.bin", "chosen/x.py", "gone.py"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("*.bin\n")
    subprocess.run(["git", "add", "gone.py", "tool.py"], cwd=tmp_path, check=True)
    (tmp_path / "gone.py").unlink()
    tree = find_tree(tmp_path / "deep", ".", leave_out=tmp_path / "chosen")
    assert tree is not None and tree.top == tmp_path
    assert sorted(map(str, tree.files)) == sorted(code)
    assert find_tree(tmp_path / "deep", "no.py", tmp_path) is None
    with open(tmp_path / "big.dat", "wb") as big:
        big.truncate((MAX_MB + 1) * 10**6)
    with pytest.raises(ConfigError, match=r"is 201 MB .* \.gitignore, such as big\.dat"):
        find_tree(tmp_path, ".", tmp_path / "chosen")


def make_repository(path: Path, *files: str) -> Path:
    """A git repository in which these files are committed."""
    for name in files:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    who = ["-c", "user.name=me", "-c", "user.email=me@here"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=path, check=True)
    return path


def test_a_copy_of_the_code_has_what_repositories_in_it_hold(tmp_path: Path) -> None:
    lib, top = make_repository(tmp_path / "lib", "lib.py"), make_repository(tmp_path / "top", "top.py")
    submodule = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), "sub"]
    for words in (submodule, ["worktree", "add", "--quiet", "--detach", "once_more"]):
        subprocess.run(["git", *words], cwd=top, check=True, capture_output=True)
    make_repository(top / "mine", "old.py")
    for name in ("sub/new.py", "mine/new.py", "mine/runs/a/provenance.json"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch()
    tree = find_tree(top, ".", tmp_path)
    assert tree is not None
    kept = [".gitmodules", "mine/new.py", "mine/old.py", "sub/lib.py", "sub/new.py", "top.py"]
    assert sorted(map(str, tree.files)) == kept


def test_a_copy_of_the_code_follows_no_link_to_a_repository(tmp_path: Path) -> None:
    make_repository(tmp_path / "lib", "lib.py")
    top = make_repository(tmp_path / "top", "top.py")
    for name, there in {"self": ".", "lib": "../lib", "new": "../lib"}.items():
        (top / name).symlink_to(there)
    subprocess.run(["git", "add", "self", "lib"], cwd=top, check=True)
    tree = find_tree(top, ".", tmp_path)
    assert tree is not None and sorted(map(str, tree.files)) == ["lib", "new", "self", "top.py"]
    tree.copy(tmp_path / "copy")
    assert (tmp_path / "copy/self").resolve() == tmp_path / "copy"
    assert (tmp_path / "copy/lib").resolve() == tmp_path / "lib"


def test_a_copy_of_a_linked_work_tree_has_its_submodules(tmp_path: Path) -> None:
    lib, top = make_repository(tmp_path / "lib", "lib.py"), make_repository(tmp_path / "top", "top.py")
    allowed = ["-c", "protocol.file.allow=always", "-c", "user.name=me", "-c", "user.email=me@here"]
    linked = tmp_path / "linked"
    for folder, words in (
        (top, ["submodule", "--quiet", "add", str(lib), "sub"]),
        (top, ["commit", "-qm", "second"]),
        (top, ["worktree", "add", "--quiet", "--detach", str(linked)]),
        (linked, ["submodule", "--quiet", "update", "--init"]),
        (lib, ["worktree", "add", "--quiet", "--detach", str(linked / "theirs")]),
        (linked, ["worktree", "add", "--quiet", "--detach", str(linked / "once_more")]),
    ):
        subprocess.run(["git", *allowed, *words], cwd=folder, check=True, capture_output=True)
    assert "/worktrees/" in (linked / "sub/.git").read_text()
    tree = find_tree(linked, ".", tmp_path)
    assert tree is not None
    assert sorted(map(str, tree.files)) == [".gitmodules", "sub/lib.py", "theirs/lib.py", "top.py"]


def test_a_link_to_much_data_elsewhere_stays_one_and_counts_as_one(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "top", "top.py")
    for name, size in {"huge.npy": (MAX_MB + 1) * 10**6, "large.json": 2 * 10**6, "small.bin": 10**6}.items():
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)
        (top / name).symlink_to(f"../{name}")
    tree = find_tree(top, ".", tmp_path)
    assert tree is not None
    copy = tmp_path / "copy"
    tree.copy(copy)
    assert os.readlink(copy / "huge.npy") == str(tmp_path / "huge.npy")
    assert [(copy / name).is_symlink() for name in ("large.json", "small.bin")] == [False, False]


def test_links_in_a_copy_of_the_code_lead_to_the_copy_or_are_one(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "top", "pkg/a.py")
    (tmp_path / "data").mkdir()
    (tmp_path / "outside.py").write_text("as it was")
    leads = {"near": "pkg/a.py", "far.py": "../outside.py", "whole": f"{top}/pkg", "data": "../data", "gone": "nowhere"}
    for name, target in leads.items():
        (top / name).symlink_to(target)
    tree = find_tree(top, ".", tmp_path)
    assert tree is not None
    copy = tmp_path / "deep/er/copy"
    tree.copy(copy)
    (tmp_path / "outside.py").write_text("edited")
    assert (copy / "far.py").read_text() == "as it was" and not (copy / "far.py").is_symlink()
    for name, there in {"near": copy / "pkg/a.py", "whole": copy / "pkg", "data": tmp_path / "data"}.items():
        assert (copy / name).is_symlink() and (copy / name).resolve(strict=True) == there
    assert (copy / "gone").is_symlink()


def test_a_file_that_goes_or_is_closed_while_code_is_copied_is_no_fault_of_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = make_repository(tmp_path / "top", "a.py", "b.py", "c.py")
    tree = find_tree(top, ".", tmp_path)
    assert tree is not None
    (top / "b.py").unlink()
    tree.copy(tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").glob("*.py")) == ["a.py", "c.py"]

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(source))

    monkeypatch.setattr("paddock.slurm.snapshot.shutil.copy2", refuse)
    with pytest.raises(
        ConfigError, match=r"top/a\.py cannot be copied with the code \(Permission denied\); mend that, or"
    ):
        tree.copy(tmp_path / "other")


def test_code_that_git_refuses_to_tell_of_is_not_left_behind_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = make_repository(tmp_path / "top", "top.py")
    assert find_tree(tmp_path, ".", tmp_path) is None
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(
        ConfigError, match=r"as git rev-parse says: .*dubious ownership.* safe\.directory .*; mend that"
    ):
        find_tree(top, ".", tmp_path)


def test_a_copy_of_the_code_has_the_compiled_libraries_that_git_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = (f"_lanes{suffix}" for suffix in (library.EXTENSION_SUFFIXES[0], ".cpython-30-vax.so"))
    others = [f"{name}{library.EXTENSION_SUFFIXES[0]}" for name in ("_dense", "_replay")]
    (tmp_path / "native").mkdir()
    for name in ("tool.py", *(f"native/{name}" for name in (here, elsewhere, *others))):
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("_lanes*\n_dense*\n_replay*\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for each in (library, dense_library, replay_library):
        monkeypatch.setattr(each, "FOLDER", tmp_path / "native")
    tree = find_tree(tmp_path, "tool.py", tmp_path / "sweep")
    assert tree is not None
    tree.copy(tmp_path / "sweep/code")
    copied = {str(path.relative_to(tmp_path / "sweep/code")) for path in (tmp_path / "sweep/code").rglob("*.*")}
    assert copied == {".gitignore", ".submitted.json", "tool.py", *(f"native/{name}" for name in (here, *others))}
