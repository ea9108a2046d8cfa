"""Other people's vector environments behind our contract: EnvPool's, and environments that are vectors."""

import itertools
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import env_spec
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from paddock.envs.errors import ConfigError
from paddock.envs.vector import EnvError, EnvPool, Serial, Vector, VectorEnv, VectorMisuse
from paddock.envs.vector.adapters.batched import BatchedVectorEnv
from paddock.envs.vector.infos import add_info, merge_infos

N = 3


def plain(value: Any) -> Any:
    """Infos as lists and mappings, which compare by value."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    value = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
    return [plain(item) for item in value] if isinstance(value, np.ndarray | list | tuple) else value


def play(venv: VectorEnv, actions: Any) -> list[Any]:
    """What a vector gives for these actions, in forms that compare by value."""
    return [plain(venv.step(action)) for action in actions]


def random_actions(venv: VectorEnv, steps: int) -> list[Any]:
    venv.action_space.seed(0)
    return [venv.action_space.sample() for _ in range(steps)]


# Environments that are vectors: each counts to its number + 2


class CountOne(gymnasium.Env):
    observation_space, action_space = Box(0, 99, (1,), np.float32), Discrete(2)

    def __init__(self, start: int) -> None:
        """One of them, for its spaces."""


class Count(gymnasium.vector.VectorEnv):
    """Environment i ends at its step i + 2; its observation is the number of steps since the reset."""

    single_observation_space: gymnasium.Space[Any] = CountOne.observation_space
    single_action_space = CountOne.action_space

    def __init__(self, num_envs: int, start: int = 0, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> None:
        if autoreset_mode not in self.offered:
            raise ValueError(f"only {self.offered}")
        self.num_envs, self.start = num_envs, start
        self.metadata = {"autoreset_mode": autoreset_mode}
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.steps = np.zeros((num_envs, 1), np.float32)
        self.seeds: list[int | None] = []

    offered = tuple(AutoresetMode)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self.steps[mask] = self.start
        return self.steps, {"fresh": mask.copy(), "_fresh": mask.copy()}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        ended = self.steps[:, 0] >= np.arange(self.num_envs) + 2
        everyone = np.ones(self.num_envs, bool)
        infos: dict[str, Any] = {"count": self.steps[:, 0].copy(), "_count": everyone}
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and ended.any():
            final = self.steps.copy()
            _, begun = self.reset(options={"reset_mask": ended})
            infos = {"count": np.where(ended, 0, infos["count"]), "_count": ~ended, **begun}
            infos |= {"final_obs": final, "final_info": {"count": final[:, 0], "_count": ended}, "_final_info": ended}
        return self.steps, np.full(self.num_envs, 0.5, np.float32), ended, ~everyone, infos


class CountSame(Count):
    offered = (AutoresetMode.SAME_STEP,)


class CountFails(Count):
    def step(self, actions: Any) -> Any:
        raise ZeroDivisionError


class CountDisabled(Count):
    offered = (AutoresetMode.DISABLED,)


class CountNext(Count):
    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    one, many = f"{__name__}:CountOne", f"{__name__}:CountSame"
    gymnasium.register("Count-v0", one, vector_entry_point=many, kwargs={"start": 0})
    yield
    del gymnasium.registry["Count-v0"]


def counting(target: type | None, **changes: Any) -> BatchedVectorEnv:
    path = None if target is None else f"{__name__}.{target.__name__}"
    return Vector(num_envs=N, target=path).make(env_spec("Count-v0", **changes))


@pytest.mark.parametrize("target", [Count, CountSame, CountDisabled, None])
def test_a_vector_restarts_in_the_same_step(target: type | None) -> None:
    with closing(counting(target)) as venv:
        assert venv.reset(seed=3)[0].tolist() == [[0], [0], [0]]
        first, *_ = venv.step(np.zeros(N, int))
        # Environment 0 ends at its second step, 1 at its third, 2 at its fourth.
        obs, reward, terminated, truncated, infos = venv.step(np.zeros(N, int))
        assert first.tolist() == [[1], [1], [1]], "batches are the caller's own"
        assert obs.tolist() == [[0], [2], [2]]
        assert reward.tolist() == [0.5, 0.5, 0.5] and reward.dtype == np.float64
        assert terminated.tolist() == [True, False, False] and not truncated.any()
        assert plain(infos["final_obs"]) == [[2], None, None] and infos["_final_obs"].tolist() == [True, False, False]
        episode = infos["final_info"]["episode"]
        assert episode["r"].tolist() == [1.0, 0, 0] and episode["l"].tolist() == [2, 0, 0]
        assert infos["final_info"]["count"][0] == 2 and infos["final_info"]["_count"].tolist() == [True, False, False]
        assert infos["_final_info"].tolist() == infos["final_info"]["_episode"].tolist() == [True, False, False]
        assert infos["count"].tolist()[1:] == [2, 2] and infos["_count"].tolist() == [False, True, True]
        assert infos["_fresh"].tolist() == [True, False, False]
        obs, *_, infos = venv.step(np.zeros(N, int))
        assert obs.tolist() == [[1], [0], [3]]
        obs, *_, infos = venv.step(np.zeros(N, int))
        assert obs.tolist() == [[0], [1], [0]]
        assert infos["final_info"]["episode"]["l"].tolist() == [2, 0, 4]
        assert infos["final_info"]["episode"]["r"].tolist() == [1.0, 0, 2.0]


def test_a_vector_that_raises_is_an_error_with_a_traceback() -> None:
    with closing(counting(CountFails)) as venv:
        venv.reset(seed=0)
        with pytest.raises(EnvError, match=r"(?s)raised in step: ZeroDivisionError.*Traceback"):
            venv.step(np.zeros(N, int))


class Refilled(gymnasium.Env):
    """Ends at its second step; all observations are one array, filled anew."""

    observation_space, action_space = Dict({"steps": Box(0, 99, (1,), np.float32)}), Discrete(2)

    def __init__(self) -> None:
        self.told = {"steps": np.zeros(1, np.float32)}

    def reset(self, **given: Any) -> Any:
        super().reset(**given)
        self.told["steps"][:] = 0
        return self.told, {}

    def step(self, action: Any) -> Any:
        self.told["steps"] += 1
        return self.told, 1.0, bool(self.told["steps"] == 2), False, {}


def test_the_last_observation_is_kept_where_one_array_holds_all_of_them() -> None:
    with closing(Serial(num_envs=N).make(env_spec(f"{__name__}:Refilled"))) as venv:
        venv.reset(seed=0)
        venv.step(np.zeros(N, int))
        obs, *_, infos = venv.step(np.zeros(N, int))
        assert infos["final_obs"][0]["steps"].tolist() == [2] and obs["steps"][0].tolist() == [0]


def test_a_vector_as_a_whole_has_one_seed() -> None:
    with closing(counting(Count)) as venv:
        assert not venv.keyed
        for seed, episodes in [(1, None), (1, [0, 0, 0]), (1, [0, 1, 0]), (1, [0, 0, 1]), (2, None)]:
            venv.begin(seed, episodes)
        seeds = venv.venv.seeds
        assert seeds[0] == seeds[1] and len(set(seeds)) == 4
        with pytest.raises(VectorMisuse, match="single seed, not 3"):
            venv.reset(seed=[1, 2, 3])


@pytest.mark.parametrize(
    ("target", "changes", "named"),
    [
        (CountNext, {}, "autoreset_mode=NextStep only, but SameStep or Disabled is needed; use vec=serial"),
        (Count, {"kwargs": {"begin": 1}}, "rejects {'begin': 1"),
        (Count, {"wrappers": [{"_target_": "gymnasium.wrappers.ClipReward"}]}, "cannot wrap the environments"),
        (Count, {"id": "CartPole-v1"}, "use the same task for both"),
        (None, {"id": "Pendulum-v1"}, "has no vector environment"),
        (None, {"id": "CartPole-v1"}, "the vector environment of CartPole-v1 supports autoreset_mode"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value)[:30],
)
def test_what_a_vector_cannot_do_is_refused(target: type | None, changes: dict[str, Any], named: str) -> None:
    path = None if target is None else f"{__name__}.{target.__name__}"
    with pytest.raises(ConfigError, match=named) as caught:
        Vector(num_envs=N, target=path).make(env_spec(**({"id": "Count-v0"} | changes)))
    assert "\n" not in str(caught.value)


def test_infos_of_any_form_go_side_by_side_whoever_spoke_first() -> None:
    said: list[dict[str, Any]] = [
        {"at": np.zeros((1, 2)), "won": None},
        {"at": np.ones((3, 2)), "won": {"by": 4}},
        {"won": None},
        {"at": 5.0},
    ]
    for order in itertools.permutations(range(4)):
        added: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for row in order:
            add_info(added, said[row], row, 4)
            one: dict[str, Any] = {}
            add_info(one, said[row], 0, 1)
            merge_infos(merged, one, np.array([row]), 4)
        for infos in (added, merged):
            assert plain(infos["won"]) == {"by": [0, 4, 0, 0], "_by": [False, True, False, False]}
            assert plain(infos["_won"]) == [False, True, False, False]
            assert [np.shape(one) for one in infos["at"]] == [(1, 2), (3, 2), (), ()]
            assert infos["at"][2] is None and infos["at"][3] == 5 and plain(infos["_at"]) == [True, True, False, True]


# EnvPool


def test_envpool_that_is_absent_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ConfigError, match="pip install envpool") as caught:
        EnvPool(num_envs=2, threads=0).make(env_spec("CartPole-v1"))
    assert "\n" not in str(caught.value)


@pytest.fixture
def pool() -> EnvPool:
    pytest.importorskip("envpool", reason="EnvPool is not installed: pip install envpool")
    return EnvPool(num_envs=5, threads=1)


def gather(venv: VectorEnv, steps: int, start: tuple[Any, Any]) -> list[list[Any]]:
    """Each environment's trajectory of so many steps: what it saw, got, and ended with."""
    N, (obs, _) = venv.num_envs, start
    seen: list[list[Any]] = [[obs[i].tolist()] for i in range(N)]
    generator = np.random.default_rng(0)
    for _ in range(steps):
        obs, reward, terminated, truncated, infos = venv.step(generator.integers(2, size=N))
        for i, ended in enumerate((terminated | truncated).tolist()):
            final: Any = None
            if ended:
                episode = infos["final_info"]["episode"]
                final = (infos["final_obs"][i].tolist(), float(episode["r"][i]), int(episode["l"][i]))
            seen[i].append((obs[i].tolist(), float(reward[i]), ended, final))
    return seen


