"""The streams of rows that a replay is made of, and how other processes read what was drawn of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay.batch import Batch, Floats, SequenceBatch
from paddock.algos.learning.replay.segments import Segments
from paddock.algos.learning.replay.sequences import Sequences, SequenceWindows
from paddock.algos.learning.replay.stacks import row_of
from paddock.algos.learning.replay.windows import Windows, make_row
from paddock.envs.stacks import Stack


class AnyWindows(Protocol):
    """Gathers what was drawn from mapped streams."""

    def gather(self, ids: NDArray[np.int64], weight: Floats) -> Batch | SequenceBatch:
        """Return transitions or sequences [U, B]."""
        ...


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Which streams there are, and what their rows hold; can be pickled."""

    folder: Path | None
    obs: np.dtype[Any]  # of one observation
    action: np.dtype[Any]  # of one action
    num_envs: int
    capacity: int  # rows that are kept
    n_step: int
    gamma: float
    sequences: Sequences | None = None  # that are drawn; None: single transitions are
    stack: Stack | None = None  # of frames, each of which is stored once; None: observations are stored whole

    @property
    def ahead(self) -> int:
        """Rows before those that are kept, of frames that are stacked with theirs."""
        return 0 if self.stack is None else (self.stack.frames - 1) * self.num_envs

    def segments(self) -> dict[str, Segments]:
        """Make each stream, by its name; no file is touched."""
        num_envs, frame, number = self.num_envs, row_of(self.obs, self.stack), np.dtype(np.int64)
        finals = make_row({"obs": frame, "row": number})
        rows = make_row({"obs": frame, "end": number, "reward": np.dtype(np.float32), "action": self.action})
        most = self.capacity + self.ahead + 2 * num_envs
        made = {name: Segments(self.folder, name, row, most) for name, row in (("rows", rows), ("finals", finals))}
        if self.sequences is not None and self.sequences.state_width:
            state = make_row({"state": np.dtype((np.float32, (self.sequences.state_width,)))})
            made["states"] = Segments(
                self.folder, "states", state, self.capacity // self.sequences.period + 2 * num_envs
            )
        return made

    def windows(self, segments: Mapping[str, Segments]) -> AnyWindows:
        """Return what gathers from streams, whose files are mapped by now."""
        rings = segments["rows"].ring, segments["finals"].ring
        seen, how = (self.obs, self.stack), (self.n_step, self.gamma)
        if self.sequences is None:
            return Windows(*rings, self.num_envs, *seen, *how)
        states = segments["states"].ring if "states" in segments else None
        return SequenceWindows(*rings, states, self.num_envs, self.sequences, *seen, *how)


@dataclass(frozen=True)
class SampledRows:
    """Which rows were drawn for U updates, B each, and where they lie: what another process needs to gather them."""

    streams: Streams
    extents: dict[str, tuple[int, int]]  # of each stream, the first row that is there and the one behind the last
    ids: NDArray[np.int64]  # [U, B]
    weight: Floats  # [U, B], of importance

    def part(self, number: int, parts: int) -> "SampledRows":
        """Return one of so many parts of each update's rows, which are side by side and of one size."""
        size = self.ids.shape[1] // parts
        own = slice(number * size, (number + 1) * size)
        return replace(self, ids=self.ids[:, own], weight=self.weight[:, own])


class Reader:
    """Maps the files of a replay to gather from them, beside the process that writes them; on the same machine."""

    def __init__(self, streams: Streams) -> None:
        self._streams, self._segments = streams, streams.segments()
        self._windows = streams.windows(self._segments)

    def gather(self, rows: SampledRows) -> Batch | SequenceBatch:
        """Return what was drawn.

        Raises:
            ReplayError: a file is missing.
        """
        for name, extent in rows.extents.items():
            self._segments[name].map_rows(*extent)
        return self._windows.gather(rows.ids, rows.weight)

    def close(self) -> None:
        """Close all files."""
        for segments in self._segments.values():
            segments.close()
