"""ES, by the laws it obeys; expected numbers are worked by hand."""

import json
import subprocess
import sys
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import cloudpickle
import numpy as np
import pytest
from conftest import env_spec
from gymnasium import spaces

from paddock.algos.common.divergence import Diverged
from paddock.algos.common.keys import PhiloxNoise, Stream, episode_seed, keyed_generator
from paddock.algos.es import ES
from paddock.algos.evolution.generation import play_population
from paddock.algos.evolution.population import SearchDistribution, play_members, play_pairs
from paddock.algos.evolution.ranks import EvaluationLost, centred_ranks
from paddock.algos.evolution.strategies.openai import OpenAISettings
from paddock.algos.evolution.strategies.protocol import Gaussian, Members
from paddock.algos.learning.episodes import Moments
from paddock.algos.networks.flat import MLP, Population
from paddock.algos.pool.protocol import Done
from paddock.algos.pool.serial import SerialPool
from paddock.envs.errors import ConfigError
from paddock.envs.spaces.layout import Layout
from paddock.envs.vector import Native, Serial, Vec

CARTPOLE = env_spec("CartPole-v1")
NATIVE = Native(num_envs=64, threads=1)


def openai(**changes: Any) -> OpenAISettings:
    given: dict[str, Any] = {
        "sigma": 0.1,
        "sigma_decay": 1.0,
        "sigma_floor": 0.01,
        "optimizer": "adam",
        "learning_rate": 0.05,
        "learning_rate_decay": 1.0,
        "learning_rate_floor": 0.001,
        "weight_decay": 0.005,
    }
    return OpenAISettings(**given | changes)


def settings(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "env": CARTPOLE,
        "vec": Serial(num_envs=4),
        "pool": SerialPool(),
        "seed": 1,
        "population": 16,
        "strategy": openai(),
        "encoder": "auto",
        "custom_encoder": None,
        "hidden_sizes": (8,),
        "activation": "tanh",
        "lstm": False,
        "agent_id_feature": False,
        "initial_std": 0.1,
        "episodes_per_member": 1,
        "episode_cap": None,
        "normalize_observations": True,
        "observation_clip": 5.0,
        "observation_sampling": 0.5,
        "pairs_per_task": 4,
        "eval_every_iterations": 2,
        "eval_episodes": 3,
        "eval_max_steps": 100_000,
    }
    return given | changes


def members_of(es: ES) -> Gaussian | Members:
    return es.search.sample(es.problem.noise(es.iteration))


def advance(es: ES, iterations: int) -> list[dict[str, float]]:
    plan = es.plan()
    return [next(plan) for _ in range(iterations)]


def deterministic(rows: list[dict[str, float]]) -> str:
    return json.dumps([{key: v for key, v in row.items() if not key.startswith("system/")} for row in rows])


class LosingPool(SerialPool):
    """A pool that loses whatever task of a population has one of these pairs."""

    def __init__(self, lost: Collection[int]) -> None:
        self.lost = lost

    def imap_unordered(self, fn: Any, tasks: Any, **place: Any) -> Any:
        for index, task in enumerate(tasks):
            distribution, start, stop = task
            lost = not distribution.value.evaluation and any(start <= pair < stop for pair in self.lost)
            yield Done(index, error=RuntimeError("gone")) if lost else Done(index, fn(task))


# Ranks


def test_ranks_are_centred_and_scaled() -> None:
    # In order 10 < 20 < 30 < 40 < 50: ranks 0..4 become -0.5, -0.25, 0, 0.25, 0.5.
    np.testing.assert_array_equal(centred_ranks(np.array([30.0, 10, 50, 20, 40])), [0, -0.5, 0.5, -0.25, 0.25])


def test_ties_share_their_mean_rank() -> None:
    # 5 5 7 9: ranks 0 and 1 share 0.5, so (0.5, 0.5, 2, 3) / 3 - 0.5.
    np.testing.assert_allclose(centred_ranks(np.array([5.0, 9, 5, 7])), [-1 / 3, 0.5, -1 / 3, 1 / 6], rtol=1e-6)


def test_lost_evaluations_rank_zero_and_leave_the_others_centred() -> None:
    ranks = centred_ranks(np.array([[1.0, np.nan], [3.0, 2.0]]))
    np.testing.assert_array_equal(ranks, [[-0.5, 0], [0.5, 0]])


def test_ranking_nothing_is_an_error() -> None:
    with pytest.raises(EvaluationLost):
        centred_ranks(np.full(4, np.nan))


# Lost evaluations


class SteppedPool(SerialPool):
    """Every task of four pairs returns these: a pair that broke off, and one that lasted."""

    def imap_unordered(self, fn: Any, tasks: Any, **place: Any) -> Any:
        for index, _ in enumerate(tasks):
            returns = np.array([[1.0, np.nan], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])
            lengths = np.array([[900, 900], [20, 30], [40, 50], [60, 70]])
            yield Done(index, (returns, lengths, [], np.zeros((4, 2, 2, 0))))


