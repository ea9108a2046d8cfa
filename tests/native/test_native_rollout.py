"""Whole episodes in native code: as those that Python steps, and the same bits in any company, order and width."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.algos.evolution import population
from paddock.algos.evolution.population import Problem, SearchDistribution, play_mean, play_pairs
from paddock.algos.evolution.strategies import protocol
from paddock.algos.learning.episodes import Episodes, play
from paddock.algos.learning.players import Members
from paddock.algos.learning.policy_episodes import NativePlayer
from paddock.algos.networks.flat import MLP, Activation, Population
from paddock.envs.errors import ConfigError
from paddock.envs.native import library
from paddock.envs.native.networks import Normalizer
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Native, Serial, Vec

E = 29  # episodes: no multiple of any width
Array = NDArray[np.float32]


def spec(id: str, max_episode_steps: int | None = None, **kwargs: Any) -> EnvSpec:
    return EnvSpec(id=id, kwargs=kwargs, wrappers=(), max_episode_steps=max_episode_steps, fresh=False)


def has(name: str) -> bool:
    try:
        library.find_task(name)
    except ConfigError:
        return False
    return True


TASKS = {
    "cartpole": spec("CartPole-v1", 150),
    "pendulum": spec("Pendulum-v1", 40),
    "acrobot": spec("Acrobot-v1", 40),
    "mountain_car": spec("MountainCar-v0", 60),
    "mountain_car_continuous": spec("MountainCarContinuous-v0", 60),
    "walker": spec("BipedalWalker-v3", 60),
}
FOUND = {name: task for name, task in TASKS.items() if has(name)}
ROWS = {
    "minigrid": EnvSpec(
        id="minigrid:MiniGrid-Dynamic-Obstacles-5x5-v0",
        kwargs={},
        wrappers=({"_target_": "paddock.envs.bindings.minigrid.Choices"},),
        max_episode_steps=None,
        fresh=False,
        without=("mission",),
    ),
    "minatar": spec("paddock.envs.games:paddock/MinAtarSpaceInvaders-v0"),
}


FEW = {name: FOUND[name] for name in ("cartpole", "mountain_car_continuous", "walker") if name in FOUND}
every_task = pytest.mark.parametrize("env", FOUND.values(), ids=FOUND)
each_task = pytest.mark.parametrize("env", FEW.values(), ids=FEW)  # of choices, of one number, of several
on_gymnasium_s = pytest.mark.skipif(not {"cartpole", "pendulum"} <= set(FOUND), reason="there is no compiled library")


@dataclass(frozen=True)
class Crowd:
    """Networks of random parameters, and the episodes that they play."""

    problem: Problem
    parameters: Array  # [M, P]
    normalizer: Normalizer | None = None
    cap: int | None = None

    @classmethod
    def of(cls, env: EnvSpec, hidden_sizes: tuple[int, ...] = (16,), activation: Activation = "tanh") -> "Crowd":
        mlp = MLP.for_spaces(env.observations, env.spaces[1], hidden_sizes, activation)
        problem = Problem(env, Native(num_envs=7, threads=1), mlp, 3, 2, None, 100_000, 1.0)
        parameters = 0.5 * np.random.default_rng(1).standard_normal((E, mlp.num_parameters))
        return cls(problem, parameters.astype(np.float32))

    @property
    def normalized(self) -> "Crowd":
        """The same with observations scaled, so that some of them are clipped."""
        generator = np.random.default_rng(2)
        mean, std = generator.uniform(-0.1, 0.1, self.width), generator.uniform(0.1, 0.5, self.width)
        return replace(self, normalizer=Normalizer(*self.problem.network.inputs.of_reals(mean, std), 1.5))

    @property
    def width(self) -> int:
        return self.problem.network.inputs.width

    def natively(self, episodes: Any = range(E), threads: int = 1) -> Episodes:
        """Episode e is played by member e from seed 100 + e; these of them, in this order."""
        player = native_player(self.problem)
        assert player is not None
        return replace(player, threads=threads).play(
            self.parameters,
            [int(e) for e in episodes],
            self.normalizer,
            [100 + int(e) for e in episodes],
            cap=self.cap,
            observe=[e % 3 != 1 for e in episodes],
        )

    def in_python(self, vec: Vec) -> Episodes:
        """The same episodes, stepped one by one."""
        venv = vec.make(self.problem.env, autoreset=AutoresetMode.DISABLED, packed=True)
        players = Members(Population(mlp_of(self.problem), vec.num_envs), lambda e: self.parameters[e], self.normalizer)
        try:
            seeds, observe = [100 + e for e in range(E)], [e % 3 != 1 for e in range(E)]
            return play(venv, players, seeds, cap=self.cap, observe=observe)
        finally:
            venv.close()


def mlp_of(problem: Problem) -> MLP:
    assert isinstance(problem.network, MLP)
    return problem.network


def native_player(problem: Problem) -> NativePlayer | None:
    return NativePlayer.of(problem.vec, problem.env, mlp_of(problem).network)


def same_bits(ours: Episodes, theirs: Episodes) -> bool:
    return as_bytes(ours) == as_bytes(theirs)


def as_bytes(played: Episodes) -> list[Any]:
    moments = [m and (m.count, m.mean.tobytes(), m.m2.tobytes()) for m in played.moments]
    return [played.returns.tobytes(), played.lengths.tobytes(), moments]


@every_task
@pytest.mark.parametrize("hidden_sizes, activation", [((), "tanh"), ((13, 40), "relu")])
def test_episodes_are_those_of_the_ordinary_path(
    env: EnvSpec, hidden_sizes: tuple[int, ...], activation: Activation
) -> None:
    crowd = Crowd.of(env, hidden_sizes, activation)
    for way in (crowd, crowd.normalized):
        assert same_bits(way.natively(), way.in_python(Native(num_envs=7, threads=1)))


@on_gymnasium_s
@pytest.mark.parametrize("env", ROWS.values(), ids=ROWS)
def test_episodes_on_rows_of_bytes_are_those_of_the_original(env: EnvSpec) -> None:
    """Choices, what is legal, and real numbers; moments are of what networks see."""
    crowd = replace(Crowd.of(env), cap=60)
    assert mlp_of(crowd.problem).network.features is not None
    for way in (crowd, crowd.normalized):
        own = way.natively()
        assert same_bits(own, way.in_python(Serial(num_envs=7)))
        assert same_bits(way.natively(threads=3), own)
        assert len({*own.returns.tolist()}) > 1, "members do as well as each other"


@pytest.mark.skipif("walker" not in FOUND, reason="there is no compiled library")
@pytest.mark.parametrize(
    "id", ["paddock.envs.bipedal:paddock/BipedalWalker-v3", "paddock.envs.bipedal:paddock/BipedalWalkerHardcore-v3"]
)
def test_a_walker_s_episodes_are_box2d_s(id: str) -> None:
    crowd = Crowd.of(spec(id, 120)).normalized
    assert same_bits(crowd.natively(), crowd.in_python(Serial(num_envs=7)))


@each_task
def test_an_episode_is_the_same_in_any_batch_order_and_thread_count(env: EnvSpec) -> None:
    crowd = Crowd.of(env).normalized
    whole = crowd.natively()
    for threads in (2, 3):
        assert same_bits(crowd.natively(threads=threads), whole)
    order = np.random.default_rng(4).permutation(E)
    moments = [whole.moments[e] for e in order]
    assert same_bits(
        crowd.natively(order), Episodes(whole.returns[order], whole.lengths[order], moments, whole.env_metrics)
    )
    for e in (0, 5, E - 1):
        alone = Episodes(whole.returns[[e]], whole.lengths[[e]], [whole.moments[e]], whole.env_metrics[[e]])
        assert same_bits(crowd.natively([e], threads=2), alone)


@each_task
def test_one_network_for_all_plays_as_a_copy_of_it_for_each(env: EnvSpec) -> None:
    crowd = Crowd.of(env, (9, 20)).normalized
    copies = replace(crowd, parameters=np.repeat(crowd.parameters[:1], E, axis=0)).natively(threads=2)
    player = native_player(crowd.problem)
    assert player is not None
    seeds, observe = [100 + e for e in range(E)], [e % 3 != 1 for e in range(E)]
    shared = player.play(crowd.parameters[:1], [0] * E, crowd.normalizer, seeds, cap=None, observe=observe)
    assert same_bits(shared, copies)


@each_task
def test_an_episode_gives_the_same_bits_on_every_width(env: EnvSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, compiled = Crowd.of(env, (5, 12)).normalized, library.load()
    sets = [name for name in (b"baseline", b"avx2", b"avx512") if compiled.has_set(name)]
    played = []
    for name in sets:
        monkeypatch.setattr(library, "find_task", lambda task, name=name: compiled.find_task(name, task.encode()))
        played.append(crowd.natively(threads=2))
    assert all(same_bits(one, played[0]) for one in played)


@each_task
def test_an_episode_ends_at_its_cap_or_at_its_limit(env: EnvSpec) -> None:
    crowd = Crowd.of(env)
    whole = crowd.natively()
    assert whole.lengths.max() <= (env.max_episode_steps or math.inf)
    for cap in (1, 3, 10_000):
        capped = replace(crowd, cap=cap).natively()
        np.testing.assert_array_equal(capped.lengths, np.minimum(whole.lengths, cap))
        assert same_bits(capped, replace(crowd, cap=cap).in_python(Native(num_envs=7, threads=1)))


@pytest.mark.parametrize("env", [task for name, task in FEW.items() if name != "cartpole"])
def test_a_network_that_is_not_finite_loses_its_own_episodes_alone(env: EnvSpec) -> None:
    crowd = Crowd.of(env)
    whole = crowd.natively()
    spoilt = crowd.parameters.copy()
    spoilt[3], spoilt[7], spoilt[11, 2], spoilt[E - 1, -1] = np.nan, np.inf, -np.inf, np.nan
    lost = [3, 7, E - 1]  # tanh of one infinite number is finite, of a difference of two it is not
    played = replace(crowd, parameters=spoilt).natively(threads=2)
    assert np.isnan(played.returns[lost]).all() and not played.lengths[lost].any()
    rest = [e for e in range(E) if e not in (*lost, 11)]
    np.testing.assert_array_equal(played.returns[rest], whole.returns[rest])
    assert [m.count for m in played.moments if m is not None] == [n for e, n in enumerate(played.lengths) if e % 3 != 1]


@each_task
def test_members_are_played_the_same_natively_and_step_by_step(env: EnvSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """As workers of ES do it: pairs around a mean, in parts of any size, and the mean itself."""
    problem = replace(Crowd.of(env).problem, episode_cap=25)
    mean = 0.3 * np.random.default_rng(6).standard_normal(problem.num_parameters).astype(np.float32)
    distribution = SearchDistribution(
        problem, iteration=4, members=protocol.Gaussian(mean, np.float32(0.1), mirrored=True)
    )
    evaluation = replace(distribution, members=protocol.Members(mean[None]), evaluation=True)
    returns, lengths, moments, _ = play_pairs(distribution, 0, 6)
    of_mean = play_mean(evaluation, 2, 7)
    parts = [play_pairs(distribution, start, start + 2) for start in (0, 2, 4)]
    np.testing.assert_array_equal(returns, np.concatenate([part[0] for part in parts]))
    np.testing.assert_array_equal(lengths, np.concatenate([part[1] for part in parts]))
    assert len(moments) == sum(len(part[2]) for part in parts) == 24
    nothing = play_pairs(distribution, 3, 3)
    assert nothing[0].shape == nothing[1].shape == (0, 2) and nothing[2] == []

    monkeypatch.setattr(NativePlayer, "of", lambda vec, env, network: None)
    monkeypatch.setattr(population, "_workspaces", type(population._workspaces)())
    stepped = play_pairs(distribution, 0, 6)
    np.testing.assert_array_equal(returns, stepped[0])
    np.testing.assert_array_equal(lengths, stepped[1])
    again = play_mean(evaluation, 2, 7)
    np.testing.assert_array_equal(of_mean.returns, again.returns)
    np.testing.assert_array_equal(of_mean.lengths, again.lengths)
