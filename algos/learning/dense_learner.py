"""Learner of dense policies and values in C (see networks/dense/src/dense.h), independent of processor and threads."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.learner import Batch, BatchValues, Learner, Report, dense_inputs
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense import library
from paddock.algos.networks.dense.compiled import describe_network, floats, limit_threads
from paddock.algos.networks.dense.init import init_parameters
from paddock.algos.networks.dense.shape import (
    MOMENTUM_DECAY,
    REPORTED,
    VARIANCE_DECAY,
    DenseShape,
    Floats,
    LossSettings,
    adam_scales,
)
from paddock.envs.errors import require
from paddock.envs.native.forward import CSparseRows
from paddock.envs.spaces.sparse import SparseRows

_POINTER = ctypes.c_void_p


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


class DenseLearner(Learner):
    """Dense network and its optimizer; inputs are rows [R, width], or action masks [R, W or 0] and sparse features."""

    def __init__(self, architecture: Architecture, seed: int, *, adam_epsilon: float, threads: int) -> None:
        self.architecture, self._shape = architecture, DenseShape.of(architecture)
        self._functions, self._threads = library.functions(), limit_threads(threads)
        self._network, self._arrays = describe_network(self._shape)
        theta = init_parameters(self._shape, architecture.initial_log_std, seed)
        self._adam = {"parameters": theta, "momentum": np.zeros_like(theta), "variance": np.zeros_like(theta)}
        self._descents, self._epsilon = 0, adam_epsilon

    def evaluate_batch(self, rollout: Rollout, weights: Weights) -> BatchValues:
        """See `Learner.evaluate_batch`."""
        T, N = rollout.reward.shape
        every, sparse = dense_inputs(self.architecture, rollout.all_obs, weights)
        obs, own = every[: T * N], None if sparse is None else sparse.head(T * N)
        action = rollout.action.reshape(T * N, -1).astype(np.float32, copy=False)
        slope = self.architecture.head.log_slope(action)
        following, _ = self.evaluate(every, None, sparse)
        value, next_value = rollout.split_values(following)
        # The acting weights' log-probabilities are in the rollout.
        logprob = rollout.logprob
        if rollout.version != weights.version:
            _, found = self.evaluate(obs, action, own)
            logprob = (found - slope).reshape(T, N)
        return BatchValues(value, next_value, logprob, (obs, action, slope, own))

    def evaluate(
        self, observation: Floats, action: Floats | None, sparse: SparseRows | None = None
    ) -> tuple[Floats, Floats]:
        """Map rows to values [R] and log-probabilities [R] of actions [R, K], before squashing; 0 without actions."""
        rows, shape = len(observation), self._shape
        shown = None if sparse is None else CSparseRows.of(sparse)
        value, logprob = np.empty(rows, np.float32), np.zeros(rows, np.float32)
        observation = floats(observation, rows, shape.row_of(sparse))
        taken = None if action is None else floats(action, rows, len(shape.choices))
        evaluation = _Evaluation(
            self._adam["parameters"].ctypes.data,
            observation.ctypes.data,
            None if shown is None else ctypes.addressof(shown),
            None if taken is None else taken.ctypes.data,
            value.ctypes.data,
            logprob.ctypes.data,
            rows,
            self._threads,
        )
        failed = self._functions.evaluate(ctypes.byref(self._network), ctypes.byref(evaluation))
        require(not failed, f"out of memory evaluating networks of {shape.policy}")
        return value, logprob

    def optimizer_step(
        self,
        values: BatchValues,
        batch: Batch,
        minibatches: Sequence[NDArray[np.int64]],
        settings: LossSettings,
        rate: float,
        max_norm: float | None,
    ) -> Report:
        """See `Learner.optimizer_step`."""
        obs, action, slope, sparse = values.inputs
        shape, rows = self._shape, len(obs)
        report = np.zeros((len(minibatches), len(REPORTED)))
        state = [*self._adam.values(), floats(obs, rows, shape.row_of(sparse))]
        shown = None if sparse is None else CSparseRows.of(sparse)
        kept: list[NDArray[Any]] = [
            floats(action, rows, len(shape.choices)),
            *(floats(each.ravel(), rows) for each in (batch.logprob, batch.advantage, batch.target, batch.value)),
            floats(slope, rows),
            np.concatenate(minibatches).astype(np.int64, copy=False),
            np.cumsum([len(each) for each in minibatches], dtype=np.int64),
            *adam_scales(rate, self._descents, len(minibatches)),
            report,
        ]
        update = _Update(
            *(array.ctypes.data for array in state),
            None if shown is None else ctypes.addressof(shown),
            *(array.ctypes.data for array in kept),
            len(minibatches),
            settings.clip_coef,
            -1 if settings.value_clip_coef is None else settings.value_clip_coef,
            settings.value_coef,
            settings.entropy_coef,
            -1 if max_norm is None else max_norm,
            self._epsilon,
            MOMENTUM_DECAY,
            VARIANCE_DECAY,
            settings.normalize_advantages,
            self._threads,
        )
        failed = self._functions.update(ctypes.byref(self._network), ctypes.byref(update))
        require(not failed, f"out of memory training networks of {shape.policy}")
        self._descents += len(minibatches)
        return Report(REPORTED, report)

    def parameters(self) -> Floats:
        """See `Learner.parameters`."""
        return self._adam["parameters"].copy()

    def state_dict(self) -> dict[str, Any]:
        """See `Learner.state_dict`."""
        return {**{name: array.copy() for name, array in self._adam.items()}, "descents": self._descents}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Learner.load_state_dict`."""
        for name, own in self._adam.items():
            own[:] = state[name]
        self._descents = int(state["descents"])
