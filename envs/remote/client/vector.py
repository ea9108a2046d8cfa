"""Environments at servers, behind the interface that those of this process have."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import SystemRandom
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.remote.client.apart import CallsApart
from paddock.envs.remote.client.journal import Order, OrderJournal
from paddock.envs.remote.client.link import Link
from paddock.envs.remote.client.outcomes import Outcomes
from paddock.envs.remote.client.place import Lost, Place
from paddock.envs.remote.frames import MOST_OPTIONS, Kind, count_rows, shift_rows
from paddock.envs.remote.values import Unsayable, settle
from paddock.envs.remote.view import Everybody
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import (
    Batch,
    EnvError,
    Rows,
    VectorEnv,
    VectorMisuse,
    check_open,
    describe,
    read_episodes,
    read_mask,
    read_seeds,
)
from paddock.envs.vector.multiprocess.interrupts import Uninterrupted
from paddock.envs.vector.storage import Layouts, RowIndex, numbers
from paddock.envs.vector.table import NEW, SENT, Arrays, Lives, Table, worlds_of


class RemoteVectorEnv(VectorEnv):
    """N environments at one server, or in equal parts at several; of worlds, their rows."""

    _links: list[Link]

    def __init__(
        self,
        spec: EnvSpec | None,
        num_envs: int,
        place: Place,
        *,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        packed: bool = False,
        replay: bool = True,
        journal_mb: float = 256.0,
        worlds: Sequence[str] | None = None,
        agents: Sequence[str] | None = None,
        groups: int = 1,
    ) -> None:
        """Open a session at each server.

        Args:
            spec: what is to be served; None: whatever is.
            num_envs: how many environments, or worlds.
            packed: whether observations come as rows; see `Vec.make`.
            replay: whether another server may go on where one was lost.
            journal_mb: megabytes of actions that are kept for that, in all.
            worlds: the names of so many joint worlds, in which other clients have seats; None: worlds of its own.
            agents: whose seats are asked for in them.
            groups: in which environments are stepped, of as many each; a server is told how many it has, if they are
                whole.

        Raises:
            ConfigError: a server refuses, or serves another environment.
            EnvError: a server cannot be reached.
        """
        self._links = []
        offers = place.offers()
        arguments: dict[str, Any] = {}
        if spec is not None:
            offers[0].check_serves(spec, agents, joint=worlds is not None)
            arguments = offers[0].arguments(spec)
        layouts = offers[0].layouts() if agents is None else offers[0].layouts().pick(offers[0].order(agents))
        if spec is not None and "seat_feature" in arguments:
            layouts = Layouts.of_roles(spec.roles)
        shown = offers[0].layouts() if worlds and offers[0].view == "all" else None
        rows_in_all = self.batch_size = num_envs * layouts.seats
        said = SimpleNamespace(metadata=offers[0].metadata, render_mode=None)
        describe(self, said, layouts, rows_in_all, autoreset)
        self._arrays = Arrays.allocate(layouts, rows_in_all, np.zeros)
        if worlds and self._arrays.lives is None:  # one seat, of several that there are
            lives = Lives.allocate(rows_in_all, layouts.seats, np.zeros)
            self._arrays = replace(self._arrays, lives=lives)
        self._table = Table(self._arrays, layouts, autoreset, copy, packed)
        self._outcomes = Outcomes(self._arrays, self._table, layouts, shown, worlds is not None)
        # Each joint world has a session of its own, as it waits for its own clients.
        count = len(offers) if worlds is None else num_envs
        bounds = [num_envs * k // count * layouts.seats for k in range(count + 1)]
        try:
            for k in range(count):
                at, rows = k * len(offers) // count, slice(bounds[k], bounds[k + 1])
                asked = arguments if worlds is None else {"world": worlds[k], "agents": list(layouts.agents)}
                asked = asked | {"groups": count_groups(rows, rows_in_all, groups)}
                if rows.start < rows.stop:
                    journal = OrderJournal(rows.stop - rows.start, journal_mb * 1e6 / count, layouts.seats)
                    known = self._knower(rows)
                    self._links.append(
                        Link(place, at, offers[at], rows, autoreset.name, journal, known, replay, asked, layouts.seats)
                    )
        except BaseException:
            self.close()
            raise
        self._joint, self._keyed = worlds is not None, False  # whether episodes follow by the keys of `begin`
        self._apart = CallsApart(self._links)

    @property
    def everybody(self) -> Everybody | None:
        """What all seats of a joint world were told last, where its server shows them; else None."""
        return self._outcomes.everybody

    @property
    def restarts(self) -> int:  # type: ignore[override]
        """Servers replaced so far."""
        return sum(link.restarts for link in self._links)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes; an int seeds environment i with seed + i, `options["reset_mask"]` ([N] bool) picks some."""
        self._check("reset")
        options, chosen = read_mask(options, self.num_envs)
        try:
            options = settle(options, MOST_OPTIONS)
        except Unsayable as error:
            raise VectorMisuse(f"reset: the options cannot be sent: {error}") from None
        rows = self._table.rows(chosen, "reset")
        seeds = read_seeds(seed, self.worlds)
        waiting = self._table.flags
        for i in numbers(worlds_of(rows, self.seats)):
            if seeds[i] is None and waiting[i * self.seats] == NEW[0] and not self._joint:
                seeds[i] = SystemRandom().randrange(2**31)  # as the environment itself would, but so that it is known
        parts = list(self._split(rows))
        if self._keyed and len(parts) < len(self._links):  # which would go on by their keys, unlike anywhere else
            said = f"reset: of {len(self._links)} servers or worlds {len(parts)} would know that keys of begin are over"
            raise VectorMisuse(f"{said}; reset an environment of each, or all")
        self._settle(rows)
        self._keyed = False
        orders = []
        for link, part in parts:
            mine = shift_rows(part, -link.rows.start)
            own = [seeds[i] for i in numbers(worlds_of(part, self.seats))]
            orders.append((link, Order(Kind.RESET, mine, [own, options])))
        return self._start(rows, orders)

    def begin(self, seed: int, episodes: Sequence[int] | NDArray[np.int64] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `VectorEnv.begin`."""
        self._check("begin")
        first = np.array(read_episodes(episodes, self.worlds), np.int64)
        self._settle(self._table.everyone)
        self._keyed = True
        orders = []
        for link in self._links:
            worlds = slice(link.rows.start // self.seats, link.rows.stop // self.seats)
            own = [int(seed), first[worlds].copy(), np.arange(worlds.start, worlds.stop)]
            orders.append((link, Order(Kind.BEGIN, slice(0, link.num_envs), own)))
        started = self._start(self._table.everyone, orders)
        self._arrays.episode[:] = first
        return started

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        self._check("send")
        rows = self._table.rows(env_ids, "send")
        self._table.accept(actions, rows)
        with Uninterrupted():  # or what is waited for may not have been asked for
            self._table.mark(SENT, rows)
            orders = []
            for link, part in self._split(rows):
                mine = shift_rows(part, -link.rows.start)
                orders.append((link, Order(Kind.TURN, mine, [], self._arrays.action[part].copy())))
            self._ask(orders)

    def recv(self, env_ids: Rows = None) -> Batch:
        """See `VectorEnv.recv`."""
        self._check("recv")
        rows = self._table.outstanding(env_ids)
        for link, part in self._split(rows):
            while SENT in self._table.waiting(part):
                self._receive(link)
            if NEW in self._table.waiting(part):
                raise EnvError(f"environments of {link.offer.environment['id']} have failed; start them anew by reset")
        with self._outcomes.batching:
            return self._table.batch(rows)

    def by_parts(self, call: Callable[[slice], None]) -> None:
        """See `VectorEnv.by_parts`."""
        self._check("by_parts")
        if self._joint:
            self._apart.call([partial(call, link.rows) for link in self._links])
        else:
            super().by_parts(call)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """See `VectorEnv.alive`."""
        return self._table.alive

    def signal(self, key: str, value: Any) -> None:
        """Have every environment's `receive_signal(key, value)` called between this step and the next.

        Raises:
            VectorMisuse: it has none, or the value is no plain data of at most 64 kB.
        """
        self._check("signal")
        value = self._links[0].offer.take_signal(key, value)
        for link in self._links:
            self._ask([(link, order := Order(Kind.SIGNAL, slice(0, link.num_envs), [key, value]))])
            while not order.answered:
                self._receive(link)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Refuse: a server tells nothing of its environments but what a step gives."""
        raise VectorMisuse(f"{name}: environments at a server have no attributes to ask for; choose vec=multiprocess")

    def set_attr(self, name: str, values: Any) -> None:
        """Refuse, as `call` does."""
        self.call(name)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the sessions; Gymnasium's `close` calls this once."""
        for link in self._links:
            link.close()

    def _check(self, verb: str) -> None:
        """Raise VectorMisuse if this was closed; wait for what Ctrl-C or an error of another call left under way."""
        check_open(self, verb)
        if not self._apart.is_here:
            self._apart.wait()

    def _split(self, rows: RowIndex) -> Iterator[tuple[Link, RowIndex]]:
        """Return each server's part of some environments."""
        if len(self._links) == 1:
            yield self._links[0], rows
            return
        for link in self._links:
            if isinstance(rows, slice):
                part: RowIndex = slice(max(rows.start, link.rows.start), min(rows.stop, link.rows.stop))
            else:
                part = rows[(rows >= link.rows.start) & (rows < link.rows.stop)]
            if count_rows(part) > 0:
                yield link, part

    def _start(self, rows: RowIndex, orders: list[tuple[Link, Order]]) -> tuple[Any, dict[str, Any]]:
        """Start episodes in some environments, and wait for them."""
        self._table.mark(NEW, rows)
        self._table.forget(rows)
        self._arrays.episode[worlds_of(rows, self.seats)] = 0
        self._ask(orders)
        for link, order in orders:
            while not order.answered:
                self._receive(link)
        return self._table.start(rows)

    def _ask(self, orders: Sequence[tuple[Link, Order]]) -> None:
        """Send orders, each of which is noted before one goes out: while that waits for room, Ctrl-C may come."""
        with Uninterrupted():
            for link, order in orders:
                link.order(order)  # first: what has no form in bytes leads nowhere
                if order.kind is Kind.BEGIN:
                    link.journal.begin(*order.arguments)
                else:
                    link.journal.note(order)
            for link, _ in orders:
                link.flush()

    def _settle(self, rows: RowIndex) -> None:
        """Wait for what is under way at servers where environments start anew."""
        for link, _ in self._split(rows):
            while due := link.due:
                try:
                    self._receive(link)
                except EnvError:
                    if link.due < due and (link.due or NEW in self._table.waiting(rows)):
                        continue  # they start anew
                    raise

    def _receive(self, link: Link) -> None:
        """Enter the next outcome of a server, or get a stream again that was lost.

        Raises:
            EnvError: an environment raised, or its process died or hung, or no server goes on.
        """
        with Uninterrupted():  # or what has come may be lost
            found = link.receive()
            if not isinstance(found, Lost):
                self._outcomes.enter(link, *found)
                return
        if self._joint and not self._apart.is_here:
            self._apart.recover(link, found)
        else:
            link.recover(found)

    def _knower(self, rows: slice) -> Any:
        arrays = self._arrays
        return lambda: (arrays.observation[rows], arrays.running_return[rows], arrays.running_length[rows])


def count_groups(rows: slice, rows_in_all: int, groups: int) -> int:
    """Return how many of so many groups some rows are; 1 where they are not whole groups, or these are not alike."""
    size, over = divmod(rows_in_all, groups)
    whole = size and not (over or rows.start % size or rows.stop % size)
    return (rows.stop - rows.start) // size if whole else 1
