"""A run folder is data until its user says otherwise."""

import os
import shutil
from pathlib import Path

import pytest
import yaml
from conftest import TINY, Main, call_main

import paddock
from paddock.runs.trust import NotTrusted


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trust") / "run"
    assert call_main(*TINY, "compute=serial", "algo.population=4", "budget.iterations=1", f"run.dir={folder}") == 0
    return folder


@pytest.mark.parametrize("name", ["subprocess:getoutput", "paddock.envs.process:subprocess.getoutput"])
@pytest.mark.parametrize("command", ["evaluate", "rerun"])
def test_a_run_that_names_code_of_python_asks_for_trust(
    command: str, name: str, run: Path, tmp_path: Path, call_command: Main
) -> None:
    foreign, proof = tmp_path / "foreign", tmp_path / "proof"
    shutil.copytree(run, foreign)
    config = yaml.safe_load((foreign / "config.yaml").read_text())
    config["env"] |= {"id": name, "kwargs": {"cmd": f"touch {proof}"}}
    (foreign / "config.yaml").write_text(yaml.safe_dump(config))
    code, _, err = call_command(command, foreign)
    assert code == 2 and "trust=true" in err and len(err.splitlines()) == 1 and not proof.exists()
    call_command(command, foreign, "trust=true")
    assert proof.exists() == (name == "subprocess:getoutput")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_a_run_of_another_user_asks_for_trust(run: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    shutil.copytree(run, foreign)
    os.chown(foreign / "config.yaml", 65534, 65534)
    with pytest.raises(NotTrusted, match="another user"):
        paddock.load(foreign).policy()
    assert paddock.load(foreign, trust=True).policy() is not None
