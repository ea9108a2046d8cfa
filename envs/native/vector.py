"""Vector of native environments; one call of C steps all of them and writes into the caller's arrays."""

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
from paddock.envs.native.settings import NativeTask
from paddock.envs.registration import ELSEWHERE
from paddock.envs.vector.contract import Batch, Rows, VectorEnv, VectorMisuse, check_open, describe, read_episodes
from paddock.envs.vector.storage import Layouts, RowIndex
from paddock.envs.vector.table import ARRAYS, FREE, NEW, SENT, Arrays, Table, envs_of

BITS = 2**64
NO_MEMORY = -2  # returned by vector_play
MAX_STEPS = 2**31 - 1  # time limits are an int in C; higher ones are never reached
LIVES = ("alive", "acts", "over")  # additional arrays of multi-agent environments


class CRows(ctypes.Structure):
    """`struct rows` of vector.h: pointers to the arrays of `Arrays` with the same names."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in (*ARRAYS, *LIVES))


def point_to(arrays: Arrays) -> CRows:
    """Point to arrays, which must outlive the structure."""
    return CRows(**{name: array.ctypes.data for name, array in by_name(arrays).items()})


def by_name(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return the arrays that the C code reads and writes."""
    lives = {} if arrays.lives is None else {name: getattr(arrays.lives, name) for name in LIVES}
    return {name: getattr(arrays, name) for name in ARRAYS} | lives


