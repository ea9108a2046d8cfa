"""The vector of native environments: C code steps them all in one call, straight in arrays that the caller sees."""

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.machine import usable_cores
from paddock.envs.native import library
from paddock.envs.native.picture import Painter, painter_of
from paddock.envs.native.settings import NativeTask
from paddock.envs.registration import ELSEWHERE
from paddock.envs.vector.contract import Batch, Rows, VectorEnv, VectorMisuse, check_open, describe, read_episodes
from paddock.envs.vector.storage import Layouts, RowIndex
from paddock.envs.vector.table import ARRAYS, FREE, NEW, SENT, Arrays, Table, envs_of

BITS = 2**64
NO_MEMORY = -2  # of vector_play
MOST_STEPS = 2**31 - 1  # of an episode, which C counts against an int: a limit above it is never met
LIVES = ("alive", "acts", "over")  # of worlds, besides what every vector has


class ArrayRows(ctypes.Structure):
    """`struct rows` of vector.h: where the arrays are that `Arrays` has by the same names."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in (*ARRAYS, *LIVES))


def rows_of(arrays: Arrays) -> ArrayRows:
    """What the C code is given of these arrays, which have to outlive it."""
    return ArrayRows(**{name: array.ctypes.data for name, array in named(arrays).items()})


def named(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return the arrays that the C code reads and writes, by name; of worlds, who lives too."""
    lives = {} if arrays.lives is None else {name: getattr(arrays.lives, name) for name in LIVES}
    return {name: getattr(arrays, name) for name in ARRAYS} | lives


