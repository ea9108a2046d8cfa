"""Servers of environments in Slurm jobs: clients follow their address through the end of a job, and the next one."""

import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import env_spec, wait_until
from slurm_cluster import Slurm, at_slurm, slurm  # noqa: F401, fixtures

from paddock import serve
from paddock.envs.errors import ConfigError
from paddock.envs.vector import Remote, Serial
from paddock.slurm import server

pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

ARGUMENTS = ["env=cartpole", "vec=serial", "vec.num_envs=8", "serve.address=127.0.0.1:0", "serve.submit=slurm"]


@pytest.mark.slurm
@pytest.mark.timeout(300)
def test_client_survives_the_requeue_of_its_server(
    at_slurm: Slurm,  # noqa: F811
    tmp_path: Path,
) -> None:
    path = tmp_path / "address"
    arguments = [*ARGUMENTS, f"serve.address_file={path}", "slurm.time_min=5", "slurm.signal_delay_s=10"]
    assert serve._command(arguments) == 0
    spec = env_spec("CartPole-v1")
    actions = np.random.default_rng(0).integers(2, size=(40, 4))
    with closing(Serial(num_envs=4).make(spec)) as here:
        expected = [here.begin(3)[0], *(here.step(one)[0] for one in actions)]
    [job] = [line.split()[0] for line in at_slurm.call("squeue", "-h", "-o", "%A").splitlines()]
    try:
        wait_until(path.exists, say=lambda: at_slurm.call("scontrol", "show", "job", job))
        first = path.read_text()
        given: dict[str, Any] = {
            "token_file": None,
            "tls": {},
            "wait_s": 120.0,
            "lost": "replay",
            "journal_mb": 16.0,
            "same_versions": "run",
        }
        with closing(Remote(num_envs=4, address=f"file:{path}", **given).make(spec)) as venv:
            told = [venv.begin(3)[0]]
            for t, one in enumerate(actions):
                if t == 20:
                    at_slurm.call("scancel", "--signal=USR2", job)  # as before the time limit
                    # The signal is on its way when the command returns, and the steps that are left take no time.
                    wait_until(lambda: path.exists() and path.read_text() != first)
                told.append(venv.step(one)[0])
            assert venv.restarts == 1 and path.read_text() != first
        assert [one.tobytes() for one in told] == [one.tobytes() for one in expected]
    finally:
        at_slurm.call("scancel", job)
        wait_until(lambda: not at_slurm.call("squeue", "-h").strip())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (ARGUMENTS, "serve.submit=slurm needs serve.address_file=PATH"),
        ([*ARGUMENTS, "serve.address_file=a"], "serve.submit=slurm needs sbatch, srun, scontrol, squeue on the PATH"),
        ([*ARGUMENTS, "slurm.time_min=0"], "time_min=0 must be"),
        ([*ARGUMENTS, "slurm.minutes=1"], "slurm.minutes is not a key of"),
    ],
)
def test_wrong_submission_is_one_line(arguments: list[str], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError) as caught:
        serve._command(arguments)
    assert named in str(caught.value) and "\n" not in str(caught.value)


def test_address_file_may_lie_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[list[str]] = []

    def note(folder: Path, commands: list[list[str]], *rest: Any, **named: Any) -> list[Any]:
        submitted.extend(commands)
        return [SimpleNamespace(job_id=1, paths=SimpleNamespace(stdout="out"))]

    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(server, "submit_commands", note)
    path = tmp_path / "schön" / "address"
    path.parent.mkdir()
    monkeypatch.chdir(path.parent)
    assert serve._command([*ARGUMENTS, "serve.address_file=address"]) == 0
    [[python, _, module, *arguments]] = submitted
    assert (python, module) == (sys.executable, "paddock.serve")
    assert serve._compose(arguments)["serve"]["address_file"] == str(path)
