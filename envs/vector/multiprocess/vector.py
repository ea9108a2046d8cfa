"""Vector environment in worker processes with shared memory, in which the caller reads observations directly.

Orders and answers are bytes in shared buffers, announced by events (see `shared`); only infos, resets and attributes are
sent over connections. Workers that die or hang are detected, reported and optionally replaced.
"""

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import (
    Batch,
    Episodes,
    Rows,
    Seeds,
    Started,
    VectorEnv,
    check_open,
    closes_on_interrupt,
    describe,
    keyed_seed,
    read_episodes,
    read_values,
)
from paddock.envs.vector.multiagent_slots import slots_of
from paddock.envs.vector.multiprocess.coordinator import Coordinator, Message
from paddock.envs.vector.multiprocess.process import WorkerProcess, end
from paddock.envs.vector.multiprocess.shared import Arena, EventFd, SharedBuffers, check_platform
from paddock.envs.vector.multiprocess.worker import WorkerJob
from paddock.envs.vector.storage import Layouts, RowIndex, numbers
from paddock.envs.vector.table import NEW, Table, envs_of


class MultiprocessVectorEnv(VectorEnv):
    """N environments in W processes, each of which has every W-th of `count_blocks` blocks."""

    _finalizer: weakref.finalize | None = None

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        workers: int,
        batch_size: int,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        packed: bool = False,
        groups: int = 1,
        *,
        restart: bool,
        timeout_s: float,
    ) -> None:
        """Start the workers and wait until they have built the environments.

        `workers` divides num_envs, and `batch_size` is a multiple of num_envs / workers. With `restart`, workers that
        die, hang or raise are replaced and their episodes truncated. `timeout_s` limits a step or reset of one
        environment. The other arguments are those of `Vec`.

        Raises:
            ConfigError: the environment cannot be made, or its spaces have no known size.
            EnvError: a worker did not start.
        """
        check_platform()
        layouts = Layouts.of_seats(spec, spec.made.seats)
        rows = num_envs * layouts.seats
        says = SimpleNamespace(metadata=spec.made.metadata, render_mode=spec.arguments.get("render_mode"))
        describe(self, says, layouts, rows, autoreset)
        self.batch_size = batch_size * layouts.seats

        blocks = count_blocks(num_envs, workers, batch_size, groups)
        self._slots = slots_of(layouts)
        self._latest: RowIndex = slice(0, rows)  # of the last recv
        self._key: int | None = None  # set by `begin`
        self._seeds: list[int | None] = [None] * num_envs  # set by `reset`
        self._numbers: list[int] | None = None  # set by `renumber`
        self._attributes: dict[str, list[Any]] = {}  # set by `set_attr`
        registered = gymnasium.registry.get(spec.id)
        sizes, measured = (layouts, rows, workers, blocks), Arena()
        SharedBuffers.lay_out(*sizes, measured.new)
        memory = os.memfd_create("paddock-buffers")
        os.ftruncate(memory, measured.used)
        buffers = SharedBuffers.lay_out(*sizes, Arena(memory).new)
        events = [
            EventFd(os.eventfd(0, os.EFD_NONBLOCK)) for _ in range(1 + workers)
        ]  # the parent's, then the workers'
        processes: list[WorkerProcess] = []
        self._finalizer = weakref.finalize(self, end, processes, buffers, events, memory, os.getpid())
        try:
            self._table = Table(buffers.arrays, layouts, autoreset, copy, packed)
            self.alive = self._table.alive
            of = (workers, blocks, rows, spec, registered, layouts, autoreset, memory)
            jobs = [WorkerJob(w, *of, events=(events[1 + w].fd, events[0].fd), log=-1) for w in range(workers)]
            # Weak: a reference cycle would keep the memory after this vector is dropped.
            restore = weakref.WeakMethod(self._restore)
            self._coordinator = Coordinator(
                jobs, buffers, events, self._table, processes, restore, restart=restart, timeout_s=timeout_s
            )
        except BaseException:
            self.close()
            raise

    @property
    def restarts(self) -> int:  # type: ignore[override]
        """Return the number of worker processes replaced so far."""
        return self._coordinator.restarts

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """See `VectorEnv.reset`."""
        check_open(self, "reset")
        rows, seeds, options = self._table.parse_reset(seed, options)
        for i in numbers(envs_of(rows, self.seats)):
            self._seeds[i] = seeds[i]
        parts = self._coordinator.split(rows)
        if self._key is not None:  # all blocks must drop it, also those without rows to reset
            parts = {block: parts.get(block, np.zeros(0, np.intp)) for block in range(len(self._coordinator.rows))}
        messages: dict[int, Message] = {}
        for block, part in parts.items():
            chosen_seeds = [seeds[i] for i in numbers(envs_of(part, self.seats))]
            messages[block] = (self._slots.reset, part, chosen_seeds, options)
        started = self._start(rows, messages)
        self._key = None  # only now: if a worker was not reached, the next reset reaches all
        return started

    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """See `VectorEnv.begin`."""
        check_open(self, "begin")
        first = read_episodes(episodes, self.worlds)
        self._key = seed
        messages: dict[int, Message] = {}
        for block, part in enumerate(self._coordinator.rows):
            messages[block] = (self._slots.begin, part, seed, [first[i] for i in numbers(envs_of(part, self.seats))])
        return self._start(self._table.everyone, messages)

    def renumber(self, numbers: Sequence[int] | NDArray[np.int64]) -> None:
        """See `VectorEnv.renumber`."""
        check_open(self, "renumber")
        self._numbers = read_episodes(numbers, self.worlds)
        self._call_blocks(self._renumber)

    @closes_on_interrupt
    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        check_open(self, "send")
        latest = env_ids is None and self.batch_size < self.num_envs
        rows = self._latest if latest else self._table.rows(env_ids, "send")
        self._table.put_actions(actions, rows, distinct=latest)
        self._coordinator.step(rows)

    @closes_on_interrupt
    def recv(self, env_ids: Rows = None) -> Batch:
        """See `VectorEnv.recv`."""
        check_open(self, "recv")
        rows = self._table.pending(env_ids)
        if env_ids is None and self.batch_size < len(numbers(rows)):
            rows = self._coordinator.wait_for_any(self.batch_size)
        else:
            self._coordinator.wait_for(rows)
        self._latest = rows
        return self._table.batch(rows)

    @closes_on_interrupt
    def wait_for_first(self, groups: Iterable[RowIndex], interrupted: Callable[[], bool]) -> int | None:
        """Wait until a whole group is ready; return its index, or None once `interrupted` returns True.

        Raises:
            EnvError: an environment raised, or its process died or hung.
        """
        return self._coordinator.wait_for_first(groups, interrupted)

    def interrupt_wait(self) -> None:
        """Wake the waiting thread, which checks `interrupted`; may be called by any thread."""
        self._coordinator.interrupt_wait()

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """See `VectorEnv.call`."""
        check_open(self, "call")
        answers = self._call_blocks(lambda block: (self._slots.call, name, args, kwargs))
        return tuple(one for answer in answers.values() for one in answer)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment; a list or tuple has one value for each."""
        check_open(self, "set_attr")
        each = read_values(values, self.worlds)
        self._call_blocks(lambda block: self._set(name, each, block))
        self._attributes[name] = each

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers; Gymnasium's `close` calls this once."""
        if self._finalizer is not None:
            self._finalizer()

    @closes_on_interrupt
    def _call_blocks(self, message: Callable[[int], Message]) -> dict[int, Any]:
        blocks = range(len(self._coordinator.rows))
        return self._coordinator.call({block: message(block) for block in blocks}, retry=False)

    @closes_on_interrupt
    def _start(self, rows: RowIndex, messages: dict[int, Message]) -> tuple[Any, dict[str, Any]]:
        """Start episodes in these rows; pending actions are dropped."""
        self._coordinator.wait_idle(messages)
        self._table.set_state(NEW, rows)
        self._table.drop_infos(rows)
        self._table.arrays.episode[envs_of(rows, self.seats)] = 0
        infos = self._coordinator.call(messages, retry=True)
        for block, message in messages.items():
            self._table.add_infos(message[1], infos[block])
        self._latest = self._table.everyone
        return self._table.start(rows)

    def _renumber(self, block: int) -> Message:
        assert self._numbers is not None
        worlds = numbers(envs_of(self._coordinator.rows[block], self.seats))
        return self._slots.renumber, [self._numbers[i] for i in worlds]

    def _restore(self, block: int) -> list[Message]:
        """Return the messages that restore a block in a new worker: attributes, numbers, and new episodes."""
        rows, table = self._coordinator.rows[block], self._table
        messages: list[Message] = [self._set(name, each, block) for name, each in self._attributes.items()]
        if self._numbers is not None:
            messages.append(self._renumber(block))
        ids = np.arange(self.num_envs)[rows]
        ids = ids[table.flag[ids] != NEW[0]]
        if self.autoreset is AutoresetMode.SAME_STEP and len(ids):
            worlds = numbers(envs_of(ids, self.seats))
            episodes = table.arrays.episode[worlds].tolist()
            if self._key is not None:
                messages.append((self._slots.begin, ids, self._key, episodes))
            else:
                given = [(self._seeds[i], i, episode) for i, episode in zip(worlds, episodes, strict=True)]
                seeds = [None if seed is None else keyed_seed(seed, i, episode) for seed, i, episode in given]
                messages.append((self._slots.reset, ids, seeds, {}))
        return messages

    def _set(self, name: str, each: list[Any], block: int) -> Message:
        """Return the message that sets an attribute of a block's environments."""
        rows = self._coordinator.rows[block]
        return self._slots.set_attr, name, each[rows.start // self.seats : rows.stop // self.seats]


def count_blocks(num_envs: int, workers: int, batch_size: int, groups: int) -> int:
    """Return the number of blocks of consecutive environments: one for each worker's share of each group.

    All workers then step a group while the caller uses the results of another. There is one block per worker if the
    environments do not divide evenly or batches have the first environments that are ready.
    """
    divide = batch_size == num_envs and num_envs % (groups * workers) == 0
    return groups * workers if divide else workers
