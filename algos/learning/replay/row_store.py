"""Rows of experience on the disk, and batches drawn of them uniformly or by priority."""

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
from paddock.algos.learning.replay.streams import AnyWindows, SampledRows, Streams
from paddock.algos.learning.replay.sum_tree import tree_bytes
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.envs.machine import format_bytes


class RowStore(abc.ABC):
    """The newest rows of a run, in files of its folder; for one thread at a time.

    Rows lie in `num_envs` side by side. What is drawn begins at every `period`-th row of a lane, once `span` rows of that
    lane are there.
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
        apart: bool,
    ) -> None:
        """Touch no file.

        Args:
            streams: which streams of rows there are.
            num_envs: N.
            period: rows of a lane from one item to the next.
            span: rows of a lane that an item needs.
            seed: of draws.
            priorities: None draws uniformly.
            apart: whether `sample` returns `SampledRows`, which learners gather by themselves.
        """
        self._num_envs, self._period, self._span, self._seed, self._apart = num_envs, period, span, seed, apart
        self._form, self._capacity, self._streams = streams, streams.capacity, streams.segments()
        self._rows = self._streams["rows"]
        self._priorities = None if priorities is None else PriorityTree(priorities, self._capacity // period)
        self.steps = 0  # rows stored so far
        self._windows: AnyWindows | None = None  # of mapped rows
        self._draws: dict[int, SampleBlocks] = {}  # by batch size

    @abc.abstractmethod
    def append(self, rollout: Rollout) -> None:
        """Store a rollout, which continues where the last one ended.

        Raises:
            ReplayRefused: the disk refuses.
        """

    @abc.abstractmethod
    def describe(self) -> str:
        """Return what it takes, for `dry_run=true`."""

    @property
    def sequences(self) -> Sequences | None:
        """Sequences that are drawn; None: single transitions."""
        return self._form.sequences

    @property
    def prioritized(self) -> bool:
        """Whether items are drawn by priorities."""
        return self._priorities is not None

    @property
    def size(self) -> int:
        """Rows that are kept."""
        return min(self.steps, self._capacity)

    @property
    def count(self) -> int:
        """Items that may be drawn: all rows that they need are there."""
        return max(0, (self.size // self._num_envs - self._span) // self._period + 1) * self._num_envs

    @property
    def first(self) -> int:
        """The first item that may be drawn."""
        return (self.steps - self.size) // self._period

    @property
    def nbytes(self) -> int:
        """Bytes on the disk when it is full; more where many steps truncate."""
        return self._capacity * self._row_bytes

    def format_size(self) -> str:
        """Return what it takes on the disk and in memory."""
        leaves = tree_bytes(self._capacity // self._period)
        tree = f", {format_bytes(leaves)} of memory for priorities" if self.prioritized else ""
        return f"{format_bytes(self.nbytes)} on the disk{tree}"

    def lacking(self, checkpoints: int = 0) -> int:
        """Return the bytes of the disk that it has yet to take, with what so many checkpoints will hold of it."""
        return (self._capacity - self.size) * self._bytes_beside(checkpoints) + self._file_bytes

    def check_disk_space(self, checkpoints: int = 0, taken: int = 0, members: int = 1) -> None:
        """Compare what it takes when it is full with what there is.

        Args:
            checkpoints: that will be written beside it.
            taken: see `check_disk`.
            members: see `check_disk`.

        Raises:
            ReplayError: the disk has less left.
        """
        if self._form.folder is not None:
            row_bytes = self._bytes_beside(checkpoints)
            check_disk(self._form.folder, self._capacity, row_bytes, self.size, self._file_bytes, taken, members)

    def sample(self, first_update: int, updates: int, batch_size: int) -> Any:
        """Draw batches; each depends on its update's number and on what may be drawn now.

        Args:
            first_update: u; batches u .. u + updates - 1 are drawn.
            updates: U; 1 of sequences.
            batch_size: B.

        Returns:
            `Batch`, or of sequences `SequenceBatch`; `SampledRows` where learners gather them.

        Raises:
            ReplayError: there is nothing to be drawn, or a file is not as it was.
        """
        if batch_size not in self._draws:
            self._draws[batch_size] = draw_words(self._seed, batch_size)
        if not self.count:
            raise ReplayError(f"none of {self.steps} transitions has been followed by {self._span - 1} more steps")
        windows, words = self._open(), self._draws[batch_size].take(first_update, updates)
        if self._priorities is None:
            ids = scale_words(words, self.count, self.first)
            weight = np.ones(ids.shape, np.float32)
        else:
            ids, weight = self._priorities.draw(words, first_update, self.first)
        if not self._apart:
            return windows.gather(ids, weight)
        return SampledRows(self._form, {name: each.extent for name, each in self._streams.items()}, ids, weight)

    def set_priorities(self, ids: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """Set the priorities of items by their absolute errors.

        Items that are gone by now are passed over; of several errors for one item, the last one counts.

        Args:
            ids: as batches have them, of any shape.
            errors: of the same shape.
        """
        assert self._priorities is not None, "made without priorities"
        kept = ids >= self.first
        self._priorities.set(ids[kept], errors[kept])

    def state_dict(self) -> dict[str, Any]:
        """Put rows on the disk, and return where they are.

        Raises:
            ReplayRefused: the disk refuses.
        """
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
        """Take over what `state_dict` gave; files are opened when they are used."""
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
        """Map the files that there are."""
        if self._windows is None:
            self.check_disk_space()
            self._windows = self._form.windows(self._streams)
        return self._windows

    @property
    def _row_bytes(self) -> int:
        """Bytes on the disk for a row."""
        memory = self._streams["states"].dtype.itemsize // self._period if "states" in self._streams else 0
        return self._rows.dtype.itemsize + memory

    def _bytes_beside(self, checkpoints: int) -> int:
        """Return the bytes on the disk for a row, with its priority in each of so many checkpoints."""
        leaf = 0 if self._priorities is None else -(-LEAF_BYTES // self._period)
        return self._row_bytes + checkpoints * leaf

    @property
    def _file_bytes(self) -> int:
        """Bytes of the file that there will be beyond its capacity; once it is full, there is."""
        return 0 if self.size == self._capacity else self._rows.segment_rows * self._rows.dtype.itemsize

    def _drop_finals(self, first: int) -> None:
        """Drop the files of final observations that all belong to rows before `first`."""
        finals = self._streams["finals"]
        while (end := finals.begin + finals.segment_rows) <= finals.committed:
            if finals.ring["row"][(end - 1) % finals.ring_rows] >= first:
                return
            finals.drop(end)
