"""Worlds at a server: the bytes of serial ones, whoever dies, is born or waits, and after a server was killed."""

import importlib.util
import warnings
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import call_main, env_spec
from remote_servers import CARTPOLE, remote, serve_fixture  # noqa: F401
from vector_cases import assert_same

import paddock
from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Multiprocess, Serial, VectorMisuse

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.parallel import RemoteParallelEnv  # noqa: E402
from paddock.envs.remote.single import RemoteEnv, make  # noqa: E402

W = 4
WORLDS = {
    "roles": env_spec("toy_worlds:Skirmish", kwargs={"kinds": 2}),
    "turns": env_spec("toy_worlds:Bidding", max_episode_steps=9),
}


def play(venv: Any, hook: Any = lambda t: None, steps: int = 40) -> list[Any]:
    """Play in two halves, of which one is under way while the other is sent; all that is told."""
    halves = slice(0, venv.num_envs // 2), slice(venv.num_envs // 2, venv.num_envs)
    told: list[Any] = [venv.begin(3)]
    venv.action_space.seed(0)
    for t in range(steps):
        hook(t)
        actions = venv.action_space.sample()
        for k, rows in enumerate(halves):
            half = {name: np.split(part, 2)[k] for name, part in actions.items()} if type(actions) is dict else actions
            venv.send(half if type(half) is dict else half[rows], rows)
        told += [venv.recv(rows) for rows in halves]
    return told


@pytest.mark.parametrize("name", WORLDS)
def test_a_server_gives_the_bytes_of_serial_worlds_though_it_is_killed(serve: Any, name: str) -> None:
    spec, servers = WORLDS[name], [serve(WORLDS[name], Serial(num_envs=W))]

    def kill(t: int) -> None:
        if t in (9, 30):
            servers[-1].close()
            servers.append(serve(spec, Serial(num_envs=W), address=servers[0].address))

    for packed in (True, False):
        with closing(Serial(num_envs=W).make(spec, packed=packed)) as here:
            expected = play(here)
        assert sum("final_obs" in step[4] for step in expected[1:]) > 5, "lives end"
        servers[1:] = []
        with closing(remote(servers[0].address, num_envs=W).make(spec, packed=packed)) as venv:
            assert_same(play(venv, kill if packed else lambda t: None), expected)
            assert venv.restarts == (2 if packed else 0)
        servers[:1] = servers[-1:]


def test_two_servers_of_worlds_equal_one_and_worker_processes_too(serve: Any) -> None:
    workers = Multiprocess(num_envs=W, workers=2, batch_size=None, restart=False, timeout_s=60.0)
    with closing(Serial(num_envs=W).make(WORLDS["roles"])) as here:
        expected = play(here)
    servers = [serve(WORLDS["roles"], vec) for vec in (Serial(num_envs=W), workers)]
    with closing(remote(*(one.address for one in servers), num_envs=W).make(WORLDS["roles"])) as venv:
        assert_same(play(venv), expected)
        assert servers[0].sessions.rows == servers[1].sessions.rows == W // 2


# One world, for anyone's code


def tell(world: Any, steps: int = 60) -> list[Any]:
    """Play one world; all that it tells."""
    told, episode = [], 0
    spaces = {agent: deepcopy(world.action_space(agent)) for agent in world.possible_agents}
    for k, space in enumerate(spaces.values()):
        space.seed(k)
    for t in range(steps):
        if not world.agents:
            told.append(world.reset(seed=episode))
            episode += 1
        acting = world.acting if hasattr(world, "acting") else world.agents
        told.append(world.step({agent: spaces[agent].sample() for agent in sorted(acting)}))
        told.append((sorted(world.agents), t))
    return told


@pytest.mark.parametrize("name", WORLDS)
def test_a_remote_world_tells_what_its_own_does(serve: Any, name: str) -> None:
    spec = WORLDS[name]
    with closing(spec.make()) as own:
        own.agents = []
        expected = tell(own)
    with closing(make(serve(spec, Serial(num_envs=1)).address)) as world:
        assert isinstance(world, RemoteParallelEnv)
        assert world.num_agents == 0 and world.max_num_agents == len(world.possible_agents)
        for told, own in zip(tell(world), expected, strict=True):
            for k, (part, other) in enumerate(zip(told, own, strict=True)):
                if isinstance(other, dict):  # those left when the world ends unsaid count as truncated at a server
                    alike = [a for a in other if k != 3 or other[a] == part[a] or not part[a]]
                    part, other = ({a: one[a] for a in alike} for one in (part, other))
                assert_same(part, other)


@pytest.mark.skipif(importlib.util.find_spec("pettingzoo") is None, reason="pip install -e '.[multiagent]'")
def test_pettingzoos_own_tests_pass_at_a_server(serve: Any) -> None:
    pytest.importorskip("mpe2", reason="pip install -e '.[multiagent]'")
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    address = serve(env_spec("mpe2.simple_tag_v3:parallel_env"), Serial(num_envs=4)).address
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with closing(RemoteParallelEnv(address)) as world:
            parallel_api_test(world, num_cycles=40)
        parallel_seed_test(lambda: RemoteParallelEnv(address), num_cycles=10)


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        ({"ann": 1, "zoe": 1}, r"got an action for \['zoe'\]; living agents are \['ann', 'bob', 'cy'\]"),
        ({"bob": 1}, r"no action for \['ann'\]; pass one for each of \['ann'\]"),
        ({"ann": "up"}, r"the action of ann has .*; pass one of Discrete"),
    ],
)
def test_a_wrong_action_is_one_clear_line(serve: Any, actions: Any, named: str) -> None:
    with closing(RemoteParallelEnv(serve(WORLDS["turns"]).address)) as world:
        with pytest.raises(VectorMisuse, match="no episode is running; call reset first"):
            world.step({})
        world.reset(seed=0)
        with pytest.raises(VectorMisuse, match=named) as caught:
            world.step(actions)
        assert "\n" not in str(caught.value)


