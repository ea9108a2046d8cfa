"""Evolution strategies by their laws; expected numbers are worked out by hand, or come from cmaes."""

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cmaes import CMA, SepCMA
from test_es import (  # type: ignore[import-not-found]  # pytest puts this folder on the path
    LosingPool,
    advance,
    deterministic,
    openai,
    settings,
)
from threadpoolctl import threadpool_limits

from paddock.algos.common.keys import PhiloxNoise
from paddock.algos.es import ES
from paddock.algos.evolution.optimizers import SGD, Adam, ClipUp
from paddock.algos.evolution.ranks import EvaluationLost
from paddock.algos.evolution.strategies.ars import ARSSettings
from paddock.algos.evolution.strategies.cma import CMASettings
from paddock.algos.evolution.strategies.ga import GASettings
from paddock.algos.evolution.strategies.pgpe import PGPESettings
from paddock.algos.evolution.strategies.protocol import Noise, StrategySettings, restored, state_of
from paddock.algos.evolution.strategies.sep_cma import SepCMASettings
from paddock.algos.evolution.strategies.snes import SNESSettings, utilities
from paddock.envs.errors import ConfigError
from paddock.envs.vector import Serial

PGPE = PGPESettings(sigma=0.1, sigma_learning_rate=0.5, sigma_max_change=0.2, optimizer="clipup", learning_rate=0.1)
SNES = SNESSettings(sigma=0.1, learning_rate=1.0, sigma_learning_rate=None)
STRATEGIES: dict[str, StrategySettings] = {
    "openai": openai(),
    "openai sgd": openai(optimizer="sgd"),
    "openai clipup": openai(optimizer="clipup"),
    "pgpe": PGPE,
    "snes": SNES,
    "ars": ARSSettings(sigma=0.1, learning_rate=0.1, elites=0.5),
    "sep_cma": SepCMASettings(sigma=0.1),
    "cma": CMASettings(sigma=0.1),
    "ga": GASettings(sigma=0.1, parents=0.25, elites=1),
}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def table(*rows: list[float]) -> Noise:
    """Noise with these vectors."""
    return lambda index: np.array(rows, np.float32)[index]


# Laws of every strategy


@every_strategy
def test_result_does_not_depend_on_tasks(strategy: StrategySettings) -> None:
    one = ES(**settings(strategy=strategy))
    other = ES(**settings(strategy=strategy, pairs_per_task=3, vec=Serial(num_envs=13)))
    assert deterministic(advance(one, 3)) == deterministic(advance(other, 3))
    np.testing.assert_array_equal(one.search.mean, other.search.mean)
    np.testing.assert_array_equal(one.observed.m2, other.observed.m2)


@every_strategy
def test_resumed_run_is_bit_identical(strategy: StrategySettings) -> None:
    whole, first, second = (ES(**settings(strategy=strategy)) for _ in range(3))
    rows = advance(whole, 5)
    advance(first, 2)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert deterministic(rows[2:]) == deterministic(advance(second, 3))
    np.testing.assert_array_equal(whole.search.mean, second.search.mean)


@every_strategy
def test_restored_strategy_samples_the_same_members(strategy: StrategySettings) -> None:
    noise = PhiloxNoise(1, 5)
    fresh = strategy.start(np.arange(5.0), 8)
    told, _ = fresh.tell(np.arange(8.0).reshape(4, 2), lambda k: noise(0, k))
    again = restored(fresh, copy.deepcopy(state_of(told)))
    members = [one.sample(lambda k: noise(1, k)) for one in (told, again)]
    first, second = ([one.member(k, lambda k: noise(1, k)) for k in range(8)] for one in members)
    np.testing.assert_array_equal(first, second)


@every_strategy
def test_losses_do_not_depend_on_tasks(strategy: StrategySettings) -> None:
    one, other = (ES(**settings(strategy=strategy, pool=LosingPool({2, 6}), pairs_per_task=size)) for size in (4, None))
    rows = advance(one, 2)
    assert [row["es/lost_members"] for row in rows] == [4, 4]
    assert deterministic(rows) == deterministic(advance(other, 2))


@every_strategy
def test_losing_all_members_ends_the_run(strategy: StrategySettings) -> None:
    with pytest.raises(EvaluationLost, match="RuntimeError: gone"):
        advance(ES(**settings(strategy=strategy, pool=LosingPool(range(8)))), 1)
    with pytest.raises(EvaluationLost):
        strategy.start(np.zeros(3), 4).tell(np.full((2, 2), np.nan), table([1, 2, 3], [4, 5, 6]))


@every_strategy
def test_strategy_climbs_a_quadratic(strategy: StrategySettings) -> None:
    noise, search = PhiloxNoise(1, 5), strategy.start(np.full(5, 2.0), 32)
    for t in range(100):
        draw = lambda k, t=t: noise(t, k)  # noqa: E731
        members = search.sample(draw)
        returns = np.array([-np.sum(members.member(k, draw).astype(float) ** 2) for k in range(32)])
        search, _ = search.tell(returns.reshape(-1, 2), draw)
    assert np.sum(search.mean**2) < 1  # from 20


