"""Replay: transitions in the order in which they were made, and batches drawn of them.

Row t N + n is step t of lane n: its observation, action and reward, and how it ended. The next observation is that of
row (t + 1) N + n, and is stored once; those that truncated steps led to are a stream of their own. Rows lie in
`Segments`, so a checkpoint points to files, and a run that is killed at any moment goes on with the same bits.

What is drawn is a transition at any row, or a sequence of steps from a grid on (`Sequences`), where the policy's memory
is kept as a third stream. Where several agents share a world, rows are made of their turns instead, whole transitions
or whole sequences in the order in which they ended (`TurnMaker`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.draws import DrawBlocks
from paddock.algos.learning.replay.priorities import LEAF_BYTES, Priorities, PriorityTree
from paddock.algos.learning.replay.room import ReplayError, check_disk, warn_of_memory
from paddock.algos.learning.replay.sequences import Sequences
from paddock.algos.learning.replay.stacks import check_stacks, newest_of
from paddock.algos.learning.replay.streams import AnyWindows, DrawnRows, Streams
from paddock.algos.learning.replay.sum_tree import tree_bytes
from paddock.algos.learning.replay.windows import GOES_ON, TERMINATED
from paddock.algos.learning.replay.words import draw_words, scale_words
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.envs.errors import require
from paddock.envs.machine import memory_bytes, spell
from paddock.envs.stacks import Stack

Array = NDArray[Any]


class Replay:
    """The newest transitions of a run, in files of its folder; for one thread at a time."""

    def __init__(
        self,
        folder: Path | None,
        *,
        obs: np.dtype[Any],
        action: np.dtype[Any],
        num_envs: int,
        capacity: int,
        n_step: int,
        gamma: float,
        seed: int,
        priorities: Priorities | None = None,
        sequences: Sequences | None = None,
        stack: Stack | None = None,
        apart: bool = False,
        turns: bool = False,
    ) -> None:
        """Touch no file.

        Args:
            folder: where rows are kept; None: nothing can be stored or drawn.
            obs: of one observation, as `np.dtype((inputs.dtype, inputs.shape))`.
            action: of one action of K components, such as `np.dtype((np.float32, (K,)))`.
            num_envs: N, lanes of a rollout.
            capacity: transitions that are kept, rounded down to whole steps of all lanes.
            n_step: n, rewards that are summed; an episode's end makes it fewer.
            priorities: None draws all alike.
            sequences: which sequences are drawn, of rollouts of `period` steps; None: single transitions.
            stack: how observations are stacks of frames, of which each is stored once; None: they are stored whole.
            apart: whether `sample` returns `DrawnRows`, which learners gather by themselves.
            turns: whether lanes are seats of worlds, which wait and die: neither is in rows; no `stack`.

        Raises:
            ConfigError: settings are out of range or do not go together.
        """
        require(n_step >= 1, f"n_step={n_step} must be at least 1")
        assert not turns or stack is None
        lanes, single = num_envs, Sequences(period=1, burn_in=0, length=1, state_width=0)
        self._period, self._span = (sequences or single).period, (sequences or single).span(n_step)
        least = -(-(self._span + 1) // self._period) * self._period * num_envs
        given = f"capacity={capacity} is less than {least}, with n_step={n_step}"
        require(capacity >= least, f"{given} {self._span} steps and one more in each of {num_envs} environments")
        if turns:  # rows follow no others, and are whole sequences where there are any
            capacity //= self._period
            self._period, self._span, lanes = 1, 1, 1
        self._folder, self._lanes, self._seed, self._apart = folder, lanes, seed, apart
        self._sequences, self._stack, block = sequences, stack, self._period * lanes
        self._capacity = capacity // block * block
        self._form = Streams(
            folder=folder,
            obs=obs,
            action=action,
            lanes=num_envs,
            capacity=self._capacity,
            n_step=n_step,
            gamma=gamma,
            sequences=sequences,
            stack=stack,
            turns=turns,
        )
        self._turns, self._streams = self._form.maker(), self._form.segments()
        self._rows = self._streams["rows"]
        self._obs, self._action = obs, action
        leaves = self._capacity // self._period
        tree, memory = 0 if priorities is None else tree_bytes(leaves), memory_bytes()
        given = f"capacity={capacity} takes {spell(tree)} of memory for priorities"
        require(tree <= memory, f"{given}, and this machine has {spell(memory)}; take less, or priorities=null")
        self._priorities = None if priorities is None else PriorityTree(priorities, leaves)
        self.steps = 0  # transitions stored so far, or whole sequences
        # The newest step of each lane is written again with the one after it, which tells whether its episode went on.
        self._newest = np.zeros(0, self._rows.dtype)
        self._last_obs = np.zeros((0, *obs.shape), obs.base)
        self._windows: AnyWindows | None = None  # of mapped rows
        self._draws: dict[int, DrawBlocks] = {}  # by batch size

    @property
    def size(self) -> int:
        """Transitions that are kept."""
        return min(self.steps, self._capacity)

    @property
    def count(self) -> int:
        """Transitions that may be drawn: those that n - 1 steps of their lane have followed; or whole sequences."""
        return max(0, (self.size // self._lanes - self._span) // self._period + 1) * self._lanes

    @property
    def first(self) -> int:
        """The first transition, or sequence, that may be drawn."""
        return (self.steps - self.size) // self._period

    @property
    def nbytes(self) -> int:
        """Bytes on the disk when it is full; more where many steps truncate."""
        return self._capacity * self._step_bytes

    def describe(self) -> str:
        """Return what it takes, for `dry_run=true`."""
        whole = self._turns is not None and self._sequences is not None
        rows = f"{self._capacity:,} {'sequences' if whole else 'transitions'} of {self._rows.dtype.itemsize} bytes"
        if self._stack is not None:
            rows += f", {self._stack.frames} frames of which are stacked when they are drawn"
        if self._sequences is not None:
            span, period = self._sequences.span(self._form.n_step), self._sequences.period
            rows += (
                f", of {span} turns from every {period} on"
                if whole
                else f", a sequence of {span} from every {period} on"
            )
        leaves = tree_bytes(self._capacity // self._period)
        tree = "" if self._priorities is None else f", {spell(leaves)} of memory for priorities"
        return f"{rows}, {spell(self.nbytes)} on the disk{tree}"

    def lacking(self, checkpoints: int = 0) -> int:
        """Return the bytes of the disk that it has yet to take, with what so many checkpoints will hold of it."""
        return (self._capacity - self.size) * self._bytes_beside(checkpoints) + self._file_bytes

    def check_room(self, checkpoints: int = 0, taken: int = 0, members: int = 1) -> None:
        """Compare what it takes when it is full with what there is.

        Args:
            checkpoints: that will be written beside it.
            taken: see `check_disk`.
            members: see `check_disk`.

        Raises:
            ReplayError: the disk has less left.
        """
        if self._folder is not None:
            step_bytes = self._bytes_beside(checkpoints)
            check_disk(self._folder, self._capacity, step_bytes, self.size, self._file_bytes, taken, members)

    def append(self, rollout: Rollout) -> None:
        """Store a rollout, which goes on where the last one ended.

        Raises:
            ReplayRefused: the disk refuses.
        """
        if self._turns is not None:
            self._append_turns(self._turns.finish(rollout), self._turns.finals)
            return
        T, N = rollout.reward.shape
        count = T * N
        assert self._lanes == N, (self._lanes, N)
        assert self._sequences is None or self._period == T, (self._period, T)
        require(count <= self._capacity, f"capacity={self._capacity} is less than the {count} steps of one rollout")
        self._open()
        pending, finals = len(self._newest), self._settle_finals(rollout)
        if self._stack is not None:
            check_stacks(rollout, self._stack)
        rows = np.zeros(pending + count + N, self._rows.dtype)
        rows[:pending] = self._newest
        made = rows[pending:-N]
        made["obs"] = newest_of(rollout.obs.reshape(count, *self._obs.shape), self._stack)
        made["action"] = rollout.action.reshape(count, *self._action.shape)
        made["reward"] = rollout.reward.reshape(count)
        made["end"] = np.where(rollout.terminated, TERMINATED, GOES_ON).reshape(count)
        rows["obs"][-N:] = newest_of(rollout.last_obs, self._stack)
        stream = self._streams["finals"]
        if len(finals):
            rows["end"][finals["row"] - (self.steps - pending)] = 1 + stream.settled + np.arange(len(finals))
        offered, new = self.first + self.count, self.steps // self._period
        self.steps += count
        first = self.steps - self.size
        self._drop_finals(first)
        if len(finals):
            stream.put(finals, len(finals))
        self._rows.drop(max(first - self._form.ahead, 0))
        self._rows.put(rows, pending + count - N)
        if "states" in self._streams:
            states = np.zeros(N, self._streams["states"].dtype)
            states["state"] = rollout.start.state
            self._streams["states"].drop(self.first)
            self._streams["states"].put(states, N)
        # As bytes: NumPy copies no others than those of fields.
        self._newest = rows[-2 * N : -N].view(np.uint8).copy().view(rows.dtype)
        self._last_obs = np.array(rollout.last_obs)
        if self._priorities is not None:
            drawable = max(offered, self.first), self.first + self.count
            self._priorities.enter(new, drawable, self.steps // self._period)

    def _append_turns(self, rows: Array, finals: Array) -> None:
        """Store transitions or sequences, which are whole, and what their truncated turns led to."""
        count, new = len(rows), self.steps
        assert count <= self._capacity, (count, self._capacity)
        self._open()
        self.steps += count
        if len(finals):
            stream, end = self._streams["finals"], rows["end"]
            last = np.zeros(len(finals), stream.dtype)
            last["row"], last["obs"] = new + np.nonzero(end > 0)[0], finals
            end[end > 0] += stream.settled
            self._drop_finals(self.first)
            stream.put(last, len(finals))
        self._rows.drop(self.first)
        if count:
            self._rows.put(rows, count)
        if self._priorities is not None:
            self._priorities.enter(new, (new, self.steps), self.steps)

    def sample(self, first_update: int, updates: int, batch_size: int) -> Any:
        """Draw batches; each depends on its update's number and on what may be drawn now.

        Args:
            first_update: u; batches u .. u + updates - 1 are drawn.
            updates: U; 1 of sequences.
            batch_size: B.

        Returns:
            `Batch`, or of sequences `SequenceBatch`; `DrawnRows` where learners gather them.

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
        return DrawnRows(self._form, {name: each.extent for name, each in self._streams.items()}, ids, weight)

    def set_priorities(self, ids: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """Let rows be drawn by how far their values were from their targets, without a sign.

        Rows that are gone by now are passed over; of several errors for one row, the last one counts.

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
        others: dict[str, Any] = {} if self._turns is None else {"turns": self._turns.state_dict()}
        if self._priorities is not None:
            others["priorities"] = self._priorities.state_dict(self.size // self._period)
        return {
            "steps": self.steps,
            "newest": self._newest.view(np.uint8).reshape(-1, self._rows.dtype.itemsize),
            "last_obs": self._last_obs,
            **{name: stream.state_dict() for name, stream in self._streams.items()},
            **others,
            "attachments": [name for stream in self._streams.values() for name in stream.names],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; files are opened when they are used."""
        self._windows = None
        self.steps = int(state["steps"])
        self._newest = np.ascontiguousarray(state["newest"]).view(self._rows.dtype).reshape(-1)
        self._last_obs = state["last_obs"]
        if self._turns is not None:
            self._turns.load_state_dict(state["turns"])
        for name, stream in self._streams.items():
            stream.load_state_dict(state[name])
        if self._priorities is not None:
            self._priorities.load_state_dict(state["priorities"])

    def close(self) -> None:
        """Let go of all files."""
        self._windows = None
        for stream in self._streams.values():
            stream.close()

    def _open(self) -> AnyWindows:
        """Map the files that there are, and write what may be another process's behind them."""
        if self._windows is None:
            self.check_room()
            warn_of_memory(self.nbytes)
            if self.steps and self._turns is None:
                rows = np.zeros(len(self._newest) + self._lanes, self._rows.dtype)
                rows[: len(self._newest)] = self._newest
                rows["obs"][len(self._newest) :] = newest_of(self._last_obs, self._stack)
                self._rows.put(rows, 0)
            self._windows = self._form.windows(self._streams)
        return self._windows

    @property
    def _step_bytes(self) -> int:
        """Bytes on the disk for a transition."""
        memory = self._streams["states"].dtype.itemsize // self._period if "states" in self._streams else 0
        return self._rows.dtype.itemsize + memory

    def _bytes_beside(self, checkpoints: int) -> int:
        """Return the bytes on the disk for a transition, with its priority in each of so many checkpoints."""
        leaf = 0 if self._priorities is None else -(-LEAF_BYTES // self._period)
        return self._step_bytes + checkpoints * leaf

    @property
    def _file_bytes(self) -> int:
        """Bytes of the file that there will be beyond its capacity; once it is full, there is."""
        return 0 if self.size == self._capacity else self._rows.segment_rows * self._rows.dtype.itemsize

    def _settle_finals(self, rollout: Rollout) -> Array:
        """The observations that truncated steps led to, in the order of their rows.

        Among them those of the steps before this rollout whose episodes were given up, and others begun.
        """
        N, before, stream = self._lanes, len(self._newest), self._streams["finals"]
        given_up = np.flatnonzero((rollout.start.length[:before] == 0) & (self._newest["end"] == GOES_ON))
        if not len(given_up) and not len(rollout.final_at):
            return np.zeros(0, stream.dtype)
        at = np.concatenate([self.steps - N + given_up, self.steps + rollout.final_at @ np.array([N, 1])])
        order = np.argsort(at)
        finals = np.zeros(len(at), stream.dtype)
        finals["row"] = at[order]
        finals["obs"] = newest_of(np.concatenate([self._last_obs[given_up], rollout.final_obs]), self._stack)[order]
        return finals

    def _drop_finals(self, first: int) -> None:
        """Let go of files of which all rows led to what comes before `first`."""
        finals = self._streams["finals"]
        while (end := finals.begin + finals.segment_rows) <= finals.settled:
            if finals.ring["row"][(end - 1) % finals.ring_rows] >= first:
                return
            finals.drop(end)