def test_lost_members_count_for_no_mean_and_all_steps_count() -> None:
    row = advance(ES(**settings(pool=SteppedPool(), episodes_per_member=2, eval_every_iterations=100)), 1)[0]
    assert row["es/lost_members"] == 4
    assert (row["train/return_mean"], row["train/return_min"], row["train/return_max"]) == (4.5, 2.0, 7.0)
    assert row["train/length_mean"] == 45 / 2
    assert row["step"] == 2 * (1800 + 270)


def test_an_update_of_nothing_is_none_of_its_size() -> None:
    class Equal(SteppedPool):
        def imap_unordered(self, fn: Any, tasks: Any, **place: Any) -> Any:
            for done in super().imap_unordered(fn, tasks):
                yield Done(done.index, (np.ones((4, 2)), *done.value[1:]))

    row = advance(ES(**settings(pool=Equal(), initial_std=0.0, eval_every_iterations=100)), 1)[0]
    assert (row["es/update_ratio"], row["es/gradient_norm"]) == (0.0, 0.0)


class BlindPool(SerialPool):
    """A pool on which each task's first episode saw what is no number."""

    def imap_unordered(self, fn: Any, tasks: Any, **place: Any) -> Any:
        for done in super().imap_unordered(fn, tasks, **place):
            returns, lengths, (first, *others), told = done.value
            seen = [replace(first, mean=np.full_like(first.mean, np.nan)), *others]
            yield replace(done, value=(returns, lengths, seen, told))


def test_what_is_no_number_is_not_normalized_by(caplog: pytest.LogCaptureFixture) -> None:
    es = ES(**settings(pool=BlindPool(), observation_sampling=1.0, eval_every_iterations=100))
    advance(es, 2)
    assert es.observed.count > 0 and np.isfinite(es.observed.mean).all() and np.isfinite(es.observed.m2).all()
    assert "iteration 2: skipped 2 of 16 episodes with non-finite observations" in caplog.text


def test_parameters_that_are_no_numbers_end_the_run_in_a_line() -> None:
    es = ES(**settings(strategy=openai(learning_rate=1e6, optimizer="sgd", weight_decay=1e300)))
    said = r"^in update 1 a parameter is (-?inf|nan): training diverged; reduce algo.strategy.learning_rate, .*$"
    with pytest.raises(Diverged, match=said):
        advance(es, 2)
    assert es.iteration == 0 and np.isfinite(es.search.mean).all()


# Law 2: the same numbers however the work is cut


class Threaded(SerialPool):
    def __init__(self, threads: int) -> None:
        self.threads = threads


@pytest.mark.parametrize(
    ("vec", "threads", "sizes"),
    [
        (NATIVE, 3, [22, 22, 20]),
        (NATIVE, 8, [8] * 8),
        (replace(NATIVE, threads=2), 1, [64]),
        (Serial(num_envs=8), 3, [8] * 8),
    ],
)
def test_work_is_cut_for_as_many_threads_as_workers_have(vec: Vec, threads: int, sizes: list[int]) -> None:
    es = ES(**settings(vec=vec, pool=Threaded(threads), population=128, pairs_per_task=None))
    tasks = next(play_population(es, es.problem, members_of(es), 0))
    assert [stop - start for _, start, stop in tasks] == sizes


def test_a_walkers_episodes_do_not_depend_on_its_slots_history() -> None:
    walker = env_spec("BipedalWalker-v3", fresh=True)
    means = []
    for num_envs in (1, 3):
        vec = Serial(num_envs=num_envs)
        es = ES(**settings(env=walker, vec=vec, population=8, episode_cap=60, eval_every_iterations=100))
        advance(es, 2)
        means.append(es.search.mean)
    np.testing.assert_array_equal(means[0], means[1])


def test_a_forward_pass_gives_a_row_the_same_bits_in_any_company() -> None:
    generator = np.random.default_rng(0)
    for sizes in [(24, 40, 40, 4), (4, 16, 2), (3, 1), (7, 64, 33, 5)]:
        box = spaces.Box(-1, 1, (sizes[-1],), np.float32)
        seen = Layout.of(spaces.Box(-1, 1, sizes[:1]), {}, ())
        mlp = MLP.for_spaces(seen, box, sizes[1:-1], "tanh")
        members = generator.standard_normal((17, mlp.num_parameters)).astype(np.float32)
        obs = generator.standard_normal((17, sizes[0])).astype(np.float32)
        together, alone = Population(mlp, 17), Population(mlp, 1)
        for slot, member in enumerate(members):
            together.load(slot, member)
        actions = together.act(obs)
        for slot, member in enumerate(members):
            alone.load(0, member)
            np.testing.assert_array_equal(alone.act(obs[slot : slot + 1])[0], actions[slot])


