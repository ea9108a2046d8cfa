"""Keys and values for environments at a server: between the same two steps, also where those are done again."""

import threading
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import test_vector as contract
from conftest import env_spec
from remote_servers import COUNTING, WINDY, N, Raw, call, remote, serve_fixture, signal  # noqa: F401
from toy_worlds import Told

from envs.vector import EnvError, Serial, VectorMisuse

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from envs.remote.frames import Kind, join  # noqa: E402
from envs.remote.parallel import RemoteParallelEnv  # noqa: E402
from envs.remote.server import seats  # noqa: E402
from envs.remote.single import RemoteEnv  # noqa: E402

TOLD = env_spec("toy_worlds:Told", max_episode_steps=5)


def play(venv: Any, tell: Any, hook: Any = lambda t: None) -> list[Any]:
    """Play, and tell something before the first episode, before some steps, and between episodes."""
    tell(venv, "first", {"by": 2})
    told: list[Any] = [venv.begin(5)]
    for t in range(12):
        if t in (0, 3, 4, 9):
            tell(venv, f"step{t}", {"by": np.array([t, 0.5])})
        hook(t)
        told.append(venv.step(np.full(N, t % 5)))
    return told


def test_signals_come_between_the_same_steps_here_there_and_in_a_replay(serve: Any) -> None:
    with closing(Serial(num_envs=N).make(WINDY)) as here:
        expected = play(here, call)
    servers = [serve(WINDY)]

    def kill(t: int) -> None:
        if t in (1, 3, 10):
            servers[-1].close()
            servers.append(serve(WINDY, address=servers[0].address))

    with closing(remote(servers[0].address).make(WINDY)) as venv:
        contract.assert_same(play(venv, signal, kill), expected)
        assert venv.restarts == 3
    with closing(RemoteEnv(servers[-1].address)) as env:
        env.signal("x", {"by": 0.5})
        env.reset(seed=0)
        assert env.step(0)[4]["wind"] == 1.5


def test_a_signal_that_comes_again_is_taken_once(serve: Any) -> None:
    wire = (raw := Raw(serve(WINDY), environment="Windy-v0")).attach()
    frames = [join(Kind.BEGIN, [1, 0, 1, np.zeros(2, np.int64), np.arange(2), None])]
    frames += [join(Kind.SIGNAL, [2, 0, "x", {"by": 1.0}])] * 3
    frames += [join(Kind.TURN, [3, 0, [0, 2]], [np.zeros(2, np.int64)])]
    for frame in frames:
        wire.send(frame)
    answers = [wire.receive() for _ in range(6)]
    from envs.remote.values import decode

    assert [one.header[0] for one in answers[1:]] == [1, 2, 2, 2, 3] and raw.session
    assert decode(answers[-1].header[1])["wind"][1] == 2.0
    wire.send(join(Kind.SIGNAL, [4, 0, "x", bytes(70_000)]))
    assert "at most 65536 bytes" in wire.receive().header[2]
    wire.close()


@pytest.mark.parametrize(
    ("value", "named"),
    [(object(), "the value of 'x' has no form in bytes"), (bytes(70_000), "has 70005 bytes; at most 65536")],
)
def test_what_cannot_be_told_is_one_clear_line(serve: Any, value: Any, named: str) -> None:
    with closing(remote(serve(WINDY).address).make(WINDY)) as venv, pytest.raises(VectorMisuse, match=named) as caught:
        venv.signal("x", value)
    assert "\n" not in str(caught.value)


def test_an_environment_that_takes_no_signals_says_so(serve: Any) -> None:
    with closing(remote(serve(COUNTING).address).make(COUNTING)) as venv:
        venv.begin(1)
        with pytest.raises(VectorMisuse, match=r"Counting-v0 takes none; give it a method receive_signal"):
            venv.signal("x", 1)
        venv.step(np.zeros(N, np.int64))


def test_signals_of_a_joint_world_come_in_the_order_of_seats(serve: Any) -> None:
    server, told = serve(TOLD, Serial(num_envs=1)), {}

    def be(agent: str, peer: threading.Barrier) -> None:
        with closing(RemoteParallelEnv(server.address, world="game", agents=[agent])) as world:
            world.reset(seed=0)
            for t in range(3):
                for _ in range(2):
                    world.signal(agent, t)
                if agent == "b" and t == 1:
                    joint = server.sessions._joint["game"].result()
                    session = next(one for one in server.sessions.list() if one.venv._holder is joint.holders[-1])
                    server.sessions.end(session, "the test says so") if session.venv._own[0] == 1 else None
                told[agent] = world.step({agent: 0})[4][agent]["told"]
            peer.wait(10)

    peer = threading.Barrier(2)
    players = [threading.Thread(target=be, args=(agent, peer)) for agent in "ab"]
    for player in players:
        player.start()
    for player in players:
        player.join(30)
    assert told["a"] == told["b"] == [f"{agent}{t}" for t in range(3) for agent in "aabb"]


def test_more_signals_than_may_wait_for_a_step_are_replayed_to_a_joint_world(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seats, "MOST_SIGNALS", 3)
    server = serve(TOLD, Serial(num_envs=1))
    with closing(RemoteParallelEnv(server.address, world="game")) as world:
        for seed in range(2):
            world.reset(seed=seed)
            for t in range(4):
                world.signal("a", t)
                told = world.step(dict.fromkeys(world.acting, 0))[4]["a"]["told"]
        server.close()
        server = serve(TOLD, Serial(num_envs=1), address=server.address)
        assert world.step(dict.fromkeys(world.acting, 0))[4]["a"]["told"] == told
        for t in range(3):
            world.signal("a", t)
        with pytest.raises(VectorMisuse, match="3 wait for the next step already"):
            world.signal("a", 3)


class Refusing(Told):
    """Refuses some of what it is told."""

    def receive_signal(self, key: str, value: Any) -> None:
        if value == 1:
            raise ValueError("not that")
        super().receive_signal(key, value)


def test_a_signal_that_a_joint_world_refuses_is_not_told_again(serve: Any) -> None:
    server = serve(env_spec(f"{__name__}:Refusing", max_episode_steps=5), Serial(num_envs=1))
    with closing(RemoteParallelEnv(server.address, world="game")) as world:
        world.reset(seed=0)
        for value in range(2):
            world.signal("a", value)
        with pytest.raises(EnvError, match="not that"):
            world.step(dict.fromkeys(world.acting, 0))
        world.reset(seed=0)
        assert world.step(dict.fromkeys(world.acting, 0))[4]["a"]["told"] == ["a0"]
