"""Write a server's outcomes to a vector's arrays and to the journal."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.remote.client.connection import Connection
from paddock.envs.remote.client.journal import Order
from paddock.envs.remote.frames import ArrayReader, Frame, Kind, count_rows, shift_rows
from paddock.envs.remote.values import DecodeError, decode
from paddock.envs.vector.contract import EnvError, VectorMisuse
from paddock.envs.vector.storage import RowIndex
from paddock.envs.vector.table import FREE, NEW, READY, Arrays, Table, envs_of


class Outcomes:
    """Writer of outcomes to a vector's arrays."""

    def __init__(self, arrays: Arrays, table: Table, seats: int) -> None:
        """Write to the arrays of a vector with `seats` rows per environment."""
        self._arrays, self._table, self._seats = arrays, table, seats

    def enter(self, connection: Connection, order: Order, frame: Frame) -> None:
        """Write the outcome of an order.

        Raises:
            VectorMisuse: the order was refused.
            EnvError: an environment raised, or its process died or hung.
        """
        rows = shift_rows(order.rows, connection.rows.start)
        if frame.kind is Kind.FAILED:
            self._fail(connection, order, rows, frame)
        _, infos, extra = frame.header
        arrays, reader, n = self._arrays, ArrayReader(frame.body), count_rows(rows)
        arrays.observation[rows] = reader.take_like(arrays.observation, n)
        if order.kind is not Kind.STEP:
            arrays.running_return[rows] = arrays.running_length[rows] = 0
            if arrays.lives is not None:
                arrays.lives.alive[rows] = reader.take_like(arrays.lives.alive, n)
                arrays.lives.acts[rows] = reader.take_like(arrays.lives.acts, n)
            if order.kind is Kind.RESET and extra is not None:
                connection.journal.record_joint_reset(order, *extra)
            rows = connection.rows  # infos are for all rows
        else:
            self._step(connection, order, rows, reader, n, extra)
            self._table.set_state(READY, rows)
        if infos is not None:
            self._table.add_infos(rows, _decode_infos(infos, connection.offer.environment["id"]))

    def _fail(self, connection: Connection, order: Order, rows: RowIndex, frame: Frame) -> None:
        """Record that an order failed, and raise the error."""
        _, kind, text = frame.header
        misuse = kind == "VectorMisuse" and order.kind is Kind.STEP
        order.answered = False  # not replayed
        self._table.set_state(FREE if misuse else NEW, rows)
        if not misuse:
            self._table.drop_infos(rows)
            connection.journal.drop(order.rows)
        raise (VectorMisuse if kind == "VectorMisuse" else EnvError)(text)

    def _step(
        self, connection: Connection, order: Order, rows: RowIndex, reader: ArrayReader, n: int, ended: int
    ) -> None:
        """Write the result of a step, with the final observations of `ended` rows."""
        arrays = self._arrays
        reward, terminated, truncated = (
            reader.take_like(of, n) for of in (arrays.reward, arrays.terminated, arrays.truncated)
        )
        arrays.enter(rows, reward, terminated, truncated)
        every = np.arange(len(arrays.reward))[rows]
        if arrays.lives is not None:
            arrays.lives.alive[rows] = reader.take_like(arrays.lives.alive, n)
            arrays.lives.acts[rows] = reader.take_like(arrays.lives.acts, n)
            over = reader.take_like(arrays.lives.over, n // self._seats)
            arrays.lives.over[envs_of(rows, self._seats)] = over
            if over.any():
                arrays.episode[envs_of(rows, self._seats)] += over
                connection.journal.end(every[np.repeat(over, self._seats)] - connection.rows.start, order)
        if ended:
            ids: NDArray[np.intp] = every[terminated | truncated]
            arrays.end(ids)
            arrays.final[ids] = reader.take_like(arrays.final, ended)
            arrays.final_return[ids] = reader.take_like(arrays.final_return, ended)
            arrays.final_length[ids] = reader.take_like(arrays.final_length, ended)
            if arrays.lives is None:
                connection.journal.end(ids - connection.rows.start, order)


def _decode_infos(data: bytes, id: str) -> dict[str, Any]:
    try:
        infos: dict[str, Any] = decode(data)
    except DecodeError as error:
        raise EnvError(f"the infos of {id} cannot be read ({error}); start the server with serve.infos=none") from None
    return infos
