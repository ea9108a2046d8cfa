"""Training on some seats of a world in which others play too: the numbers of one who has all seats, killed or not."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command, assert_same_run, call_main, env_spec, rows, wait_until
from numpy.typing import NDArray
from remote_servers import remote, serve_fixture  # noqa: F401
from vector_cases import assert_same

from paddock.envs.vector import Serial
from paddock.envs.vector.contract import EnvError, VectorMisuse
from paddock.runs.checkpoint import read

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.client.vector import RemoteVectorEnv  # noqa: E402
from paddock.envs.remote.parallel import RemoteParallelEnv  # noqa: E402

LIVES = env_spec("toy_worlds:Skirmish", max_episode_steps=15)
TURNS = env_spec("toy_worlds:Bidding", max_episode_steps=9)
RELAY = env_spec("paddock.envs.sanity.relay:Relay")
STEPS, WORLDS = 40, 2

# Vectors


def play(venv: Any, actions: NDArray[np.int64], own: NDArray[np.bool_]) -> list[Any]:
    """Play keyed episodes by actions [T, rows] of those that are this client's; what is told of rows `own`."""
    observation, infos = venv.begin(3, [4, 0])
    told: list[Any] = [(observation[own].tobytes(), infos["acts"][own].tolist())]
    for row in actions:
        observation, *numbers, infos = venv.step(row)
        ended = infos.get("_final_obs", np.zeros(len(own), np.bool_)) & own
        lives = [infos["final_info"]["episode"][key][ended].tolist() for key in ("r", "l") if ended.any()]
        finals = [infos["final_obs"][k].tobytes() for k in np.flatnonzero(ended)]
        arrays = [array[own].tolist() for array in (*numbers, infos["acts"], venv.alive)]
        told.append((observation[own].tobytes(), arrays, finals, lives, infos["over"].tolist()))
    return told


