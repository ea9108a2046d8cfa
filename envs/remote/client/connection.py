"""A client's session at a server: it sends orders, receives outcomes and recovers from lost connections and servers.

Where a stream breaks, the next one continues the same session, and nothing is stepped twice. Where the session is gone,
because its server is, another is opened, there or elsewhere, and comes to the same place by the same orders.
"""

import contextlib
import logging
import secrets
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from paddock.envs.errors import ConfigError
from paddock.envs.remote.client.endpoint import CALL_S, Channel, ConnectionLost, Endpoint
from paddock.envs.remote.client.journal import Order, OrderJournal, find_difference
from paddock.envs.remote.frames import QUIET, Frame, Kind, encode_frame
from paddock.envs.remote.offer import Offer
from paddock.envs.remote.security import find_address
from paddock.envs.vector.contract import EnvError

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0  # between heartbeats, at most
OPEN_S = 300.0  # that a server may take to build environments
MAX_FAILED_RESTARTS = 10  # servers that take over, one after another, and are lost before they have answered


class Connection:
    """N environments at a server, wherever that is.

    Attributes:
        rows: which of the vector's environments they are.
        restarts: servers that took the place of another.
        reconnects: streams that took the place of another.
        channel: the stream that is attached, or was last; None: there was none.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        at: int,
        offer: Offer,
        rows: slice,
        autoreset: str,
        journal: OrderJournal,
        known: Sequence[NDArray[Any]],
        replay: bool,
        claim: Mapping[str, Any],
        seats: int,
    ) -> None:
        """Open a session.

        Args:
            at: which address is tried first.
            known: observations, and returns and lengths of running episodes, [N] each, to compare a replay with; views.
            replay: whether another server may replace a lost one.
            claim: what else is asked for: the number of groups, and which agents of which joint environment, or
                arguments other than the server's.
            seats: rows of an environment.
        """
        self.rows, self.offer, self.journal = rows, offer, journal
        self.restarts = self.reconnects = 0
        self.num_envs = rows.stop - rows.start
        self.channel: Channel | None = None
        self._endpoint, self._known, self._may_replay, self._seats = endpoint, known, replay, seats
        self._addresses = [*endpoint.addresses[at:], *endpoint.addresses[:at]]
        self._address = self._addresses[0]
        asked = {"environment": offer.environment["id"], "num_envs": self.num_envs // seats, "autoreset": autoreset}
        self._asked = asked | {"client": secrets.token_hex(8)} | dict(claim)
        self._joint: str | None = claim.get("world")
        self._session: dict[str, Any] | None = None  # what Open answered; None: there is none
        self._at = self._address  # resolved: a file may name another server by now
        self._pending: dict[int, Order] = {}
        self._unsent: list[Order] = []  # of these, in their order
        self._seq = self._failed_restarts = 0
        self._channels: list[Channel] = []
        self._closed = False
        weakref.finalize(self, _close_all, self._channels)  # else heartbeats of a vector that was never closed continue
        try:
            endpoint.retry(lambda number: self._open(self._address), "no session could be opened")
        except BaseException:
            self.close()
            raise

    def order(self, order: Order) -> None:
        """Take an order, which goes out with the next `flush`; its outcome is received later."""
        self._number(order)
        self._unsent.append(order)

    def flush(self) -> None:
        """Send the orders that were taken."""
        assert self.channel is not None
        while self._unsent:
            self.channel.send(self._unsent.pop(0).frame)

    @property
    def num_pending(self) -> int:
        """How many outcomes are due."""
        return len(self._pending)

    def receive(self) -> tuple[Order, Frame] | ConnectionLost:
        """Return the next outcome and its order, or how the stream was lost; see `recover`.

        Raises:
            ConfigError: the server refuses.
        """
        assert self.channel is not None
        while True:
            try:
                frame = self.channel.receive()
            except ConnectionLost as error:
                return error
            if frame.kind is Kind.GOODBYE:
                return ConnectionLost(f"{self._address} is shutting down")
            if frame.header[0] == 0:
                self._session = None
                return ConnectionLost(f"{self._address}: {frame.header[2]}")
            order = self._pending.pop(frame.header[0], None)
            if order is not None:
                order.answered, order.frame = True, b""  # the journal keeps its actions
                self._failed_restarts = 0
                return order, frame

    def recover(self, error: ConnectionLost) -> None:
        """Get a stream again: of the same session, or of another that has come to the same place.

        Raises:
            EnvError: no server could be reached, or one could not come to where the lost one was.
            ConfigError: the server refuses.
        """
        self._close_stream()
        if self._failed_restarts >= MAX_FAILED_RESTARTS:
            said = f"{error}, as were {self._failed_restarts} before it at the same step"
            raise EnvError(f"{said}; where an environment ends its process, serve vec=multiprocess")
        log.warning("vec=remote: %s; reconnecting for %g s", error, self._endpoint.wait_s)
        reason = [error]

        def attempt(number: int) -> None:
            if self._closed:
                raise EnvError(f"{error}, and it was closed")
            if self._session is not None:
                try:
                    if self._reattach():
                        return
                    reason[0] = ConnectionLost(f"{self._address} has lost the session")
                except ConnectionLost as lost:
                    reason[0] = lost
                    if number < 2 and self._may_replay:  # else elsewhere
                        raise
            self._check_replay(reason[0])
            others = [one for one in self._addresses if one != self._address]
            here = [self._address] if self._session is None else []
            for address in [*here, *others]:
                try:
                    self._restart(address)
                    return
                except ConnectionLost as lost:
                    reason[0] = lost
            raise reason[0]

        try:
            self._endpoint.retry(attempt, "it was lost")
        except BaseException:
            self._close_stream()  # or an answer would be waited for in the midst of coming back
            raise
        log.warning("vec=remote: resuming at %s", self._address)

    def close(self) -> None:
        """Close the session, and tell the server if it is there."""
        self._closed = True
        self._abandon()

    def _abandon(self) -> None:
        """End the session, and tell the server if it is there."""
        self._close_stream()
        if (session := self._session) is not None:
            with contextlib.suppress(ConnectionLost, ConfigError):
                request = {key: session[key] for key in ("session", "secret")}
                self._endpoint.call(self._at, "Close", request, CALL_S)
        self._session = None

    def _open(self, address: str) -> None:
        """Open a session with new environments."""
        at = find_address(address) or address
        opened = self._endpoint.call(at, "Open", self._asked, OPEN_S)  # a lost answer costs its room for a lease
        self._address, self._at, self._session = address, at, opened
        if self._attach(0) is None:
            raise ConnectionLost(f"{address} has lost the session")

    def _attach(self, received: int) -> int | None:
        """Begin a stream; returns the number of the last order the server has, None where the session is gone.

        Args:
            received: the number of the order up to which all outcomes have come.
        """
        session = self._session
        if session is None:
            raise EnvError(f"the session at {self._address} was closed by another thread")
        self._close_stream()
        heartbeat_s = min(HEARTBEAT_S, session["lease_s"] / 4)
        channel = self.channel = Channel(self._endpoint, self._address, heartbeat_s, self._joint)
        self._channels.append(channel)
        channel.send(encode_frame(Kind.ATTACH, [session["session"], session["secret"], received]))
        frame = channel.receive()
        if frame.kind is Kind.ATTACHED:
            return int(frame.header[0])
        if frame.kind is Kind.FAILED:
            self._session = None
            return None
        raise ConnectionLost(f"{self._address} is shutting down")

    def _reattach(self) -> bool:
        """Go on at the same session; returns whether it is there."""
        accepted = self._attach(min(self._pending, default=self._seq + 1) - 1)
        if accepted is None:
            return False
        self.reconnects += 1
        self._unsent = [order for order in self._pending.values() if order.seq > accepted]
        self.flush()
        return True

    def _close_stream(self) -> None:
        """End the stream if there is one, and keep the session."""
        _close_all(self._channels)

    def _number(self, order: Order, flags: int = 0) -> None:
        """Give an order the next number, and its bytes."""
        seq = self._seq + 1
        acked = min(self._pending, default=seq) - 1
        arrays = [] if order.actions is None else [order.actions]
        order.frame = encode_frame(order.kind, [seq, acked, *order.header], arrays, flags)
        order.seq = self._seq = seq
        if not flags:
            self._pending[seq] = order

    def _check_replay(self, error: ConnectionLost) -> None:
        if not self._may_replay and self._session is None:
            raise EnvError(f"{error}, and vec.lost=fail; go on by the same command with the run's run.dir=")
        if not self._may_replay or (self.journal.full and self._session is not None):  # which may be reached again
            raise error
        if self.journal.full:
            raise EnvError(f"{error}, and its episodes are longer than vec.journal_mb holds; raise it")

    def _restart(self, address: str) -> None:
        """Open another session, replay the journal there, and repeat the pending orders."""
        self._endpoint.describe(address, self.offer)
        pending = list(self._pending.values())
        before = self._session, self._address, self._at, self._seq
        self._pending, self._seq = {}, 0
        try:
            self._open(address)
            self._replay(pending)
        except BaseException:
            self._abandon()  # or its environments would be in use until the end of its lease
            self._pending = {order.seq: order for order in pending}
            self._session, self._address, self._at, self._seq = before
            raise
        self.restarts += 1
        self._failed_restarts += 0 if self._joint else 1
        for order in pending:
            self._number(order)
        self._unsent = pending
        self.flush()

    def _replay(self, pending: Sequence[Order]) -> None:
        """Do the journal's orders, and compare where they lead to.

        Args:
            pending: the orders that follow; where they begin all episodes, signals alone are replayed.

        Raises:
            EnvError: they lead elsewhere.
        """
        assert self.channel is not None
        compared = self.journal.started
        for order in pending:
            compared[order.begins(self.num_envs, self._seats)] = False
        led = False
        for order in self.journal.replay(anew=not compared.any()):
            self._number(order, QUIET)
            self.channel.send(order.frame)
            led = led or order.kind is not Kind.SIGNAL
        if not led:
            return
        state = Order(Kind.STATE, slice(0, self.num_envs), [])
        self._number(state)
        self.channel.send(state.frame)
        frame = self.channel.receive()
        del self._pending[state.seq]
        if frame.kind is Kind.FAILED:
            raise EnvError(str(frame.header[2]))
        if frame.kind is not Kind.OUTCOME:
            raise ConnectionLost(f"{self._address} is shutting down")
        other = find_difference(frame, self._known, compared)
        if other is not None:
            raise EnvError(
                f"environment {self.rows.start + other} ({self.offer.environment['id']}) did not come back to the same "
                "observation by its actions; set env.fresh=true at the server"
            )


def _close_all(channels: list[Channel]) -> None:
    while channels:
        channels.pop().close()
