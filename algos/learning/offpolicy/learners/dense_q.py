"""Learner of Q-networks with dense layers, in C (interface: networks/dense/src/dense.h).

Networks, targets and moments stay in C between calls. Results do not depend on the processor, the number of threads or
U. Calls release the GIL.
"""

import ctypes
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.learner import dense_inputs
from paddock.algos.learning.offpolicy.learners.learner import UNCHANGED, Metrics, OffPolicyLearner, check_metrics
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.replay.batch import Batch, Floats
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense import library
from paddock.algos.networks.dense.compiled import describe_network, floats, limit_threads
from paddock.algos.networks.dense.init import init_uniform
from paddock.algos.networks.dense.shape import MOMENTUM_DECAY, VARIANCE_DECAY, DenseShape, adam_scales
from paddock.envs.errors import require
from paddock.envs.native.forward import CSparseRows
from paddock.envs.spaces.sparse import SparseRows

REPORTED = ("loss", "q_mean", "target_mean", "gradient_norm")
VECTORS = ("parameters", "targets", "momentum", "variance")  # [P] each: trunk, policy, value

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


class DenseQLearner(OffPolicyLearner):
    """Dense Q-network (Mnih et al. 2015).

    A shared architecture is a dueling network (Wang et al. 2016, arXiv:1511.06581): a trunk, advantages minus their
    mean, and the state value. The loss is half the squared error, linear beyond `huber` (`huber` times torch's
    smooth_l1_loss with that beta).
    """

    def __init__(
        self, architecture: Architecture, objective: QObjective, seed: int, *, adam_epsilon: float, threads: int
    ) -> None:
        self.architecture, self.updates = architecture, 0
        self._objective, self._epsilon, self._threads = objective, adam_epsilon, limit_threads(threads)
        shape = DenseShape.of(architecture)
        self._shape = shape if architecture.shared else replace(shape, value=())
        self._functions = library.functions()
        network, _kept = describe_network(self._shape)
        self._learner = self._functions.q_open(ctypes.byref(network), architecture.inputs.sparse is not None)
        require(bool(self._learner), f"out of memory creating Q-networks of {shape.policy}")
        weakref.finalize(self, self._functions.q_close, self._learner)
        generator = np.random.default_rng(seed % 2**63)
        theta = np.concatenate([init_uniform(sizes, generator) for sizes in self._shape.chains])
        nothing = np.zeros_like(theta)
        self.load_state_dict(dict(zip(VECTORS, (theta, theta, nothing, nothing), strict=True)) | {"updates": 0})

    def update(self, batch: Batch, rate: float) -> tuple[Metrics, Floats]:
        """See `OffPolicyLearner.update`."""
        (U, B), objective, shape = batch.reward.shape, self._objective, self._shape
        numbers = np.arange(self.updates + 1, self.updates + U + 1)
        taus = np.where(numbers % objective.target_every == 0, np.float32(objective.tau), np.float32(0))
        report, distance = np.zeros((U, len(REPORTED))), np.empty((U, B), np.float32)
        action = np.ascontiguousarray(batch.action.reshape(U, B), np.int32)
        assert (action.view(np.uint32) < shape.outputs).all(), "actions are indices of outputs"
        seen = [self._see(obs) for obs in (batch.obs, batch.next_obs)]
        rows = [floats(each, U * B, shape.row_of(sparse)) for each, sparse in seen]
        shown = [None if sparse is None else CSparseRows.of(sparse) for _, sparse in seen]
        kept: list[NDArray[Any]] = [
            action,
            *(floats(each, U, B) for each in (batch.reward, batch.discount, batch.weight)),
            *(floats(each, U) for each in (*adam_scales(rate, self.updates, U), taus)),
            distance,
            report,
        ]
        update = _Update(
            *(array.ctypes.data for array in rows),
            *(None if each is None else ctypes.addressof(each) for each in shown),
            *(array.ctypes.data for array in kept),
            U,
            B,
            -1 if objective.huber is None else objective.huber,
            -1 if objective.max_grad_norm is None else objective.max_grad_norm,
            self._epsilon,
            MOMENTUM_DECAY,
            VARIANCE_DECAY,
            objective.double,
            self._threads,
        )
        failed = self._functions.q_update(self._learner, ctypes.byref(update))
        require(not failed, f"out of memory training Q-networks of {shape.policy}")
        first, self.updates = self.updates, self.updates + U
        metrics = dict(zip(REPORTED, report.T, strict=True))
        check_metrics(metrics, first, U)
        return metrics, distance

    def _see(self, obs: NDArray[Any]) -> tuple[Floats, SparseRows | None]:
        return dense_inputs(self.architecture, obs.reshape(-1, *self.architecture.inputs.shape), UNCHANGED)

    def weights(self, version: int, *, explore: bool = False) -> Weights:
        """See `OffPolicyLearner.weights`."""
        return Weights(version, self._read("parameters")["parameters"])

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicyLearner.state_dict`."""
        return {**self._read(*VECTORS), "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `OffPolicyLearner.load_state_dict`."""
        given = [floats(state[name], self._shape.num_parameters) for name in VECTORS]
        vectors = library.Vectors(*(each.ctypes.data for each in given))
        self._functions.q_load(self._learner, ctypes.byref(vectors))
        self.updates = int(state["updates"])

    def _read(self, *names: str) -> dict[str, Floats]:
        found = {name: np.empty(self._shape.num_parameters, np.float32) for name in names}
        vectors = library.Vectors(**{name: each.ctypes.data for name, each in found.items()})
        self._functions.q_save(self._learner, ctypes.byref(vectors))
        return found