@pytest.mark.parametrize("spec", [LIVES, TURNS], ids=["lives", "turns"])
def test_each_is_told_of_its_seats_what_one_with_all_seats_is(serve: Any, spec: Any) -> None:
    agents = [seat.agent for seat in spec.made.seats]
    actions = np.random.default_rng(0).integers(0, 4, (STEPS, WORLDS * len(agents)))
    parts = [np.tile(np.arange(len(agents)) % 2 == k, WORLDS) for k in range(2)]
    with closing(Serial(num_envs=WORLDS).make(spec)) as venv:
        expected = [play(venv, actions, own) for own in parts]
    assert sum(sum(one[-1]) for one in expected[0][1:]) > 4  # worlds that ended
    place = remote(serve(spec, Serial(num_envs=WORLDS)).address).endpoint()
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        done = []
        for own in parts:
            names = [agent for agent, mine in zip(agents, own, strict=False) if mine]
            seats = RemoteVectorEnv(None, WORLDS, place, worlds=["a", "b"], agents=names)
            stack.enter_context(closing(seats))
            done.append(pool.submit(play, seats, actions[:, own], np.ones(own.sum(), np.bool_)))
        for one, known in zip(done, expected, strict=True):
            assert_same(one.result(60), known)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What calls return that wait for each other; TimeoutError where they do for ever."""
    done: list[Any] = [Future() for _ in calls]
    for one, call in zip(done, calls, strict=True):
        threading.Thread(target=lambda one=one, call=call: one.set_result(call()), daemon=True).start()
    return [one.result(30) for one in done]


def test_clients_of_a_lost_server_rejoin_all_worlds(serve: Any) -> None:
    server, games = serve(RELAY, Serial(num_envs=2)), ["a", "b"]
    place = remote(server.address).endpoint()
    first, second = (
        RemoteVectorEnv(None, 2, place, worlds=games, agents=[agent, *more], packed=True)
        for agent, more in (("runner_0", ["runner_2"]), ("runner_1", []))
    )
    with closing(first), closing(second):
        together(lambda: first.begin(1), lambda: second.begin(2))
        first.send(np.zeros(2, np.int64), slice(0, 2))
        second.send(np.zeros(2, np.int64))
        first.recv(slice(0, 2))
        channel = second._connections[0].channel
        assert channel is not None
        channel.close()  # in which it was told the same
        server.close()
        serve(RELAY, Serial(num_envs=2), address=server.address)

        def go_on() -> Any:
            first.send(np.zeros(2, np.int64), slice(2, 4))
            return first.recv(slice(2, 4))[1].tolist()

        told = together(go_on, lambda: second.recv()[1].tolist())
    with closing(Serial(num_envs=2).make(RELAY)) as venv:
        venv.begin(1)
        reward = venv.step(np.zeros(6, np.int64))[1]
    assert told == [reward[[3, 5]].tolist(), reward[[1, 4]].tolist()]


# Runs

PPO = [
    "algo=ppo",
    "vec.num_envs=4",
    "algo.num_steps=32",
    "algo.minibatch_size=32",
    "algo.epochs=1",
    "algo.hidden_sizes=[8]",
]
PPO += ["compute=serial", "checkpoint.every_s=0"]


def there(address: str, agents: str, run: Path) -> list[str]:
    """What a run is started with that has some seats of joint worlds."""
    joint = ["env=remote", "vec=remote", f"vec.address={address}", "vec.world=game", f"vec.agents={agents}"]
    return [*PPO, *joint, f"run.dir={run}"]


def test_a_client_with_all_seats_gets_the_bytes_of_its_own_worlds(serve: Any, tmp_path: Path) -> None:
    server = serve(RELAY, Serial(num_envs=4))
    more = ["budget.iterations=3", "algo.groups=2"]
    here = [*PPO, *more, "env=relay", "vec=serial", "algo.eval_every_iterations=1000", f"run.dir={tmp_path / 'here'}"]
    assert call_main(*here) == 0
    assert call_main(*there(server.address, "null", tmp_path / "there"), *more) == 0
    told = rows(tmp_path / "there")
    assert len(told) == 3 and not any(name.startswith("eval/") for row in told for name in row)
    whole = (tmp_path / "here" / "metrics.jsonl").read_bytes()  # whose last row is an evaluation
    assert whole.startswith((tmp_path / "there" / "metrics.jsonl").read_bytes())


def test_two_runs_in_one_world_have_the_same_bytes_again_and_killed(
    serve: Any, tmp_path: Path, start: Callable[..., Command]
) -> None:
    kinds = {"one": ("[runner_0,runner_2]", "seed=1"), "other": ("[runner_1]", "seed=2")}
    server = serve(RELAY, Serial(num_envs=8), lease_s=1.0, max_sessions=32)

    def begin(name: str, folder: str, iterations: int) -> Command:
        agents, seed = kinds[name]
        more = [seed, "vec.num_envs=2", f"budget.iterations={iterations}"]
        return start(*there(server.address, agents, tmp_path / folder / name), *more)

    for folder, iterations in (("first", 4), ("again", 2), ("again", 4)):
        for command in [begin(name, folder, iterations) for name in kinds]:
            code, out, err = command.wait()
            assert code == 0, err
        wait_until(lambda: server.sessions.rows == 0)  # the worlds have ended with their last agents
    assert "resuming in" in out
    for name in kinds:
        assert_same_run(tmp_path / "again" / name, tmp_path / "first" / name)
    first = [rows(tmp_path / "first" / name) for name in kinds]
    assert [row["train/return_mean"] for row in first[0]] != [row["train/return_mean"] for row in first[1]]
    assert [row["train/episodes"] for row in first[0]] == [row["train/episodes"] * 3 for row in first[1]]


def test_a_run_plays_with_a_client_of_somebodys_own(serve: Any, tmp_path: Path) -> None:
    server = serve(RELAY, Serial(num_envs=1))
    played = []

    def answer() -> None:
        game = RemoteParallelEnv(server.address, world="game/0", agents=["runner_1"])
        with closing(game):
            for _ in range(16):
                game.reset()
                while not game.over:
                    game.step(dict.fromkeys(game.acting, 1))
                played.append(game.over)
            game.reset()  # the run's last step begins an episode

    partner = threading.Thread(target=answer, daemon=True)
    partner.start()
    more = ["vec.num_envs=1", "budget.iterations=2"]  # of 32 steps, and an episode has 4
    assert call_main(*there(server.address, "[runner_0,runner_2]", tmp_path), *more) == 0
    partner.join(30)
    assert played == [True] * 16 and len(rows(tmp_path)) == 2


@pytest.fixture
def bidding(serve: Any) -> list[str]:
    """The words of a run that has one seat of a world of turns, of which somebody else plays the others."""
    server = serve(TURNS, Serial(num_envs=1))

    def bid() -> None:
        game = RemoteParallelEnv(server.address, world="game/0", agents=["bob", "cy"])
        with closing(game), contextlib.suppress(VectorMisuse, EnvError):  # the run ends in the midst of an episode
            while True:
                game.reset()
                while not game.over:
                    game.step(dict.fromkeys(game.acting, 1))

    threading.Thread(target=bid, daemon=True).start()
    joint = ["env=remote", "vec=remote", f"vec.address={server.address}", "vec.world=game", "vec.agents=[ann]"]
    few = ["vec.num_envs=1", "algo.hidden_sizes=[8]", "algo.num_steps=8", "algo.log_every_steps=10", "budget.steps=60"]
    return [*joint, *few, "compute=serial"]


def test_who_learns_from_replay_on_one_seat_stores_its_turns_alone(bidding: list[str], tmp_path: Path) -> None:
    assert call_main("algo=dqn", "algo.learning_starts=20", *bidding, f"run.dir={tmp_path}") == 0
    state = read(max(tmp_path.glob("checkpoints/*.npz")))["algorithm"]
    acted, held = state["schedule"]["step"], int(state["replay"]["open"]["count"].sum())
    assert 60 <= acted < 8 * state["schedule"]["rollouts"]  # bids of three, one after another
    assert state["replay"]["steps"] + held == acted


def test_who_plays_in_several_places_is_refused_seats_that_are_one_clients(serve: Any, capsys: Any) -> None:
    joint = ["env=remote", "vec=remote", f"vec.address={serve(RELAY).address}", "vec.world=game"]
    assert call_main("algo=es", *joint, "dry_run=true") > 0
    err = capsys.readouterr().err
    assert "vec.world=game: an agent is controlled by one client, but " in err and err.count("\n") == 1


def test_seats_that_a_run_cannot_have_are_one_line(serve: Any, tmp_path: Path, capsys: Any) -> None:
    address = serve(RELAY, Serial(num_envs=4)).address
    with closing(RemoteParallelEnv(address, world="game/0", agents=["runner_1"])) as other:
        other._open()
        refusals = {
            "vec.agents=[runner_1]": "another client controls runner_1 in world game/0; free: runner_0, runner_2",
            "env=relay": "vec.agents must be agents of the environment at vec.address=",
            "vec.world=null": "needs the name of a joint environment",
        }
        for k, (word, said) in enumerate(refusals.items()):
            run = there(address, "[runner_0]", tmp_path / str(k))
            assert call_main(*run, word, "budget.iterations=1") > 0
            err = capsys.readouterr().err
            assert said in err and err.count("\n") == 1
