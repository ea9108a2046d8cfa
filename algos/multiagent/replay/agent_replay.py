"""Multi-agent replay of whole transitions, in the order in which they ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.algos.learning.replay.priorities import Priorities
from paddock.algos.learning.replay.row_store import RowStore
from paddock.algos.learning.replay.segments import Segments
from paddock.algos.learning.replay.streams import AnyWindows, Streams
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.replay.transitions import AgentWindows, TransitionBuilder, row_of_transitions


@dataclass(frozen=True, kw_only=True)
class AgentStreams(Streams):
    """Stream whose rows hold one whole transition each."""

    def segments(self) -> dict[str, Segments]:
        """See `Streams.segments`."""
        return {"rows": Segments(self.folder, "rows", row_of_transitions(self.obs, self.action), self.capacity)}

    def windows(self, segments: Mapping[str, Segments]) -> AnyWindows:
        """See `Streams.windows`."""
        return AgentWindows(segments["rows"].ring, self.obs, self.action)


class AgentReplay(RowStore):
    """Replay buffer of the newest transitions of all agents."""

    def __init__(self, streams: AgentStreams, *, seed: int, priorities: Priorities | None = None) -> None:
        """Touch no file; see `Replay`, with one row of a rollout for each agent."""
        super().__init__(streams, num_envs=1, period=1, span=1, seed=seed, priorities=priorities)
        sizes: dict[str, Any] = {"num_agents": streams.num_envs, "n_step": streams.n_step, "gamma": streams.gamma}
        self._builder = TransitionBuilder(streams.obs, streams.action, **sizes)

    def describe(self) -> str:
        """See `RowStore.describe`."""
        return f"{self._capacity:,} transitions of {self._rows.dtype.itemsize} bytes, {self.format_size()}"

    def append(self, rollout: Rollout) -> None:
        """Store the transitions that a rollout completes."""
        rows = self._builder.finish(rollout)
        count, new = len(rows), self.steps
        assert count <= self._capacity, (count, self._capacity)
        self._open()
        self.steps += count
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