def test_envpool_restarts_in_the_same_step_and_counts(pool: EnvPool) -> None:
    with closing(pool.make(env_spec("CartPole-v1", max_episode_steps=12))) as venv:
        ends = 0
        for trajectory in gather(venv, 60, venv.begin(3)):
            length = 0
            for obs, reward, ended, final in trajectory[1:]:
                length += 1
                assert reward == 1.0, "no step of the restart is seen"
                assert (final is None) == (not ended)
                if ended:
                    ends += 1
                    assert final[1:] == (length, length)
                    assert length <= 12 and np.abs(obs).max() <= 0.05, "a new episode's observation"
                    assert length == 12 or abs(final[0][0]) > 2.4 or abs(final[0][2]) > 0.2095
                    length = 0
        assert ends > 5 * 4


def test_envpool_gives_the_same_for_the_same_key(pool: EnvPool) -> None:
    with closing(pool.make(env_spec("CartPole-v1"))) as venv:
        assert not venv.keyed
        first = gather(venv, 40, venv.begin(3, range(5)))
        assert gather(venv, 40, venv.begin(3, range(5))) == first
        assert gather(venv, 40, venv.begin(4, range(5)))[1] != first[1]
        other = gather(venv, 40, venv.begin(3, [0, 9, 2, 3, 4]))
        assert other[1] != first[1] and other[2:] == first[2:]
        assert gather(venv, 40, venv.reset(seed=8)) == gather(venv, 40, venv.reset(seed=range(8, 13)))
        assert venv.reset()[0].tolist() != venv.reset()[0].tolist()


