"""A client's session at a server: sends orders, receives outcomes, and recovers lost streams and servers.

After a broken stream, a new one continues the session, and no step is repeated. After a lost session, a new one at any
server is brought to the same state by replaying the orders.
"""

import contextlib
import logging
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

HEARTBEAT_S = 10.0  # longest interval between heartbeats
OPEN_S = 300.0  # time limit for a server to build environments
MAX_FAILED_RESTARTS = 10  # consecutive servers that are lost before their first answer


class Connection:
    """N environments at a server, which may be replaced by another.

    Attributes:
        rows: the environments' rows in the vector.
        restarts: number of replaced servers.
        reconnects: number of replaced streams.
        channel: the latest stream, if any.
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
        claim: Mapping[str, Any],
        seats: int,
    ) -> None:
        """Open a session, first trying the address of index `at`.

        `known` are views of observations and of returns and lengths of running episodes, [N] each, which verify a
        replay. `claim` are further arguments of Open: groups, agents of a joint environment, constructor arguments.
        """
        self.rows, self.offer, self.journal = rows, offer, journal
        self.restarts = self.reconnects = 0
        self.num_envs = rows.stop - rows.start
        self.channel: Channel | None = None
        self._endpoint, self._known, self._seats = endpoint, known, seats
        self._addresses = [*endpoint.addresses[at:], *endpoint.addresses[:at]]
        self._address = self._addresses[0]
        asked = {"environment": offer.environment["id"], "num_envs": self.num_envs // seats, "autoreset": autoreset}
        self._asked = asked | dict(claim)
        self._joint: str | None = claim.get("world")
        self._session: dict[str, Any] | None = None  # answer of Open; None: no session
        self._at = self._address  # resolved, since a file's address may change
        self._pending: dict[int, Order] = {}
        self._unsent: list[Order] = []  # pending orders not yet sent, in order
        self._seq = self._failed_restarts = 0
        self._channels: list[Channel] = []
        self._closed = False
        weakref.finalize(self, _close_all, self._channels)  # stops the heartbeats of a vector that is never closed
        try:
            endpoint.retry(lambda number: self._open(self._address), "no session could be opened")
        except BaseException:
            self.close()
            raise

    def enqueue(self, order: Order) -> None:
        """Queue an order, which the next `flush` sends; its outcome is received later."""
        self._number(order)
        self._unsent.append(order)

    def flush(self) -> None:
        """Send the queued orders."""
        assert self.channel is not None
        while self._unsent:
            self.channel.send(self._unsent.pop(0).frame)

    @property
    def num_pending(self) -> int:
        """Return the number of orders without an outcome."""
        return len(self._pending)

    def receive(self) -> tuple[Order, Frame] | ConnectionLost:
        """Return an order and its outcome, or the loss of the stream for `recover`; raise ConfigError if refused."""
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
        """Reconnect to the session, or restore its state in a new session.

        Raises:
            EnvError: no server could be reached, or a replay failed.
            ConfigError: the server refuses.
        """
        self._close_stream()
        if self._failed_restarts >= MAX_FAILED_RESTARTS:
            what = f"{error}, as were {self._failed_restarts} servers before it at the same step"
            raise EnvError(f"{what}; if the environment ends its process, start the server with vec=multiprocess")
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
                    if number < 2:  # then try other servers
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
            self._endpoint.retry(attempt, "the session was lost")
        except BaseException:
            self._close_stream()  # an interrupted recovery must not be continued
            raise
        log.warning("vec=remote: resuming at %s", self._address)

    def close(self) -> None:
        """Close the session and notify the server."""
        self._closed = True
        self._abandon()

    def _abandon(self) -> None:
        self._close_stream()
        if (session := self._session) is not None:
            with contextlib.suppress(ConnectionLost, ConfigError):
                request = {key: session[key] for key in ("session", "secret")}
                self._endpoint.call(self._at, "Close", request, CALL_S)
        self._session = None

    def _open(self, address: str) -> None:
        at = find_address(address) or address
        # After a lost answer the environments are in use until the lease ends.
        opened = self._endpoint.call(at, "Open", self._asked, OPEN_S)
        self._address, self._at, self._session = address, at, opened
        if self._attach(0) is None:
            raise ConnectionLost(f"{address} has lost the session")

    def _attach(self, received: int) -> int | None:
        """Open a stream; return the number of the server's last order, or None if the session is lost.

        Args:
            received: number of the last order up to which all outcomes have been received.
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
        """Continue the session; return False if it is lost."""
        accepted = self._attach(min(self._pending, default=self._seq + 1) - 1)
        if accepted is None:
            return False
        self.reconnects += 1
        self._unsent = [order for order in self._pending.values() if order.seq > accepted]
        self.flush()
        return True

    def _close_stream(self) -> None:
        """Close the stream, if any, but keep the session."""
        _close_all(self._channels)

    def _number(self, order: Order, flags: int = 0) -> None:
        """Set an order's number and bytes."""
        seq = self._seq + 1
        acked = min(self._pending, default=seq) - 1
        arrays = [] if order.actions is None else [order.actions]
        order.frame = encode_frame(order.kind, [seq, acked, *order.header], arrays, flags)
        order.seq = self._seq = seq
        if not flags:
            self._pending[seq] = order

    def _check_replay(self, error: ConnectionLost) -> None:
        if self.journal.full and self._session is not None:  # it may become reachable again
            raise error
        if self.journal.full:
            raise EnvError(f"{error}, and its episodes exceed vec.journal_mb; increase it")

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
            self._abandon()  # else its environments would be in use until the lease ends
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
        """Replay the journal and verify the resulting state; raise EnvError if it differs.

        Nothing is replayed if the `pending` orders restart all episodes.
        """
        assert self.channel is not None
        compared = self.journal.started
        for order in pending:
            compared[order.begins(self.num_envs, self._seats)] = False
        if not compared.any():
            return
        for order in self.journal.replay():
            self._number(order, QUIET)
            self.channel.send(order.frame)
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
                f"environment {self.rows.start + other} ({self.offer.environment['id']}) did not return to the same "
                "observation when its actions were replayed; set env.fresh=true at the server"
            )


def _close_all(channels: list[Channel]) -> None:
    while channels:
        channels.pop().close()
