"""Joint worlds: several clients, each with seats of its own, give the numbers of one client with all."""

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest
from conftest import env_spec, wait_until
from remote_servers import remote, serve_fixture, settings  # noqa: F401
from toy_worlds import Bidding
from vector_cases import assert_same

from paddock.envs.errors import ConfigError
from paddock.envs.vector import EnvError, Serial
from paddock.envs.vector.remote import make_endpoint

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.client import connection, endpoint  # noqa: E402
from paddock.envs.remote.parallel import RemoteParallelEnv  # noqa: E402
from paddock.envs.remote.server.service import EnvironmentServer  # noqa: E402

LIVES = env_spec("toy_worlds:Skirmish", kwargs={"kinds": 2}, max_episode_steps=15)
TURNS = env_spec("toy_worlds:Bidding", max_episode_steps=9)
EPISODES = 2


def action_of(agent: str, space: Any, episode: int, t: int) -> Any:
    """What an agent does at a step, whoever's client it is."""
    space.seed(1000 * episode + 10 * t + ord(agent[-1]))
    return space.sample()


def play(world: Any, hook: Callable[[int, int], None] = lambda episode, t: None) -> list[Any]:
    """Play some episodes with a client's seats, until the world is over; by agent, all that it is told."""
    told: list[Any] = []
    for episode in range(EPISODES):
        seen, infos = world.reset(seed=episode)
        told.append({agent: (seen[agent], infos[agent]) for agent in seen})
        for t in itertools.count():
            hook(episode, t)
            actions = {a: action_of(a, world.action_space(a), episode, t) for a in world.acting}
            given = world.step(actions)
            told.append({a: [part.get(a) for part in given] for a in given[1]})
            if t == 14 or world.over:
                break
    return told


