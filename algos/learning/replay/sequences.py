"""Sequences of stored transitions: steps of one lane from a grid on, with the memory that a policy had there."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay.batch import Floats, SequenceBatch
from paddock.algos.learning.replay.windows import CONTINUES, TERMINATED, Observations, column_of, field_of
from paddock.envs.stacks import Stack

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Where sequences begin and what is learned of them.

    Sequence k N + n begins at step k period of lane n. Whatever ends inside, each step is learned from as often as any
    other, length / period times, but for the first burn_in steps of a run.
    """

    period: int  # steps of a rollout, at whose start the policy's memory is kept
    burn_in: int  # steps that only warm up the memory
    length: int  # steps behind them that are learned from
    state_width: int  # S, numbers of a policy's memory

    def span(self, n_step: int) -> int:
        """Return the steps that one sequence takes."""
        return self.burn_in + self.length + n_step - 1


@dataclass(frozen=True)
class SequenceSteps:
    """The steps of B sequences as they are stored: L - 1 of them, and the observations of one more."""

    obs: Array  # [L, B, ...]
    end: NDArray[np.int64]  # [L - 1, B], how they ended
    reward: Floats  # [L - 1, B]
    action: Array  # [length, B, K], of those that are learned from
    memory: Floats  # [B, S], before the first
    finals: Array  # [F, ...], what the truncated ones behind the burn-in led to, one after another


def join_steps(
    sequences: Sequences, powers: Floats, ids: NDArray[np.int64], weight: Floats, steps: SequenceSteps
) -> SequenceBatch:
    """Return what is learned from steps.

    Args:
        powers: [n + 1], of gamma.
        ids: [1, B], of the sequences.
        weight: [1, B], of importance.
    """
    first, start = sequences.burn_in, np.zeros(steps.obs.shape[:2], np.bool_)
    start[1:] = steps.end != CONTINUES
    end = steps.end[first:]
    reward, discount, last = _sum(steps.reward[first:], end, sequences.length, powers)
    seen = ids, steps.obs, start, steps.memory, steps.action
    return SequenceBatch(*seen, reward, discount, last, np.argwhere(end > 0), steps.finals, weight[0])


def _sum(
    reward: Floats, end: NDArray[np.int64], length: int, powers: Floats
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Rewards of up to n steps, the discount behind them and the last of them; all [length, B]."""
    total, ended, m = reward[:length], end[:length], np.ones((length, reward.shape[1]), np.int64)
    for k in range(1, len(powers) - 1):
        going = ended == CONTINUES
        total = np.where(going, total + powers[k] * reward[k : k + length], total)
        ended = np.where(going, end[k : k + length], ended)
        m += going
    discount = np.where(ended == TERMINATED, np.float32(0), powers[m])
    return total, discount, np.arange(length)[:, None] + m - 1


class SequenceWindows:
    """The sequences of a ring of rows, to be gathered; as `Windows`."""

    def __init__(
        self,
        ring: Array,
        finals: Array,
        states: Array | None,
        num_envs: int,
        sequences: Sequences,
        obs: np.dtype[Any],
        stack: Stack | None,
        n_step: int,
        gamma: float,
    ) -> None:
        """Args:
        ring: [R] rows with obs, end, reward and action; row j is followed by row j + num_envs, R is a power of two.
        finals: [F] rows with obs; F is a power of two.
        states: [S] rows with state, one for each sequence; S is a power of two; None: policies have no memory.
        obs: of one observation, of which rows have the newest frame where it is a stack.
        """
        self._num_envs, self._sequences, self._n_step = num_envs, sequences, n_step
        self._powers = np.array([gamma**m for m in range(n_step + 1)], np.float32)
        self._action = field_of(ring, "action")[0]
        self._columns = {name: column_of(ring, name) for name in ("obs", "action", "reward", "end")}
        self._observations = Observations(self._columns, column_of(finals, "obs"), num_envs, obs, stack)
        self._states = states

    def gather(self, ids: NDArray[np.int64], weight: Floats) -> SequenceBatch:
        """Return sequences [1, B]."""
        assert len(ids) == 1, "one update at a time"
        columns, sequences, num_envs = self._columns, self._sequences, self._num_envs
        count, first, length = len(ids[0]), sequences.burn_in, sequences.length
        begin = ids[0] // num_envs * sequences.period * num_envs + ids[0] % num_envs
        steps = np.arange(sequences.span(self._n_step) + 1)[:, None]
        at = begin + steps * num_envs
        rows = at & (len(columns["obs"]) - 1)
        end = columns["end"][rows[:-1]]
        learned = end[first:]
        finals = self._observations.final(at[first:-1][learned > 0], learned[learned > 0])
        memory = np.zeros((count, 0), np.float32)
        if self._states is not None:
            memory = self._states["state"][ids[0] & (len(self._states) - 1)]
        action = columns["action"][rows[first : first + length]].view(self._action.base).reshape(length, count, -1)
        found = SequenceSteps(self._observations.at(at), end, columns["reward"][rows[:-1]], action, memory, finals)
        return join_steps(sequences, self._powers, ids, weight, found)