def test_a_task_of_envpools_is_an_environment_on_seeds_too() -> None:
    pytest.importorskip("envpool", reason="EnvPool is not installed: pip install envpool")
    spec = env_spec(
        "paddock.envs.bindings.envpool:paddock/EnvPool-v0", kwargs={"task": "CartPole-v1"}, max_episode_steps=30
    )
    alone = Serial(num_envs=N).make(spec)
    with closing(alone), closing(EnvPool(num_envs=N, threads=1).make(spec)) as pool:
        assert alone.keyed and alone.single_observation_space == pool.single_observation_space
        first = alone.begin(7)[0]
        np.testing.assert_array_equal(pool.begin(7)[0], first)
        over = np.zeros(N, bool)  # the pool's first episodes are on these seeds
        number, started = np.zeros(N, int), first.copy()
        for action in random_actions(alone, 60):
            mine, other = alone.step(action), pool.step(action)
            for ours, theirs in zip(mine[1:4], other[1:4], strict=True):
                np.testing.assert_array_equal(ours[~over], theirs[~over])
            ended = mine[2] | mine[3]
            over |= ended
            np.testing.assert_array_equal(mine[0][~over], other[0][~over])
            number += ended
            started[ended] = mine[0][ended]
        assert over.all()
        np.testing.assert_array_equal(alone.begin(7, number)[0], started)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"id": "paddock.envs.bindings.envpool:paddock/EnvPool-v0", "kwargs": {"task": "CartPol-v1"}},
            r"env\.kwargs\.task=CartPol-v1 is not an EnvPool task; did you mean 'CartPole-v",
        ),
        ({"kwargs": {"stack": 2}, "id": "Breakout-v5"}, "did you mean 'stack_num'"),
        ({"kwargs": {"num_envs": 2}}, "env.kwargs.num_envs is not an option"),
    ],
    ids=str,
)
def test_what_envpool_cannot_do_is_refused(changes: dict[str, Any], named: str) -> None:
    pytest.importorskip("envpool", reason="EnvPool is not installed: pip install envpool")
    with pytest.raises(ConfigError, match=named) as caught:
        EnvPool(num_envs=2, threads=0).make(env_spec(**({"id": "CartPole-v1"} | changes)))
    assert "\n" not in str(caught.value)
