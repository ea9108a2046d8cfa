"""Whole episodes for many parameter vectors at once.

One vector environment, one batched forward pass over per-member parameters; a slot whose episode ends takes the
next one at once, so that no slot waits for the longest episode. What an episode gives depends on its own member and
seed alone, never on the slot, the neighbours or the order.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from envs.vector import VectorEnv
from envs.vector.infos import read_numbers

log = logging.getLogger(__name__)


class Players(Protocol):
    """One policy in each slot of a vector environment."""

    shape: tuple[int, ...]  # of an observation, as `act` takes it; () of a row
    dtype: np.dtype[Any]

    def start(self, slot: int, episode: int) -> None:
        """From now on the slot plays this episode."""
        ...

    def act(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Map observations [S, *shape] to actions [S, ...]; a row depends on its own slot alone."""
        ...

    def numbers(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Map observations [B, *shape] to the numbers [B, ...] whose moments may be asked for."""
        ...


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of observations, in double precision."""

    count: int
    mean: NDArray[np.float64]  # [O]
    m2: NDArray[np.float64]  # [O], sum of squared deviations from the mean

    @classmethod
    def zero(cls, size: int) -> "Moments":
        return cls(0, np.zeros(size), np.zeros(size))

    def merge(self, other: "Moments") -> "Moments":
        """The moments of both samples together (Chan, Golub & LeVeque 1979)."""
        if other.count == 0:
            return self
        count = self.count + other.count
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        m2 = self.m2 + other.m2 + delta**2 * (self.count * other.count / count)
        return Moments(count, mean, m2)

    def std(self, floor: float) -> NDArray[np.float64]:
        """Standard deviation [O], not below the floor; ones before anything was seen."""
        if self.count == 0:
            return np.ones_like(self.mean)
        return np.maximum(np.sqrt(self.m2 / self.count), floor)


@dataclass(frozen=True)
class Episodes:
    """What E episodes gave, in the order they were asked for."""

    returns: NDArray[np.float64]  # [E], undiscounted sum of rewards
    lengths: NDArray[np.int64]  # [E], steps
    moments: list[Moments | None]  # [E], of the observations, where they were asked for
    told: NDArray[np.float64]  # [E, M], the environment's own numbers; NaN where it was cut off before it told

    def part(self, episodes: slice) -> "Episodes":
        """Return some of them."""
        return Episodes(self.returns[episodes], self.lengths[episodes], self.moments[episodes], self.told[episodes])

    @classmethod
    def join(cls, parts: "Sequence[Episodes]", metrics: int) -> "Episodes":
        """All of the parts, one after another.

        Args:
            metrics: M, where there are no parts.
        """
        if not parts:
            return cls(np.zeros(0), np.zeros(0, np.int64), [], np.zeros((0, metrics)))
        returns, lengths, told = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("returns", "lengths", "told")
        )
        return cls(returns, lengths, [sample for part in parts for sample in part.moments], told)


def count_cut(lengths: NDArray[Any], max_steps: int) -> int:
    """Return how many episodes of an evaluation came to its cap, and warn of them."""
    cut = int((lengths >= max_steps).sum())
    if cut:
        what = "%d of %d episodes of an evaluation were cut off after %d steps, which count; "
        log.warning(what + "raise eval_max_steps= for more", cut, len(lengths), max_steps)
    return cut


def cut_metric(cut: int) -> dict[str, float]:
    """Return the metric of so many episodes that came to their cap; none: nothing."""
    return {"eval/cut": cut} if cut else {}


def own_metrics(group: str, names: Sequence[str], told: NDArray[np.float64]) -> dict[str, float]:
    """Return the means of what environments told of themselves, [..., M], but for what is NaN; `group/NAME_mean`."""
    columns = {name: told[..., k].ravel() for k, name in enumerate(names)}
    known = {name: column[~np.isnan(column)] for name, column in columns.items()}
    return {f"{group}/{name}_mean": float(column.mean()) for name, column in known.items() if len(column)}


