"""Keys and values for environments at a server: between the same two steps, also where those are done again."""

import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import env_spec
from remote_servers import COUNTING, WINDY, N, Raw, call, remote, serve_fixture, signal  # noqa: F401
from vector_cases import assert_same

from paddock.envs.vector import Serial, VectorMisuse

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.frames import Kind, encode_frame  # noqa: E402
from paddock.envs.remote.parallel import RemoteParallelEnv  # noqa: E402
from paddock.envs.remote.single import RemoteEnv  # noqa: E402

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
        assert_same(play(venv, signal, kill), expected)
        assert venv.restarts == 3
    with closing(RemoteEnv(servers[-1].address)) as env:
        env.signal("x", {"by": 0.5})
        env.reset(seed=0)
        assert env.step(0)[4]["wind"] == 1.5


def test_a_signal_that_comes_again_is_taken_once(serve: Any) -> None:
    channel = (raw := Raw(serve(WINDY), environment="Windy-v0")).attach()
    frames = [encode_frame(Kind.BEGIN, [1, 0, 1, np.zeros(2, np.int64), np.arange(2)])]
    frames += [encode_frame(Kind.SIGNAL, [2, 0, "x", {"by": 1.0}, 1])] * 3
    frames += [encode_frame(Kind.STEP, [3, 0, [0, 2]], [np.zeros(2, np.int64)])]
    for frame in frames:
        channel.send(frame)
    answers = [channel.receive() for _ in range(6)]
    from paddock.envs.remote.values import decode

    assert [one.header[0] for one in answers[1:]] == [1, 2, 2, 2, 3] and raw.session
    assert decode(answers[-1].header[1])["wind"][1] == 2.0
    channel.send(encode_frame(Kind.SIGNAL, [4, 0, "x", bytes(70_000), 2]))
    assert "more than 65536 bytes" in channel.receive().header[2]
    channel.close()


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (bytes(70_000), "has 70005 bytes; at most 65536"),
    ],
)
def test_what_cannot_be_told_is_one_clear_line(serve: Any, value: Any, named: str) -> None:
    with closing(remote(serve(WINDY).address).make(WINDY)) as venv, pytest.raises(VectorMisuse, match=named) as caught:
        venv.signal("x", value)
    assert "\n" not in str(caught.value)


def test_an_environment_that_takes_no_signals_says_so(serve: Any) -> None:
    with closing(remote(serve(COUNTING).address).make(COUNTING)) as venv:
        venv.begin(1)
        with pytest.raises(VectorMisuse, match=r"Counting-v0 takes no signals; add a method receive_signal"):
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
                    session = next(one for one in server.sessions.list() if one.venv._client is joint.clients[-1])
                    server.sessions.end(session) if session.venv._own[0] == 1 else None
                told[agent] = world.step({agent: 0})[4][agent]["told"]
            peer.wait(10)

    peer = threading.Barrier(2)
    players = [threading.Thread(target=be, args=(agent, peer)) for agent in "ab"]
    for player in players:
        player.start()
    for player in players:
        player.join(30)
    assert told["a"] == told["b"] == [f"{agent}{t}" for t in range(3) for agent in "aabb"]


@pytest.fixture(name="game")
def game_fixture(serve: Any) -> Iterator[Any]:
    """Two clients of a joint world: a server, a way to have one made anew, and calls of both at once."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        servers = [serve(TOLD, Serial(num_envs=1))]
        clients = {a: RemoteParallelEnv(servers[0].address, world="game", agents=[a], wait_s=20.0) for a in "ab"}
        for world in clients.values():
            stack.enter_context(closing(world))

        def both(call: Any) -> dict[str, Any]:
            done = {agent: pool.submit(call, world) for agent, world in clients.items()}
            for failed in [one for one in wait(done.values(), 30, FIRST_EXCEPTION)[0] if one.exception()]:
                for world in clients.values():
                    world._open()._connections[0].close()  # or the other would wait for it
                failed.result()  # and not what the other says of its link that was closed
            return {agent: one.result(30) for agent, one in done.items()}

        def restart() -> None:
            servers[-1].close()
            servers.append(serve(TOLD, Serial(num_envs=1), address=servers[0].address))

        yield SimpleNamespace(servers=servers, clients=clients, both=both, restart=restart)


def step_told(world: Any) -> list[str]:
    (agent,) = world.possible_agents
    told: list[str] = world.step({agent: 0})[4][agent]["told"]
    return told


def test_signals_are_given_once_to_a_joint_world_that_is_made_anew(game: Any) -> None:
    expected: list[str] = []
    for seed in range(2):
        game.both(lambda world, seed=seed: world.reset(seed=seed))
        for t in range(2):
            for agent, world in game.clients.items():
                world.signal(agent, 2 * seed + t)
                expected.append(f"{agent}{2 * seed + t}")
            assert game.both(step_told) == dict.fromkeys("ab", expected)
    game.restart()
    told = game.both(step_told)
    early = [f"{agent}{t}" for agent in "ab" for t in range(2)]  # those of the episode before, client by client
    assert told["a"] == told["b"] == [*early, *expected[4:]]
    game.clients["b"].signal("b", "late")
    assert game.both(step_told)["a"][-1] == "blate"
