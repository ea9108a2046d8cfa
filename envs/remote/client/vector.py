"""Vector environment at servers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import SystemRandom
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.remote.client.connection import Connection
from paddock.envs.remote.client.endpoint import ConnectionLost, Endpoint
from paddock.envs.remote.client.journal import Order, OrderJournal
from paddock.envs.remote.client.outcomes import Outcomes
from paddock.envs.remote.frames import MAX_OPTIONS, Kind, count_rows, shift_rows
from paddock.envs.remote.values import EncodeError, copy_value
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import (
    Batch,
    EnvError,
    Rows,
    VectorEnv,
    VectorMisuse,
    check_open,
    closes_on_interrupt,
    describe,
    read_episodes,
)
from paddock.envs.vector.storage import RowIndex, numbers
from paddock.envs.vector.table import NEW, SENT, Arrays, Lives, Table, envs_of


class RemoteVectorEnv(VectorEnv):
    """N environments at one server, or evenly distributed over several."""

    _connections: list[Connection]

    def __init__(
        self,
        spec: EnvSpec | None,
        num_envs: int,
        endpoint: Endpoint,
        *,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        packed: bool = False,
        journal_mb: float = 256.0,
        worlds: Sequence[str] | None = None,
        agents: Sequence[str] | None = None,
        groups: int = 1,
    ) -> None:
        """Open a session at each server; arguments not named here are those of `Vec` and `Remote`.

        `spec` is the environment that must be served, or None for any. `worlds` are the names of N joint environments,
        shared with other clients, of which this client has `agents` (None: all).

        Raises:
            ConfigError: a server refuses, or serves another environment.
            EnvError: a server cannot be reached.
        """
        self._connections = []
        offers, joint = endpoint.offers(), worlds is not None
        if spec is not None:
            offers[0].check_serves(spec, agents)
        layouts = offers[0].layouts(agents)
        rows_in_all = self.batch_size = num_envs * layouts.seats
        rendering = SimpleNamespace(metadata=offers[0].metadata, render_mode=None)
        describe(self, rendering, layouts, rows_in_all, autoreset)
        self._arrays = Arrays.allocate(layouts, rows_in_all, np.zeros)
        if joint and self._arrays.lives is None:  # one of several agents
            self._arrays = replace(self._arrays, lives=Lives.allocate(rows_in_all, layouts.seats, np.zeros))
        self._table = Table(self._arrays, layouts, autoreset, copy, packed)
        self.alive = self._table.alive
        self._outcomes = Outcomes(self._arrays, self._table, layouts.seats)
        # Each joint environment has a separate session, since it waits for its own clients.
        count = len(offers) if worlds is None else num_envs
        bounds = [num_envs * k // count * layouts.seats for k in range(count + 1)]
        compared = self._arrays.observation, self._arrays.running_return, self._arrays.running_length
        try:
            for k in range(count):
                at, rows = k * len(offers) // count, slice(bounds[k], bounds[k + 1])
                asked: dict[str, Any] = {"groups": count_groups(rows, rows_in_all, groups)}
                if worlds is not None:
                    asked |= {"world": worlds[k], "agents": list(layouts.agents)}
                if rows.start < rows.stop:
                    journal = OrderJournal(rows.stop - rows.start, journal_mb * 1e6 / count, layouts.seats)
                    known, seats = tuple(array[rows] for array in compared), layouts.seats
                    self._connections.append(
                        Connection(endpoint, at, offers[at], rows, autoreset.name, journal, known, asked, seats)
                    )
        except BaseException:
            self.close()
            raise
        self._joint, self._keyed = joint, False  # keyed: by `begin`

    @property
    def restarts(self) -> int:  # type: ignore[override]
        """Return the number of servers replaced so far."""
        return sum(connection.restarts for connection in self._connections)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See `VectorEnv.reset`."""
        check_open(self, "reset")
        rows, seeds, options = self._table.parse_reset(seed, options)
        try:
            options = copy_value(options, MAX_OPTIONS)
        except EncodeError as error:
            raise VectorMisuse(f"reset: the options cannot be sent: {error}") from None
        waiting = self._table.flags
        for i in numbers(envs_of(rows, self.seats)):
            if seeds[i] is None and waiting[i * self.seats] == NEW[0] and not self._joint:
                seeds[i] = SystemRandom().randrange(2**31)  # chosen here so that it is known
        shares = list(self._split(rows))
        if self._keyed and len(shares) < len(self._connections):  # episodes at the others would stay keyed
            what = f"reset: after begin, it must reach all {len(self._connections)} servers, not {len(shares)}"
            raise VectorMisuse(f"{what}; reset environments of each server")
        self._finish_pending(rows)
        self._keyed = False
        orders = []
        for connection, part in shares:
            own_rows = shift_rows(part, -connection.rows.start)
            own = [seeds[i] for i in numbers(envs_of(part, self.seats))]
            joint = [None, 0, connection.journal.next_seed] if self._joint else None
            orders.append((connection, Order(Kind.RESET, own_rows, [own, options, joint])))
        return self._start(rows, orders)

    def begin(self, seed: int, episodes: Sequence[int] | NDArray[np.int64] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `VectorEnv.begin`."""
        check_open(self, "begin")
        first = np.array(read_episodes(episodes, self.worlds), np.int64)
        self._finish_pending(self._table.everyone)
        self._keyed = True
        orders = []
        for connection in self._connections:
            worlds = slice(connection.rows.start // self.seats, connection.rows.stop // self.seats)
            own = [int(seed), first[worlds].copy(), np.arange(worlds.start, worlds.stop)]
            orders.append((connection, Order(Kind.BEGIN, slice(0, connection.num_envs), own)))
        started = self._start(self._table.everyone, orders)
        self._arrays.episode[:] = first
        return started

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        check_open(self, "send")
        rows = self._table.rows(env_ids, "send")
        self._table.put_actions(actions, rows)
        self._table.set_state(SENT, rows)
        orders = []
        for connection, part in self._split(rows):
            own_rows = shift_rows(part, -connection.rows.start)
            orders.append((connection, Order(Kind.STEP, own_rows, [], self._arrays.action[part].copy())))
        self._order(orders)

    def recv(self, env_ids: Rows = None) -> Batch:
        """See `VectorEnv.recv`."""
        check_open(self, "recv")
        rows = self._table.pending(env_ids)
        for connection, part in self._split(rows):
            while SENT in self._table.states(part):
                self._receive(connection)
            if NEW in self._table.states(part):
                id = connection.offer.environment["id"]
                raise EnvError(f"environments of {id} have failed; reset them")
        return self._table.batch(rows)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the sessions; Gymnasium's `close` calls this once."""
        for connection in self._connections:
            connection.close()

    def _split(self, rows: RowIndex) -> Iterator[tuple[Connection, RowIndex]]:
        """Yield each connection with its share of these rows."""
        if len(self._connections) == 1:
            yield self._connections[0], rows
            return
        for connection in self._connections:
            if isinstance(rows, slice):
                part: RowIndex = slice(max(rows.start, connection.rows.start), min(rows.stop, connection.rows.stop))
            else:
                part = rows[(rows >= connection.rows.start) & (rows < connection.rows.stop)]
            if count_rows(part) > 0:
                yield connection, part

    def _start(self, rows: RowIndex, orders: list[tuple[Connection, Order]]) -> tuple[Any, dict[str, Any]]:
        """Start episodes in these rows, and wait for them."""
        self._table.set_state(NEW, rows)
        self._table.drop_infos(rows)
        self._arrays.episode[envs_of(rows, self.seats)] = 0
        self._order(orders)
        for connection, order in orders:
            while not order.answered:
                self._receive(connection)
        return self._table.start(rows)

    @closes_on_interrupt
    def _order(self, orders: Sequence[tuple[Connection, Order]]) -> None:
        """Record orders in the journals, then send them."""
        for connection, order in orders:
            connection.enqueue(order)  # first: an order that cannot be encoded is not recorded
            if order.kind is Kind.BEGIN:
                connection.journal.begin(*order.arguments)
            else:
                connection.journal.record(order)
        for connection, _ in orders:
            connection.flush()

    def _finish_pending(self, rows: RowIndex) -> None:
        """Wait for pending steps at servers whose environments are about to restart."""
        for connection, _ in self._split(rows):
            while count := connection.num_pending:
                try:
                    self._receive(connection)
                except EnvError:
                    if connection.num_pending < count and (connection.num_pending or NEW in self._table.states(rows)):
                        continue  # they are about to restart
                    raise

    @closes_on_interrupt
    def _receive(self, connection: Connection) -> None:
        """Write the next outcome of a server, or recover a lost stream.

        Clients of joint environments recover all of them in the same order, since each waits for the others.

        Raises:
            EnvError: an environment raised, its process died or hung, or recovery failed.
        """
        found = connection.receive()
        if not isinstance(found, ConnectionLost):
            self._outcomes.enter(connection, *found)
            return
        for one in self._connections if self._joint else [connection]:
            one.recover(found)


def count_groups(rows: slice, rows_in_all: int, groups: int) -> int:
    """Return the number of groups in these rows; 1 unless they are whole groups of equal size."""
    size, over = divmod(rows_in_all, groups)
    whole = size and not (over or rows.start % size or rows.stop % size)
    return (rows.stop - rows.start) // size if whole else 1
