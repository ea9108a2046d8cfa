"""Searches and PPO at two servers, of which one is killed, give the bytes of serial runs, killed and resumed too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Command, assert_same_run, call_main, rows
from remote_servers import CARTPOLE, remote, serve_fixture, start_process  # noqa: F401

from paddock.envs.errors import ConfigError
from paddock.envs.vector import Serial
from paddock.serve import start

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")


ES = ["algo=es", "env=cartpole", "algo.population=8", "algo.pairs_per_task=2", "algo.episode_cap=60"]


def test_too_many_environments_for_a_server_are_refused_at_start(
    serve: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, large = serve(CARTPOLE, Serial(num_envs=2)), serve(CARTPOLE, Serial(num_envs=4))
    words = [*ES, "vec=remote", "compute=serial", "budget.iterations=1", f"run.dir={tmp_path / 'run'}"]
    for addresses, num_envs, found in (([small], 3, 3), ([large], 5, 5), ([large, small], 5, 3)):
        there = ",".join(server.address for server in addresses)
        assert call_main(*words, f"vec.address=[{there}]", f"vec.num_envs={num_envs}", "dry_run=true") == 2
        err, refused = capsys.readouterr().err, addresses[-1]
        what = f"{found} environments are more than the {refused.sessions.capacity} at vec.address={refused.address}"
        assert f"{what}; request fewer" in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()
    there = f"vec.address=[{large.address},{small.address}]"
    assert call_main(*words, there, "vec.num_envs=4", "dry_run=true") == 0


PPO = ["algo=ppo", "env=cartpole", "vec.num_envs=6", "algo.num_steps=32", "algo.minibatch_size=48", "algo.groups=3"]
PPO += [
    "compute=serial",
    "algo.eval_every_iterations=5",
    "algo.eval_episodes=2",
    "algo.eval_max_steps=40",
    "checkpoint.every_s=0",
]


@pytest.mark.nightly
def test_ppo_at_two_servers_has_the_same_bytes_where_processes_are_killed(
    start: Callable[..., Command], tmp_path: Path
) -> None:
    serial, run = tmp_path / "serial", tmp_path / "run"
    ppo = [*PPO, "budget.iterations=40"]
    assert call_main(*ppo, "vec=serial", f"run.dir={serial}") == 0
    (one, first), (other, second) = start_process(), start_process()
    servers = [one, other]
    there = [*ppo, "vec=remote", f"vec.address=[{first},{second}]", f"run.dir={run}"]
    try:
        begun = start(*there)
        begun.wait_for(run, 3)
        begun.kill()
        reached = len(rows(run))
        assert reached < 30 and (serial / "metrics.jsonl").read_bytes().startswith((run / "metrics.jsonl").read_bytes())
        begun = start(*there)
        begun.wait_for(run, reached + 3)
        other.kill()
        assert len(rows(run)) < 40
        servers.append(start_process(second)[0])
        code, out, err = begun.wait()
    finally:
        for server in servers:
            server.kill()
            server.wait()
    assert code == 0 and "resuming in" in out, err
    assert f"resuming at {first}" in err or f"resuming at {second}" in err
    assert_same_run(run, serial)


@pytest.mark.parametrize("env", ["cartpole", "remote"])
def test_a_run_says_at_once_that_it_waits_for_its_server(
    serve: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], env: str
) -> None:
    server = serve(CARTPOLE)
    server.close()
    away = ["vec=remote", f"vec.address={server.address}", "vec.wait_s=0.3", f"run.dir={tmp_path / 'run'}"]
    assert call_main(*PPO, f"env={env}", *away) != 0
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: vec=remote: ") and warning.endswith("retrying for 0.3 s")
    assert "no server responds, for 0.3 s" in error


def test_a_family_is_not_served() -> None:
    with pytest.raises(ConfigError, match=r"a family of environments; choose a single one"):
        start(["env=poles", "vec=serial", "serve.address=127.0.0.1:0"])
