"""The copy of the code that jobs run: what is in it, what links and repositories in it become."""

import subprocess
from pathlib import Path

import pytest

from paddock.algos.learning.replay import library as replay_library
from paddock.algos.networks.dense import library as dense_library
from paddock.envs.errors import ConfigError
from paddock.envs.native import library
from paddock.slurm.snapshot import MAX_MB, find_tree


def test_snapshot_holds_code_alone(tmp_path: Path) -> None:
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
    with pytest.raises(ConfigError, match=r"takes 201 MB.* \.gitignore, such as big\.dat"):
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


def test_snapshot_has_submodules_and_its_links_stay_inside(tmp_path: Path) -> None:
    lib, top = make_repository(tmp_path / "lib", "lib.py"), make_repository(tmp_path / "top", "pkg/a.py")
    submodule = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), "sub"]
    subprocess.run(["git", *submodule], cwd=top, check=True, capture_output=True)
    (tmp_path / "data").mkdir()
    for name, target in {"near": "pkg/a.py", "whole": f"{top}/pkg", "data": "../data", "gone": "nowhere"}.items():
        (top / name).symlink_to(target)
    tree = find_tree(top, ".", tmp_path)
    assert tree is not None
    copy = tmp_path / "deep/er/copy"
    tree.copy(copy)
    assert (copy / "sub/lib.py").read_text() == "lib.py"
    for name, there in {"near": copy / "pkg/a.py", "whole": copy / "pkg", "data": tmp_path / "data"}.items():
        assert (copy / name).is_symlink() and (copy / name).resolve(strict=True) == there
    assert (copy / "gone").is_symlink()


def test_failure_of_git_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = make_repository(tmp_path / "top", "top.py")
    assert find_tree(tmp_path, ".", tmp_path) is None
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(ConfigError, match=r"git rev-parse failed: .*dubious ownership.* safe\.directory"):
        find_tree(top, ".", tmp_path)


def test_snapshot_has_the_compiled_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
