"""Journal of the orders that another server needs to restore a client's environments.

An episode starts at an order (a seeded reset, or `begin`) and continues by the actions after it. The journal keeps all
orders from the earliest start of a running episode on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.remote.frames import ArrayReader, Frame, Kind, encode_rows
from paddock.envs.vector.contract import keyed_seed
from paddock.envs.vector.storage import RowIndex

NEVER = np.iinfo(np.int64).max  # position for environments without an episode
TRIM_EVERY = 256  # orders between removals of obsolete ones


@dataclass
class Order:
    """Request of a client to a session."""

    kind: Kind  # of the frame
    rows: RowIndex  # of the session's environments
    # Rest of the header; for a reset: seeds, options and, if joint, [identifier, step, seed if no client chooses one].
    arguments: list[Any]
    actions: NDArray[Any] | None = None  # of a step, [n, ...]
    position: int = 0  # in the journal
    seq: int = 0  # number in the session; 0: not set
    frame: bytes = b""  # encoded bytes
    answered: bool = False  # its outcome has been received

    @property
    def header(self) -> list[Any]:
        """Return the frame's header after the numbers."""
        return [*([encode_rows(self.rows)] if self.kind in (Kind.RESET, Kind.STEP) else []), *self.arguments]

    @property
    def size(self) -> int:
        """Return the approximate size in a journal in bytes."""
        return 200 + (0 if self.actions is None else self.actions.nbytes)

    def begins(self, num_envs: int, seats: int) -> NDArray[np.intp]:
        """Return the rows whose episodes this order starts, independently of earlier orders."""
        rows = np.arange(num_envs)[self.rows]
        if self.kind is Kind.RESET:
            return rows[np.repeat([seed is not None for seed in self.arguments[0]], seats)]
        return rows if self.kind is Kind.BEGIN else rows[:0]


class OrderJournal:
    """Journal of the orders of N rows."""

    def __init__(self, num_envs: int, max_bytes: float, seats: int = 1) -> None:
        """Start empty, for environments with `seats` rows each; `max_bytes` limits the orders kept."""
        self._orders: list[Order] = []
        self._next = 0  # position
        self._origin = np.full(num_envs, NEVER, np.int64)  # [N], position of the order that started the running episode
        self._begun: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None  # key, episodes, numbers
        self._keyed = False  # later episodes are keyed
        self._bytes, self._max_bytes, self._seats = 0, max_bytes, seats
        self._dropped = -1  # orders up to this position were dropped for lack of space
        self._seed: int | None = None  # of a joint environment's latest episode

    @property
    def started(self) -> NDArray[np.bool_]:
        """Return the rows with a running episode, [N]."""
        return self._origin != NEVER

    @property
    def full(self) -> bool:
        """Return whether needed orders were dropped."""
        return bool(self._origin.min() <= self._dropped)

    @property
    def next_seed(self) -> int | None:
        """Return the seed of a joint environment's next episode if no client chooses one."""
        return None if self._seed is None else keyed_seed(self._seed, 0, 1)

    def begin(self, key: int, episodes: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Record the start of keyed episodes in all environments."""
        self._begun, self._keyed = (key, episodes.copy(), numbers), True
        self._origin[:] = self._next
        self._trim()

    def record(self, order: Order) -> None:
        """Record a reset or a step."""
        order.position, self._next = self._next, self._next + 1
        self._orders.append(order)
        self._bytes += order.size
        if order.kind is Kind.RESET:
            self._keyed = False
            self._start(order)
        if len(self._orders) % TRIM_EVERY == 0 or self._bytes > self._max_bytes:
            self._trim()

    def end(self, rows: NDArray[np.intp], order: Order) -> None:
        """Record that a step ended the episodes of these rows, and the next ones started."""
        if self._keyed and self._begun is not None:
            self._origin[rows] = order.position + 1
            self._begun[1][rows[:: self._seats] // self._seats] += 1

    def record_joint_reset(self, order: Order, seed: int, episode: str, step: int) -> None:
        """Record the episode and step of a joint environment to which a reset led."""
        self._seed, order.arguments = seed, [[seed], order.arguments[1], [episode, step, None]]
        self._start(order)

    def drop(self, rows: RowIndex) -> None:
        """Record that these rows have no episode."""
        self._origin[rows] = NEVER

    def replay(self) -> Iterator[Order]:
        """Yield the answered orders that restore the environments, each for the rows that need it."""
        first = int(self._origin.min())
        keyed, begun = first != NEVER and self._begun is not None, False
        for order in self._orders:
            if not order.answered or order.position < first:
                continue
            if keyed and not begun and order.position >= first:
                begun = True
                yield self._begin_order()
            needed = self._origin[order.rows] <= order.position
            if order.kind is Kind.RESET and keyed:
                needed, keyed = needed | (not needed.any()), False  # ends the keyed episodes of all
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
        """Drop orders before all running episodes, and all above the size limit."""
        first = int(self._origin.min())
        self._orders = [one for one in self._orders if one.position >= first]
        self._bytes = sum(one.size for one in self._orders)
        if self._bytes > self._max_bytes:
            self._orders, self._bytes, self._dropped = [], 0, self._next - 1


def find_difference(frame: Frame, known: Sequence[NDArray[Any]], compared: NDArray[np.bool_]) -> int | None:
    """Return the first compared row whose state after a replay differs from before; None if all are equal.

    Args:
        frame: the state after the replay: arrays [N, ...] one after another.
        known: the same arrays before.
        compared: [N], rows to compare.
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