@pytest.fixture
def server(serve: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server of TURNS, whose clients soon tell whom they wait for."""
    monkeypatch.setattr(endpoint, "PATIENCE_S", 0.1)
    monkeypatch.setattr(connection, "HEARTBEAT_S", 0.05)
    return serve(TURNS, Serial(num_envs=1))


def test_a_client_that_waits_for_the_others_says_so(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    agents = [seat.agent for seat in TURNS.made.seats]
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        first, *others = (
            stack.enter_context(closing(RemoteParallelEnv(server.address, world="game", agents=[agent])))
            for agent in agents
        )
        begun = pool.submit(first.reset, seed=0)
        said = f"vec=remote: waiting for the other clients of world game at {server.address}"
        wait_until(lambda: said in caplog.messages, 20)
        assert not begun.done()
        with ThreadPoolExecutor(len(others)) as rest:
            assert len(list(rest.map(lambda one: one.reset(seed=0), others))) == len(others)
        begun.result(20)


def test_several_servers_for_one_world_are_one_clear_line() -> None:
    named = r"lists 2 servers, but all clients of world=game must use one; set only its address, or file:PATH"
    with pytest.raises(ConfigError, match=named) as caught:
        remote("a:1", "b:1", world="game")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=named):
        RemoteParallelEnv(["a:1", "b:1"], world="game", wait_s=0.0)


class Long(Bidding):
    """Takes as long for a step as it is told to."""

    begun, let = threading.Event(), threading.Event()

    def step(self, action: Any) -> None:
        Long.begun.set()
        assert Long.let.wait(30)
        super().step(action)


def test_a_long_step_of_a_world_that_loses_a_client_holds_up_nobody_else(serve: Any) -> None:
    spec = env_spec(f"{__name__}:Long", max_episode_steps=9)
    server = serve(spec, Serial(num_envs=1))
    place, agents = make_endpoint(server.address, None, {}, 0.0), [seat.agent for seat in spec.made.seats]
    with ExitStack() as stack, ThreadPoolExecutor(len(agents)) as pool:
        clients = [
            stack.enter_context(closing(RemoteParallelEnv(server.address, world="game", agents=[agent])))
            for agent in agents
        ]
        stack.callback(Long.let.set)
        assert len(list(pool.map(lambda one: one.reset(seed=0), clients))) == len(agents)
        stepping = [pool.submit(one.step, {"ann": 1} if one is clients[0] else {}) for one in clients]
        assert Long.begun.wait(20)
        channel = clients[1]._open()._connections[0].channel
        assert channel is not None
        channel._answers.cancel()  # another stream is tried
        assert [place.describe(server.address) for _ in range(3)]
        Long.let.set()
        assert len([one.result(20) for one in stepping]) == len(agents)


def play_jointly(address: str, parts: Sequence[Sequence[str]], hooks: Any = None, **given: Any) -> list[Any]:
    """Play with a client for each part of the agents; what all of them are told, joined."""
    with ExitStack() as stack:
        worlds = [
            stack.enter_context(closing(RemoteParallelEnv(address, world="game", agents=part, **given)))
            for part in parts
        ]
        pool = stack.enter_context(ThreadPoolExecutor(len(parts)))
        hooks = hooks or [lambda episode, t: None] * len(parts)
        done = [pool.submit(play, world, hook) for world, hook in zip(worlds, hooks, strict=True)]
        for failed in [one for one in wait(done, 60, FIRST_EXCEPTION)[0] if one.exception()]:
            for world in worlds:
                world._open()._connections[0]._endpoint = replace(world._open()._connections[0]._endpoint, wait_s=0.0)
                world._open()._connections[0].channel.close()  # type: ignore[union-attr]  # the others go too
            failed.result()
        told = [one.result() for one in done]
    return [{agent: said for part in row for agent, said in part.items()} for row in zip(*told, strict=True)]


@pytest.fixture(name="whole", scope="module", params=[LIVES, TURNS], ids=["lives", "turns"])
def whole_fixture(request: Any) -> tuple[Any, list[Any]]:
    """A world, and what one client with all its seats is told."""
    spec = request.param
    server = EnvironmentServer(spec, Serial(num_envs=1), settings())
    with closing(server), closing(RemoteParallelEnv(server.address)) as world:
        return spec, play(world)


def parts_of(spec: Any, count: int) -> list[list[str]]:
    agents = [seat.agent for seat in spec.made.seats]
    return [agents[k::count] for k in range(count)]


@pytest.mark.parametrize("order", [(1, 0), (2, 0, 1)], ids=str)
def test_several_clients_are_told_what_one_is_whoever_comes_first(serve: Any, whole: Any, order: Any) -> None:
    spec, expected = whole
    server = serve(spec, Serial(num_envs=2))

    def hook_of(client: int) -> Callable[[int, int], None]:
        def come_in_turn(episode: int, t: int) -> None:
            if episode == 0 and t < 4:
                joint = server.sessions._joint["game"].result()
                wait_until(lambda: sum(one.asks for one in joint.clients) == order.index(client))

        return come_in_turn

    hooks = [hook_of(client) for client in range(len(order))]
    assert_same(play_jointly(server.address, parts_of(spec, len(order)), hooks), expected)
    wait_until(lambda: server.sessions.rows == 0)  # the world has ended with its last seat
    assert not server.sessions._joint


def test_a_client_killed_between_any_two_steps_comes_back_to_its_seat(serve: Any, whole: Any) -> None:
    spec, expected = whole
    server = serve(spec, Serial(num_envs=2))
    kills = []

    def lose_session(episode: int, t: int) -> None:
        if t % 2 == 0:
            joint = server.sessions._joint["game"].result()
            seat = [seat.agent for seat in spec.made.seats].index(parts_of(spec, 2)[1][0])
            session = next(one for one in server.sessions.list() if seat in one.venv._client.seats)
            kills.append(joint.end)
            server.sessions.end(session)

    told = play_jointly(server.address, parts_of(spec, 2), [lambda episode, t: None, lose_session], wait_s=30.0)
    assert_same(told, expected)
    assert len(kills) > 3


def test_a_server_killed_under_a_joint_world_costs_no_number(serve: Any, whole: Any) -> None:
    spec, expected = whole
    servers = [serve(spec, Serial(num_envs=2))]

    def kill(episode: int, t: int) -> None:
        if (episode, t) in ((0, 2), (1, 1)):
            servers[-1].close()
            servers.append(serve(spec, Serial(num_envs=2), address=servers[0].address))

    told = play_jointly(servers[0].address, parts_of(spec, 2), [lambda episode, t: None, kill], wait_s=30.0)
    assert_same(told, expected)
    assert len(servers) == 3


@pytest.mark.parametrize(("seeds", "what"), [([7, 8], "session"), ([7, 8], "server"), ([None, None], "server")])
def test_clients_without_a_seed_share_and_resume_the_named_one(serve: Any, seeds: Any, what: str) -> None:
    def play_on(game: Any, seeds: Sequence[int | None], lost: Callable[[], Any] = int) -> list[Any]:
        told = []
        for seed in seeds:
            told.append(game.reset(seed=seed))
            for t in range(4):
                if t == 2:
                    lost()
                told.append(game.step(dict.fromkeys(game.acting, 2)))
        return told

    def lose_session() -> None:
        session = next(one for one in servers[-1].sessions.list() if one.venv.agents == ("bob", "cy"))
        servers[-1].sessions.end(session)

    def lose_server() -> None:
        wait_until(lambda: sum(one.venv._client.asks for one in servers[-1].sessions.list()) == 1)
        servers[-1].close()
        servers.append(serve(TURNS, Serial(num_envs=1), address=servers[0].address))

    servers = [serve(TURNS, Serial(num_envs=1))]
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        one, other = (
            stack.enter_context(closing(RemoteParallelEnv(servers[0].address, world="game", agents=agents)))
            for agents in (["ann"], ["bob", "cy"])
        )
        lost = {"session": lose_session, "server": lose_server}[what]
        done = pool.submit(play_on, other, [None, None], lost), pool.submit(play_on, one, seeds)
        assert [len(played.result(30)) for played in done] == [10, 10]
        history = servers[-1].sessions._joint["game"].result().history
        assert history[-5].seeds[0] == seeds[1] or seeds[1] is None


@pytest.mark.parametrize(
    ("agents", "named"),
    [
        (["one_0", "nobody"], "must be distinct agents of toy_worlds:Skirmish: other_0, one_1"),
    ],
)
def test_seats_that_there_are_not_are_refused(serve: Any, agents: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        RemoteParallelEnv(serve(LIVES).address, world="game", agents=agents)
    assert "\n" not in str(caught.value)


def test_a_seat_is_one_clients_and_a_world_of_one_agent_has_none_to_share(serve: Any) -> None:
    address = serve(LIVES, Serial(num_envs=1)).address
    with closing(RemoteParallelEnv(address, world="game", agents=["one_1"])) as world:
        world._open()
        with pytest.raises(ConfigError, match="another client controls one_1 in world game; free: other_0, one_2"):
            RemoteParallelEnv(address, world="game", agents=["one_1", "one_2"])._open()
        with pytest.raises(EnvError, match="1 of 1 environments"):
            RemoteParallelEnv(address, world="another", agents=["one_1"], wait_s=0.0)._open()
    with pytest.raises(ConfigError, match=r"agents=.* needs a joint environment; set world"):
        RemoteParallelEnv(address, agents=["one_1"])


def test_a_client_is_sent_nothing_of_others_seats(serve: Any) -> None:
    server = serve(LIVES, Serial(num_envs=1))
    play_jointly(server.address, parts_of(LIVES, 2), [lambda episode, t: look(server), lambda episode, t: None])
    assert len(SIZES) > 5 and max(SIZES) < 400  # two rows of 40 bytes, and not four


SIZES: list[int] = []


def look(server: Any) -> None:
    """Note how long the answers are that the server keeps."""
    for one in server.sessions.list():
        SIZES.extend(len(answer) for answer in list(one._kept.values()) if answer)
