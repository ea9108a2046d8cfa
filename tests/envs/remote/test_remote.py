"""Environments at a server: the same numbers as here, in every kind of space, at one server or two."""

import json
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import test_vector as contract
from conftest import ROOT, call_main
from gymnasium.utils.env_checker import check_env
from remote_servers import (  # noqa: F401
    CARTPOLE,
    COUNTING,
    WORKERS,
    N,
    Served,
    play,
    remote,
    serve_fixture,
    undisturbed_fixture,
)
from vector_cases import (  # noqa: F401
    EVERYTHING,
    SERIAL,
    STRUCTURED,
    TASKS,
    assert_same,
    make_fixture,
    multiprocess,
    play_in_rows,
)

from paddock.envs.errors import ConfigError
from paddock.envs.vector import Serial, Vector, VectorMisuse, in_groups

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.client.vector import RemoteVectorEnv  # noqa: E402
from paddock.envs.remote.frames import Frame, Kind, decode_frame, encode_frame  # noqa: E402
from paddock.envs.remote.spaces import build_space, describe_space  # noqa: E402
from paddock.envs.remote.values import EncodeError, decode, encode  # noqa: E402


@pytest.mark.parametrize("task", ["parts", "discrete"])
def test_a_server_gives_what_gymnasiums_gives(make: Any, task: str) -> None:
    contract.test_every_backend_gives_what_gymnasiums_gives(make, Served(), TASKS[task])


def test_a_server_with_workers_gives_what_gymnasiums_gives(make: Any) -> None:
    contract.test_every_backend_gives_what_gymnasiums_gives(make, Served(WORKERS), TASKS["parts"])


@pytest.mark.parametrize("task", ["padded", "rooms"])
def test_a_server_gives_every_kind_of_space(make: Any, task: str) -> None:
    contract.test_every_backend_gives_what_gymnasiums_gives(make, Served(), STRUCTURED[task])


@pytest.mark.parametrize(
    "law",
    [
        contract.test_left_out_parts_are_nowhere,
        contract.test_a_key_enters_any_episode,
        contract.test_chosen_environments_are_stepped_and_restarted,
        contract.test_two_sends_to_one_worker_are_both_answered,
        contract.test_a_reset_drops_what_was_sent,
        contract.test_batches_are_the_callers_own_unless_views_are_asked_for,
    ],
    ids=lambda law: law.__name__,
)
def test_a_server_keeps_the_laws_of_vectors(make: Any, law: Any) -> None:
    law(make, Served())


def test_a_remote_environment_is_one_of_gymnasiums(serve: Any) -> None:
    address = serve(COUNTING).address
    with closing(
        gymnasium.make("paddock.envs.remote.single:Remote-v0", address=address, disable_env_checker=True)
    ) as env:
        check_env(env.unwrapped, skip_render_check=True)
        own = COUNTING.make()
        assert env.reset(seed=3)[0].tolist() == own.reset(seed=3)[0].tolist()
        for action in (1, 4, 2):
            (got, *rest), (expected, *others) = env.step(action), own.step(action)
            assert got.tolist() == expected.tolist() and rest == others


def test_every_kind_of_space_comes_back_as_it_was() -> None:
    spaces = [one for spec in [*STRUCTURED.values(), EVERYTHING] for one in spec.spaces]
    spaces += [gymnasium.spaces.Box(np.array([-0.0, -np.inf]), np.array([0.0, np.inf]), dtype=np.float64)]
    for space in spaces:
        again = build_space(decode(encode(describe_space(space))))
        assert again == space and repr(again) == repr(space)
    box: Any = build_space(decode(encode(describe_space(spaces[-1]))))
    assert np.signbit(box.low[0])
    with pytest.raises(ConfigError, match="Own is a custom space"):
        describe_space(type("Own", (gymnasium.spaces.Box,), {})(0, 1))


def test_every_value_comes_back_as_it_was() -> None:
    odd = np.array([0x7FF8000000000123, 0xFFF0000000000001], np.uint64).view(np.float64)  # NaNs with bits of their own
    values: dict[Any, Any] = {
        "é": (1, [2**63, -(2**63), None]),
        "numbers": [
            odd,
            np.float32(-0.0),
            np.zeros((0, 3)),
            np.array(2),
            np.array("ü"),
            np.array("ab"),
            np.datetime64(3, "s"),
        ],
        "objects": np.array([None, (1, [2]), {"a": b"b"}, np.zeros(2, np.int8)], object),
        3: True,
    }
    again = decode(encode(values))
    assert_same(again["objects"], values["objects"])
    assert again["é"] == values["é"] and list(again) == list(values)
    for one, other in zip(again["numbers"], values["numbers"], strict=True):
        assert type(one) is type(other) and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    with pytest.raises(EncodeError, match=r"builtins\.object cannot be encoded"):
        encode({"deep": [(object(),)]})


# Two servers


def test_an_environments_number_decides_its_seeds_and_not_its_row(make: Any) -> None:
    whole = make(Serial(num_envs=N), COUNTING)
    parts = [make(Serial(num_envs=2), COUNTING), make(multiprocess(num_envs=4, workers=1), CARTPOLE)]
    expected = whole.begin(3)[0]
    parts[0].renumber([4, 1])
    np.testing.assert_array_equal(parts[0].begin(3)[0], expected[[4, 1]])
    for _ in range(20):
        whole_step, part_step = whole.step(np.ones(N, np.int64)), parts[0].step(np.ones(2, np.int64))
        np.testing.assert_array_equal(part_step[0], whole_step[0][[4, 1]])
    whole = make(Serial(num_envs=8), CARTPOLE)
    parts[1].renumber([7, 0, 1, 5])
    np.testing.assert_array_equal(parts[1].begin(3)[0], whole.begin(3)[0][[7, 0, 1, 5]])
    with pytest.raises(VectorMisuse, match="derives seeds from rows only"):
        make(Vector(num_envs=N, target="paddock.envs.tasks.cartpole.CartPoleVector"), CARTPOLE).renumber(
            [1, 2, 3, 4, 5, 6]
        )


