"""Dense networks in C: `src/dense.h` says what is shared with it. Calls release the interpreter lock."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense import library
from paddock.algos.networks.dense.shape import (
    MOMENTUM_DECAY,
    REPORTED,
    VARIANCE_DECAY,
    AdamState,
    DenseShape,
    Floats,
    LossSettings,
    Sample,
    adam_scales,
)
from paddock.envs.errors import require
from paddock.envs.machine import usable_cores
from paddock.envs.native.forward import Sparse
from paddock.envs.spaces.sparse import SparseRows

_POINTER = ctypes.c_void_p


class _Network(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("sizes", "choices", "leaf")),
        ("layers", ctypes.c_int32 * 3),
        *((name, ctypes.c_int32) for name in ("relu", "masked", "components", "log_stds")),
    )


class _Evaluation(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("parameters", "observation", "sparse", "action", "value", "logprob")),
        ("rows", ctypes.c_int64),
        ("threads", ctypes.c_int32),
    )


class _Update(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("parameters", "momentum", "variance", "observation", "sparse", "action")),
        *((name, _POINTER) for name in ("logprob", "advantage", "target", "value", "slope")),
        *((name, _POINTER) for name in ("order", "ends", "rates", "deviations", "report")),
        ("minibatches", ctypes.c_int64),
        *((name, ctypes.c_float) for name in ("clip", "value_clip", "value_coef", "entropy_coef", "max_norm")),
        *((name, ctypes.c_float) for name in ("epsilon", "momentum_decay", "variance_decay")),
        *((name, ctypes.c_int32) for name in ("normalize_advantages", "threads")),
    )


class CompiledDense:
    """Dense networks evaluated and trained in C; the number of threads changes no bit."""

    def __init__(self, shape: DenseShape, threads: int) -> None:
        """Raises ConfigError where there is no library for this processor."""
        self._functions = library.functions()
        self._shape, self._threads = shape, limit_threads(threads)
        self._network, self._arrays = describe_network(shape)

    def evaluate(
        self, parameters: Floats, observation: Floats, action: Floats | None, sparse: SparseRows | None = None
    ) -> tuple[Floats, Floats]:
        """Map rows of observations, as a `Sample` has them, to values [R] and log-probabilities [R] of actions [R, K].

        Log-densities are those before squashing; without actions all are 0.
        """
        rows, shape = len(observation), self._shape
        shown = None if sparse is None else Sparse.of(sparse)
        value, logprob = np.empty(rows, np.float32), np.zeros(rows, np.float32)
        parameters, observation = floats(parameters), floats(observation, rows, shape.row_of(sparse))
        taken = None if action is None else floats(action, rows, len(shape.choices))
        evaluation = _Evaluation(
            parameters.ctypes.data,
            observation.ctypes.data,
            None if shown is None else ctypes.addressof(shown),
            None if taken is None else taken.ctypes.data,
            value.ctypes.data,
            logprob.ctypes.data,
            rows,
            self._threads,
        )
        failed = self._functions.evaluate(ctypes.byref(self._network), ctypes.byref(evaluation))
        require(not failed, f"no memory to evaluate networks of {shape.policy}")
        return value, logprob

    def update(
        self,
        adam: AdamState,
        sample: Sample,
        minibatches: list[NDArray[np.int64]],
        objective: LossSettings,
        rate: float,
        max_norm: float | None,
    ) -> NDArray[np.float64]:
        """Take one step of Adam per minibatch; returns what is REPORTED of each [M, 6].

        Args:
            adam: changed in place.
            sample: the whole batch.
            minibatches: rows of the sample.
            objective: the loss.
            rate: Adam's learning rate.
            max_norm: gradients are scaled down to it; None leaves them as they are.
        """
        shape, rows = self._shape, len(sample.value)
        report = np.zeros((len(minibatches), len(REPORTED)))
        kept: list[NDArray[Any]] = [
            floats(sample.action, rows, len(shape.choices)),
            *(floats(each, rows) for each in (sample.logprob, sample.advantage, sample.target, sample.value)),
            floats(sample.slope, rows),
            np.concatenate(minibatches).astype(np.int64, copy=False),
            np.cumsum([len(each) for each in minibatches], dtype=np.int64),
            *adam_scales(rate, adam.steps, len(minibatches)),
            report,
        ]
        state = [floats(array, len(adam.parameters)) for array in (adam.parameters, adam.momentum, adam.variance)]
        state.append(floats(sample.observation, rows, shape.row_of(sample.sparse)))
        shown = None if sample.sparse is None else Sparse.of(sample.sparse)
        update = _Update(
            *(array.ctypes.data for array in state),
            None if shown is None else ctypes.addressof(shown),
            *(array.ctypes.data for array in kept),
            len(minibatches),
            objective.clip_coef,
            -1 if objective.value_clip_coef is None else objective.value_clip_coef,
            objective.value_coef,
            objective.entropy_coef,
            -1 if max_norm is None else max_norm,
            adam.epsilon,
            MOMENTUM_DECAY,
            VARIANCE_DECAY,
            objective.normalize_advantages,
            self._threads,
        )
        failed = self._functions.update(ctypes.byref(self._network), ctypes.byref(update))
        require(not failed, f"no memory to learn with networks of {shape.policy}")
        adam.steps += len(minibatches)
        return report


def describe_network(shape: DenseShape) -> tuple[ctypes.Structure, list[NDArray[np.int32]]]:
    """Return a network as C reads it, and the arrays that it points into."""
    chains = [chain if len(chain) > 1 else () for chain in shape.chains]
    arrays = [np.array(each, np.int32) for each in (sum(chains, ()), shape.choices, shape.leaf)]
    network = _Network(
        *(array.ctypes.data for array in arrays),
        (ctypes.c_int32 * 3)(*(max(len(chain) - 1, 0) for chain in chains)),
        shape.activation == "relu",
        shape.masked,
        len(shape.choices),
        shape.log_stds,
    )
    return network, arrays


def limit_threads(threads: int) -> int:
    """Return how many threads are of use: they wait for each other."""
    return min(threads, usable_cores())


def floats(array: NDArray[Any], *shape: int) -> Floats:
    """The array as C reads it, which the caller's own parameters already are."""
    own = np.ascontiguousarray(array, np.float32)
    assert not shape or own.shape == shape, (own.shape, shape)
    return own
