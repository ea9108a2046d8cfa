"""Multi-agent replay of whole transitions or whole sequences, in the order in which they ended."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paddock.algos.learning.replay.priorities import Priorities
from paddock.algos.learning.replay.row_store import RowStore
from paddock.algos.learning.replay.segments import Segments
from paddock.algos.learning.replay.streams import AnyWindows, Streams
from paddock.algos.learning.replay.windows import make_row
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.replay.row_builder import RowBuilder
from paddock.algos.multiagent.replay.sequences import AgentSequenceWindows, SequenceBuilder, row_of_sequences
from paddock.algos.multiagent.replay.transitions import AgentWindows, TransitionBuilder, row_of_transitions


@dataclass(frozen=True, kw_only=True)
class AgentStreams(Streams):
    """Streams whose rows hold one whole transition or sequence each."""

    def builder(self) -> RowBuilder:
        """Return the builder of rows from rollouts."""
        kinds: dict[str, Any] = {"num_agents": self.num_envs, "n_step": self.n_step}
        if self.sequences is None:
            return TransitionBuilder(self.obs, self.action, gamma=self.gamma, **kinds)
        return SequenceBuilder(self.obs, self.action, of=self.sequences, **kinds)

    def segments(self) -> dict[str, Segments]:
        """See `Streams.segments`."""
        if self.sequences is None:
            return {"rows": Segments(self.folder, "rows", row_of_transitions(self.obs, self.action), self.capacity)}
        rows = row_of_sequences(self.obs, self.action, self.sequences, self.n_step)
        finals, many = make_row({"obs": self.obs, "row": np.dtype(np.int64)}), self.capacity + self.num_envs
        each = ("rows", rows, self.capacity), ("finals", finals, many * self.sequences.span(self.n_step))
        return {name: Segments(self.folder, name, row, most) for name, row, most in each}

    def windows(self, segments: Mapping[str, Segments]) -> AnyWindows:
        """See `Streams.windows`."""
        if self.sequences is None:
            return AgentWindows(segments["rows"].ring, self.obs, self.action)
        rings = segments["rows"].ring, segments["finals"].ring
        return AgentSequenceWindows(*rings, self.sequences, self.obs, self.action, self.n_step, self.gamma)


class AgentReplay(RowStore):
    """Replay buffer of the newest transitions or sequences of all agents."""

    def __init__(self, streams: AgentStreams, *, seed: int, priorities: Priorities | None = None) -> None:
        """Touch no file; see `Replay`, with one row of a rollout for each agent."""
        if streams.sequences is not None:
            streams = replace(streams, capacity=streams.capacity // streams.sequences.period)
        super().__init__(streams, num_envs=1, period=1, span=1, seed=seed, priorities=priorities)
        self._builder = streams.builder()

    def describe(self) -> str:
        """See `RowStore.describe`."""
        of, kind = self.sequences, "transitions" if self.sequences is None else "sequences"
        rows = f"{self._capacity:,} {kind} of {self._rows.dtype.itemsize} bytes"
        if of is not None:
            rows += f", of {of.span(self._form.n_step)} transitions starting at every {of.period}th"
        return f"{rows}, {self.format_size()}"

    def append(self, rollout: Rollout) -> None:
        """Store the transitions or sequences that a rollout completes, with final observations of truncated lives."""
        rows, finals = self._builder.finish(rollout), self._builder.finals
        count, new = len(rows), self.steps
        assert count <= self._capacity, (count, self._capacity)
        self._open()
        self.steps += count
        if len(finals):
            stream, end = self._streams["finals"], rows["end"]
            last = np.zeros(len(finals), stream.dtype)
            last["row"], last["obs"] = new + np.nonzero(end > 0)[0], finals
            end[end > 0] += stream.committed
            self._drop_finals(self.first)
            stream.put(last, len(finals))
        self._rows.drop(self.first)
        if count:
            self._rows.put(rows, count)
        if self._priorities is not None:
            self._priorities.enter(new, (new, self.steps), self.steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of `RowStore.state_dict` and the incomplete transitions."""
        return {**super().state_dict(), "open": self._builder.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `RowStore.load_state_dict`."""
        super().load_state_dict(state)
        self._builder.load_state_dict(state["open"])
