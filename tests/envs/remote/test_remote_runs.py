"""Searches and PPO at two servers, of which one is killed, give the bytes of serial runs, killed and resumed too."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command, assert_same_run, call_main, rows
from remote_servers import CARTPOLE, remote, serve_fixture, start_process  # noqa: F401

from paddock.envs.errors import ConfigError
from paddock.envs.tasks.poles import Poles
from paddock.envs.vector import Serial
from paddock.envs.vector.remote import make_endpoint
from paddock.serve import start

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.client.vector import RemoteVectorEnv  # noqa: E402

POLES = Poles(start=0.5, step=0.1, min=0.05, max=3.0, max_episode_steps=40)
ES = ["algo=es", "env=cartpole", "algo.population=8", "algo.pairs_per_task=2", "algo.episode_cap=60"]
POET = ["algo=poet", "env=poles", "env.max_episode_steps=40", "algo.population=4", "algo.transfer_every=2"]
POET += ["algo.reproduce_every=2", "algo.reproduce_score=1", "algo.max_children=2", "algo.max_niches=2"]
POET += ["algo.criterion_low=1", "algo.hidden_sizes=[4]"]


class Killed(BaseException):
    """Stands for the end of this process."""


def test_poet_at_two_servers_has_the_same_bytes_killed_and_resumed(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, kill_at = POLES.env_spec(POLES.flat(), None), 200
    search = [*POET, "vec.num_envs=4", "compute=serial", "budget.iterations=4", "algo.eval_episodes=2"]
    search += ["algo.eval_max_steps=40", "checkpoint.every_s=0"]
    servers = [serve(spec, Serial(num_envs=64), free_arguments=True, max_sessions=40) for _ in range(2)]
    received, recv = [0], RemoteVectorEnv.recv

    def recv_or_kill(venv: RemoteVectorEnv, *arguments: Any) -> Any:
        received[0] += 1
        if received[0] == kill_at // 2:
            servers[1].close()
            same = {"address": servers[1].address, "free_arguments": True, "max_sessions": 40}
            servers.append(serve(spec, Serial(num_envs=64), **same))
        if received[0] == kill_at:
            raise Killed
        return recv(venv, *arguments)

    assert call_main(*search, "vec=serial", f"run.dir={tmp_path / 'serial'}") == 0
    monkeypatch.setattr(RemoteVectorEnv, "recv", recv_or_kill)
    addresses = f"vec.address=[{servers[0].address},{servers[1].address}]"
    there = [*search, "vec=remote", addresses, f"run.dir={tmp_path / 'remote'}"]
    with pytest.raises(Killed):
        call_main(*there)
    before = (tmp_path / "remote" / "metrics.jsonl").read_bytes()
    assert call_main(*there) == 0
    expected = (tmp_path / "serial" / "metrics.jsonl").read_bytes()
    assert (tmp_path / "remote" / "metrics.jsonl").read_bytes() == expected
    assert expected.startswith(before) and 0 < len(before) < len(expected)
    assert b'"birth"' in (tmp_path / "serial" / "events.jsonl").read_bytes()


def test_too_many_environments_for_a_server_are_refused_at_start(
    serve: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, large = serve(CARTPOLE, Serial(num_envs=64), max_envs_per_session=2), serve(CARTPOLE, Serial(num_envs=4))
    words = [*ES, "vec=remote", "compute=serial", "budget.iterations=1", f"run.dir={tmp_path / 'run'}"]
    for addresses, num_envs, found in (([small], 3, 3), ([large], 5, 5), ([large, small], 5, 3)):
        there = ",".join(server.address for server in addresses)
        assert call_main(*words, f"vec.address=[{there}]", f"vec.num_envs={num_envs}", "dry_run=true") == 2
        err, refused = capsys.readouterr().err, addresses[-1]
        assert f"{found} environments are more than the {refused.sessions.most} that a client may have at " in err
        assert f"vec.address={refused.address}; request fewer" in err and err.count("\n") == 1
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


# Arguments that a client chooses


def test_a_client_chooses_arguments_where_they_are_free(serve: Any) -> None:
    flat, other = (POLES.env_spec({"length": length}, None) for length in (0.5, 0.7))
    said = r"env\.wrappers=.*'length': 0\.7.* here, and .*'length': 0\.5.* at vec\.address"
    with pytest.raises(ConfigError, match=said):
        remote(serve(flat).address, num_envs=2).make(other)
    address = serve(flat, free_arguments=True).address
    with closing(Serial(num_envs=2).make(other)) as here, closing(remote(address, num_envs=2).make(other)) as there:
        for venv in (here, there):
            venv.begin(1)
        for _ in range(30):
            (expected, *_), (told, *_) = here.step([1, 0]), there.step([1, 0])
            assert told.tobytes() == expected.tobytes()


def ask(server: Any, arguments: Any) -> None:
    """Open a session with arguments."""
    request = {"environment": "CartPole-v1", "num_envs": 1, "autoreset": "SAME_STEP"}
    make_endpoint(server.address, None, {}, 1.0).call(server.address, "Open", request | {"arguments": arguments}, 10.0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([{"_target_": "os.system"}, [{"length": 1.0}]], "_target_=os.system: only the server may set text"),
        ([{}, [{"length": np.array([0.5, [b"passwd"]], object)}]], "only the server may set text"),
        ([{}, [{"length": 1.0, "_target_": "os.system"}]], r"_target_=os\.system: only the server may set text"),
        ([{}, [{"length": np.zeros(2)}]], r"PoleLength rejects \{'length': array"),
        ([{}, []], "arguments are for 0 wrappers, expected 1"),
    ],
)
def test_arguments_that_a_constructor_refuses_are_one_line(serve: Any, arguments: Any, named: str) -> None:
    server = serve(POLES.env_spec(POLES.flat(), None), free_arguments=True)
    with pytest.raises(ConfigError, match=named) as caught:
        ask(server, arguments)
    assert "\n" not in str(caught.value) and server.sessions.rows == 0


def test_a_family_is_served_where_arguments_are_free(capsys: Any) -> None:
    family = ["env=poles", "vec=serial", "serve.address=127.0.0.1:0"]
    with pytest.raises(ConfigError, match=r"choose a single one.*or set serve\.free_arguments=true for algo=poet"):
        start(family)
    with closing(start([*family, "serve.free_arguments=true"])) as server:
        assert f"serving CartPole-v1 at {server.address}" in capsys.readouterr().out
