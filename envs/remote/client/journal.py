"""The orders that lead to where a client's environments are, so that another server can come there.

Each environment's episode begins at an order (a reset on a seed, or `begin`) and continues by the actions since; the
journal is the orders themselves, from the earliest such beginning on, and all signals.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.remote.frames import ArrayReader, Frame, Kind, encode_rows
from paddock.envs.remote.values import encode
from paddock.envs.vector.contract import keyed_seed
from paddock.envs.vector.storage import RowIndex

NEVER = np.iinfo(np.int64).max  # position of environments that have no episode
TRIM_EVERY = 256  # orders between removals of those that are no longer needed


@dataclass
class Order:
    """A request of a client to a session.

    Attributes:
        rows: of the session's environments.
        arguments: in the header beside its number: of a reset seeds, options and, in a joint environment, the
            identifier of its episode, the step of it that it leads to, and the seed if no client names one.
        actions: of a step, [n, ...].
        position: in the journal.
        seq: its number in the session; 0 before it has one.
        frame: as it was sent.
        answered: whether its outcome has come.
    """

    kind: Kind
    rows: RowIndex
    arguments: list[Any]
    actions: NDArray[Any] | None = None
    position: int = 0
    seq: int = 0
    frame: bytes = b""
    answered: bool = False

    @property
    def header(self) -> list[Any]:
        """What stands in the header behind the numbers."""
        return [*([encode_rows(self.rows)] if self.kind in (Kind.RESET, Kind.STEP) else []), *self.arguments]

    @property
    def size(self) -> int:
        """Bytes that it takes in a journal, about."""
        given = len(encode(self.arguments)) if self.kind is Kind.SIGNAL else 0
        return 200 + given + (0 if self.actions is None else self.actions.nbytes)

    def begins(self, num_envs: int, seats: int) -> NDArray[np.intp]:
        """Return the rows whose episodes begin with it, whatever came before."""
        rows = np.arange(num_envs)[self.rows]
        if self.kind is Kind.RESET:
            return rows[np.repeat([seed is not None for seed in self.arguments[0]], seats)]
        return rows if self.kind is Kind.BEGIN else rows[:0]


class OrderJournal:
    """The orders that lead to where N environments are, or the N rows of environments with several agents each."""

    def __init__(self, num_envs: int, max_bytes: float, seats: int = 1) -> None:
        self._orders: list[Order] = []
        self._next = 0  # position
        self._origin = np.full(num_envs, NEVER, np.int64)  # [N], position of the order that begins the running episode
        self._begun: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None  # key, episodes, numbers
        self._keyed = False  # whether episodes that end are followed by keyed ones
        self._bytes, self._max_bytes, self._seats = 0, max_bytes, seats
        self._dropped = -1  # orders up to this position are not kept, as they were too many
        self._seed: int | None = None  # of the episode of a joint environment that began last

    @property
    def started(self) -> NDArray[np.bool_]:
        """Which environments have an episode, [N]."""
        return self._origin != NEVER

    @property
    def full(self) -> bool:
        """Whether orders were dropped that lead to where the environments are."""
        return bool(self._origin.min() <= self._dropped)

    @property
    def next_seed(self) -> int | None:
        """The seed of a joint environment's next episode if no client names one."""
        return None if self._seed is None else keyed_seed(self._seed, 0, 1)

    def begin(self, key: int, episodes: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Note that all environments begin keyed episodes."""
        self._begun, self._keyed = (key, episodes.copy(), numbers), True
        self._origin[:] = self._next
        self._trim()

    def record(self, order: Order) -> None:
        """Note a reset, a step or a signal."""
        order.position, self._next = self._next, self._next + 1
        self._orders.append(order)
        self._bytes += order.size
        if order.kind is Kind.RESET:
            self._keyed = False
            self._start(order)
        if len(self._orders) % TRIM_EVERY == 0 or self._bytes > self._max_bytes:
            self._trim()

    def end(self, rows: NDArray[np.intp], order: Order) -> None:
        """Note that a step ended the episodes of these rows, and others began."""
        if self._keyed and self._begun is not None:
            self._origin[rows] = order.position + 1
            self._begun[1][rows[:: self._seats] // self._seats] += 1

    def record_joint_reset(self, order: Order, seed: int, episode: str, step: int) -> None:
        """Note at which step of which episode of a joint environment a reset arrived."""
        self._seed, order.arguments = seed, [[seed], order.arguments[1], [episode, step, None]]
        self._start(order)

    def drop(self, rows: RowIndex) -> None:
        """Note that environments have no episode any more."""
        self._origin[rows] = NEVER

    def replay(self, anew: bool) -> Iterator[Order]:
        """Return the answered orders that lead to where the environments are, each with the rows that need it.

        Args:
            anew: whether all episodes begin anew after them, so that signals alone are needed.
        """
        first = NEVER if anew else int(self._origin.min())
        keyed, begun = first != NEVER and self._begun is not None, False
        for order in self._orders:
            if not order.answered or (order.kind is not Kind.SIGNAL and order.position < first):
                continue
            if keyed and not begun and order.position >= first:
                begun = True
                yield self._begin_order()
            needed = self._origin[order.rows] <= order.position
            if order.kind is Kind.SIGNAL:
                needed[:] = True
            elif order.kind is Kind.RESET and keyed:
                needed, keyed = needed | (not needed.any()), False  # by it the keys of all are over
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
        if keyed and not begun:
            yield self._begin_order()

    def _begin_order(self) -> Order:
        assert self._begun is not None
        key, episodes, numbers = self._begun
        return Order(Kind.BEGIN, slice(0, len(self._origin)), [key, episodes.copy(), numbers])

    def _start(self, order: Order) -> None:
        begun = order.begins(len(self._origin), self._seats)
        self._origin[begun] = order.position
        if len(begun) == len(self._origin):
            self._begun = None

    def _trim(self) -> None:
        """Drop orders before all beginnings; all but signals where they are more than may be kept."""
        first = int(self._origin.min())
        self._orders = [one for one in self._orders if one.kind is Kind.SIGNAL or one.position >= first]
        self._bytes = sum(one.size for one in self._orders)
        if self._bytes > self._max_bytes:
            self._orders = [one for one in self._orders if one.kind is Kind.SIGNAL]
            self._bytes = sum(one.size for one in self._orders)
            self._dropped = self._next - 1 if self._bytes <= self._max_bytes else NEVER - 1


def find_difference(frame: Frame, known: Sequence[NDArray[Any]], compared: NDArray[np.bool_]) -> int | None:
    """Return the first compared environment that is elsewhere after a replay than it was before; None if none is.

    Args:
        frame: where the environments are now: arrays [N, ...] one after another.
        known: the same arrays as they were before.
        compared: [N].
    """
    reader = ArrayReader(frame.body)
    for array in known:
        received = reader.take(array.dtype, *array.shape)
        same = (_bytes_of(received) == _bytes_of(array)).all(axis=1) | ~compared
        if not same.all():
            return int(np.flatnonzero(~same)[0])
    return None


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.frombuffer(array.tobytes(), np.uint8).reshape(len(array), -1)
