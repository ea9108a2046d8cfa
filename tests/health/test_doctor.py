"""The doctor finds what is wrong: each check is made to fail, by the thing itself wherever that can be broken here."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT
from packaging.specifiers import SpecifierSet

from paddock.algos.learning.replay import library as replay
from paddock.algos.networks.dense import library as dense
from paddock.algos.pool.calls import Witness
from paddock.algos.pool.serial import SerialPool
from paddock.envs.native import library
from paddock.evaluation import video
from paddock.health import checks, installed


def doctor(*arguments: str, flags: tuple[str, ...] = (), **environment: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error of the command."""
    command = [sys.executable, *flags, "-m", "paddock.doctor", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def line_of(output: str, name: str) -> str:
    (line,) = (line for line in output.splitlines() if line[5:].startswith(f"{name}: "))
    return line


# The command


def test_all_is_well_here_and_every_line_says_how_well(tmp_path: Path) -> None:
    code, out, err = doctor(f"run.root={tmp_path}", "compute=local", "compute.workers=2")
    assert (code, err) == (0, ""), out
    assert all(line[:5] in ("ok   ", "warn ") for line in out.splitlines())
    assert "one on each of 2 (" in line_of(out, "tasks") and line_of(out, "clock").startswith("ok")
    assert line_of(out, "workers").startswith("ok   workers: 2, ")
    assert list(tmp_path.iterdir()) == []


def test_the_first_line_comes_at_once() -> None:
    started = time.monotonic()
    command = [sys.executable, "-m", "paddock.doctor"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ok   python: ")
        seconds = time.monotonic() - started
        process.kill()
    assert seconds < 5, "about one on an idle machine"


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["compute=lcal"], "compute=lcal is not an option of compute; did you mean 'local'?"),
        (["compute=dask", "compute.adress=tcp://a:1"], "did you mean 'compute.address'?"),
        (["comput=local"], "comput=local is not an argument of doctor; did you mean 'compute'? (see --help)"),
        (["--all"], "--all is not an argument of doctor"),
        (["algo=es"], "algo=es is not an argument of doctor"),
        (["compute=local", "compute.workers=0"], "compute.workers=0 must be a"),
        (["compute=dask", "compute.address=nowhere"], "compute.address=nowhere is not an address"),
    ],
)
def test_a_bad_argument_is_one_line_before_anything_is_checked(arguments: list[str], answer: str) -> None:
    code, out, err = doctor(*arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("paddock: ") and answer in err


def test_help_names_every_key() -> None:
    code, out, _ = doctor("--help")
    assert code == 0 and all(
        key in out for key in ("compute=NAME", "compute.KEY=VALUE", "run.root=FOLDER", "Exit codes")
    )


def test_a_failure_is_told_by_the_exit_code() -> None:
    code, out, err = doctor("run.root=/proc/nowhere", "compute=dask", "compute.address=tcp://127.0.0.1:1")
    assert (code, err) == (1, "")
    assert line_of(out, "disk").startswith("FAIL disk: /proc cannot be written (")
    assert "choose another place with run.root=" in line_of(out, "disk")
    assert line_of(out, "workers").startswith("FAIL workers: compute.address=tcp://127.0.0.1:1 does not answer")
    assert line_of(out, "box2d").startswith("ok")


def test_without_any_package_it_says_so(tmp_path: Path) -> None:
    code, out, err = doctor(flags=("-S",))
    assert (code, err) == (1, "")
    assert line_of(out, "packages") == f"FAIL packages: none is installed; {installed.INSTALL}"
    assert line_of(out, "the rest").startswith("FAIL the rest: ModuleNotFoundError")


# The installation


def test_an_old_python_fails() -> None:
    finding = installed.check_python((3, 10, 2))
    assert finding.level == "FAIL" and str(finding).startswith("3.10.2 at ") and "3.11 or newer" in finding.remedy


def test_missing_and_old_packages_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "probed-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(
        "Metadata-Version: 2.1\nName: probed\nVersion: 1.0\nProvides-Extra: more\n"
        'Requires-Dist: not-there-either; extra == "more"\nRequires-Dist: not-asked-for; extra == "other"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    elsewhere = 'not-for-us; python_version < "3"'
    assert installed.check_packages(["numpy", "probed>=1", elsewhere]).level == "ok"
    finding = installed.check_packages(["numpy", "not-there", "probed[more]>=2,<3"])
    assert finding.level == "FAIL"
    assert finding.text == "not-there is missing, probed 1.0 is not <3,>=2, not-there-either is missing"


def test_what_the_project_requires_is_read_from_its_own_file() -> None:
    finding = installed.check_packages()
    assert finding.level == "ok", finding
    assert int(finding.text.split()[1]) >= 15


def test_what_is_pinned_can_be_installed_by_the_oldest_python_that_is_allowed() -> None:
    allowed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = allowed.removeprefix(">=") + ".0"
    pins = set(re.findall(r"^([^#\s=]+==[^\s;]+)", (ROOT / "constraints.txt").read_text(), re.M))
    here = [one for one in importlib.metadata.distributions() if f"{one.name}=={one.version}" in pins]
    said = [one for one in here if "Requires-Python" in one.metadata]
    assert len(said) > 50
    assert [one.name for one in said if oldest not in SpecifierSet(one.metadata["Requires-Python"])] == []


def test_a_project_that_other_folders_cannot_import_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed.check_import().level == "ok"
    finding = installed.check_import(("paddock.algos", "not_there"))
    assert finding.level == "FAIL" and "No module named 'not_there'" in finding.text
    shutil.copy(ROOT / "paddock.py", tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    finding = installed.check_import()
    assert finding.level == "FAIL" and f"another one, of {tmp_path}" in finding.text


# The machine


def test_a_missing_box2d_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_box2d().level == "ok"
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d.bipedal_walker", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    finding = checks.check_box2d()
    assert finding.level == "FAIL" and "gymnasium[box2d]" in finding.remedy


def test_native_environments_that_were_not_built_warn_and_those_that_do_not_load_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = checks.check_native()
    if library.built():
        assert finding.level == "ok" and finding.text.startswith(f"{library.widest()} instructions, "), finding
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    library.load.cache_clear()
    try:
        finding = checks.check_native()
        assert finding.level == "warn" and str(finding).startswith("not built: ") and "install gcc" in finding.remedy
        (tmp_path / f"_lanes{library.EXTENSION_SUFFIXES[0]}").write_text("This is no library.")
        finding = checks.check_native()
        assert finding.level == "FAIL" and "cannot be loaded (" in finding.text and "pip install again" in finding.text
    finally:
        library.load.cache_clear()


@pytest.mark.skipif(not library.built(), reason="the libraries were not built")
@pytest.mark.parametrize("other", [dense, replay], ids=["dense", "replay"])
def test_a_library_that_was_not_built_beside_the_others_fails(
    other: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other, "FOLDER", tmp_path)
    other.load.cache_clear()
    dense.is_refused.cache_clear()
    try:
        finding = checks.check_native()
    finally:
        other.load.cache_clear()
    assert finding.level == "FAIL" and "was not built; install gcc" in finding.text


def test_a_missing_codec_fails_and_one_that_browsers_lack_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_video().level == "ok"
    monkeypatch.setattr(video, "CODECS", ("mpeg4",))
    assert checks.check_video().level == "warn"
    monkeypatch.setattr(video, "CODECS", ("not_there",))
    assert checks.check_video().level == "FAIL"


def test_a_gpu_that_cannot_compute_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    if torch.cuda.is_available():
        assert checks.check_gpu().level == "ok"
        pytest.skip("the GPU of this machine computes")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    finding = checks.check_gpu()
    assert finding.level == "FAIL" and "nvidia-smi" in finding.remedy


def test_wandb_warns_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    finding = checks.check_wandb()
    assert finding.level == "warn" and finding.remedy == "`wandb login` to sync"
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password " + "0" * 40 + "\n")
    (tmp_path / "netrc").chmod(0o600)
    assert checks.check_wandb().level == "ok"
    monkeypatch.setattr(checks, "WANDB", "not-there")
    assert checks.check_wandb().level == "FAIL"


def test_a_disk_that_cannot_be_written_fails_and_a_full_one_warns(tmp_path: Path) -> None:
    assert checks.check_disk(tmp_path / "runs" / "deep").level == "ok"
    finding = checks.check_disk(tmp_path, least_gb=1e9)
    assert finding.level == "warn" and "less than 1e+09" in finding.text
    (tmp_path / "file").touch()
    finding = checks.check_disk(tmp_path / "file" / "runs")
    assert finding.level == "FAIL" and "Not a directory" in finding.text
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def in_a_process(before: str, check: str) -> str:
    code = f"import os, resource; from paddock.health import checks; {before}; it = checks.{check}()"
    code += "; print(it.level, it)"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_memory_that_cannot_be_shared_warns() -> None:
    assert checks.check_memory().level == "ok"
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"
    assert in_a_process(limit, "check_memory").startswith("warn none can be shared (OSError")


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores, to take one away")
def test_cores_that_may_not_be_used_warn(tmp_path: Path) -> None:
    answer = in_a_process("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", "check_cores")
    assert answer.startswith("warn 1 of ") and "set compute.workers=1" in answer
    quota = tmp_path / "cpu.max"
    quota.write_text("150000 100000\n")
    finding = checks.check_cores(quota)
    assert finding.level == "warn" and "1.5 of" in finding.text and "a cgroup" in finding.text
    quota.write_text("max 100000\n")
    assert "cgroup" not in checks.check_cores(quota).text


def test_slurm_without_a_controller_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(checks.check_slurm()) == "not here"
    _script(tmp_path / "sbatch", "echo slurm-wlm 22.05.8")
    assert "sinfo" in checks.check_slurm().text and checks.check_slurm().level == "warn"
    _script(tmp_path / "sinfo", "echo 'main 3 idle'")
    assert str(checks.check_slurm()) == "slurm-wlm 22.05.8; partitions, nodes, state: main 3 idle"
    _script(tmp_path / "sinfo", "echo cannot reach the controller >&2; exit 1")
    finding = checks.check_slurm()
    assert finding.level == "warn" and "cannot reach the controller" in finding.text and "SLURM_CONF" in finding.remedy


# The workers


def test_a_workers_wrong_clock_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [finding.level for _, finding in checks.check_compute(SerialPool())] == ["ok"] * 3
    tell = Witness.tell

    def late(self: Witness) -> Any:
        host, pid, clock = tell(self)
        return host, pid, clock - 100

    monkeypatch.setattr(Witness, "tell", late)
    found = dict(checks.check_compute(SerialPool()))
    assert found["clock"].level == "warn" and "100.0 s off" in found["clock"].text


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
