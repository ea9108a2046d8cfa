"""Whole episodes for many parameter vectors at once.

One vector environment, one batched forward pass over per-member parameters; a slot whose episode ends takes the
next one at once, so that no slot waits for the longest episode. What an episode gives depends on its own member and
seed alone, never on the slot, the neighbours or the order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.envs.spec import EnvSpec
from paddock.envs.vector import VectorEnv
from paddock.envs.vector.infos import read_numbers
from paddock.envs.vector.storage import Layouts, allocate


class Players(Protocol):
    """One policy in each row of a vector environment: in each slot, or for each agent in a slot's world."""

    shape: tuple[int, ...]  # of an observation, as `act` takes it; () of a row
    dtype: np.dtype[Any]

    def start(self, row: int, episode: int, seat: int) -> None:
        """From now on the row plays this episode, as the agent in this seat."""
        ...

    def forget(self, row: int) -> None:
        """Whoever lives next in this row begins without a memory."""
        ...

    def act(self, obs: NDArray[Any], acts: NDArray[np.bool_] | None) -> NDArray[Any]:
        """Map observations [R, *shape] to actions [R, ...]; a row depends on itself alone.

        Args:
            acts: [R], rows whose action is wanted; the others keep their memory. None: all.
        """
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

    @property
    def finite(self) -> bool:
        """Whether all that was seen was finite numbers, and not too large for their squares."""
        return bool(np.isfinite(self.mean).all() and np.isfinite(self.m2).all())

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

    returns: NDArray[np.float64]  # [E], undiscounted sum of rewards; of several agents the mean over seats
    lengths: NDArray[np.int64]  # [E], steps
    moments: list[Moments | None]  # [E], of the observations, where they were asked for
    told: NDArray[np.float64]  # [E, M], the environment's own numbers; NaN where it was cut off before it told
    lives: list[NDArray[np.float64]] = field(default_factory=list)  # [E], of several agents: returns of all lives
    seats: list[NDArray[np.int64]] = field(default_factory=list)  # [E], of several agents: whose lives those were

    @property
    def each(self) -> NDArray[np.float64]:
        """The return of each life of several agents, or of each episode of one."""
        return np.concatenate(self.lives) if self.lives else self.returns

    def part(self, episodes: slice) -> "Episodes":
        """Return some of them."""
        arrays = self.returns[episodes], self.lengths[episodes], self.moments[episodes], self.told[episodes]
        return Episodes(*arrays, self.lives[episodes], self.seats[episodes])

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
        moments = [sample for part in parts for sample in part.moments]
        lives, seats = ([of for part in parts for of in getattr(part, name)] for name in ("lives", "seats"))
        return cls(returns, lengths, moments, told, lives, seats)


