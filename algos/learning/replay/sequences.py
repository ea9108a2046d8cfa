"""Sequences of stored steps of one environment, with the policy's stored recurrent state."""

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
    """Grid and length of sequences.

    Sequence k N + n begins at step k period of environment n and may span several episodes. Every step except the first
    burn_in steps of a run occurs in length / period sequences as a learned step.
    """

    period: int  # steps of a rollout, at whose start the recurrent state is stored
    burn_in: int  # steps that only warm up the recurrent state
    length: int  # learned steps after them
    state_width: int  # S, size of the recurrent state

    def span(self, n_step: int) -> int:
        """Return the number of steps in a sequence."""
        return self.burn_in + self.length + n_step - 1


def _sum(
    reward: Floats, end: NDArray[np.int64], length: int, powers: Floats
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return the sums of up to n rewards, the discounts after them and their last steps; all [length, B]."""
    total, ended, m = reward[:length], end[:length], np.ones((length, reward.shape[1]), np.int64)
    for k in range(1, len(powers) - 1):
        going = ended == CONTINUES
        total = np.where(going, total + powers[k] * reward[k : k + length], total)
        ended = np.where(going, end[k : k + length], ended)
        m += going
    discount = np.where(ended == TERMINATED, np.float32(0), powers[m])
    return total, discount, np.arange(length)[:, None] + m - 1


class SequenceWindows:
    """Gatherer of sequences from a ring of rows; compare `Windows`."""

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
        """Initialize from mapped rings as in `Windows`; `states` [S] has one row per sequence."""
        self._num_envs, self._sequences, self._n_step = num_envs, sequences, n_step
        self._powers = np.array([gamma**m for m in range(n_step + 1)], np.float32)
        self._action = field_of(ring, "action")[0]
        self._columns = {name: column_of(ring, name) for name in ("obs", "action", "reward", "end")}
        self._observations = Observations(self._columns, column_of(finals, "obs"), num_envs, obs, stack)
        self._states = states

    def gather(self, ids: NDArray[np.int64], weight: Floats) -> SequenceBatch:
        """Return sequences [1, B]."""
        assert len(ids) == 1, "sequences are gathered for one update at a time"
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
        start = np.zeros(at.shape, np.bool_)
        start[1:] = end != CONTINUES
        reward, discount, last = _sum(columns["reward"][rows[first:-1]], learned, length, self._powers)
        seen = ids, self._observations.at(at), start, memory, action
        return SequenceBatch(*seen, reward, discount, last, np.argwhere(learned > 0), finals, weight[0])
