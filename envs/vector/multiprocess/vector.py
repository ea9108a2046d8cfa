"""Environments in worker processes, on shared memory: observations are written where the caller reads them.

Orders and answers are bytes in shared buffers, and semaphores beside them tell of them (see `shared`); only infos,
resets and what is rare cross a connection. A worker that dies or hangs is noticed, named, and replaced where that is
wanted.
"""

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from envs.spec import EnvSpec
from envs.vector.contract import (
    Batch,
    Rows,
    VectorEnv,
    check_open,
    describe,
    keyed_seed,
    read_episodes,
    read_mask,
    read_seeds,
    read_values,
)
from envs.vector.multiprocess.coordinator import Coordinator, Message
from envs.vector.multiprocess.process import WorkerProcess, end
from envs.vector.multiprocess.shared import MappedMemory, SharedBuffers, check_platform, size_of
from envs.vector.multiprocess.worker import WorkerJob
from envs.vector.slots import IDLE, Slots, build
from envs.vector.storage import Layouts, RowIndex, numbers
from envs.vector.table import NEW, Table


class MultiprocessVectorEnv(VectorEnv):
    """N environments in W processes, N / W in each."""

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
        *,
        restart: bool,
        timeout_s: float,
    ) -> None:
        """Start the workers and wait until they have built the environments.

        Args:
            workers: W, a divisor of num_envs.
            batch_size: a multiple of num_envs / workers.
            autoreset: with `AutoresetMode.DISABLED` the caller restarts each ended episode itself.
            copy: whether batches are the caller's own; if not, consecutive rows are views that last until these
                environments are sent to again.
            packed: whether observations come as rows; see `Vec.make`.
            restart: whether a worker that dies, hangs or raises is replaced; its episodes then end truncated.
            timeout_s: seconds that one environment may take for a step or a reset.

        Raises:
            ConfigError: the environment cannot be made, or its spaces have no fixed size.
            EnvError: a worker did not start.
        """
        check_platform()
        (probe,) = build(spec, range(1), [IDLE])
        spaces = probe.observation_space, probe.action_space
        layouts = Layouts.of(spec, *spaces)
        describe(self, probe, layouts.observation_space, num_envs, autoreset)
        probe.close()
        self.batch_size = batch_size

        size = size_of(layouts, num_envs, workers)
        self._latest: RowIndex = slice(0, num_envs)  # of the last recv
        self._key: int | None = None  # as `begin` gave it
        self._seeds: list[int | None] = [None] * num_envs  # as `reset` gave them
        self._numbers: list[int] | None = None  # as `renumber` gave them
        self._attributes: dict[str, list[Any]] = {}  # as `set_attr` gave them
        registered = gymnasium.registry.get(spec.id)  # where the id names a package, importing it does this
        memory = os.memfd_create("paddock-buffers")
        try:
            os.ftruncate(memory, size)
            buffers = SharedBuffers.lay_out(layouts, num_envs, workers, MappedMemory(memory, size).new)
            for semaphore in (buffers.ready, *buffers.go):
                semaphore.initialize()
        except BaseException:
            os.close(memory)
            raise
        processes: list[WorkerProcess] = []
        self._finalizer = weakref.finalize(self, end, processes, buffers, memory, os.getpid())
        try:
            self._table = Table(buffers.arrays, layouts, autoreset, copy, packed)
            jobs = [
                WorkerJob(number, workers, num_envs, spec, registered, spaces, layouts, autoreset, memory, size, log=-1)
                for number in range(workers)
            ]
            self._coordinator = Coordinator(
                jobs, buffers, self._table, processes, self._revive, restart=restart, timeout_s=timeout_s
            )
        except BaseException:
            self.close()
            raise

    @property
    def restarts(self) -> int:  # type: ignore[override]
        """Worker processes replaced so far."""
        return self._coordinator.restarts

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes; an int seeds environment i with seed + i, `options["reset_mask"]` ([N] bool) picks some."""
        check_open(self, "reset")
        options, chosen = read_mask(options, self.num_envs)
        rows = self._table.rows(chosen, "reset")
        seeds = read_seeds(seed, self.num_envs)
        for i in numbers(rows):
            self._seeds[i] = seeds[i]
        parts = self._coordinator.split(rows)
        if self._key is not None:  # all forget it, those without a row to reset too
            parts = {w: parts.get(w, np.zeros(0, np.intp)) for w in range(len(self._coordinator.rows))}
            self._key = None
        messages = {w: (Slots.reset, part, [seeds[i] for i in numbers(part)], options) for w, part in parts.items()}
        return self._start(rows, messages)

    def begin(self, seed: int, episodes: Sequence[int] | NDArray[np.int64] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `VectorEnv.begin`."""
        check_open(self, "begin")
        first = read_episodes(episodes, self.num_envs)
        self._key = seed
        messages = {w: (Slots.begin, part, seed, first[part]) for w, part in enumerate(self._coordinator.rows)}
        return self._start(self._table.everyone, messages)

    def renumber(self, numbers: Sequence[int] | NDArray[np.int64]) -> None:
        """See `VectorEnv.renumber`."""
        check_open(self, "renumber")
        self._numbers = read_episodes(numbers, self.num_envs)
        messages = {w: (Slots.renumber, self._numbers[rows]) for w, rows in enumerate(self._coordinator.rows)}
        self._coordinator.ask(messages, insist=False)

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        check_open(self, "send")
        latest = env_ids is None and self.batch_size < self.num_envs
        rows = self._latest if latest else self._table.rows(env_ids, "send")
        self._table.accept(actions, rows, distinct=latest)
        self._coordinator.step(rows)

    def recv(self, env_ids: Rows = None) -> Batch:
        """See `VectorEnv.recv`."""
        check_open(self, "recv")
        rows = self._table.outstanding(env_ids)
        if env_ids is None and self.batch_size < len(numbers(rows)):
            rows = self._coordinator.wait_for_any(self.batch_size)
        else:
            self._coordinator.wait_for(rows)
        self._latest = rows
        return self._table.batch(rows)

    def wait_for_first(self, groups: Sequence[RowIndex], called: Callable[[], bool]) -> int | None:
        """See `WaitsForFirst`."""
        return self._coordinator.wait_for_first(groups, called)

    def call_away(self) -> None:
        """See `WaitsForFirst`."""
        self._coordinator.call_away()

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What each environment's method gives, or its attribute where that is no method."""
        check_open(self, "call")
        messages = {w: (Slots.call, name, args, kwargs) for w in range(len(self._coordinator.rows))}
        answers = self._coordinator.ask(messages, insist=False)
        return tuple(one for answer in answers.values() for one in answer)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment: to one value each where `values` is a list or tuple."""
        check_open(self, "set_attr")
        each = read_values(values, self.num_envs)
        messages = {w: (Slots.set_attr, name, each[rows]) for w, rows in enumerate(self._coordinator.rows)}
        self._coordinator.ask(messages, insist=False)
        self._attributes[name] = each

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers; Gymnasium's `close` calls this once."""
        if self._finalizer is not None:
            self._finalizer()

    def _start(self, rows: RowIndex, messages: dict[int, Message]) -> tuple[Any, dict[str, Any]]:
        """Have workers start episodes in some environments; whatever these were at is dropped."""
        self._coordinator.settle(list(messages))
        self._table.mark(NEW, rows)
        self._table.forget(rows)
        self._table.arrays.episode[rows] = 0
        infos = self._coordinator.ask(messages, insist=True)
        for w, message in messages.items():
            self._table.note(message[1], infos[w])
        self._latest = self._table.everyone
        return self._table.start(rows)

    def _revive(self, w: int) -> list[Message]:
        """What a worker is told that replaces another: attributes, and new episodes on seeds of their own."""
        rows, table = self._coordinator.rows[w], self._table
        messages: list[Message] = [(Slots.set_attr, name, each[rows]) for name, each in self._attributes.items()]
        if self._numbers is not None:
            messages.append((Slots.renumber, self._numbers[rows]))
        ids = np.arange(self.num_envs)[rows]
        ids = ids[table.flag[ids] != NEW[0]]
        if self.autoreset is AutoresetMode.SAME_STEP and len(ids):
            episodes = table.arrays.episode[ids].tolist()
            if self._key is not None:
                messages.append((Slots.begin, ids, self._key, episodes))
            else:
                given = [(self._seeds[i], i, episode) for i, episode in zip(ids.tolist(), episodes, strict=True)]
                seeds = [None if seed is None else keyed_seed(seed, i, episode) for seed, i, episode in given]
                messages.append((Slots.reset, ids, seeds, {}))
        return messages
