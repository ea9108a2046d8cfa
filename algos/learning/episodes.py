"""Whole episodes in a vector environment, for one policy or for many parameter vectors at once.

A slot whose episode ends starts the next one immediately, so no slot waits for the longest episode. An episode's result
depends only on its member and seed, not on the slot, the other slots or the order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.envs.vector import VectorEnv
from paddock.envs.vector.infos import read_numbers


class Players(Protocol):
    """Policies that act in the rows of a vector environment."""

    shape: tuple[int, ...]  # of an observation, as `act` takes it; () for a packed row
    dtype: np.dtype[Any]

    def start(self, row: int, episode: int) -> None:
        """Start an episode in a row, with an empty recurrent state."""

    def forget(self, row: int) -> None:
        """Reset the recurrent state of a row."""

    def act(self, obs: NDArray[Any], acts: NDArray[np.bool_] | None) -> NDArray[Any]:
        """Map observations [R, *shape] of all rows to actions [R, ...], each row independently.

        Rows that do not act, according to `acts` [R], keep their recurrent state; None: all act.
        """

    def numbers(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Map observations [B, *shape] to the numeric features [B, ...] whose moments are computed."""
        return obs


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of observations, in double precision."""

    count: int
    mean: NDArray[np.float64]  # [O]
    m2: NDArray[np.float64]  # [O], sum of squared deviations from the mean

    @classmethod
    def zero(cls, size: int) -> "Moments":
        """Return the moments of an empty sample."""
        return cls(0, np.zeros(size), np.zeros(size))

    @property
    def finite(self) -> bool:
        """True if all moments are finite."""
        return bool(np.isfinite(self.mean).all() and np.isfinite(self.m2).all())

    def merge(self, other: "Moments") -> "Moments":
        """Merge the moments of two samples (Chan, Golub & LeVeque 1979)."""
        if other.count == 0:
            return self
        count = self.count + other.count
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        m2 = self.m2 + other.m2 + delta**2 * (self.count * other.count / count)
        return Moments(count, mean, m2)

    def std(self, floor: float) -> NDArray[np.float64]:
        """Return the standard deviation [O], at least `floor`; ones for an empty sample."""
        if self.count == 0:
            return np.ones_like(self.mean)
        return np.maximum(np.sqrt(self.m2 / self.count), floor)


class RowMoments:
    """Moments of the observations of each row since its episode began, row by row, by Welford's update."""

    def __init__(self, numbers: NDArray[Any]) -> None:
        self._count = np.zeros(len(numbers), np.int64)
        self._mean, self._m2 = np.zeros(numbers.shape), np.zeros(numbers.shape)

    def clear(self, rows: NDArray[np.intp]) -> None:
        """Reset these rows."""
        self._count[rows] = self._mean[rows] = self._m2[rows] = 0

    def add(self, rows: NDArray[np.intp], numbers: NDArray[Any]) -> None:
        """Add an observation of each of these rows."""
        delta = numbers - self._mean[rows]
        self._count[rows] += 1
        self._mean[rows] += delta / self._count[rows][:, None]
        self._m2[rows] += delta * (numbers - self._mean[rows])

    def of(self, row: int) -> Moments:
        """Return the moments of a row."""
        return Moments(int(self._count[row]), self._mean[row].copy(), self._m2[row].copy())


@dataclass(frozen=True)
class Episodes:
    """Results of E episodes, in the order requested.

    In environments of several rows, a row may have several lives per episode; `lives` holds the return of each.
    """

    returns: NDArray[np.float64]  # [E], undiscounted; with several rows their mean
    lengths: NDArray[np.int64]  # [E], steps
    moments: list[Moments | None]  # [E], of the observations, if requested
    env_metrics: NDArray[np.float64]  # [E, M], the environment's own numbers; NaN where the episode was cut off first
    lives: list[NDArray[np.float64]] = field(default_factory=list)  # [E], returns of all lives
    rows: list[NDArray[np.int64]] = field(default_factory=list)  # [E], the row of each life

    @property
    def each(self) -> NDArray[np.float64]:
        """Return of each life, or of each episode if environments have one row."""
        return np.concatenate(self.lives) if self.lives else self.returns

    @classmethod
    def join(cls, results: "Sequence[Episodes]", metrics: int) -> "Episodes":
        """Concatenate results; `metrics` is M if there are none."""
        if not results:
            return cls(np.zeros(0), np.zeros(0, np.int64), [], np.zeros((0, metrics)))
        returns, lengths, env_metrics = (
            np.concatenate([getattr(part, name) for part in results]) for name in ("returns", "lengths", "env_metrics")
        )
        moments = [sample for part in results for sample in part.moments]
        lives, rows = ([of for part in results for of in getattr(part, name)] for name in ("lives", "rows"))
        return cls(returns, lengths, moments, env_metrics, lives, rows)


