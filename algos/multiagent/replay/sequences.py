"""Sequences of one agent's transitions, without the steps in which it waited, and with the initial recurrent state.

An agent's transitions are numbered through all its lives, and sequences start at multiples of a period. The recurrent
state advances only when the agent acts, so unrolling the network over a sequence reproduces the agent's memory.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay.batch import Floats, SequenceBatch
from paddock.algos.learning.replay.sequences import Sequences, SequenceSteps, join_steps
from paddock.algos.learning.replay.windows import CONTINUES, TERMINATED, column_of, field_of, make_row
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.replay.row_builder import Agents, Array, RowBuilder

TRUNCATED = 1  # this value and larger ones mark truncated transitions, see `SequenceBuilder`


def row_of_sequences(obs: np.dtype[Any], action: np.dtype[Any], of: Sequences, n_step: int) -> np.dtype[Any]:
    """Return the dtype of a row with a whole sequence: its transitions and the observation after them."""
    span = of.span(n_step)
    fields: dict[str, np.dtype[Any]] = {
        "obs": np.dtype((obs.base, (span + 1, *obs.shape))),
        "end": np.dtype((np.int64, (span,))),
        "reward": np.dtype((np.float32, (span,))),
        "action": np.dtype((action.base, (of.length, *action.shape))),
    }
    return make_row(fields | ({"state": _memory(of)} if of.state_width else {}))


class SequenceBuilder(RowBuilder):
    """Builder of sequences, each completed by its last transition.

    A field `end` of k > 0 marks a truncated transition with final observation k - 1 of those from the last `finish`.
    """

    def __init__(
        self, obs: np.dtype[Any], action: np.dtype[Any], *, num_agents: int, n_step: int, of: Sequences
    ) -> None:
        held = {"obs": obs, "next_obs": obs, "end": np.dtype(np.int64), "reward": np.dtype(np.float32)}
        held |= {"action": action} | ({"memory": _memory(of)} if of.state_width else {})
        super().__init__(row_of_sequences(obs, action, of, n_step), make_row(held), obs, num_agents, of.span(n_step))
        self._of = of
        self._finals: list[Array] = []  # of the rows returned last

    def finish(self, rollout: Rollout) -> Array:
        """See `RowBuilder.finish`."""
        self._finals = [self._last_obs[:0]]
        return super().finish(rollout)

    @property
    def finals(self) -> Array:
        """See `RowBuilder.finals`."""
        return np.concatenate(self._finals)

    def _abandon(self, agents: Agents) -> Array:
        self._begun[agents] -= self._open[agents]
        self._open[agents] = False
        agents = agents[self._begun[agents] > 0]
        newest = agents, self._newest(agents)
        end = self._held["end"][newest]
        # Sequences completed by it already contain its next observation, which has the same value.
        self._held["end"][newest] = np.where(end == CONTINUES, TRUNCATED, end)
        return np.zeros(0, self.row)

    def _end(self, agents: Agents, following: Array, terminated: Array, ended: Array) -> Array:
        held, span, of = self._held, self._capacity, self._of
        newest = agents, self._newest(agents)
        held["next_obs"][newest] = following
        held["end"][newest] = np.where(terminated, TERMINATED, np.where(ended, TRUNCATED, CONTINUES))
        # The observation after an end has no effect but passes through the network, so use any valid observation.
        following[ended] = held["obs"][newest][ended]
        first = self._begun[agents] - span
        whole = np.flatnonzero((first >= 0) & (first % of.period == 0))
        at = agents[whole, None], (first[whole, None] + np.arange(span)) % span
        rows = np.zeros(len(whole), self.row)
        rows["obs"][:, :-1], rows["obs"][:, -1] = held["obs"][at], following[whole]
        end = held["end"][at]
        cut = end == TRUNCATED
        end[cut] += sum(map(len, self._finals)) + np.arange(cut.sum())
        self._finals.append(held["next_obs"][at][cut])
        learned = slice(of.burn_in, of.burn_in + of.length)
        rows["end"], rows["reward"], rows["action"] = end, held["reward"][at], held["action"][at][:, learned]
        if of.state_width:
            rows["state"] = held["memory"][at[0][:, 0], at[1][:, 0]]
        return rows


class AgentSequenceWindows:
    """Reader of sequences from a ring buffer of rows that hold one whole sequence each."""

    def __init__(
        self,
        ring: Array,
        finals: Array,
        sequences: Sequences,
        obs: np.dtype[Any],
        action: np.dtype[Any],
        n_step: int,
        gamma: float,
    ) -> None:
        """Set the buffers: [R] rows of `row_of_sequences`, and [F] final observations; R and F are powers of two."""
        self._sequences, self._obs, self._action = sequences, obs, action
        self._powers = np.array([gamma**m for m in range(n_step + 1)], np.float32)
        self._columns = {name: column_of(ring, name) for name in ring.dtype.names or ()}
        self._kinds = {name: field_of(ring, name)[0] for name in self._columns}
        self._finals = column_of(finals, "obs")

    def gather(self, ids: NDArray[np.int64], weight: Floats) -> SequenceBatch:
        """Return sequences [1, B]."""
        assert len(ids) == 1, "one update at a time"
        found = {}
        for name, column in self._columns.items():
            kind = self._kinds[name]
            found[name] = column[ids[0] & (len(column) - 1)].view(kind.base).reshape(ids.shape[1], *kind.shape)
        obs, end, reward, action = (found[name].swapaxes(0, 1) for name in ("obs", "end", "reward", "action"))
        memory = found.get("state", np.zeros((ids.shape[1], 0), np.float32))
        learned = end[self._sequences.burn_in :]
        finals = self._finals[(learned[learned > 0] - 1) & (len(self._finals) - 1)]
        finals = finals.view(self._obs.base).reshape(-1, *self._obs.shape)
        return join_steps(
            self._sequences, self._powers, ids, weight, SequenceSteps(obs, end, reward, action, memory, finals)
        )


def _memory(of: Sequences) -> np.dtype[Any]:
    return np.dtype((np.float32, (of.state_width,)))
