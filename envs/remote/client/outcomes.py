"""What servers tell, entered into a vector's arrays and into what is kept to come back there."""

import threading

import numpy as np
from numpy.typing import NDArray

from paddock.envs.remote.client.journal import Order
from paddock.envs.remote.client.link import Link
from paddock.envs.remote.frames import Cursor, Frame, JointEpisode, Kind, count_rows, shift_rows
from paddock.envs.remote.infos import take_infos
from paddock.envs.remote.view import Everybody
from paddock.envs.vector.contract import EnvError, VectorMisuse
from paddock.envs.vector.storage import Layouts, RowIndex
from paddock.envs.vector.table import FREE, NEW, READY, Arrays, Table, worlds_of


class Outcomes:
    """Enters outcomes into the rows of N environments.

    Attributes:
        everybody: of a joint world whose server shows all seats, what they were told last; else None.
        batching: held where infos are entered or taken, as worlds that others play in too are called in threads.
    """

    def __init__(self, arrays: Arrays, table: Table, layouts: Layouts, shown: Layouts | None, joint: bool) -> None:
        """Take the arrays.

        Args:
            shown: the seats of which outcomes tell; None: they tell of none but the client's.
            joint: whether others play in these worlds too.
        """
        self.everybody: Everybody | None = None
        self.batching = threading.Lock()
        self._arrays, self._table, self._seats = arrays, table, layouts.seats
        self._shown, self._joint = shown, joint

    def enter(self, link: Link, order: Order, frame: Frame) -> None:
        """Enter what came of an order.

        Raises:
            VectorMisuse: that it was none to be done.
            EnvError: an environment raised, or its process died or hung.
        """
        rows = shift_rows(order.rows, link.rows.start)
        if frame.kind is Kind.FAILED:
            self._fail(link, order, rows, frame)
        if order.kind is Kind.SIGNAL:
            return
        _, said, count, episode = frame.header
        arrays, cursor, n = self._arrays, Cursor(frame.body), count_rows(rows)
        arrays.observation[rows] = cursor.take_like(arrays.observation, n)
        if order.kind is not Kind.TURN:
            arrays.running_return[rows] = arrays.running_length[rows] = 0
            if arrays.lives is not None:
                arrays.lives.alive[rows] = cursor.take_like(arrays.lives.alive, n)
                arrays.lives.acts[rows] = cursor.take_like(arrays.lives.acts, n)
            if order.kind is Kind.RESET and self._joint and order.arguments[0] == [None] and count is not None:
                link.journal.choose(order, count)
            rows = link.rows  # whose infos come with it
        else:
            self._step(link, order, rows, cursor, n, count)
            self._table.mark(READY, rows)
        if self._joint:
            link.journal.tell(order, JointEpisode.read(episode))
        if self._shown is not None:
            self.everybody = Everybody.take(cursor, self._shown)
        if said is not None:
            with self.batching:
                self._table.note(rows, take_infos(said, link.offer.environment["id"]))

    def _fail(self, link: Link, order: Order, rows: RowIndex, frame: Frame) -> None:
        """Note that nothing came of an order, and raise what did."""
        _, kind, text, _ = frame.header
        misuse = kind == "VectorMisuse" and order.kind is Kind.TURN
        if order.kind is not Kind.SIGNAL:
            self._table.mark(FREE if misuse else NEW, rows)
        order.answered = False  # nothing that leads anywhere
        if not misuse and order.kind is not Kind.SIGNAL:
            self._table.forget(rows)
            link.journal.drop(order.rows)
            if self._joint and kind != "VectorMisuse":
                link.journal.doubt_signals()
        raise (VectorMisuse if kind == "VectorMisuse" else EnvError)(text)

    def _step(self, link: Link, order: Order, rows: RowIndex, cursor: Cursor, n: int, count: int) -> None:
        """Enter what a step gave."""
        arrays = self._arrays
        reward, terminated, truncated = (
            cursor.take_like(of, n) for of in (arrays.reward, arrays.terminated, arrays.truncated)
        )
        arrays.enter(rows, reward, terminated, truncated)
        if arrays.lives is not None:
            arrays.lives.alive[rows] = cursor.take_like(arrays.lives.alive, n)
            arrays.lives.acts[rows] = cursor.take_like(arrays.lives.acts, n)
            over = cursor.take_like(arrays.lives.over, n // self._seats)
            arrays.lives.over[worlds_of(rows, self._seats)] = over
            if over.any():
                arrays.episode[worlds_of(rows, self._seats)] += over
                link.journal.end(self._ids(rows)[np.repeat(over, self._seats)] - link.rows.start, order)
        if count:
            ids = self._ids(rows)[terminated | truncated]
            arrays.end(ids)
            arrays.final[ids] = cursor.take_like(arrays.final, count)
            arrays.final_return[ids] = cursor.take_like(arrays.final_return, count)
            arrays.final_length[ids] = cursor.take_like(arrays.final_length, count)
            if arrays.lives is None:
                link.journal.end(ids - link.rows.start, order)

    def _ids(self, rows: RowIndex) -> NDArray[np.intp]:
        return np.arange(len(self._arrays.reward))[rows]