def play(
    venv: VectorEnv,
    players: Players,
    seeds: Sequence[int],
    *,
    cap: int | None,
    observe: Sequence[bool] = (),
    watch: Callable[[], None] | None = None,
    metrics: Sequence[str] = (),
) -> Episodes:
    """Play episode e from seed seeds[e], for every e; see `multiagent.episodes.play_episodes` for several agents.

    `venv` has no autoreset and packed observations. `cap` is the maximum length of an episode, None: the environment's
    own limit. `observe` [E] selects episodes whose observation moments are returned, `metrics` names environment
    metrics to collect, and `watch` is called after every step.
    """
    observe = observe or [False] * len(seeds)
    slots, episodes = venv.num_envs, len(seeds)
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    moments: list[Moments | None] = [None] * episodes
    env_metrics = np.full((episodes, len(metrics)), np.nan)

    playing = np.full(slots, -1)  # the episode in each slot
    steps, total = np.zeros(slots, np.int64), np.zeros(slots)
    obs = np.zeros((slots, *players.shape), players.dtype)
    seen = RowMoments(players.numbers(obs))

    def start(ids: NDArray[np.intp], first: int) -> int:
        """Start episodes from `first` on in free slots; return the first one that is not started."""
        ids = ids[: episodes - first]
        if not len(ids):
            return first
        reset_seeds: list[int | None] = [None] * slots
        mask = np.zeros(slots, np.bool_)
        for episode, slot in enumerate(ids.tolist(), first):
            players.start(slot, episode)
            playing[slot], reset_seeds[slot], mask[slot] = episode, seeds[episode], True
        fresh, _ = venv.reset(seed=reset_seeds, options={"reset_mask": mask})
        obs[ids] = fresh[ids].reshape(len(ids), *players.shape)
        steps[ids] = total[ids] = 0
        seen.clear(ids)
        return first + len(ids)

    waiting = start(np.arange(slots), 0)
    active = np.flatnonzero(playing >= 0)
    observed = active[[observe[episode] for episode in playing[active]]]
    while len(active):
        if len(observed):
            seen.add(observed, players.numbers(obs[observed]))
        if obs.dtype.kind == "V" and len(active) < slots:
            obs[playing < 0] = obs[active[0]]  # idle rows may have no legal action
        actions = players.act(obs, None if len(active) == slots else playing >= 0)
        venv.send(actions[active], active)
        given, reward, terminated, truncated, infos = venv.recv(active)
        obs[active] = given.reshape(len(active), *players.shape)
        total[active] += reward
        steps[active] += 1
        if watch is not None:
            watch()
        ended = terminated | truncated
        if metrics:
            for k in np.flatnonzero(ended):
                env_metrics[playing[active[k]]] = read_numbers(infos, metrics, int(k))
        if cap is not None:
            ended |= steps[active] >= cap
        if ended.any():
            over = active[ended]
            returns[playing[over]], lengths[playing[over]] = total[over], steps[over]
            for slot in over.tolist():
                if observe[playing[slot]]:
                    moments[playing[slot]] = seen.of(slot)
            playing[over] = -1
            waiting = start(over, waiting)
            active = np.flatnonzero(playing >= 0)
            observed = active[[observe[episode] for episode in playing[active]]]
    return Episodes(returns, lengths, moments, env_metrics)
