"""The reference backend: environments stepped one after another in this process."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.making import close_all
from paddock.envs.multiagent.roles import seats_of
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import (
    Batch,
    Episodes,
    Rows,
    Seeds,
    Started,
    VectorEnv,
    check_open,
    describe,
    read_episodes,
    read_values,
)
from paddock.envs.vector.multiagent_slots import slots_of
from paddock.envs.vector.slots import build
from paddock.envs.vector.storage import Layouts, numbers
from paddock.envs.vector.table import NEW, SENT, Arrays, Table, envs_of


class SerialVectorEnv(VectorEnv):
    """N environments stepped in this process by `recv`."""

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        packed: bool = False,
    ) -> None:
        """Build the environments; `autoreset`, `copy` and `packed` are those of `Vec.make`.

        Raises:
            ConfigError: the environment cannot be made, or its spaces have no known size.
        """
        active_env = [0]
        self.envs: list[Any] = build(spec, range(num_envs), active_env)
        try:
            layouts = Layouts.of_seats(spec, seats_of(self.envs[0], spec.id))
            rows = self.batch_size = num_envs * layouts.seats
            describe(self, self.envs[0], layouts, rows, autoreset)
            arrays = Arrays.allocate(layouts, rows, np.zeros)
            self._table = Table(arrays, layouts, autoreset, copy, packed)
            self.alive = self._table.alive
            kind = slots_of(layouts)
            self._slots = kind(spec, self.envs, 0, arrays, layouts, autoreset, active_env)
        except BaseException:
            close_all(self.envs, spec.id)
            raise

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """See `VectorEnv.reset`."""
        check_open(self, "reset")
        rows, seeds, options = self._table.parse_reset(seed, options)
        self._table.drop_infos(rows)
        chosen_seeds = [seeds[i] for i in numbers(envs_of(rows, self.seats))]
        self._table.add_infos(rows, self._slots.reset(rows, chosen_seeds, options))
        return self._table.start(rows)

    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """See `VectorEnv.begin`."""
        check_open(self, "begin")
        rows = self._table.everyone
        self._table.drop_infos(rows)
        self._table.add_infos(rows, self._slots.begin(rows, seed, read_episodes(episodes, self.worlds)))
        return self._table.start(rows)

    def renumber(self, numbers: Sequence[int] | NDArray[np.int64]) -> None:
        """See `VectorEnv.renumber`."""
        self._slots.renumber(read_episodes(numbers, self.worlds))

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        check_open(self, "send")
        rows = self._table.rows(env_ids, "send")
        self._table.put_actions(actions, rows)
        self._table.set_state(SENT, rows)

    def recv(self, env_ids: Rows = None) -> Batch:
        """Step the environments; see `VectorEnv.recv`."""
        check_open(self, "recv")
        rows = self._table.pending(env_ids)
        try:
            self._table.add_infos(rows, self._slots.step(rows))
        except BaseException:  # such as Ctrl-C, after which only some have stepped
            self._table.set_state(NEW, rows)
            raise
        return self._table.batch(rows)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """See `VectorEnv.call`."""
        check_open(self, "call")
        return tuple(self._slots.call(name, args, kwargs))

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment; a list or tuple has one value for each."""
        check_open(self, "set_attr")
        self._slots.set_attr(name, read_values(values, self.worlds))

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment; Gymnasium's `close` calls this once."""
        self._slots.close()
