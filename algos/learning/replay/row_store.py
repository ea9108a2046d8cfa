"""Rows of experience on disk, sampled uniformly or by priority."""

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.sample_blocks import SampleBlocks
from paddock.algos.learning.replay.disk_space import ReplayError, check_disk
from paddock.algos.learning.replay.priorities import LEAF_BYTES, Priorities, PriorityTree
from paddock.algos.learning.replay.random_integers import draw_words, scale_words
from paddock.algos.learning.replay.sequences import Sequences
from paddock.algos.learning.replay.streams import AnyWindows, Streams
from paddock.algos.learning.replay.sum_tree import tree_bytes
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.envs.machine import format_bytes


class RowStore(abc.ABC):
    """Newest rows of a run, stored in its folder; not thread-safe.

    Rows of `num_envs` environments are interleaved. An item (transition or sequence) begins at every `period`-th row of
    an environment and consists of `span` of its rows.
    """

    def __init__(
        self,
        streams: Streams,
        *,
        num_envs: int,
        period: int,
        span: int,
        seed: int,
        priorities: Priorities | None,
    ) -> None:
        """Initialize without touching any file.

        Items begin at every `period`-th row of an environment and have `span` rows. Sampling is uniform without
        `priorities`.
        """
        self._num_envs, self._period, self._span, self._seed = num_envs, period, span, seed
        self._form, self._capacity, self._streams = streams, streams.capacity, streams.segments()
        self._rows = self._streams["rows"]
        self._priorities = None if priorities is None else PriorityTree(priorities, self._capacity // period)
        self.steps = 0  # rows stored so far
        self._windows: AnyWindows | None = None  # of mapped rows
        self._draws: dict[int, SampleBlocks] = {}  # by batch size

    @abc.abstractmethod
    def append(self, rollout: Rollout) -> None:
        """Store a rollout, which must continue the previous one; raise ReplayRefused if a file cannot be written."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Describe contents and size for `dry_run=true`."""

    @property
    def sequences(self) -> Sequences | None:
        """Sequences to sample; None: single transitions."""
        return self._form.sequences

    @property
    def prioritized(self) -> bool:
        """True if sampling is prioritized."""
        return self._priorities is not None

    @property
    def size(self) -> int:
        """Number of stored rows."""
        return min(self.steps, self._capacity)

    @property
    def count(self) -> int:
        """Number of items that can be sampled."""
        return max(0, (self.size // self._num_envs - self._span) // self._period + 1) * self._num_envs

    @property
    def first(self) -> int:
        """First item that can be sampled."""
        return (self.steps - self.size) // self._period

    @property
    def nbytes(self) -> int:
        """Bytes on disk when full; more if many steps are truncated."""
        return self._capacity * self._row_bytes

    def format_size(self) -> str:
        """Format the size on disk and in memory."""
        leaves = tree_bytes(self._capacity // self._period)
        tree = f", {format_bytes(leaves)} of memory for priorities" if self.prioritized else ""
        return f"{format_bytes(self.nbytes)} on the disk{tree}"

    def lacking(self, checkpoints: int = 0) -> int:
        """Return the bytes on disk still to be allocated, including priorities in this many checkpoints."""
        return (self._capacity - self.size) * self._bytes_beside(checkpoints) + self._file_bytes

    def check_disk_space(self, checkpoints: int = 0, taken: int = 0, members: int = 1) -> None:
        """Compare the size of the full replay and so many checkpoints with the free disk space; see `check_disk`."""
        if self._form.folder is not None:
            row_bytes = self._bytes_beside(checkpoints)
            check_disk(self._form.folder, self._capacity, row_bytes, self.size, self._file_bytes, taken, members)

    def sample(self, first_update: int, updates: int, batch_size: int) -> Any:
        """Sample U updates of B items, keyed by the update number; U is 1 for sequences.

        Return a `Batch` or `SequenceBatch`. Raise ReplayError if there is no item yet, or a file is missing or damaged.
        """
        if batch_size not in self._draws:
            self._draws[batch_size] = draw_words(self._seed, batch_size)
        if not self.count:
            raise ReplayError(f"none of {self.steps} transitions is followed by {self._span - 1} more steps")
        windows, words = self._open(), self._draws[batch_size].take(first_update, updates)
        if self._priorities is None:
            ids = scale_words(words, self.count, self.first)
            weight = np.ones(ids.shape, np.float32)
        else:
            ids, weight = self._priorities.draw(words, first_update, self.first)
        return windows.gather(ids, weight)

    def set_priorities(self, ids: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """Set priorities of items from absolute errors; ignore dropped items, use the last error of repeated ones."""
        assert self._priorities is not None, "made without priorities"
        kept = ids >= self.first
        self._priorities.set(ids[kept], errors[kept])

    def state_dict(self) -> dict[str, Any]:
        """Flush rows to disk and return the state; raise ReplayRefused if a file cannot be written."""
        for stream in self._streams.values():
            stream.save()
        drawn = (
            {} if self._priorities is None else {"priorities": self._priorities.state_dict(self.size // self._period)}
        )
        return {
            "steps": self.steps,
            **{name: stream.state_dict() for name, stream in self._streams.items()},
            **drawn,
            "attachments": [name for stream in self._streams.values() for name in stream.names],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; files are opened on first use."""
        self._windows = None
        self.steps = int(state["steps"])
        for name, stream in self._streams.items():
            stream.load_state_dict(state[name])
        if self._priorities is not None:
            self._priorities.load_state_dict(state["priorities"])

    def close(self) -> None:
        """Close all files."""
        self._windows = None
        for stream in self._streams.values():
            stream.close()

    def _open(self) -> AnyWindows:
        if self._windows is None:
            self.check_disk_space()
            self._windows = self._form.windows(self._streams)
        return self._windows

    @property
    def _row_bytes(self) -> int:
        memory = self._streams["states"].dtype.itemsize // self._period if "states" in self._streams else 0
        return self._rows.dtype.itemsize + memory

    def _bytes_beside(self, checkpoints: int) -> int:
        """Return the bytes on disk per row, including its priority in this many checkpoints."""
        leaf = 0 if self._priorities is None else -(-LEAF_BYTES // self._period)
        return self._row_bytes + checkpoints * leaf

    @property
    def _file_bytes(self) -> int:
        """Bytes still to be allocated for the file beyond the capacity."""
        return 0 if self.size == self._capacity else self._rows.segment_rows * self._rows.dtype.itemsize

    def _drop_finals(self, first: int) -> None:
        """Drop files of final observations that belong only to rows before `first`."""
        finals = self._streams["finals"]
        while (end := finals.begin + finals.segment_rows) <= finals.committed:
            if finals.ring["row"][(end - 1) % finals.ring_rows] >= first:
                return
            finals.drop(end)