def test_one_agent_and_several_have_a_class_each(serve: Any) -> None:
    several, one = serve(WORLDS["roles"]).address, serve(CARTPOLE).address
    with pytest.raises(ConfigError, match="serves toy_worlds:Skirmish with 4 agents; use RemoteParallelEnv"):
        RemoteEnv(several)
    with closing(make(one)) as env:
        assert isinstance(env, RemoteEnv)


# A run


PPO = ["algo=ppo", "algo.num_steps=16", "algo.minibatch_size=32", "algo.epochs=1", "algo.eval_every_iterations=2"]
SEATED = "algo.agent_id_feature=true"
RUNS = {
    "seats in a Dict": ("tictactoe", PPO),
    "seats of ES": ("relay", ["algo=es", "algo.population=4"]),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_in_worlds_has_the_same_bytes_at_a_server(serve: Any, tmp_path: Path, kind: str) -> None:
    env, run = RUNS[kind]
    run = [*run, "vec.num_envs=2", "budget.iterations=2", "compute=serial", "algo.eval_episodes=2"]
    served = replace(EnvSpec(**paddock.defaults(f"env={env}")), agent_id_feature=True)
    there = ["vec=remote", f"vec.address={serve(served).address}"]
    ways = {"serial": [f"env={env}", SEATED, "vec=serial"], "named": [f"env={env}", SEATED, *there]}
    ways["any"] = ["env=remote", *there]
    for name, way in ways.items():
        assert call_main(*run, *way, f"run.dir={tmp_path / name}") == 0
    assert len({(tmp_path / name / "metrics.jsonl").read_bytes() for name in ways}) == 1


def test_agent_ids_are_added_by_the_server(serve: Any) -> None:
    spec = WORLDS["roles"]
    with_ids = replace(spec, agent_id_feature=True)
    plain, telling = serve(spec).address, serve(with_ids).address
    here = env_spec("paddock.envs.remote.single:make", kwargs={"address": telling})
    for address, recipe, said in (
        (telling, replace(here, agent_id_feature=True), "start the server with .env.agent_id_feature=true"),
        (telling, spec, "env.agent_id_feature=None here, and True at"),
        (plain, with_ids, "env.agent_id_feature=True here, and None at"),
    ):
        with pytest.raises(ConfigError, match=said):
            remote(address).check(recipe)
    remote(telling).check(here)
    remote(telling).check(with_ids)