# openai


def test_openai_follows_the_rank_differences_of_pairs() -> None:
    noise = table([1, 2, -1], [3, 0, 6])
    search = openai(optimizer="sgd", learning_rate=0.5, weight_decay=0.0).start(np.zeros(3), 4)
    # Ranks of 1 4 / 3 2 are -0.5 0.5 / 1/6 -1/6: differences -1 and 1/3, over 2 pairs and sigma 0.1.
    after, metrics = search.tell(np.array([[1.0, 4], [3, 2]]), noise)
    np.testing.assert_allclose(after.mean, 0.5 * np.array([-1 + 1, -2, 1 + 2]) / (2 * 0.1), atol=1e-6)
    assert metrics["es/gradient_norm"] == pytest.approx(np.sqrt(13) / 0.2)
    # The pair left ranks -0.5 and 0.5: difference -1, over one pair.
    after, _ = search.tell(np.array([[np.nan, np.nan], [1, 2]]), noise)
    np.testing.assert_allclose(after.mean, 0.5 * np.array([-3, 0, -6]) / 0.1, rtol=1e-6)


def test_openai_decays_to_its_floors() -> None:
    decaying = openai(sigma_decay=0.5, sigma_floor=0.03, learning_rate_decay=0.1, learning_rate_floor=0.002)
    rows = advance(ES(**settings(strategy=decaying)), 4)
    assert [row["es/sigma"] for row in rows] == [0.1, 0.05, 0.03, 0.03]
    assert [row["es/learning_rate"] for row in rows] == [0.05, 0.05 * 0.1, 0.002, 0.002]


def test_openai_weight_decay_pulls_to_zero() -> None:
    search = openai(optimizer="sgd", weight_decay=0.1, learning_rate=0.01).start(np.array([1.0, -2, 3]), 4)
    after, _ = search.tell(np.ones((2, 2)), table([1, 1, 1], [1, 1, 1]))  # equal returns give no direction
    np.testing.assert_allclose(after.mean, 0.999 * np.array([1, -2, 3]))


# pgpe, snes, ars and ga


def test_pgpe_moves_the_mean_and_the_deviations() -> None:
    settings = replace(PGPE, optimizer="sgd", learning_rate=1.0)
    search = settings.start(np.zeros(2), 4)
    after, _ = search.tell(np.array([[4.0, 1], [2, 3]]), table([2, 0], [0, 1]))
    # Ranks of 4 1 / 2 3 are 0.5 -0.5 / -1/6 1/6: differences 1 and -1/3, sums 0 and 0, over 2 pairs and 2 signs.
    np.testing.assert_allclose(after.mean, 0.1 * np.array([2, -1 / 3]) / 4, rtol=1e-6)
    np.testing.assert_array_equal(after.sigma, [0.1, 0.1])
    # Ranks 0.5 1/6 / -1/6 -0.5: sums 2/3 and -2/3; squares less 1: 3 -1 / -1 0. Change: 0.5 * (8/3 and -2/3) / 4.
    after, _ = search.tell(np.array([[4.0, 3], [2, 1]]), table([2, 0], [0, 1]))
    np.testing.assert_allclose(after.sigma, 0.1 * np.array([1.2, 1 - 1 / 12]), rtol=1e-6)  # 1/3 is bounded to 0.2


def test_snes_follows_the_natural_gradient() -> None:
    # Four members: ln 3 - ln 1, ln 3 - ln 2 and twice 0, over their sum ln 4.5, less 1/4.
    u = np.array([np.log(3), np.log(1.5), 0, 0]) / np.log(4.5) - 0.25
    returns = np.array([[4.0, 1], [3, 2]])
    np.testing.assert_allclose(utilities(returns), [[u[0], u[3]], [u[1], u[2]]], rtol=1e-6)
    after, _ = replace(SNES, sigma_learning_rate=0.4).start(np.zeros(2), 4).tell(returns, table([2, 0], [0, 1]))
    np.testing.assert_allclose(after.mean, 0.1 * np.array([2 * (u[0] - u[3]), u[1] - u[2]]), rtol=1e-6)
    first, second = u[0] + u[3], u[1] + u[2]
    np.testing.assert_allclose(after.sigma, 0.1 * np.exp(0.2 * np.array([3 * first - second, -first])), rtol=1e-6)


def test_snes_utilities_are_shared_by_ties_and_skip_losses() -> None:
    np.testing.assert_allclose(utilities(np.array([[7.0, 7], [7, 7]])), 0, atol=1e-9)
    np.testing.assert_allclose(
        utilities(np.array([[1.0, 2], [np.nan, np.nan]])), np.array([[-0.5, 0.5], [0, 0]]), atol=1e-9
    )


def test_ars_takes_the_top_directions_over_their_deviation() -> None:
    returns = np.array([[1.0, 9], [5, 4], [7, 3], [np.nan, np.nan]])
    noise = table([1, 0], [100, 100], [0, 1], [100, 100])
    after, _ = ARSSettings(sigma=0.1, learning_rate=0.5, elites=0.6).start(np.zeros(2), 8).tell(returns, noise)
    # Of three pairs left the two with 9 and 7; the deviation of 1 9 7 3 is sqrt(10).
    np.testing.assert_allclose(after.mean, 0.5 * np.array([1 - 9, 7 - 3]) / (2 * np.sqrt(10)), rtol=1e-6)


