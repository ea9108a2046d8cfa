"""Learning of action values in C: `src/dense.h` says what is shared with it. Calls release the interpreter lock."""

import ctypes
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense import library
from paddock.algos.networks.dense.compiled import describe_network, floats, limit_threads
from paddock.algos.networks.dense.q import REPORTED, QSteps, QTransitions, QVectors
from paddock.algos.networks.dense.shape import MOMENTUM_DECAY, VARIANCE_DECAY, DenseShape, Floats
from paddock.envs.errors import require
from paddock.envs.native.forward import Sparse

_POINTER = ctypes.c_void_p


class _Update(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("observation", "following", "sparse", "following_sparse")),
        *((name, _POINTER) for name in ("action", "reward", "discount", "weight")),
        *((name, _POINTER) for name in ("rates", "deviations", "taus", "distance", "report")),
        *((name, ctypes.c_int64) for name in ("updates", "rows")),
        *((name, ctypes.c_float) for name in ("huber", "max_norm", "epsilon", "momentum_decay", "variance_decay")),
        *((name, ctypes.c_int32) for name in ("double_q", "threads")),
    )


class CompiledQ:
    """A network of action values, its targets and moments, kept and trained in C; threads change no bit."""

    def __init__(self, shape: DenseShape, threads: int, sparse: bool = False) -> None:
        """Args:
            sparse: whether all observations are sparse rows; else none is.

        Raises:
            ConfigError: there is no library for this processor, or no memory.
        """
        self._functions = library.functions()
        self._shape, self._threads, self._sparse = shape, limit_threads(threads), sparse
        network, _kept = describe_network(shape)
        self._learner = self._functions.q_open(ctypes.byref(network), sparse)
        require(bool(self._learner), f"no memory for action values of {shape.policy}")
        weakref.finalize(self, self._functions.q_close, self._learner)

    def load(self, vectors: QVectors) -> None:
        """Replace all vectors."""
        given = [floats(each, self._shape.num_parameters) for each in vars(vectors).values()]
        self._functions.q_load(self._learner, ctypes.byref(library.Vectors(*(each.ctypes.data for each in given))))

    def vectors(self) -> QVectors:
        """Return copies of all vectors."""
        found = [np.empty(self._shape.num_parameters, np.float32) for _ in range(4)]
        self._functions.q_save(self._learner, ctypes.byref(library.Vectors(*(each.ctypes.data for each in found))))
        return QVectors(*found)

    def parameters(self) -> Floats:
        """Return a copy of the parameters."""
        found = np.empty(self._shape.num_parameters, np.float32)
        self._functions.q_save(self._learner, ctypes.byref(library.Vectors(found.ctypes.data)))
        return found

    def update(self, transitions: QTransitions, steps: QSteps) -> tuple[NDArray[np.float64], Floats]:
        """Make U updates; returns what is REPORTED [U, 4], and the distances of values from their targets [U, B]."""
        shape = self._shape
        U, B = transitions.reward.shape
        report, distance = np.zeros((U, len(REPORTED))), np.empty((U, B), np.float32)
        actions = np.ascontiguousarray(transitions.action, np.int32)
        assert actions.shape == (U, B) and (actions.view(np.uint32) < shape.outputs).all(), "actions are numbers of it"
        apart = transitions.sparse, transitions.next_sparse
        assert all((each is not None) == self._sparse for each in apart), "all observations are sparse rows, or none"
        shown = [None if each is None else Sparse.of(each) for each in apart]
        rows = [
            floats(each, U * B, shape.row_of(transitions.sparse))
            for each in (transitions.observation, transitions.next_observation)
        ]
        kept: list[NDArray[Any]] = [
            actions,
            *(floats(each, U, B) for each in (transitions.reward, transitions.discount, transitions.weight)),
            *(floats(each, U) for each in (steps.rates, steps.deviations, steps.taus)),
            distance,
            report,
        ]
        update = _Update(
            *(array.ctypes.data for array in rows),
            *(None if each is None else ctypes.addressof(each) for each in shown),
            *(array.ctypes.data for array in kept),
            U,
            B,
            -1 if steps.huber is None else steps.huber,
            -1 if steps.max_norm is None else steps.max_norm,
            steps.epsilon,
            MOMENTUM_DECAY,
            VARIANCE_DECAY,
            steps.double,
            self._threads,
        )
        failed = self._functions.q_update(self._learner, ctypes.byref(update))
        require(not failed, f"no memory to learn action values of {shape.policy}")
        return report, distance
