"""Rollouts: they depend on where they start, the weights and their number, and on nothing else."""

import contextlib
import functools
import itertools
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from learned import assert_same, followed, played, weights

from paddock.algos.learning.async_evaluation import evaluate_on_worker
from paddock.algos.learning.episodes import Moments
from paddock.algos.learning.onpolicy.normalize import Normalization
from paddock.algos.learning.rollouts.actors import Actors
from paddock.algos.learning.rollouts.collector import Collector
from paddock.algos.learning.rollouts.config import RolloutConfig, limit_episodes
from paddock.algos.learning.rollouts.pool_actors import play_on_pool
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout, join
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.heads import make_head
from paddock.algos.pool.serial import SerialPool
from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Native, Serial, Vec, Vector


class Endless(gymnasium.Env[np.ndarray, np.int64]):
    """Counts its steps, and ends no episode."""

    observation_space = spaces.Box(0, np.inf, (1,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, **given: Any) -> Any:
        super().reset(seed=given["seed"])
        self._count = self.np_random.integers(100)
        return np.full(1, self._count, np.float32), {}

    def step(self, action: np.int64) -> Any:
        self._count += 1 + int(action)
        return np.full(1, self._count, np.float32), 0.0, False, False, {}


gymnasium.register("Endless-v0", f"{__name__}:Endless")
gymnasium.register("EndlessLimited-v0", f"{__name__}:Endless", max_episode_steps=25)

WALKER = "paddock.envs.bipedal:paddock/BipedalWalker-v3"
NATIVE = Native(num_envs=4, threads=1)
CARTS = Vector(num_envs=4, target="paddock.envs.tasks.cartpole.CartPoleVector")


def config(
    id: str = "CartPole-v1", num_envs: int = 4, *, lstm: bool = False, vec: Vec | None = None, **changes: Any
) -> RolloutConfig:
    limit = changes.pop("max_episode_steps", None)
    env = EnvSpec(id=id, kwargs={}, wrappers=(), max_episode_steps=limit, fresh=False)
    architecture = Architecture.for_spaces(
        env.observations,
        make_head(env.spaces[1]),
        encoder="auto",
        hidden_sizes=(8,),
        activation="tanh",
        shared=False,
        lstm=lstm,
        initial_log_std=0.0,
    )
    given: dict[str, Any] = {"num_steps": 16, "groups": 1, "fused": "auto"} | changes
    return RolloutConfig(env, vec or Serial(num_envs=num_envs), architecture, seed=3, **given)


@pytest.mark.parametrize(
    "of",
    [
        config(),
        config("Pendulum-v1", max_episode_steps=37),
        config("paddock.envs.sanity:paddock/Recall-v0", lstm=True),
        config("paddock.envs.bipedal:paddock/BipedalWalker-v3", num_envs=2, max_episode_steps=40),
        config(groups=2),
        config(vec=Native(num_envs=4, threads=1)),
        config(WALKER, max_episode_steps=40, vec=Native(num_envs=4, threads=1)),
    ],
    ids=["cartpole", "pendulum", "recall", "bipedal", "groups", "native", "native-walker"],
)
def test_any_process_can_go_on_where_another_left(of: RolloutConfig) -> None:
    undisturbed, points = followed(of, 6)
    assert sum(len(rollout.returns) for rollout in undisturbed) > 0
    for k in (1, 3, 5):
        elsewhere = Collector(of)
        (rollout,), end = elsewhere.collect([weights(of, k)], points[k], k)
        assert_same(rollout, undisturbed[k])
        assert points[k].advance([end]).same_as(points[k + 1])
        elsewhere.close()


def test_what_environments_saved_leads_there_without_an_action() -> None:
    of = config(WALKER, vec=NATIVE)
    undisturbed, points = followed(of, 4)
    assert points[3].state_dict(of.architecture.head)["saved"].keys() == {"0"}
    elsewhere = Collector(of)
    (rollout,), _ = elsewhere.collect([weights(of, 3)], replace(points[3], played=()), 3)
    assert_same(rollout, undisturbed[3])


def test_where_nothing_leads_episodes_begin_anew_and_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    of = config(vec=Serial(num_envs=4))
    _, points = followed(of, 2)
    here = Collector(of)
    (rollout,), end = here.collect([weights(of, 2)], points[2].light, 2)
    assert "cannot restore running episodes" in caplog.text
    assert (rollout.start.length == 0).all() and (rollout.start.episode == points[2].episode + 1).all()
    (following,), _ = here.collect([weights(of, 3)], end, 3)
    assert_same(Collector(of).collect([weights(of, 3)], points[2].advance([end]), 3)[0][0], following)


def test_the_actions_of_running_episodes_are_kept_and_no_others() -> None:
    of = config("EndlessLimited-v0", num_envs=3)
    _, points = followed(of, 12)
    for before, after in itertools.pairwise(points):
        assert all(actions.dtype == np.uint8 and actions.shape == (16, 3, 1) for actions in after.played)
        assert sum(map(len, after.played)) < after.length.max() + 2 * 16
        # Appended to, not copied.
        assert all(any(kept is one for one in before.played) for kept in after.played[:-1])
        assert len(after.state_dict(of.architecture.head)["actions"]) == after.length.sum() <= 3 * 25
    assert points[-1].length.max() > 0


def test_training_settings_apply_to_rollouts_alone() -> None:
    of = config(num_steps=40)
    of = replace(of, env=limit_episodes(replace(of.env, training={"max_episode_steps": 5}), of.vec))
    (rollout,), _ = Collector(of).collect([weights(of)], ResumePoint.first(4, of.policy_group), 0)
    assert set(rollout.lengths) == {5} and len(rollout.lengths) == 32
    playing: Any = SerialPool().broadcast(([weights(of)], []))
    whole = evaluate_on_worker(of, 1000, (playing, 0, 0, 3))
    assert whole.lengths.min() > 5
    other = {"wrappers": [{"_target_": "gymnasium.wrappers.TimeAwareObservation"}]}
    with pytest.raises(ConfigError, match=r"env\.training changes the spaces to"):
        limit_episodes(replace(of.env, training=other), of.vec)


def test_endless_episodes_are_limited_where_actions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.algos.learning.rollouts.config.MAX_EPISODE_STEPS", 40)
    endless = config("Endless-v0").env
    layouts: list[tuple[Vec, int | None]] = [
        (Serial(num_envs=4), 40),
        (Native(num_envs=4, threads=1), 40),
        (CARTS, None),
    ]
    for vec, expected in layouts:
        assert limit_episodes(endless, vec).max_episode_steps == expected
    for limited in (config().env, replace(endless, max_episode_steps=90), config("EndlessLimited-v0").env):
        assert limit_episodes(limited, Serial(num_envs=4)) == limited
    wrapped = replace(endless, wrappers=({"_target_": "gymnasium.wrappers.TimeLimit", "max_episode_steps": 70},))
    assert limit_episodes(wrapped, Serial(num_envs=4)) == wrapped
    of = replace(config("Endless-v0"), env=limit_episodes(endless, Serial(num_envs=4)))
    rollouts, points = followed(of, 6)
    assert {int(length) for rollout in rollouts for length in rollout.lengths} == {40}
    assert max(point.length.max() for point in points) <= 40


def test_a_rollout_is_what_the_environment_says() -> None:
    of = config(num_envs=2, num_steps=60, max_episode_steps=9)
    rollout = played(of, 1)[0]
    for n in range(2):
        env: Any = of.env.make()
        starts, t = rollout.starts, 0
        while t < 60:
            assert starts[t, n]
            env.reset()
            env.unwrapped.state = rollout.obs[t, n]  # CartPole's state is its observation
            while t < 60:
                obs, reward, terminated, truncated, _ = env.step(int(rollout.action[t, n, 0]))
                assert (reward, terminated) == (rollout.reward[t, n], rollout.terminated[t, n])
                assert rollout.truncated[t, n] == (truncated and not terminated)
                t += 1
                if terminated or truncated:
                    break
                following = rollout.obs[t, n] if t < 60 else rollout.last_obs[n]
                np.testing.assert_allclose(obs, following, rtol=1e-5, atol=1e-6)
    assert rollout.truncated.any() and rollout.terminated.sum() + rollout.truncated.sum() == len(rollout.returns)
    assert rollout.lengths.max() == 9 and (rollout.returns == rollout.lengths).all()


def test_the_final_observation_of_a_truncated_episode_is_kept() -> None:
    of = config(num_envs=3, num_steps=40, max_episode_steps=7)
    rollout = played(of, 1)[0]
    assert len(rollout.final_at) == rollout.truncated.sum() > 3
    for (t, n), final in zip(rollout.final_at, rollout.final_obs, strict=True):
        assert rollout.truncated[t, n]
        env: Any = of.env.make()
        env.reset()
        env.unwrapped.state = rollout.obs[t, n]
        np.testing.assert_allclose(env.step(int(rollout.action[t, n, 0]))[0], final, rtol=1e-5, atol=1e-6)


def test_groups_change_the_order_of_work_and_no_episode() -> None:
    one, two = played(config(), 3), played(config(groups=2), 3)
    for rollout, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(rollout.action, other.action)
        np.testing.assert_array_equal(rollout.obs, other.obs)


def test_actors_side_by_side_are_one_rollout() -> None:
    of = config()
    start = ResumePoint.first(8, of.policy_group)
    source = play_on_pool(of, SerialPool(), 2, lambda k: [weights(of, k)], start, 0)
    whole, points = zip(*[next(source) for _ in range(3)], strict=True)
    assert whole[0][0].reward.shape == (16, 8)
    parts = [Collector(of, index) for index in range(2)]
    for k, (rollout,) in enumerate(whole):
        given = zip(parts, rollout.start.split(2), strict=True)
        shares, ends = zip(*[part.collect([weights(of, k)], point, k) for part, point in given], strict=True)
        assert_same(join([share for (share,) in shares]), rollout)
        assert points[k].same_as(rollout.start.advance(ends))
        assert not np.array_equal(shares[0][0].obs, shares[1][0].obs)


def publish(actors: Actors, version: int) -> None:
    actors.publish(version, lambda: [weights(actors._config, version)])


@pytest.mark.parametrize("mode", ["prefetch", "threads", "actors"])
@pytest.mark.parametrize(
    ("staleness", "sync_every", "expected"),
    [(2, 1, [0, 0, 0, 1, 2, 3, 4, 5, 6]), (2, 3, [0, 0, 0, 0, 0, 3, 3, 3, 6]), (3, 2, [0, 0, 0, 0, 0, 2, 2, 4, 4])],
)
def test_rollout_k_is_played_by_weights_of_k_minus_staleness(
    mode: Any, staleness: int, sync_every: int, expected: list[int]
) -> None:
    of, versions, asked = config(), [], []

    def make(version: int) -> list[Weights]:
        asked.append(version)
        return [weights(of, version)]

    actors = Actors(of, SerialPool(), mode, 1, staleness, weights(of), sync_every=sync_every)
    with contextlib.closing(actors.rollouts()) as rollouts:
        for k in range(9):
            versions.append(next(rollouts)[0].version)
            actors.publish(k + 1, functools.partial(make, k + 1))
    assert versions == expected
    assert asked == [k for k in range(1, 10) if k % sync_every == 0]  # nobody copies what no actor plays


@pytest.mark.parametrize("staleness", [0, 1, 3])
@pytest.mark.parametrize("of", [config(), config(lstm=True, groups=2)], ids=["dense", "lstm"])
def test_actors_in_threads_play_what_one_after_another_plays(of: RolloutConfig, staleness: int) -> None:
    def run(mode: Any) -> list[Rollout]:
        actors, rollouts = Actors(of, SerialPool(), mode, 3, staleness, weights(of), sync_every=2), []
        with contextlib.closing(actors.rollouts()) as source:
            for k in range(6):
                rollouts += next(source)
                publish(actors, k + 1)
        return rollouts

    before = {*threading.enumerate()}
    expected = run("actors")
    assert expected[0].reward.shape == (16, 12)
    for rollout, other in zip(run("threads"), expected, strict=True):
        assert_same(rollout, other)
    assert before >= {*threading.enumerate()}


def test_an_actor_that_fails_ends_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    of, before, count = config(), {*threading.enumerate()}, itertools.count()
    collect = Collector.collect

    def fail(self: Collector, weights: Any, start: ResumePoint, iteration: int) -> Any:
        if self._index == 1 and iteration == 1:
            raise ZeroDivisionError("in its second share")
        next(count)
        return collect(self, weights, start, iteration)

    monkeypatch.setattr(Collector, "collect", fail)
    actors = Actors(of, SerialPool(), "threads", 3, 0, weights(of))
    source = actors.rollouts()
    next(source)
    publish(actors, 1)  # the others play one more share, and wait for weights that never come
    with pytest.raises(ZeroDivisionError, match="second share"):
        next(source)
    assert before >= {*threading.enumerate()} and 3 <= next(count) <= 5


@pytest.mark.parametrize(
    ("mode", "staleness", "sync_every", "vec"),
    [
        *[("inline", 1, 1, None), ("inline", 1, 3, None), ("prefetch", 1, 1, None), ("prefetch", 3, 1, None)],
        *[("prefetch", 1, 3, None), ("actors", 0, 1, None), ("actors", 2, 3, None), ("threads", 0, 1, None)],
        *[("threads", 0, 3, None), ("threads", 3, 2, None)],
        *[("prefetch", 3, 1, NATIVE), ("actors", 2, 1, NATIVE), ("threads", 3, 1, NATIVE)],
    ],
)
def test_actors_go_on_from_their_state(mode: Any, staleness: int, sync_every: int, vec: Vec | None) -> None:
    of = config(vec=vec)

    def new() -> Actors:
        return Actors(of, SerialPool(), mode, 2, staleness, weights(of), sync_every=sync_every)

    def run(actors: Actors, first: int, count: int) -> list[Rollout]:
        rollouts, source = [], actors.rollouts()
        for k in range(first, first + count):
            rollouts += next(source)
            publish(actors, k + 1)
        source.close()
        return rollouts

    whole = run(new(), 0, 8)
    for at in (3, 4):
        first, second = new(), new()
        run(first, 0, at)
        second.load_state_dict(first.state_dict(), weights(of, at))
        for rollout, expected in zip(run(second, at, 8 - at), whole[at:], strict=True):
            assert_same(rollout, expected)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mode": "prefetch", "staleness": 0}, "rollouts=prefetch needs staleness"),
        ({"config": config(groups=3)}, "groups=3 does not divide vec.num_envs=4"),
    ],
)
def test_settings_that_do_not_go_together_are_one_line(change: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {"config": config(), "mode": "actors", "num_actors": 1, "staleness": 1} | change
    of = given["config"]
    with pytest.raises(ConfigError, match=named):
        Actors(of, SerialPool(), given["mode"], given["num_actors"], given["staleness"], weights(of))


# Normalization


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return() -> None:
    of = config(num_envs=2, num_steps=3)
    blank = played(of, 1)[0]
    reward = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    never = np.zeros((3, 2), bool)
    ended = never.copy()
    ended[1, 0] = True
    rollout = replace(blank, reward=reward, terminated=ended, truncated=never)
    normalization = Normalization(2, of.architecture.inputs, 0.5, obs=False, rewards=True)
    scaled = normalization.rewards(rollout, 10.0)
    # Column 0: 1, 3.5 and, after the episode's end, 5; column 1: 2, 5, 8.5.
    expected = np.std([1, 3.5, 5, 2, 5, 8.5])
    assert normalization.reward_scale == pytest.approx(expected)
    np.testing.assert_allclose(scaled, reward / expected, rtol=1e-6)
    assert normalization.rewards(rollout, 1.0).max() == 1.0


def test_rewards_of_waiting_agents_are_summed_by_turn() -> None:
    blank = played(config(num_envs=2, num_steps=4), 1)[0]
    # Row 0 begins turns at steps 0, 2 and 5, and its life ends with 6, as it waits, which pays 8; row 1 begins one at
    # 3, and 7 before that are of no turn.
    acts = np.array([[1, 0, 1, 0, 0, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0, 0, 0, 1]], bool).T
    reward = np.array([[1, 2, 0, 4, 0, 0, 8, 0], [7, 0, 0, 1, 0, 2, 0, 0]], np.float32).T
    ended = np.zeros((8, 2), bool)
    ended[6, 0] = True
    # 1 + 2; 3 / 2 + 4; 5.5 / 2 + 8; and of row 1 the 3 that end with the last step. Row 0's last turn is still on.
    expected = np.std([3, 5.5, 10.75, 3])

    def scale(*lengths: int) -> float:
        """What they are divided by after rollouts of so many steps, each by another that goes on from its state."""
        state: Any = None
        first = 0
        for length in lengths:
            steps, never = slice(first, first + length), np.zeros((length, 2), bool)
            one = Normalization(2, config().architecture.inputs, 0.5, obs=False, rewards=True, aec=True)
            if state is not None:
                one.load_state_dict(state)
            acted = acts[first : first + length + 1]
            rollout = replace(blank, reward=reward[steps], terminated=ended[steps], truncated=never, acts=acted)
            one.rewards(rollout, 10.0)
            state, first = one.state_dict(), first + length
        return one.reward_scale

    for lengths in ((8,), (4, 4), (1, 2, 3, 2)):
        assert scale(*lengths) == pytest.approx(expected)


def test_observations_are_counted_once_a_rollout() -> None:
    rollouts, inputs = played(config(), 3), config().architecture.inputs
    normalization = Normalization(4, inputs, 0.99, obs=True, rewards=False)
    assert (normalization.mean == 0).all() and (normalization.std == 1).all()
    for rollout in rollouts:
        normalization.observe(rollout)
    seen = np.concatenate([rollout.obs.reshape(-1, 4) for rollout in rollouts]).astype(float)
    np.testing.assert_allclose(normalization.mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(normalization.std, seen.std(axis=0), rtol=1e-5)
    again = Normalization(4, inputs, 0.99, obs=True, rewards=False)
    again.load_state_dict(normalization.state_dict())
    np.testing.assert_array_equal(again.mean, normalization.mean)
    assert isinstance(Moments(**normalization.state_dict()["seen"]), Moments)


PLAYS_ON_A_WORKER = """
import pickle, sys
from types import SimpleNamespace

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

from paddock.algos.learning.async_evaluation import evaluate_on_worker
from paddock.algos.learning.rollouts.pool_actors import RolloutWorker
from paddock.algos.learning.rollouts.resume_point import ResumePoint

threads = set()


class Watched(CartPoleEnv):
    def step(self, action):
        threads.add(sys.modules["torch"].get_num_threads())
        return super().step(action)


gymnasium.register("Watched-v0", Watched)
with open(sys.argv[1], "rb") as file:
    config, weights = pickle.load(file)
assert "torch" not in sys.modules, "the actor is to load it, as on a worker"
worker = RolloutWorker(config, 0)
start = ResumePoint.first(config.vec.num_envs, config.policy_group)
(rollout,), _ = worker.play(SimpleNamespace(value=[weights]), start, 0, True)
worker.close()
print(len(rollout.reward), threads, sys.modules["torch"].get_num_threads())
"""


def test_a_network_in_torch_acts_by_one_thread_on_a_worker(tmp_path: Path) -> None:
    """Torch comes with its own threads, and a worker loads it no sooner than with its actor."""
    of = config(lstm=True)
    with open(tmp_path / "job", "wb") as file:
        pickle.dump((replace(of, env=replace(of.env, id="Watched-v0")), weights(of)), file)
    said = subprocess.run(
        [sys.executable, "-c", PLAYS_ON_A_WORKER, str(tmp_path / "job")],
        env=os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert said.split() == ["16", "{1}", "2"]