def test_ga_keeps_elites_and_mutates_the_best() -> None:
    settings, noise = GASettings(sigma=0.5, parents=0.5, elites=1), table([9, 9], [2, 0], [0, 2], [4, 4])
    first = settings.start(np.ones(2), 4)
    np.testing.assert_array_equal(first.sample(noise).parameters, [[1, 1], [2, 1], [1, 2], [3, 3]])
    after, _ = first.tell(np.array([[1.0, 2], [4, np.nan]]), noise)
    np.testing.assert_array_equal(after.mean, [1, 2])
    # The elite; mutated: the second and the first parent, and the second.
    np.testing.assert_array_equal(after.sample(noise).parameters, [[1, 2], [3, 1], [1, 3], [4, 3]])


# Optimizers


def test_adam_takes_a_first_step_of_the_learning_rate() -> None:
    gradient = np.linspace(-2, 2, 6)
    # Corrected for its start, Adam's first step is rate * sign(gradient).
    np.testing.assert_allclose(Adam.fresh(6).step(gradient, 0.05)[0], 0.05 * np.sign(gradient), atol=1e-6)


def test_sgd_adds_nine_tenths_of_its_last_velocity() -> None:
    first, sgd = SGD(np.zeros(2), 0).step(np.array([1.0, -2.0]), 0.5)
    second, _ = sgd.step(np.array([1.0, 0.0]), 0.5)
    np.testing.assert_allclose([first, second], [[0.5, -1.0], [0.5 * (0.9 + 1), 0.5 * -1.8]])


def test_clipup_normalizes_the_gradient_and_bounds_its_step() -> None:
    gradient, clipup = np.array([30.0, 40.0]), ClipUp(np.zeros(2), 0)  # of length 50
    lengths = []
    for _ in range(4):
        update, clipup = clipup.step(gradient, 0.1)
        np.testing.assert_allclose(update / np.linalg.norm(update), [0.6, 0.8])
        lengths.append(np.linalg.norm(update))
    np.testing.assert_allclose(lengths, [0.1, 0.19, 0.2, 0.2])  # 0.9 of the last and 0.1 more, at most twice 0.1
    assert np.array_equal(ClipUp(np.zeros(2), 0).step(np.zeros(2), 0.1)[0], np.zeros(2))


# CMA-ES beside cmaes


def rosenbrock(x: np.ndarray) -> float:
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def ellipsoid(x: np.ndarray) -> float:
    return float(np.sum(10 ** (6 * np.arange(len(x)) / (len(x) - 1)) * x**2))


@pytest.mark.parametrize("size", [10, 40])
@pytest.mark.parametrize("loss", [rosenbrock, ellipsoid])
@pytest.mark.parametrize(("settings", "make"), [(CMASettings, CMA), (SepCMASettings, SepCMA)])
def test_cma_follows_cmaes(settings: Any, make: Any, loss: Any, size: int) -> None:
    members, mean = 20, np.full(size, 0.5)
    ours, peer = settings(sigma=0.3).start(mean, members), make(mean.copy(), 0.3, population_size=members)
    for t in range(50):
        noise = [PhiloxNoise(1, size)(t, k) for k in range(members)]
        draws = iter(noise)
        if make is CMA:  # its axes may point in opposite directions
            axes, _ = peer._eigen_decomposition()
            draws = iter([axes.T @ (ours._axes[0] @ z) for z in noise])
        peer._rng = SimpleNamespace(randn=lambda _, draws=draws: next(draws).astype(np.float64))
        solutions = [(x := peer.ask(), loss(x)) for _ in range(members)]
        ours, _ = ours.tell(-np.array([value for _, value in solutions]).reshape(-1, 2), lambda k, n=noise: n[k])
        peer.tell(solutions)
        np.testing.assert_allclose(ours.mean, peer.mean, atol=1e-9)


def test_cma_does_not_depend_on_blas_threads() -> None:
    size, means, noise = 200, [], PhiloxNoise(1, 200)
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            search = CMASettings(sigma=0.3).start(np.ones(size), 20)
            for t in range(3):
                draw = lambda k, t=t: noise(t, k)  # noqa: E731
                returns = -np.sum(search.sample(draw).parameters.astype(float) ** 2, axis=1)
                search, _ = search.tell(returns.reshape(-1, 2), draw)
            means.append(search.mean)
    np.testing.assert_array_equal(means[0], means[1])


def test_cma_refuses_large_policies() -> None:
    with pytest.raises(ConfigError, match="use algo/strategy=sep_cma"):
        CMASettings(sigma=0.1).start(np.zeros(3001), 4)


@pytest.mark.parametrize(
    ("change", "named"), [({"sigma_floor": 0.5}, "sigma_floor=0.5"), ({"optimizer": "lion"}, "optimizer=lion")]
)
def test_invalid_setting_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        openai(**change)
