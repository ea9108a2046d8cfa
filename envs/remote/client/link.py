"""A client's side of a session: orders go out, outcomes come in, and what is lost on the way is made good.

Where a stream breaks, the next one goes on at the same session, and nothing is stepped twice. Where the session is
gone, because its server is, another is opened, there or elsewhere, and comes to the same place by the same orders.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from paddock.envs.remote.client.journal import Order, OrderJournal, find_other
from paddock.envs.remote.client.place import Lost, MessageRefused, Place, Wire
from paddock.envs.remote.client.session import ClientSession
from paddock.envs.remote.frames import QUIET, Frame, Kind, join
from paddock.envs.remote.offer import Offer
from paddock.envs.vector.contract import EnvError, VectorMisuse
from paddock.envs.vector.multiprocess.interrupts import Uninterrupted

log = logging.getLogger(__name__)

MOST_REFUSALS = 10  # in a row; a message that was garbled on the way is taken sooner
MOST_IN_VAIN = 10  # servers that take over, one after another, and are lost before they have answered


class Link:
    """N environments at a server, wherever that is.

    Attributes:
        rows: which of the vector's environments they are.
        restarts: servers that took the place of another.
        reconnects: streams that took the place of another.
        replayed: orders done again after a restart.
    """

    def __init__(
        self,
        place: Place,
        at: int,
        offer: Offer,
        rows: slice,
        autoreset: str,
        journal: OrderJournal,
        known: Callable[[], tuple[Any, NDArray[Any], NDArray[Any]]],
        replay: bool,
        claim: Mapping[str, Any],
        seats: int,
    ) -> None:
        """Open a session.

        Args:
            at: which address is tried first.
            known: observations, and returns and lengths of running episodes, [N], to compare a replay with.
            replay: whether another server may go on where one was lost.
            claim: what else is asked for: how many groups, and which seats of which joint world, or arguments other
                than the server's. Without such, all seats, of worlds of its own.
            seats: rows of a world.
        """
        self.rows, self.offer, self.journal = rows, offer, journal
        self.restarts = self.reconnects = self.replayed = 0
        self._closed, self._refusals, self._in_vain = False, 0, 0
        self._waits = "world" in claim  # for others, before a server answers
        self._place, self._known, self._may_replay, self._seats = place, known, replay, seats
        self._addresses = [*place.addresses[at:], *place.addresses[:at]]
        asked = {"environment": offer.environment["id"], "num_envs": self.num_envs // seats, "autoreset": autoreset}
        self._session = ClientSession(place, self._addresses[0], asked | dict(claim))
        self._pending: dict[int, Order] = {}
        self._unsent: list[Order] = []  # of these, in their order
        self._seq = 0
        self._pid = os.getpid()
        try:
            place.try_for(lambda number: self._session.open(), "no session could be opened")
        except BaseException:
            self.close()
            raise

    @property
    def num_envs(self) -> int:
        """N, rows of the session."""
        return self.rows.stop - self.rows.start

    @property
    def _wire(self) -> Wire | None:
        return self._session.wire

    @property
    def _at(self) -> str:
        """The address of the server."""
        return self._session.address

    def order(self, order: Order) -> None:
        """Take an order, which goes out with the next `flush`; its outcome is received later."""
        self._check_process()
        self._number(order)
        self._unsent.append(order)

    def flush(self) -> None:
        """Send what was ordered; where Ctrl-C ends the wait for room, the next stream has it."""
        assert self._wire is not None
        while self._unsent:
            self._wire.send(self._unsent[0].frame)
            del self._unsent[0]

    @property
    def due(self) -> int:
        """How many outcomes are due."""
        return len(self._pending)

    def receive(self) -> tuple[Order, Frame] | Lost:
        """Return the next outcome and what it is of, or how the stream was lost; see `recover`.

        Raises:
            ConfigError: the server refuses.
        """
        self._check_process()
        self.flush()  # what Ctrl-C kept from going out
        while True:
            frame = self._session.next()
            if isinstance(frame, Lost):
                return frame
            order = self._pending.pop(frame.header[0], None)
            if order is not None:
                order.answered, order.frame = True, b""  # the journal keeps its actions
                self._refusals = self._in_vain = 0
                return order, frame

    @property
    def is_lost(self) -> bool:
        """Return whether its stream has ended."""
        return self._wire is not None and self._wire.is_over

    def close(self) -> None:
        """Close the session, and tell the server if it is there."""
        self._closed = True
        self._session.close()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise VectorMisuse(
                "a remote vector environment was made before this process was forked; make it where it is used"
            )

    def _number(self, order: Order, flags: int = 0) -> None:
        """Give an order the next number, and its bytes."""
        seq = self._seq + 1
        acked = min(self._pending, default=seq) - 1
        arrays = [] if order.actions is None else [order.actions]
        order.frame = join(order.kind, [seq, acked, *order.header], arrays, flags)
        order.seq = self._seq = seq
        if not flags:
            self._pending[order.seq] = order

    def recover(self, error: Lost) -> None:
        """Get a stream again: of the same session, or of another that has come to the same place.

        Ctrl-C leaves it without one, as it was before.

        Raises:
            EnvError: no server goes on there, or none takes what is to be sent.
        """
        self._session.hang_up()
        self._refusals = self._refusals + 1 if isinstance(error, MessageRefused) else 0
        if self._refusals > MOST_REFUSALS:
            raise EnvError(f"{error}, {self._refusals} times in a row; it takes no such message as is to be sent")
        if self._in_vain >= MOST_IN_VAIN and not self._waits:
            said = f"{error}, as were {self._in_vain} before it at the same step"
            raise EnvError(f"{said}; where an environment ends its process, serve vec=multiprocess")
        log.warning("vec=remote: %s; another stream is tried for, for %g s", error, self._place.wait_s)
        why = [error]

        def attempt(number: int) -> None:
            if self._closed:
                raise EnvError(f"{error}, and it was closed")
            if not self._session.is_gone:
                try:
                    accepted = self._session.attach(min(self._pending, default=self._seq + 1) - 1)
                except Lost as lost:
                    why[0] = lost
                    if number < 2 and self._may_replay:  # else elsewhere
                        raise
                    accepted = -1
                if accepted is not None and accepted >= 0:
                    self.reconnects += 1
                    self._unsent = [order for order in self._pending.values() if order.seq > accepted]
                    self.flush()
                    return
                if accepted is None:
                    why[0] = Lost(f"{self._at} has lost the session")
            self._check_replay(why[0])
            others = [one for one in self._addresses if one != self._at]
            here = [self._at] if self._session.is_gone else []
            for address in [*here, *others]:
                try:
                    self._restart(address)
                    return
                except Lost as lost:
                    why[0] = lost
            raise why[0]

        with Uninterrupted():
            try:
                self._place.try_for(attempt, "it was lost")
            except BaseException:
                self._session.hang_up()  # or an answer would be waited for in the midst of coming back
                raise
        log.warning("vec=remote: going on at %s where it was", self._at)

    def _check_replay(self, error: Lost) -> None:
        if not self._may_replay and self._session.is_gone:
            raise EnvError(f"{error}, and vec.lost=fail; go on by the same command with the run's run.dir=")
        if self.journal.full:
            if not self._session.is_gone:  # which may be reached again
                raise error
            raise EnvError(f"{error}, and its episodes are longer than vec.journal_mb holds; raise it")

    def _restart(self, address: str) -> None:
        """Open another session, bring its environments to where they were, and ask again for what is due."""
        if not self._may_replay:
            raise Lost(f"{self._at} cannot be reached")
        self._place.describe(address, self.offer)
        pending = list(self._pending.values())
        self._pending.clear()
        before, self._seq = (self._session, self._seq), 0
        opened = self._session = self._session.elsewhere(address)
        try:
            if self._closed:  # by another thread, which has not seen this session
                raise EnvError(f"{address}: the session was closed")
            opened.open()
            with opened.wait():
                self._replay(pending)
        except BaseException:
            self._pending = {order.seq: order for order in pending}
            self._session, self._seq = before
            opened.close()  # or its environments would be in use until the end of its lease
            raise
        self.restarts += 1
        self._in_vain += 1
        for order in pending:
            if order.kind is Kind.RESET:  # or others might replay another one on its seed
                order.back = self.journal.next_episode
            self._number(order)
        self._unsent = [*pending]
        self.flush()

    def _replay(self, pending: Sequence[Order]) -> None:
        """Do the journal's orders, and compare where they lead to.

        Args:
            pending: what is asked for next; where that begins an episode, there is nothing to compare.

        Raises:
            EnvError: elsewhere.
        """
        assert self._wire is not None
        led = False  # or there is nothing to compare
        anew = any(order.kind in (Kind.RESET, Kind.BEGIN) for order in pending)
        for order in self.journal.orders(self._session.running, anew):
            self._number(order, QUIET | order.flags)
            self._wire.send(order.frame)
            self.replayed += 1
            led = led or order.kind is not Kind.SIGNAL
        if not led:
            return
        state = Order(Kind.STATE, slice(0, self.num_envs), [])
        self._number(state)
        self._wire.send(state.frame)
        frame = self._wire.receive()
        del self._pending[state.seq]
        if frame.kind is Kind.FAILED:
            raise EnvError(str(frame.header[2]))
        if frame.kind is not Kind.OUTCOME:
            raise Lost(f"{self._at} is going")
        compared = self.journal.started
        for order in pending:
            compared[order.begins(self.num_envs, self._seats)] = False
        other = find_other(frame, self._known(), compared)
        if other is not None:
            raise EnvError(
                f"environment {self.rows.start + other} ({self.offer.environment['id']}) did not come back to the same "
                "observation by its actions; set env.fresh=true at the server"
            )