def test_parameters_fill_layers_in_order() -> None:
    seen = Layout.of(spaces.Box(-1, 1, (2,)), {}, ())
    mlp = MLP.for_spaces(seen, spaces.Box(-np.inf, np.inf, (1,), np.float32), (3,), "relu")
    assert mlp.num_parameters == 2 * 3 + 3 + 3 + 1
    population = Population(mlp, 1)
    #                          W1 [2, 3]          b1        W2 [3, 1]  b2
    population.load(0, np.array([1, 0, -1, 0, 2, 1, 0, 1, 5, 1, 10, 100, 7], np.float32))
    # x = (3, 1): hidden = relu(3, 2 + 1, -3 + 1 + 5) = (3, 3, 3); out = 3 + 30 + 300 + 7.
    np.testing.assert_array_equal(population.act(np.array([[3, 1]], np.float32)), [[340]])


def test_observations_that_are_not_boxes_are_flattened() -> None:
    spec = env_spec("Blackjack-v1", max_episode_steps=20)
    row = advance(ES(**settings(env=spec)), 1)[0]
    assert row["step"] > 0


# Noise


def test_noise_depends_on_its_key_alone() -> None:
    noise = PhiloxNoise(3, 50)
    first = noise(2, 7)
    noise(5, 5)
    np.testing.assert_array_equal(noise(2, 7), first)
    for other in (noise(2, 8), noise(3, 7), PhiloxNoise(4, 50)(2, 7)):
        assert not np.array_equal(other, first)


def test_streams_of_one_key_do_not_meet() -> None:
    draws = {int(keyed_generator(1, stream, 2, 3).integers(2**62)) for stream in Stream}
    assert len(draws) == len(Stream)


def test_the_noise_is_the_same_in_every_process() -> None:
    code = "from paddock.algos.common.keys import *; print(PhiloxNoise(1, 3)(2, 3).tobytes().hex(), episode_seed(1, 2, 3, 4))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said == [PhiloxNoise(1, 3)(2, 3).tobytes().hex(), str(episode_seed(1, Stream.EPISODE, 3, 4))]


# Observation statistics


def test_merged_moments_are_those_of_the_whole_sample() -> None:
    data = np.random.default_rng(0).standard_normal((60, 3)) * [1, 10, 0.1] + [0, 100, -5]
    merged = Moments.zero(3)
    for part in np.split(data, [7, 8, 30]):
        merged = merged.merge(Moments(len(part), part.mean(axis=0), ((part - part.mean(axis=0)) ** 2).sum(axis=0)))
    assert merged.count == 60
    np.testing.assert_allclose(merged.mean, data.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(merged.std(0.0), data.std(axis=0), rtol=1e-12)


def test_an_episodes_moments_are_those_of_the_observations_acted_on() -> None:
    es = ES(**settings(observation_sampling=1.0, population=2))
    distribution = SearchDistribution(es.problem, 0, members_of(es))
    _, lengths, moments, _ = play_pairs(distribution, 0, 1)
    seed = episode_seed(1, Stream.EPISODE, 0, 0)
    assert isinstance(es.problem.network, MLP)
    policy = Population(es.problem.network, 1)
    policy.load(0, distribution.load(0))
    env = CARTPOLE.make()
    obs, _ = env.reset(seed=seed)
    seen, over = [], False
    while not over:
        seen.append(obs)
        obs, _, terminated, truncated, _ = env.step(policy.act(obs[None])[0])
        over = terminated or truncated
    assert lengths[0, 0] == len(seen) == moments[0].count
    np.testing.assert_allclose(moments[0].mean, np.mean(seen, axis=0, dtype=float), rtol=1e-9)
    np.testing.assert_allclose(moments[0].std(0.0), np.std(seen, axis=0, dtype=float), rtol=1e-9)


# Episodes


def test_a_cap_cuts_training_episodes_and_leaves_evaluation_whole() -> None:
    pendulum = env_spec("Pendulum-v1")
    row = advance(ES(**settings(env=pendulum, episode_cap=7, eval_every_iterations=1)), 1)[0]
    assert row["train/length_mean"] == 7
    assert row["step"] == 7 * 16
    assert row["eval/length_mean"] == 200


def test_a_members_return_is_the_mean_of_its_episodes() -> None:
    es = ES(**settings(episodes_per_member=3))
    single = ES(**settings(episodes_per_member=1))
    distribution = SearchDistribution(es.problem, 0, members_of(es))
    returns, lengths, *_ = play_pairs(distribution, 0, 2)
    alone, *_ = play_pairs(replace(distribution, problem=single.problem), 0, 1)
    # CartPole pays 1 a step. The first pair's first episode has the same key in both.
    np.testing.assert_allclose(returns * 3, lengths)
    assert alone[0, 0] <= lengths[0, 0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"population": 15}, "population=15 is odd"),
        ({"observation_sampling": 0.0}, "observation_sampling=0.0"),
        ({"hidden_sizes": (0,)}, r"hidden_sizes=\[0\]"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_setting_out_of_range_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ES(**settings(**change))


def test_what_goes_to_a_worker_beside_the_mean_stays_small() -> None:
    es = ES(**settings(hidden_sizes=(40, 40)))
    assert len(cloudpickle.dumps((play_members, es.problem))) < 4000