def play(
    venv: VectorEnv,
    env: EnvSpec,
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
        venv: N environments that do not restart by themselves, with observations as rows, one for each agent.
        env: what they are made by.
        cap: steps after which an episode is cut off; None for the environment's own limit.
        observe: [E], whether to return the moments of the observations seen; empty: of none.
        watch: called after every step.
        metrics: what of the environment's own numbers is wanted; of several agents the mean over lives.
    """
    observe = observe or [False] * len(seeds)
    seats = venv.seats
    slots = venv.num_envs // seats
    rows_of = np.arange(venv.num_envs).reshape(slots, seats)
    episodes = len(seeds)
    returns = np.zeros(episodes)
    lengths = np.zeros(episodes, np.int64)
    moments: list[Moments | None] = [None] * episodes
    told = np.full((episodes, len(metrics)), np.nan)
    lives: list[list[float]] = [[] for _ in range(episodes if seats > 1 else 0)]
    whose: list[list[int]] = [[] for _ in lives]
    says: list[list[list[float]]] = [[] for _ in lives]

    playing = np.full(slots, -1)  # the episode in each slot
    steps = np.zeros(slots, np.int64)
    total = np.zeros(slots * seats)  # of each row's life
    seen = np.zeros(slots * seats, np.int64)  # observations
    obs = np.zeros((slots * seats, *players.shape), players.dtype)
    mean = np.zeros(players.numbers(obs).shape)
    m2 = np.zeros(mean.shape)
    acts = np.zeros(slots * seats, np.bool_) if seats > 1 else None
    lived = np.zeros(slots * seats, np.bool_)  # has acted in the life that goes on
    blank = allocate(Layouts.of_roles(env.roles).action, slots * seats, np.zeros) if seats > 1 else np.zeros(0)

    def start(ids: NDArray[np.intp], first: int) -> int:
        """Fill the free slots with the episodes from `first` on; return the first one still waiting."""
        ids = ids[: episodes - first]
        reset_seeds: list[int | None] = [None] * slots
        mask = np.zeros(slots * seats, np.bool_)
        for k, slot in enumerate(ids):
            playing[slot] = first + k
            for seat, row in enumerate(rows_of[slot]):
                players.start(int(row), first + k, seat)
            reset_seeds[slot] = seeds[first + k]
            mask[rows_of[slot]] = True
        if len(ids):
            fresh, infos = venv.reset(seed=reset_seeds, options={"reset_mask": mask})
            at = rows_of[ids].ravel()
            obs[at] = fresh[at].reshape(len(at), *players.shape)
            steps[ids] = total[at] = seen[at] = 0
            mean[at] = m2[at] = 0
            if acts is not None:
                acts[at], lived[at] = infos["acts"][at], False
        return first + len(ids)

    def end_life(row: int, episode: int) -> None:
        lives[episode].append(float(total[row]))
        whose[episode].append(row % seats)
        total[row], lived[row] = 0, False
        players.forget(row)

    waiting = start(np.arange(slots), 0)
    active = np.flatnonzero(playing >= 0)
    rows, observed = _choose(active, rows_of, playing, observe)
    while len(active):
        if acts is not None:
            lived |= acts
        if len(observed):
            # Welford's update, row by row: an episode's moments are the same bits in any company.
            at = observed if acts is None else observed[acts[observed]]
            numbers = players.numbers(obs[at])
            delta = numbers - mean[at]
            seen[at] += 1
            mean[at] += delta / seen[at][:, None]
            m2[at] += delta * (numbers - mean[at])
        if acts is not None:
            obs[~acts] = obs[acts.argmax()]  # of zeros no action may be legal
        elif obs.dtype.kind == "V" and len(active) < slots:
            obs[playing < 0] = obs[active[0]]  # nobody plays there, and of an old row no action may be legal
        # Where nobody acts there is no row to choose by, and the step looks at no action.
        idle = acts is not None and not acts.any()
        actions = blank if idle else players.act(obs, acts)
        venv.send(actions[rows], rows)
        given, reward, terminated, truncated, infos = venv.recv(rows)
        obs[rows] = given.reshape(len(rows), *players.shape)
        total[rows] += reward
        steps[active] += 1
        if watch is not None:
            watch()
        ended = terminated | truncated
        if acts is not None:
            acts[rows] = infos["acts"]
            for k in np.flatnonzero(ended):
                episode = playing[rows[k] // seats]
                end_life(rows[k], episode)
                if metrics:
                    says[episode].append(read_numbers(infos["final_info"], metrics, int(k)))
            ended = infos["over"].copy()
        elif metrics:
            for row in np.flatnonzero(ended):
                told[playing[active[row]]] = read_numbers(infos, metrics, int(row))
        if cap is not None:
            ended |= steps[active] >= cap
        if ended.any():
            over = active[ended]
            for slot in over:
                episode = playing[slot]
                lengths[episode] = steps[slot]
                if acts is None:
                    returns[episode] = total[slot]
                else:
                    for row in rows_of[slot][lived[rows_of[slot]]]:  # cut off
                        end_life(int(row), episode)
                    returns[episode] = sum(lives[episode]) / seats
                    if says[episode]:
                        told[episode] = np.mean(says[episode], axis=0)
                    acts[rows_of[slot]] = False
                if observe[episode]:
                    moments[episode] = _together(
                        [Moments(int(seen[row]), mean[row].copy(), m2[row].copy()) for row in rows_of[slot]]
                    )
            playing[over] = -1
            waiting = start(over, waiting)
            active = np.flatnonzero(playing >= 0)
            rows, observed = _choose(active, rows_of, playing, observe)
    return Episodes(
        returns, lengths, moments, told, [*map(np.array, lives)], [np.array(each, np.int64) for each in whose]
    )


def _choose(
    active: NDArray[np.intp], rows_of: NDArray[np.intp], playing: NDArray[np.intp], observe: Sequence[bool]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of active slots, and those that are observed."""
    observed = active[[observe[episode] for episode in playing[active]]]
    return rows_of[active].ravel(), rows_of[observed].ravel()


def _together(parts: Sequence[Moments]) -> Moments:
    first, *others = parts
    for other in others:
        first = first.merge(other)
    return first