def summarize(played: Episodes, names: Sequence[str], best: float, iteration: int, max_steps: int) -> dict[str, float]:
    """Return the metrics of a policy's evaluation; none where nothing is left of it.

    Args:
        names: of what the environment told of itself.
        best: mean return of the best evaluation before.
        iteration: that the policy is of.
        max_steps: after which an episode was cut off.
    """
    kept = ~np.isnan(played.returns)
    returns, lengths = played.returns[kept], played.lengths
    if not len(returns):
        return {}
    mean = float(returns.mean())
    return {
        "eval/return_mean": mean,
        "eval/return_std": float(returns.std()),
        "eval/length_mean": float(lengths.mean()),
        **own_metrics("eval", names, played.told),
        "eval/episodes": len(returns),
        "eval/return_best": max(mean, best),
        "eval/of_iteration": iteration,
        **cut_metric(count_cut(lengths, max_steps)),
    }


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
    """Play episode e from seed seeds[e], for every e in range(len(seeds)).

    Args:
        venv: N environments that do not restart by themselves, with observations as rows.
        cap: steps after which an episode is cut off; None for the environment's own limit.
        observe: [E], whether to return the moments of the observations seen; empty: of none.
        watch: called after every step.
        metrics: what of the environment's own numbers is wanted.
    """
    observe = observe or [False] * len(seeds)
    slots = venv.num_envs
    episodes = len(seeds)
    returns = np.zeros(episodes)
    lengths = np.zeros(episodes, np.int64)
    moments: list[Moments | None] = [None] * episodes
    told = np.full((episodes, len(metrics)), np.nan)

    playing = np.full(slots, -1)  # the episode in each slot
    total = np.zeros(slots)
    steps = np.zeros(slots, np.int64)
    obs = np.zeros((slots, *players.shape), players.dtype)
    mean = np.zeros(players.numbers(obs).shape)
    m2 = np.zeros(mean.shape)

    def start(ids: NDArray[np.intp], first: int) -> int:
        """Fill the free slots with the episodes from `first` on; return the first one still waiting."""
        ids = ids[: episodes - first]
        reset_seeds: list[int | None] = [None] * slots
        mask = np.zeros(slots, np.bool_)
        for k, slot in enumerate(ids):
            playing[slot] = first + k
            players.start(int(slot), first + k)
            reset_seeds[slot] = seeds[first + k]
            mask[slot] = True
        if len(ids):
            fresh, _ = venv.reset(seed=reset_seeds, options={"reset_mask": mask})
            obs[ids] = fresh[ids].reshape(len(ids), *players.shape)
            total[ids] = steps[ids] = 0
            mean[ids] = m2[ids] = 0
        return first + len(ids)

    waiting = start(np.arange(slots), 0)
    active = np.flatnonzero(playing >= 0)
    observed = active[[observe[episode] for episode in playing[active]]]
    while len(active):
        if len(observed):
            # Welford's update, slot by slot: an episode's moments are the same bits in any company.
            numbers = players.numbers(obs[observed])
            delta = numbers - mean[observed]
            mean[observed] += delta / (steps[observed] + 1)[:, None]
            m2[observed] += delta * (numbers - mean[observed])
        if obs.dtype.kind == "V" and len(active) < slots:
            obs[playing < 0] = obs[active[0]]  # nobody plays there, and of an old row no action may be legal
        actions = players.act(obs)
        venv.send(actions[active], active)
        seen, reward, terminated, truncated, infos = venv.recv(active)
        obs[active] = seen.reshape(len(active), *players.shape)
        total[active] += reward
        steps[active] += 1
        if watch is not None:
            watch()
        ended = terminated | truncated
        if metrics:
            for row in np.flatnonzero(ended):
                told[playing[active[row]]] = read_numbers(infos, metrics, int(row))
        if cap is not None:
            ended |= steps[active] >= cap
        if ended.any():
            over = active[ended]
            for slot in over:
                episode = playing[slot]
                returns[episode], lengths[episode] = total[slot], steps[slot]
                if observe[episode]:
                    moments[episode] = Moments(int(steps[slot]), mean[slot].copy(), m2[slot].copy())
            playing[over] = -1
            waiting = start(over, waiting)
            active = np.flatnonzero(playing >= 0)
            observed = active[[observe[episode] for episode in playing[active]]]
    return Episodes(returns, lengths, moments, told)
