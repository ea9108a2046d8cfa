"""Streams of rows in a replay."""

from collections.abc import Mapping
from dataclasses import dataclass
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
    """Gatherer of sampled items from mapped streams."""

    def gather(self, ids: NDArray[np.int64], weight: Floats) -> Batch | SequenceBatch:
        """Return transitions or sequences [U, B]."""


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Layout of a replay's streams."""

    folder: Path | None
    obs: np.dtype[Any]  # of one observation
    action: np.dtype[Any]  # of one action
    num_envs: int  # environments, or rows of all environments
    capacity: int  # rows
    n_step: int
    gamma: float
    sequences: Sequences | None = None  # to sample; None: single transitions
    stack: Stack | None = None  # each frame is stored once; None: observations are stored whole

    @property
    def ahead(self) -> int:
        """Rows kept before the oldest item, for its older frames."""
        return 0 if self.stack is None else (self.stack.frames - 1) * self.num_envs

    def segments(self) -> dict[str, Segments]:
        """Make the streams by name, without touching any file."""
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
        """Return the gatherer of mapped streams."""
        rings = segments["rows"].ring, segments["finals"].ring
        seen, how = (self.obs, self.stack), (self.n_step, self.gamma)
        if self.sequences is None:
            return Windows(*rings, self.num_envs, *seen, *how)
        states = segments["states"].ring if "states" in segments else None
        return SequenceWindows(*rings, states, self.num_envs, self.sequences, *seen, *how)
