"""The doctor finds what is wrong: each check is made to fail, by the thing itself wherever that can be broken here."""

import importlib.metadata
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT, Main
from packaging.specifiers import SpecifierSet

from paddock.envs.native import library
from paddock.health import checks, installed


def line_of(output: str, name: str) -> str:
    (line,) = (line for line in output.splitlines() if line[5:].startswith(f"{name}: "))
    return line


def test_a_sound_machine_and_pool_pass_every_check(tmp_path: Path, call_command: Main) -> None:
    code, out, err = call_command("doctor", f"run.root={tmp_path}", "compute=local", "compute.workers=2")
    assert (code, err) == (0, ""), out
    assert all(line[:5] in ("ok   ", "warn ") for line in out.splitlines())
    assert line_of(out, "tasks").startswith("ok   tasks: answered by ")
    assert line_of(out, "workers").startswith("ok   workers: 2, ")
    assert list(tmp_path.iterdir()) == []


def test_a_bad_argument_is_one_line_before_anything_is_checked(call_command: Main) -> None:
    for argument, answer in {
        "compute=lcal": "compute=lcal is not an option of compute; did you mean 'local'?",
        "comput=local": "comput=local is not an argument of doctor; did you mean 'compute'? (see --help)",
        "--all": "--all is not an argument of doctor",
        "compute.workers=0": "compute.workers=0 must be a",
    }.items():
        code, out, err = call_command("doctor", argument)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert err.startswith("paddock: ") and answer in err


def test_a_failure_sets_the_exit_code(call_command: Main) -> None:
    code, out, _ = call_command("doctor", "run.root=/proc/nowhere", "compute=dask", "compute.address=tcp://127.0.0.1:1")
    assert code == 1
    assert line_of(out, "disk").startswith("FAIL disk: /proc/nowhere cannot be written (")
    assert line_of(out, "workers").startswith("FAIL workers: compute.address=tcp://127.0.0.1:1 does not respond")


def test_missing_or_old_packages_fail() -> None:
    assert installed.check_packages(["numpy", 'not-for-us; python_version < "3"']).level == "ok"
    finding = installed.check_packages(["not-there", "numpy<1"])
    assert finding.level == "FAIL" and finding.text.startswith("not-there is missing, numpy 2")
    assert installed.check_packages().level == "ok"


def test_what_is_pinned_can_be_installed_by_the_oldest_python() -> None:
    allowed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = allowed.removeprefix(">=") + ".0"
    pins = set(re.findall(r"^([^#\s=]+==[^\s;]+)", (ROOT / "constraints.txt").read_text(), re.M))
    here = [one for one in importlib.metadata.distributions() if f"{one.name}=={one.version}" in pins]
    said = [one for one in here if "Requires-Python" in one.metadata]
    assert len(said) > 50
    assert [one.name for one in said if oldest not in SpecifierSet(one.metadata["Requires-Python"])] == []


def test_another_copy_on_the_path_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "paddock.py", tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    finding = installed.check_import()
    assert finding.level == "FAIL" and "outside this folder" in finding.text


def test_native_libraries_that_are_not_built_warn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    library.load.cache_clear()
    try:
        assert checks.check_native().level == "warn"
        (tmp_path / f"_lanes{library.EXTENSION_SUFFIXES[0]}").write_text("This is no library.")
        finding = checks.check_native()
        assert finding.level == "FAIL" and "cannot be loaded (" in finding.text
    finally:
        library.load.cache_clear()


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
    assert finding.level == "warn" and finding.remedy == "run `wandb login` to sync"
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password " + "0" * 40 + "\n")
    (tmp_path / "netrc").chmod(0o600)
    assert checks.check_wandb().level == "ok"


def test_a_full_disk_warns(tmp_path: Path) -> None:
    assert checks.check_disk(tmp_path / "runs" / "deep").level == "ok"
    finding = checks.check_disk(tmp_path, least_gb=1e9)
    assert finding.level == "warn" and "less than 1e+09" in finding.text


def test_slurm_without_a_controller_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(name: str, text: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(checks.check_slurm()) == "not installed"
    script("sbatch", "echo slurm-wlm 22.05.8")
    script("sinfo", "echo 'main 3 idle'")
    assert str(checks.check_slurm()) == "partitions, nodes, state: main 3 idle"
    script("sinfo", "echo cannot reach the controller >&2; exit 1")
    finding = checks.check_slurm()
    assert finding.level == "warn" and "sinfo does not respond" in finding.text and "SLURM_CONF" in finding.remedy