def test_keys_are_over_at_all_servers_or_at_none(serve: Any) -> None:
    one, other = serve(COUNTING), serve(COUNTING)
    masks = np.eye(N, dtype=np.bool_)
    with (
        closing(Serial(num_envs=N).make(COUNTING)) as here,
        closing(remote(one.address, other.address).make(COUNTING)) as there,
    ):
        for venv in (here, there):
            venv.begin(5)
        with pytest.raises(VectorMisuse, match=r"all 2 servers, not 1; reset environments of each"):
            there.reset(seed=7, options={"reset_mask": masks[0]})
        for venv in (here, there):
            venv.reset(seed=7, options={"reset_mask": masks[0] | masks[N - 1]})
            venv.reset(seed=8, options={"reset_mask": masks[1]})
        for _ in range(40):
            assert_same(there.step(np.ones(N, np.int64)), here.step(np.ones(N, np.int64)))


def test_two_servers_equal_one(serve: Any, undisturbed: str) -> None:
    addresses = [serve(COUNTING).address, serve(COUNTING, WORKERS_OF_COUNTING).address]
    with closing(remote(*addresses).make(COUNTING)) as venv:
        assert play(venv) == undisturbed


WORKERS_OF_COUNTING = Serial(num_envs=4)


@pytest.mark.parametrize(("servers", "groups", "blocks"), [(1, 2, 4), (2, 4, 4)])
def test_a_server_is_told_of_how_many_groups_it_has_a_part(serve: Any, servers: int, groups: int, blocks: int) -> None:
    started = [serve(TASKS["discrete"], WORKERS) for _ in range(servers)]
    recipe = in_groups(remote(*(server.address for server in started), num_envs=8), groups)
    with closing(recipe.make(TASKS["discrete"])) as venv, closing(Serial(num_envs=8).make(TASKS["discrete"])) as other:
        for server in started:
            (session,) = server.sessions.list()
            assert len(session.venv._coordinator.rows) == blocks
        assert_same(venv.begin(3)[0], other.begin(3)[0])
        for _ in range(12):
            actions = other.action_space.sample()
            for start in range(0, 8, 8 // groups):
                venv.send(actions[start : start + 8 // groups], slice(start, start + 8 // groups))
            assert_same(venv.recv(slice(0, 8)), other.step(actions))


# A run


PPO = ["algo=ppo", "vec.num_envs=6", "algo.num_steps=16", "algo.minibatch_size=32", "algo.epochs=1", "algo.groups=2"]
PPO += [
    "budget.iterations=3",
    "compute=serial",
    "algo.eval_every_iterations=2",
    "algo.eval_episodes=2",
    "algo.eval_max_steps=40",
]


def test_a_run_has_the_same_bytes_here_there_and_with_its_server_killed(
    serve: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    token = tmp_path / "token"
    servers = [serve(token_file=str(token)), serve()]
    received, recv = [0], RemoteVectorEnv.recv

    def recv_or_kill(venv: RemoteVectorEnv, *arguments: Any) -> Any:
        received[0] += 1
        if received[0] == 50:
            servers[1].close()
            servers.append(serve(address=servers[1].address))
        return recv(venv, *arguments)

    def metrics_of(name: str, *arguments: str) -> str:
        assert call_main(*PPO, *arguments, f"run.dir={tmp_path / name}") == 0
        return sha256((tmp_path / name / "metrics.jsonl").read_bytes()).hexdigest()

    expected = metrics_of("serial", "env=cartpole", "vec=serial")
    given = [f"vec.address={servers[0].address}", f"vec.token_file={token}"]
    assert metrics_of("remote", "env=remote", "vec=remote", *given) == expected
    told = json.loads((tmp_path / "remote" / "provenance.json").read_text())["servers"]
    assert told[servers[0].address]["numpy"] == np.__version__
    servers[0]._offer["versions"] = {"numpy": "1.0"}
    again = ["env=remote", "vec=remote", *given, f"run.dir={tmp_path / 'remote'}", "budget.iterations=4"]
    assert call_main(*PPO, *again) == 2
    assert f"numpy 1.0 there and {np.__version__} when the run began" in capsys.readouterr().err
    secret = token.read_bytes().strip()
    assert not any(secret in path.read_bytes() for path in (tmp_path / "remote").rglob("*") if path.is_file())
    monkeypatch.setattr(RemoteVectorEnv, "recv", recv_or_kill)
    assert metrics_of("killed", "env=cartpole", "vec=remote", f"vec.address={servers[1].address}") == expected
    assert received[0] > 50 and len(servers) == 3
    servers.append(serve())
    both = f"vec.address=[{servers[3].address},{servers[2].address}]"
    assert metrics_of("two", "env=cartpole", "vec=remote", both) == expected


def test_only_who_chooses_a_server_needs_grpc() -> None:
    look = (
        "import sys, paddock.envs.vector, paddock.launch, paddock.serve, paddock.doctor; print('grpc' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_frames_are_what_they_were() -> None:
    frame = decode_frame(
        encode_frame(Kind.STEP, [1, "é"], [np.arange(3, dtype=np.int16), np.zeros((0, 2)), np.ones(1)], flags=1)
    )
    assert isinstance(frame, Frame) and (frame.kind, frame.flags, frame.header) == (Kind.STEP, 1, [1, "é"])
    assert bytes(frame.body) == np.arange(3, dtype=np.int16).tobytes() + bytes(2) + np.ones(1).tobytes()