class NativeVectorEnv(VectorEnv):
    """Vector of native environments, single- or multi-agent; `recv` steps them and releases the GIL.

    Attributes:
        task: native version of the environments.
        arrays: results of the last step; `final`, `final_return` and `final_length` are valid where an episode ended.
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
            task: native version, from `native_task`.
            num_envs: number of environments.
            autoreset: with `AutoresetMode.DISABLED` the caller resets ended episodes.
            copy: whether to copy batches; if not, consecutive rows are views, valid until the next `send` to them.
            threads: number of threads, 0 for one per usable core; does not affect results.
            packed: whether observations are returned as packed rows; those of a Box always are arrays.

        Raises:
            ConfigError: there is no compiled library or not enough memory.
        """
        self._vector: int | None = None
        layouts = Layouts.of_seats(task.source, task.source.made.seats)
        rows = self.batch_size = num_envs * layouts.seats
        describe(self, None, layouts, rows, autoreset)
        self.task = task
        self._c = library.load()
        self.arrays = Arrays.allocate(layouts, rows, np.zeros)
        self._table = Table(self.arrays, layouts, autoreset, copy, packed)
        self.alive = self._table.alive
        self._free = FREE * rows
        self._chosen = np.zeros(num_envs, np.uint8)
        self._chosen_at = self._chosen.ctypes.data
        # The vector's arrays, and the same with the caller's array of actions.
        self._own, self._direct = point_to(self.arrays), point_to(self.arrays)
        self._own_at, self._direct_at = ctypes.addressof(self._own), ctypes.addressof(self._direct)
        self._vector = self._c.vector_open(
            library.find_task(task.name),
            num_envs,
            ctypes.addressof(task.settings),
            min(task.time_limit or 0, MAX_STEPS),
            autoreset is AutoresetMode.SAME_STEP,
            min(threads or usable_cores(), num_envs),
        )
        require(bool(self._vector), f"num_envs={num_envs}: out of memory for {task.source.id}; use fewer")
        found, expected = self._c.vector_row_bytes(self._vector), self.arrays.observation.nbytes // rows
        message = (
            f"env.id={task.source.id}: observations have {expected} bytes, the native version's {found}; {ELSEWHERE}"
        )
        require(found == expected, message)
        # Frees memory and threads even if the vector is never closed.
        self._freed = weakref.finalize(self, self._c.vector_close, self._vector)
        self._freed.atexit = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes; an int seeds environment i with seed + i, `options["reset_mask"]` ([N] bool) selects some."""
        check_open(self, "reset")
        rows, given, others = self._table.parse_reset(seed, options)
        if others:
            raise VectorMisuse(f"reset: native environments take no options, got {sorted(others)}; remove them")
        seeds = self._seeds(given)
        self._check_start(self._c.vector_start(self._vector, self._select(rows), seeds.ctypes.data, self._own_at))
        return self._table.start(rows)

    def begin(self, seed: int, episodes: Sequence[int] | NDArray[np.int64] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `VectorEnv.begin`."""
        check_open(self, "begin")
        first = np.array(read_episodes(episodes, self.worlds), np.int64)
        key = ctypes.c_int64(seed % BITS).value
        self._check_start(self._c.vector_begin(self._vector, key, first.ctypes.data, self._own_at))
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
            VectorMisuse: nothing was sent, or an action is not in its space; no environment has stepped then, and
                these need new actions.
        """
        check_open(self, "recv")
        rows = self._table.pending(env_ids)
        try:
            invalid = self._c.vector_step(self._vector, self._select(rows), self._own_at)
        except BaseException:  # Ctrl-C is raised after all have stepped; they must not step again
            self._table.set_state(FREE, rows)
            raise
        if invalid >= 0:
            self._table.set_state(FREE, rows)
            raise self._invalid_action(invalid, self.arrays.action)
        return self._table.batch(rows)

    def step(self, actions: Any) -> Batch:
        """Step every environment, without copying actions that have the layout of the C code."""
        table = self._table
        if table.flags != self._free or not _has_layout_of(actions, self.arrays.action):
            self.send(actions)
            return self.recv()
        check_open(self, "step")
        self._direct.action = actions.ctypes.data
        invalid = self._c.vector_step(self._vector, None, self._direct_at)
        if invalid >= 0:
            raise self._invalid_action(invalid, actions)
        return table.batch(table.everyone)

    def play(self, steps: ctypes.Structure) -> None:
        """Play several steps with actions chosen in native code; `paddock.envs.native.steps` wraps this.

        Raises:
            VectorMisuse: autoreset is not SAME_STEP, an environment was not reset or has a pending action, or the
                policy chose an invalid action (some environments may have stepped then).
        """
        check_open(self, "play")
        if self.autoreset is not AutoresetMode.SAME_STEP:
            raise VectorMisuse("play: autoreset must be SAME_STEP; create the vector environment with it")
        if self._table.flags != self._free:
            raise VectorMisuse("play: an environment was not reset or has a pending action; call begin or recv")
        invalid = self._c.vector_play(self._vector, ctypes.addressof(steps), self._own_at)
        if invalid >= 0:
            raise self._invalid_action(invalid, self.arrays.action)
        if invalid == NO_MEMORY:
            raise VectorMisuse(f"play: out of memory for the activations of {self.num_envs} rows; use fewer")

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state as arrays and plain data; a vector with the same settings can continue from it."""
        check_open(self, "state_dict")
        saved = np.zeros(self._c.vector_saved_bytes(self._vector), np.uint8)
        self._c.vector_save(self._vector, saved.ctypes.data)
        arrays = {name: array.copy() for name, array in by_name(self.arrays).items()}
        return {"task": self.task.name, "saved": saved, "flags": self._table.flag.copy(), "arrays": arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a vector with the same settings.

        Raises:
            VectorMisuse: the state does not fit; nothing has changed then.
        """
        own = self.state_dict()
        same = state["task"] == own["task"] and state["saved"].shape == own["saved"].shape
        if not same:
            raise VectorMisuse(
                f"load_state_dict: got a state of {state['task']}; load it into a vector with the same settings"
            )
        if self._c.vector_load(self._vector, np.ascontiguousarray(state["saved"]).ctypes.data):
            raise VectorMisuse("load_state_dict: the saved state is corrupt; use another checkpoint")
        for name, array in by_name(self.arrays).items():
            array[...] = state["arrays"][name]
        self._table.flag[...] = state["flags"]

    def close_extras(self, **kwargs: Any) -> None:
        """Free the environments; Gymnasium's `close` calls this once."""
        self._freed()
        self._vector = None

    def _select(self, rows: RowIndex) -> int | None:
        """Return the address of a mask that selects environments; None for all."""
        if isinstance(rows, slice) and rows == self._table.everyone:
            return None
        self._chosen[:] = 0
        self._chosen[envs_of(rows, self.seats)] = 1
        return self._chosen_at

    def _seeds(self, given: list[int | None]) -> NDArray[np.int64]:
        """Return the seeds given, -1 to continue a generator, or a random seed for one that was never seeded."""
        for one in given:
            if one is not None and not 0 <= one < BITS // 2:
                raise VectorMisuse(f"reset: seed={one} must be at least 0 and below 2^63")
        seeds = np.array([-1 if one is None else one for one in given], np.int64)
        fresh = (seeds < 0) & (self._table.flag[:: self.seats] == NEW[0])
        if fresh.any():
            seeds[fresh] = np.random.default_rng().integers(BITS // 2, size=int(fresh.sum()), dtype=np.int64)
        return seeds

    def _check_start(self, status: int) -> None:
        if status:
            raise VectorMisuse(f"reset: out of memory for {self.num_envs} {self.task.source.id}; use fewer")

    def _invalid_action(self, i: int, actions: NDArray[Any]) -> VectorMisuse:
        choices = library.describe(self.task.name).choices
        allowed = f"a choice of 0 to {choices - 1}" if choices else "finite numbers"
        world, seat = divmod(i, self.seats)
        agent = f"environment {i}" if self.seats == 1 else f"seat {seat} of world {world}"
        return VectorMisuse(f"step: the action of {agent} is {actions[i].tolist()}; pass {allowed}")


def _has_layout_of(array: Any, expected: NDArray[Any]) -> bool:
    """Return whether an array has the dtype, shape and memory layout of another."""
    if type(array) is not np.ndarray or array.dtype != expected.dtype or array.shape != expected.shape:
        return False
    flags = array.flags
    return flags.c_contiguous and flags.aligned
