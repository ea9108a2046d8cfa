"""What a client keeps of running episodes, so that another server can come to where they are.

Each environment's episode begins at an order (a reset on a seed, or `begin`) and goes on by the actions since; the
journal is the orders themselves, from the earliest such beginning on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.remote.frames import CHOSEN, Cursor, Frame, JointEpisode, Kind, say_rows
from paddock.envs.remote.values import encode
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.storage import RowIndex

NEVER = np.iinfo(np.int64).max  # position of environments that have no episode
TRIM = 256  # orders between looks for those that nobody needs any more


@dataclass
class Order:
    """Something that a client asks for.

    Attributes:
        rows: of the session's environments.
        arguments: what stands in the header beside its number; of a reset seeds and options.
        actions: of a turn, [n, ...].
        position: in the journal.
        seq: its number in the session; 0 before it has one.
        frame: as it was sent.
        answered: whether its outcome has come.
        flags: of its frame, where it is done again.
        back: where in which episode of a joint world it led, of those that begin one; of a signal, with which step or
            reset it was given.
    """

    kind: Kind
    rows: RowIndex
    arguments: list[Any]
    actions: NDArray[Any] | None = None
    position: int = 0
    seq: int = 0
    frame: bytes = b""
    answered: bool = False
    flags: int = 0
    back: JointEpisode | None = None

    @property
    def header(self) -> list[Any]:
        """What stands in the header behind the numbers."""
        rows = [say_rows(self.rows)] if self.kind in (Kind.RESET, Kind.TURN) else []
        back = [] if self.kind in (Kind.TURN, Kind.STATE) else [None if self.back is None else self.back.say()]
        return [*rows, *self.arguments, *back]

    @property
    def size(self) -> int:
        """Bytes that it takes in a journal, about."""
        said = len(encode(self.arguments)) if self.kind is Kind.SIGNAL else 0
        return 200 + said + (0 if self.actions is None else self.actions.nbytes)

    def begins(self, num_envs: int, seats: int) -> NDArray[np.intp]:
        """Return the rows of N whose episodes begin with it, whatever came before."""
        rows = np.arange(num_envs)[self.rows]
        if self.kind is Kind.RESET:
            return rows[np.repeat([seed is not None for seed in self.arguments[0]], seats)]
        return rows if self.kind is Kind.BEGIN else rows[:0]


class OrderJournal:
    """The orders that lead to where N environments are, or the N rows of worlds with so many seats.

    Attributes:
        full: whether they are more than may be kept, until all environments begin anew.
    """

    def __init__(self, num_envs: int, most_bytes: float, seats: int = 1) -> None:
        self._orders: list[Order] = []
        self._first = 0  # position of the first of them
        self._signals: list[Order] = []  # all of them, as environments may keep what they were told
        self._origin = np.full(num_envs, NEVER, np.int64)  # [N], the order that begins the running episode
        self._seats = seats
        self._begun: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None  # key, worlds' episodes and numbers
        self._keyed = False  # whether episodes that end are followed by keyed ones
        self._episode: JointEpisode | None = None  # of a joint world, which runs there, and where in it this client is
        self._entered: JointEpisode | None = None  # where in it the client was first
        self._placed = 0  # signals of which that is known with which step or reset they were given
        self._unsure = False  # whether it is not known which signals were given
        self._since = self._asked = 0  # positions from which on orders come after that, and after what was done last
        self._bytes, self._most = 0, most_bytes
        self._signal_bytes = 0  # of these
        self.full = False

    @property
    def started(self) -> NDArray[np.bool_]:
        """Which environments have an episode, [N]."""
        return self._origin != NEVER

    def begin(self, key: int, episodes: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Note that all environments begin keyed episodes."""
        self._begin_anew(self._first + len(self._orders) + 1)  # signals before it stand before all that follows
        self._begun, self._keyed = (key, episodes.copy(), numbers), True
        self._origin[:] = self._first

    def note(self, order: Order) -> None:
        """Note a reset or a turn."""
        order.position = self._first + len(self._orders)
        if order.kind is Kind.RESET:
            self._keyed = False
            begun = order.begins(len(self._origin), self._seats)
            self._origin[begun] = order.position
            if len(begun) == len(self._origin):
                self._begin_anew(order.position)
        if order.kind is Kind.SIGNAL and self._signal_bytes <= self._most:  # full or not, as no episode ends them
            self._signals.append(order)
            self._bytes += order.size
            self._signal_bytes += order.size
        if self.full or order.kind is Kind.SIGNAL:
            return
        self._orders.append(order)
        self._bytes += order.size
        if len(self._orders) % TRIM == 0 or self._bytes > self._most:
            self._trim()

    def end(self, ids: NDArray[np.intp], order: Order) -> None:
        """Note that a turn ended the episodes of these rows, all of a world, and others began."""
        if self._keyed and self._begun is not None:
            self._origin[ids] = order.position + 1
            self._begun[1][ids[:: self._seats] // self._seats] += 1

    def choose(self, order: Order, seed: int) -> None:
        """Note the seed of the episode that a reset of all began, which named none."""
        order.arguments[0], order.flags = [seed], CHOSEN
        self.note(order)

    def tell(self, order: Order, episode: JointEpisode | None) -> None:
        """Note that an order of a joint world was done.

        Args:
            episode: that began with it, and where that is; None: it was a step of the running one.
        """
        self._asked = self._first if order.kind is Kind.BEGIN else order.position + 1
        began, self._episode = self._episode if order.kind is Kind.TURN else episode, episode
        if began is not None:
            done = replace(began, step=began.step + 1 if order.kind is Kind.TURN else 0)
            self._place_signals(done)
            self._episode = episode or done
        if episode is not None:
            self._entered, self._since = episode, self._asked
        if order.kind is Kind.RESET:
            order.back = episode
            self._origin[self._origin == NEVER] = order.position  # where others had begun

    def _place_signals(self, place: JointEpisode) -> None:
        """Note with which step or reset those signals were given that came before it."""
        while self._placed < len(self._signals) and self._signals[self._placed].position < self._asked:
            self._signals[self._placed].back = place
            self._placed += 1

    def doubt_signals(self) -> None:
        """Note that a joint world failed, and may have been given some signals that came before, and not others."""
        self._unsure = self._unsure or any(one.answered for one in self._signals[self._placed :])

    @property
    def next_episode(self) -> JointEpisode | None:
        """The episode of a joint world that a reset begins; None: it is not known which runs."""
        mine = self._episode
        return None if mine is None else JointEpisode(mine.world, mine.number + 1, signals=None)

    def drop(self, rows: RowIndex) -> None:
        """Note that environments have no episode any more."""
        self._origin[rows] = NEVER
        self._episode = None

    def orders(self, running: JointEpisode | None = None, anew: bool = False) -> Iterator[Order]:
        """Return the answered orders that lead to where the environments are, each with the rows that need it.

        Args:
            running: the episode of a joint world to which they are to lead; None: it has none.
            anew: whether an episode is to begin then.

        Raises:
            EnvError: it is not known what led there.
        """
        mine = self._episode
        if running is not None and mine is not None and running.world == mine.world and not self._keyed:
            if running.same(mine):
                yield from self._lead_back()
                return
            if anew:
                return  # what is to begin has begun
        if self._unsure and running is None:
            said = "had signals of this client to take where it failed, and it is not known which it took"
            raise EnvError(f"a joint world {said}, so it cannot be brought to where it was; begin with clients anew")
        yield from self._lead_anew()

    def _lead_back(self) -> Iterator[Order]:
        """Return those that lead to where a client was in the running episode of a joint world."""
        everyone = slice(0, len(self._origin))
        # What leads there is not kept any more where another is to begin on a seed.
        kept = self._first <= self._since
        entered, since = (self._entered, self._since) if kept else (self._episode, self._asked)
        yield Order(Kind.RESET, everyone, [[None], {}], back=entered)
        for order in self._merge(since):
            yield Order(order.kind, order.rows, order.arguments, order.actions)

    def _merge(self, since: int) -> Iterator[Order]:
        """Return the answered orders and signals from a position on."""
        signals, orders = (
            [one for one in these if one.answered and one.position >= since] for these in (self._signals, self._orders)
        )
        # Of the same position, a signal came first.
        return merge(signals, orders, key=lambda one: (one.position, one.kind is not Kind.SIGNAL))

    def _lead_anew(self) -> Iterator[Order]:
        """Return those that lead there from the beginning."""
        before = int(self._origin.min())
        early = [one for one in self._signals if one.answered and one.position < before]
        yield from (Order(one.kind, one.rows, one.arguments, back=one.back) for one in early)
        if self._begun is not None:
            key, episodes, numbers = self._begun
            back = replace(self._episode, step=0) if self._keyed and self._episode is not None else None
            yield Order(Kind.BEGIN, slice(0, len(self._origin)), [key, episodes.copy(), numbers], back=back)
        keyed = self._begun is not None
        for order in self._merge(before):
            if order.kind is Kind.SIGNAL:
                yield Order(order.kind, order.rows, order.arguments, back=order.back)
                continue
            needed = self._origin[order.rows] <= order.position
            if order.kind is Kind.RESET and keyed:
                needed, keyed = needed | (not needed.any()), False  # by it the keys of all are over, not of its rows
            if needed.all():
                yield replace(order, position=0, seq=0, frame=b"", answered=False)
            elif needed.any():
                rows = np.arange(len(self._origin))[order.rows][needed]
                if order.actions is not None:
                    yield Order(order.kind, rows, [], order.actions[needed])
                else:
                    seeds: Sequence[int | None] = order.arguments[0]
                    chosen = [seed for seed, need in zip(seeds, needed[:: self._seats], strict=True) if need]
                    yield Order(order.kind, rows, [chosen, *order.arguments[1:]])

    def _begin_anew(self, first: int) -> None:
        """Let go of all orders, as those from this position on lead everywhere; but not of signals."""
        self._orders.clear()
        self._first, self._bytes = first, self._signal_bytes
        self.full = self._signal_bytes > self._most

    def _trim(self) -> None:
        """Drop orders before all beginnings; all of them where they are more than may be kept."""
        count = int(min(self._origin.min(), self._first + len(self._orders))) - self._first
        self._bytes -= sum(one.size for one in self._orders[:count])
        del self._orders[:count]
        self._first += count
        if self._bytes > self._most:
            self._first += len(self._orders)
            self._orders.clear()
            self._bytes, self.full = 0, True


def find_other(frame: Frame, known: Sequence[NDArray[Any]], compared: NDArray[np.bool_]) -> int | None:
    """Return the first compared environment that is elsewhere after a replay than it was before; None if none is.

    Args:
        frame: where the environments are now: arrays [N, ...] one after another.
        known: the same arrays as they were before.
        compared: [N].
    """
    cursor = Cursor(frame.body)
    for array in known:
        told = cursor.take(array.dtype, *array.shape)
        same = (_bytes_of(told) == _bytes_of(array)).all(axis=1) | ~compared
        if not same.all():
            return int(np.flatnonzero(~same)[0])
    return None


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.frombuffer(array.tobytes(), np.uint8).reshape(len(array), -1)
