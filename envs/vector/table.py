"""Table: the arrays of N rows, their states, and the batches returned to the caller."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.vector.buffers import buffer_of
from paddock.envs.vector.contract import Batch, Rows, Seeds, VectorMisuse, read_mask, read_seeds
from paddock.envs.vector.infos import episode_info, merge_infos, pick_infos
from paddock.envs.vector.storage import Layouts, NewArray, RowIndex, allocate, numbers

# State of a row, one byte each.
NEW, FREE, SENT, READY, LOST, OVER = b"\x00", b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"


@dataclass(frozen=True)
class Lives:
    """Living and acting agents of multi-agent environments with N rows."""

    alive: NDArray[np.bool_]  # [N], the seat's agent is alive
    acts: NDArray[np.bool_]  # [N], the next step takes its action
    over: NDArray[np.bool_]  # [N / seats], the episode ended in the step
    seats: int

    @classmethod
    def allocate(cls, num_envs: int, seats: int, new: NewArray) -> "Lives":
        """Return arrays from `new`, always in the same order."""
        alive, acts = (new((num_envs,), np.dtype(np.bool_)) for _ in range(2))
        return cls(alive, acts, new((num_envs // seats,), np.dtype(np.bool_)), seats)


@dataclass(frozen=True)
class Arrays:
    """Latest step of N rows, in memory that worker processes may share."""

    observation: NDArray[Any]  # [N, ...]
    final: NDArray[Any]  # [N, ...], the last observation of an episode that ended in the step
    action: NDArray[Any]  # [N, ...]
    reward: NDArray[np.float64]  # [N]
    terminated: NDArray[np.bool_]  # [N]
    truncated: NDArray[np.bool_]  # [N]
    running_return: NDArray[np.float64]  # [N], of the running episode
    running_length: NDArray[np.int64]  # [N], steps
    final_return: NDArray[np.float64]  # [N], of an episode that ended in the step
    final_length: NDArray[np.int64]  # [N]
    episode: NDArray[np.int64]  # [N / seats], number of the running episode
    lives: "Lives | None" = None  # of multi-agent environments

    @classmethod
    def allocate(cls, layouts: Layouts, num_envs: int, new: NewArray) -> "Arrays":
        """Return arrays from `new`, always in the same order."""

        def row(dtype: Any) -> NDArray[Any]:
            return new((num_envs,), np.dtype(dtype))

        return cls(
            observation=allocate(layouts.observation, num_envs, new),
            final=allocate(layouts.observation, num_envs, new),
            action=allocate(layouts.action, num_envs, new),
            reward=row(np.float64),
            terminated=row(np.bool_),
            truncated=row(np.bool_),
            running_return=row(np.float64),
            running_length=row(np.int64),
            final_return=row(np.float64),
            final_length=row(np.int64),
            episode=new((num_envs // layouts.seats,), np.dtype(np.int64)),
            lives=Lives.allocate(num_envs, layouts.seats, new) if layouts.seats > 1 else None,
        )

    def enter(self, rows: RowIndex, reward: Any, terminated: Any, truncated: Any) -> None:
        """Write the results of a step of these rows, except observations."""
        self.reward[rows], self.terminated[rows], self.truncated[rows] = reward, terminated, truncated
        self.running_return[rows] += reward
        self.running_length[rows] += 1 if self.lives is None else self.lives.acts[rows]

    def end(self, i: int | NDArray[np.intp]) -> None:
        """End the running episode of row i, or of several rows."""
        self.final_return[i], self.final_length[i] = self.running_return[i], self.running_length[i]
        self.running_return[i] = self.running_length[i] = 0
        if self.lives is None:
            self.episode[i] += 1


ARRAYS = tuple(field.name for field in fields(Arrays) if field.name != "lives")  # present in every vector


class Table:
    """The caller's side of the arrays: checks the order of calls and returns batches."""

    def __init__(self, arrays: Arrays, layouts: Layouts, autoreset: AutoresetMode, copy: bool, packed: bool) -> None:
        """Create the table; `copy` and `packed` are those of `Vec.make`."""
        self.arrays = arrays
        self.num_envs = len(arrays.reward)
        self.everyone = slice(0, self.num_envs)
        self.seats = 1 if arrays.lives is None else arrays.lives.seats
        self.flags = bytearray(self.num_envs)  # NEW and so on
        self.flag = np.frombuffer(self.flags, np.uint8)  # the same bytes
        seen = layouts.observation_space, layouts.observation
        self._observation = buffer_of(*seen, arrays.observation, packed)
        self._final = buffer_of(*seen, arrays.final, packed)
        self._action = buffer_of(layouts.action_space, layouts.action, arrays.action)
        self._same_step = autoreset is AutoresetMode.SAME_STEP
        self._copy = copy
        self._packed = packed
        self._infos: list[tuple[NDArray[np.intp], dict[str, Any]]] = []  # rows and their infos, not yet received
        self._backups: list[tuple[NDArray[Any], NDArray[Any]]] = []  # arrays and their backups
        self._episode_backup = arrays.episode.copy()

    def parse_reset(
        self, seed: Seeds, options: dict[str, Any] | None
    ) -> tuple[RowIndex, list[int | None], dict[str, Any]]:
        """Return the rows of a reset, a seed for every environment of the vector, and the options for environments."""
        options, chosen = read_mask(options, self.num_envs)
        return self.rows(chosen, "reset"), read_seeds(seed, self.num_envs // self.seats), options

    def rows(self, env_ids: Rows, verb: str) -> RowIndex:
        """Return the caller's row selection as a RowIndex; it must include all rows of an environment."""
        if env_ids is None:
            return self.everyone
        rows: RowIndex
        if isinstance(env_ids, slice):
            start, stop, step = env_ids.indices(self.num_envs)
            rows = slice(start, max(start, stop)) if step == 1 else np.arange(start, stop, step)
        else:
            rows = np.asarray(env_ids)
            whole = rows.ndim == 1 and (not rows.size or (rows.dtype.kind in "iu" and rows.min() >= 0))
            if not whole or (rows.size and rows.max() >= self.num_envs):
                allowed = f"a slice or distinct integers below {self.num_envs}"
                raise VectorMisuse(f"{verb}: env_ids={env_ids!r} must be {allowed}")
            rows = rows.astype(np.intp, copy=False)
        if self.seats > 1 and not are_whole(rows, self.seats):
            allowed = f"all {self.seats} rows of an environment in order, or none of them"
            raise VectorMisuse(f"{verb}: env_ids={env_ids!r} must have {allowed}")
        return rows

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Return the rows whose agent is alive, [N]."""
        lives = self.arrays.lives
        return np.ones(self.num_envs, np.bool_) if lives is None else lives.alive

    def set_state(self, flag: bytes, rows: RowIndex) -> None:
        """Set the state of these rows."""
        if isinstance(rows, slice):
            self.flags[rows] = flag * (rows.stop - rows.start)
        else:
            self.flag[rows] = flag[0]

    def states(self, rows: RowIndex) -> bytes | bytearray:
        """Return the states of these rows, one byte each."""
        return self.flags[rows] if isinstance(rows, slice) else self.flag[rows].tobytes()

    def put_actions(self, actions: Any, rows: RowIndex, distinct: bool = False) -> None:
        """Write an action for each of these rows; with `distinct`, they are known to be distinct.

        Raises:
            VectorMisuse: an episode has not started or is over, a row already has an action, or the batch is invalid.
        """
        waiting = self.states(rows)
        count = len(waiting)
        if waiting != FREE * count and waiting.count(FREE) + waiting.count(LOST) != count:
            if NEW in waiting:
                raise VectorMisuse("send: an environment has no episode yet; call reset first")
            if OVER in waiting:
                i = int(np.arange(self.num_envs)[rows][waiting.index(OVER)])
                what = f"the episode of environment {i // self.seats}"
                raise VectorMisuse(f"send: {what} has ended; reset it first with options={{'reset_mask': ...}}")
            raise VectorMisuse("send: the last send has not been received; call recv first")
        if not (distinct or isinstance(rows, slice)) and len(set(rows.tolist())) != count:
            raise VectorMisuse(f"send: env_ids={rows.tolist()} contains an environment twice; pass each once")
        self._action.put(rows, actions, count)

    def pending(self, env_ids: Rows = None) -> RowIndex:
        """Return the rows with a pending step: all, or those of `env_ids`; raise VectorMisuse if there is none."""
        if env_ids is None:
            # The common case first: counting takes fifty times as long.
            if self.flags == SENT * self.num_envs or self.flags.count(SENT) + self.flags.count(READY) == self.num_envs:
                return self.everyone
            rows: RowIndex = np.flatnonzero((self.flag == SENT[0]) | (self.flag == READY[0]))
        else:
            rows = self.rows(env_ids, "recv")
        waiting = self.states(rows)
        if not waiting or waiting.count(SENT) + waiting.count(READY) != len(waiting):
            raise VectorMisuse("recv: nothing was sent; call send first")
        return rows

    def add_infos(self, rows: RowIndex, infos: dict[str, Any]) -> None:
        """Store the infos of these rows until their batch."""
        if infos:
            self._infos.append((np.arange(self.num_envs)[rows], infos))

    def drop_infos(self, rows: RowIndex) -> None:
        """Drop the infos of these rows, whose episodes restart."""
        if self._infos:
            self._collect({}, rows)

    def batch(self, rows: RowIndex) -> Batch:
        """Return the results of these rows and set them FREE."""
        arrays = self.arrays
        reward, terminated, truncated = arrays.reward[rows], arrays.terminated[rows], arrays.truncated[rows]
        if self._copy and isinstance(rows, slice):
            reward, terminated, truncated = reward.copy(), terminated.copy(), truncated.copy()
        infos: dict[str, Any] = {}
        if self._same_step or arrays.lives is not None:
            ended = terminated | truncated
            if 1 in ended.tobytes():  # ten times as fast as any()
                self._add_episodes(infos, ended, rows)
        if self._infos:
            self._collect(infos, rows)
        if len(reward) < self.num_envs:
            infos["env_id"] = np.arange(self.num_envs)[rows]
        if arrays.lives is not None:
            infos["acts"] = arrays.lives.acts[rows].copy()
            infos["over"] = arrays.lives.over[envs_of(rows, self.seats)].copy()
        self.set_state(FREE, rows)
        if not self._same_step:
            lives = arrays.lives
            over = terminated | truncated if lives is None else np.repeat(infos["over"], self.seats)
            if 1 in over.tobytes():
                self.flag[np.arange(self.num_envs)[rows][over]] = OVER[0]
        return self._observation.take(rows, self._copy), reward, terminated, truncated, infos

    def start(self, rows: RowIndex) -> tuple[Any, dict[str, Any]]:
        """Return the results of a reset of these rows: observations of all rows, and infos of these."""
        infos: dict[str, Any] = {}
        self._collect(infos, rows, whole=True)
        if self.arrays.lives is not None:
            infos["acts"] = self.arrays.lives.acts.copy()
        self.set_state(FREE, rows)
        return self._observation.take(self.everyone, self._copy), infos

    def back_up(self, rows: RowIndex) -> None:
        """Back up the state of rows that are about to step, in case their process dies."""
        if not self._backups:
            arrays, lives = self.arrays, self.arrays.lives
            moved = [arrays.observation, arrays.running_return, arrays.running_length]
            moved += [] if lives is None else [lives.alive, lives.acts]
            self._backups = [(array, array.copy()) for array in moved]
        for array, kept in self._backups:
            kept[rows] = array[rows]
        worlds = envs_of(rows, self.seats)
        self._episode_backup[worlds] = self.arrays.episode[worlds]

    def truncate_lost(self, ids: NDArray[np.intp]) -> NDArray[np.intp]:
        """Truncate the running episodes of rows whose process was lost, at their latest observations.

        A pending step becomes the last one and is undone (`back_up` was called before it). Without a pending or ready
        step, the next one will be the last.

        Returns:
            The rows that became READY.
        """
        flag, arrays = self.flag[ids], self.arrays
        sent, free, ready = (ids[flag == state[0]] for state in (SENT, FREE, READY))
        if arrays.lives is None:
            running = ready[~(arrays.terminated[ready] | arrays.truncated[ready])]
        else:
            running = ready[~arrays.lives.over[ready // self.seats]]
        for array, kept in self._backups:
            array[sent] = kept[sent]
        worlds = envs_of(sent, self.seats)
        arrays.episode[worlds] = self._episode_backup[worlds]
        waiting = np.concatenate([sent, free])
        arrays.reward[waiting] = 0
        arrays.terminated[waiting] = arrays.truncated[waiting] = False
        self._cut(running)
        self._cut(waiting)
        self.set_state(READY, sent)
        self.set_state(LOST, free)
        return sent

    def _cut(self, ids: NDArray[np.intp]) -> None:
        arrays, lives = self.arrays, self.arrays.lives
        living = ids if lives is None else ids[lives.alive[ids]]
        arrays.truncated[living] = True
        arrays.final[living] = arrays.observation[living]
        arrays.end(living)
        if lives is not None:
            over = envs_of(ids, self.seats)
            lives.alive[ids] = lives.acts[ids] = False
            lives.over[over] = True
            arrays.episode[over] += 1

    def _add_episodes(self, infos: dict[str, Any], ended: NDArray[np.bool_], rows: RowIndex) -> None:
        """Add `final_obs` and `final_info["episode"]` of ended episodes."""
        arrays = self.arrays
        if self._packed:
            observations = self._final.take(rows, self._copy)
        else:
            where = ended.nonzero()[0]
            ids = where + rows.start if isinstance(rows, slice) else rows[where]
            observations = np.empty(len(ended), object)  # of None
            observations[where] = np.fromiter(self._final.finals(ids), object, len(where))
        infos["final_obs"], infos["_final_obs"] = observations, ended
        final = episode_info(arrays.final_return[rows], arrays.final_length[rows], ended)
        infos["final_info"], infos["_final_info"] = final, ended

    def _collect(self, infos: dict[str, Any], rows: RowIndex, whole: bool = False) -> None:
        """Move the stored infos of these rows to `infos`, indexed by batch position or, if `whole`, by row."""
        ids = numbers(rows)
        size = self.num_envs if whole else len(ids)
        position = np.full(self.num_envs, -1)
        position[rows] = ids if whole else np.arange(size)
        said, self._infos = self._infos, []
        for at, part in said:
            inside = position[at] >= 0
            if not inside.all():
                self._infos.append((at[~inside], pick_infos(part, ~inside)))
                at, part = at[inside], pick_infos(part, inside)
            merge_infos(infos, part, position[at], size)


def envs_of(rows: RowIndex, seats: int) -> RowIndex:
    """Return the environments of these rows."""
    if isinstance(rows, slice):
        return slice(rows.start // seats, rows.stop // seats)
    return rows[::seats] // seats


def are_whole(rows: RowIndex, seats: int) -> bool:
    """Return whether these rows are whole environments, each with its rows in order."""
    if isinstance(rows, slice):
        return rows.start % seats == 0 and rows.stop % seats == 0
    first = rows[::seats]
    return (
        len(rows) % seats == 0
        and np.array_equal(rows.reshape(-1, seats), first[:, None] + np.arange(seats))
        and not (first % seats).any()
    )