class NativeVectorEnv(VectorEnv):
    """N native environments, or W worlds and their rows; `recv` does the work, without the interpreter lock.

    Attributes:
        task: what the environments are.
        arrays: what they last gave, as the C code wrote it; `final`, `final_return` and `final_length` are of episodes
            that ended in that step.
    """

    def __init__(
        self,
        task: NativeTask,
        num_envs: int,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        threads: int = 1,
        packed: bool = False,
    ) -> None:
        """Build the environments.

        Args:
            task: as `native_task` gives it.
            autoreset: with `AutoresetMode.DISABLED` the caller restarts each ended episode itself.
            copy: whether batches are the caller's own; if not, consecutive rows are views that last until these
                environments are sent to again.
            threads: that step environments; 0: one for each usable core. They change no number.
            packed: whether observations come as rows, which for those of a Box are as they are.

        Raises:
            ConfigError: there is no compiled library, or no memory for so many environments.
        """
        self._vector: int | None = None
        self._painter: Painter | None = None
        layouts = Layouts.of_seats(task.source, task.source.made.seats)
        rows = self.batch_size = num_envs * layouts.seats
        describe(self, task, layouts, rows, autoreset)
        self.task = task
        self._c = library.load()
        self.arrays = Arrays.allocate(layouts, rows, np.zeros)
        self._table = Table(self.arrays, layouts, autoreset, copy, packed)
        self.alive = self._table.alive
        self._free = FREE * rows
        self._chosen = np.zeros(num_envs, np.uint8)
        self._chosen_at = self._chosen.ctypes.data
        # Our own arrays, and the same with the caller's actions.
        self._own, self._direct = rows_of(self.arrays), rows_of(self.arrays)
        self._own_at, self._direct_at = ctypes.addressof(self._own), ctypes.addressof(self._direct)
        self._vector = self._c.vector_open(
            library.find(task.name),
            num_envs,
            ctypes.addressof(task.settings),
            min(task.time_limit or 0, MOST_STEPS),
            autoreset is AutoresetMode.SAME_STEP,
            min(threads or usable_cores(), num_envs),
        )
        require(bool(self._vector), f"num_envs={num_envs}: no memory for so many {task.source.id}; take fewer")
        own, theirs = self._c.vector_row_bytes(self._vector), self.arrays.observation.nbytes // rows
        require(own == theirs, f"env.id={task.source.id}: {theirs} bytes are seen, and natively {own}; {ELSEWHERE}")
        # Whoever drops a vector that was never closed keeps none of its memory and threads.
        self._freed = weakref.finalize(self, self._c.vector_close, self._vector)
        self._freed.atexit = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes; an int seeds environment i with seed + i, `options["reset_mask"]` ([N] bool) picks some."""
        check_open(self, "reset")
        rows, given, others = self._table.parse_reset(seed, options)
        if others:
            raise VectorMisuse(f"reset: native environments take no options, got {sorted(others)}; leave them out")
        seeds = self._seeds(given)
        self._started(self._c.vector_start(self._vector, self._choose(rows), seeds.ctypes.data, self._own_at))
        return self._table.start(rows)

    def begin(self, seed: int, episodes: Sequence[int] | NDArray[np.int64] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `VectorEnv.begin`."""
        check_open(self, "begin")
        first = np.array(read_episodes(episodes, self.worlds), np.int64)
        key = ctypes.c_int64(seed % BITS).value
        self._started(self._c.vector_begin(self._vector, key, first.ctypes.data, self._own_at))
        return self._table.start(self._table.everyone)

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        check_open(self, "send")
        rows = self._table.rows(env_ids, "send")
        self._table.put_actions(actions, rows)
        self._table.set_state(SENT, rows)

    def recv(self, env_ids: Rows = None) -> Batch:
        """See `VectorEnv.recv`; the environments step now.

        Raises:
            VectorMisuse: nothing was sent, or an action is no element of its space; then no environment has stepped,
                and these wait for actions again.
        """
        check_open(self, "recv")
        rows = self._table.pending(env_ids)
        try:
            refused = self._c.vector_step(self._vector, self._choose(rows), self._own_at)
        except BaseException:  # Ctrl-C comes once all have stepped, who are not to do it again
            self._table.set_state(FREE, rows)
            raise
        if refused >= 0:
            self._table.set_state(FREE, rows)
            raise self._refusal(refused, self.arrays.action)
        return self._table.batch(rows)

    def step(self, actions: Any) -> Batch:
        """Step every environment; where actions lie in memory as the C code reads them, without a copy."""
        table = self._table
        if table.flags != self._free or not _lies_as(actions, self.arrays.action):
            self.send(actions)
            return self.recv()
        check_open(self, "step")
        self._direct.action = actions.ctypes.data
        refused = self._c.vector_step(self._vector, None, self._direct_at)
        if refused >= 0:
            raise self._refusal(refused, actions)
        return table.batch(table.everyone)

    def play(self, steps: ctypes.Structure) -> None:
        """Have native code choose actions and step, again and again; see `paddock.envs.native.steps`.

        Raises:
            VectorMisuse: ended episodes do not restart, an environment has no episode or an action that was not
                received, or native code chose what is no action; some environments have stepped then.
        """
        check_open(self, "play")
        if self.autoreset is not AutoresetMode.SAME_STEP:
            raise VectorMisuse("play: ended episodes have to restart in the same step; make the vector with SAME_STEP")
        if self._table.flags != self._free:
            raise VectorMisuse("play: an environment has no episode, or a send was not received; call begin or recv")
        refused = self._c.vector_play(self._vector, ctypes.addressof(steps), self._own_at)
        if refused >= 0:
            raise self._refusal(refused, self.arrays.action)
        if refused == NO_MEMORY:
            raise VectorMisuse(f"play: no memory for {self.num_envs} rows of a network's values; take fewer")

    def state_dict(self) -> dict[str, Any]:
        """Everything, as arrays and plain data: a vector of the same recipe that loads it gives the same bits."""
        check_open(self, "state_dict")
        saved = np.zeros(self._c.vector_saved_bytes(self._vector), np.uint8)
        self._c.vector_save(self._vector, saved.ctypes.data)
        arrays = {name: array.copy() for name, array in named(self.arrays).items()}
        return {"task": self.task.name, "saved": saved, "flags": self._table.flag.copy(), "arrays": arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a vector of the same recipe was.

        Raises:
            VectorMisuse: it is another vector's state; nothing has changed then.
        """
        own = self.state_dict()
        same = state["task"] == own["task"] and state["saved"].shape == own["saved"].shape
        if not same:
            raise VectorMisuse(
                f"load_state_dict: got a state of {state['task']}; load it into a vector of the same recipe"
            )
        if self._c.vector_load(self._vector, np.ascontiguousarray(state["saved"]).ctypes.data):
            raise VectorMisuse("load_state_dict: saved is not what state_dict gave; take another checkpoint")
        for name, array in named(self.arrays).items():
            array[...] = state["arrays"][name]
        self._table.flag[...] = state["flags"]

    def render(self) -> tuple[Any, ...]:
        """Each environment's picture."""
        return tuple(self.paint(i) for i in range(self.num_envs))

    def paint(self, i: int, action: Any = None) -> NDArray[np.uint8] | None:
        """One environment's picture, or None where a window shows it; `action` is what led there, if anything did."""
        check_open(self, "render")
        if self._painter is None:
            if self.render_mode is None:
                raise VectorMisuse("render: there is no render_mode; make the environment with render_mode='rgb_array'")
            self._painter = painter_of(self.task, self._c, self._vector)
        return self._painter.paint(i, self.arrays.observation[i], action)

    def close_extras(self, **kwargs: Any) -> None:
        """Let the environments go; Gymnasium's `close` calls this once."""
        if self._painter is not None:
            self._painter.close()
        self._freed()
        self._vector = None

    def _choose(self, rows: RowIndex) -> int | None:
        """Where the C code reads which environments are meant; None for all of them."""
        if isinstance(rows, slice) and rows == self._table.everyone:
            return None
        self._chosen[:] = 0
        self._chosen[envs_of(rows, self.seats)] = 1
        return self._chosen_at

    def _seeds(self, given: list[int | None]) -> NDArray[np.int64]:
        """Those given; -1 for a generator that goes on, but for one that was never seeded any seed at all."""
        for one in given:
            if one is not None and not 0 <= one < BITS // 2:
                raise VectorMisuse(f"reset: seed={one} must be at least 0 and below 2^63")
        seeds = np.array([-1 if one is None else one for one in given], np.int64)
        fresh = (seeds < 0) & (self._table.flag[:: self.seats] == NEW[0])
        if fresh.any():
            seeds[fresh] = np.random.default_rng().integers(BITS // 2, size=int(fresh.sum()), dtype=np.int64)
        return seeds

    def _started(self, status: int) -> None:
        if status:
            raise VectorMisuse(f"reset: no memory for {self.num_envs} episodes of {self.task.source.id}; take fewer")

    def _refusal(self, i: int, actions: NDArray[Any]) -> VectorMisuse:
        choices = library.describe(self.task.name).choices
        allowed = f"a choice of 0 to {choices - 1}" if choices else "finite numbers"
        given = actions.view(np.int64)[i] if choices else actions[i]  # those of several roles are bytes
        world, seat = divmod(i, self.seats)
        whose = f"environment {i}" if self.seats == 1 else f"seat {seat} of world {world}"
        return VectorMisuse(f"step: the action of {whose} is {given.tolist()}; pass {allowed}")


def _lies_as(array: Any, mine: NDArray[Any]) -> bool:
    """Whether an array has dtype, shape and layout of one that C code uses."""
    if type(array) is not np.ndarray or array.dtype != mine.dtype or array.shape != mine.shape:
        return False
    flags = array.flags
    return flags.c_contiguous and flags.aligned
