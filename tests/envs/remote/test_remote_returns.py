"""Clients of a joint world that come back to it, whatever episode runs there now, or to one that is made anew."""

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from typing import Any

import pytest
from conftest import env_spec, wait_until
from remote_servers import serve_fixture  # noqa: F401
from vector_cases import assert_same

from paddock.envs.vector import EnvError, Serial
from paddock.envs.vector.contract import keyed_seed

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.parallel import RemoteParallelEnv  # noqa: E402
from paddock.envs.remote.server import stream  # noqa: E402

LIVES = env_spec("toy_worlds:Skirmish", max_episode_steps=15)
AGENTS = [seat.agent for seat in LIVES.made.seats]
PARTS = AGENTS[:1], AGENTS[1:]
Hook = Callable[[int, int], None]


def do_nothing(episode: int, t: int) -> None:
    """Lose nothing."""


def lose(server: Any, agents: list[str]) -> None:
    """End the session that has these seats, as its lease would."""
    (mine,) = [one for one in server.sessions.list() if one.venv.agents == tuple(agents)]
    server.sessions.end(mine)


def play(world: Any, seeds: list[int | None], hook: Hook = do_nothing) -> list[Any]:
    """Play episodes; all that is told, by agent."""
    told: list[Any] = []
    for episode, seed in enumerate(seeds):
        hook(episode, -1)
        seen, infos = world.reset(seed=seed)
        told.append({agent: [seen[agent], infos[agent]] for agent in seen})
        for t in range(6):
            hook(episode, t)
            if world.over:
                break
            given = world.step({agent: (t + len(agent) + episode) % 5 for agent in world.acting})
            told.append({agent: [part.get(agent) for part in given] for agent in given[1]})
    return told


def play_both(server: Any, seeds: list[Any], hook: Hook = do_nothing) -> list[Any]:
    """Play with two clients, of which the second has the hook; what both are told, joined."""
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        worlds = [
            stack.enter_context(closing(RemoteParallelEnv(server.address, world="game", agents=part, wait_s=20.0)))
            for part in PARTS
        ]
        done = [
            pool.submit(play, world, own, given)
            for world, own, given in zip(worlds, seeds, (do_nothing, hook), strict=True)
        ]
        for failed in [one for one in wait(done, 60, FIRST_EXCEPTION)[0] if one.exception()]:
            for world in worlds:
                world._open()._connections[0].close()  # or the others would wait for it
            failed.result()
        told = [one.result() for one in done]
    return [{agent: said for part in row for agent, said in part.items()} for row in zip(*told, strict=True)]


@pytest.mark.parametrize("seeds", [[[3, None, None], [None] * 3], [[3, None, 3], [3, None, 3]]], ids=["one", "again"])
def test_a_client_without_a_seed_resumes_its_running_episode(serve: Any, seeds: Any) -> None:
    server = serve(LIVES, Serial(num_envs=2))
    with closing(RemoteParallelEnv(server.address, world="whole")) as whole:
        expected = play(whole, seeds[0])
    lost = []

    def lose_session(episode: int, t: int) -> None:
        if t in (0, 2) or (t, episode > 0) == (-1, True):
            lose(server, PARTS[1])
            lost.append((episode, t))

    assert_same(play_both(server, seeds, lose_session), expected)
    assert {episode for episode, _ in lost} == {0, 1, 2}


def test_a_client_resumes_an_episode_replayed_by_a_new_server(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_QUEUED", 2)  # fewer than are replayed
    seeds: list[Any] = [[3, None, None], [None] * 3]
    servers = [serve(LIVES, Serial(num_envs=2))]
    with closing(RemoteParallelEnv(servers[0].address, world="whole")) as whole:
        expected = play(whole, seeds[0])

    def lose_both(episode: int, t: int) -> None:
        if (episode, t) == (1, 1):
            servers[-1].close()
            servers.append(serve(LIVES, Serial(num_envs=2), address=servers[0].address))
        if (episode, t) == (1, 2):
            lose(servers[-1], PARTS[1])

    assert_same(play_both(servers[0], seeds, lose_both), expected)
    assert len(servers) == 2


def test_a_client_that_joined_mid_episode_resumes_where_it_was(serve: Any) -> None:
    spec = env_spec("toy_worlds:Scripted", kwargs={"agents": "ab", "steps": [{"agents": "ab"}] * 9})
    server = serve(spec, Serial(num_envs=1))

    def both(one: Callable[[], Any], other: Callable[[], Any]) -> list[Any]:
        done = [pool.submit(one), pool.submit(other)]
        return [each.result(20) for each in done]

    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        first, second, third = (RemoteParallelEnv(server.address, world="game", agents=[a]) for a in "abb")
        for world in (first, second, third):
            stack.enter_context(closing(world))
        both(lambda: first.reset(seed=1), second.reset)
        both(lambda: first.step({"a": 1}), lambda: second.step({"b": 2}))
        second.close()
        assert third.reset()[0]["b"].tolist() == [1, 1]
        both(lambda: first.step({"a": 3}), lambda: third.step({"b": 4}))
        lose(server, ["b"])
        told = both(lambda: first.step({"a": 5}), lambda: third.step({"b": 6}))
        assert [one[0] for one in told] == [{"a": pytest.approx([3, 0])}, {"b": pytest.approx([3, 1])}]
        joint = server.sessions._joint["game"].result()
        assert joint.venv.envs[0].taken == [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}]
        server.close()
        serve(spec, Serial(num_envs=1), address=server.address)
        again = pool.submit(first.step, {"a": 7})
        with pytest.raises(EnvError, match="joined world game during an episode") as caught:
            third.step({"b": 8})
        assert "\n" not in str(caught.value)
        first.close()
        assert again.exception(20)  # it waits no longer, whatever it was doing


@pytest.mark.parametrize("what", ["session", "server"])
def test_a_reset_that_waits_for_the_others_is_asked_again(serve: Any, what: str) -> None:
    spec = env_spec("toy_worlds:Scripted", kwargs={"agents": "ab", "steps": [{"agents": "ab"}]})
    server = serve(spec, Serial(num_envs=1))
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        first, second = (
            stack.enter_context(closing(RemoteParallelEnv(server.address, world="game", agents=[agent])))
            for agent in "ab"
        )
        list(pool.map(lambda world: world.reset(seed=5), [first, second]))
        list(pool.map(lambda world: world.step({"a" if world is first else "b": 1}), [first, second]))
        asked = pool.submit(first.reset)
        wait_until(lambda: any(one.asks for one in server.sessions._joint["game"].result().clients), 20)
        if what == "session":
            lose(server, ["a"])
        else:
            server.close()
            server = serve(spec, Serial(num_envs=1), address=server.address)
        told = second.reset(), asked.result(20)
        assert [list(one[0]) for one in told] == [["b"], ["a"]]
        history = server.sessions._joint["game"].result().history
        assert history[-1].seeds == dict.fromkeys(range(2), keyed_seed(5, 0, 1))
