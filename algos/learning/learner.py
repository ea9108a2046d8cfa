"""Interface of on-policy learners: a network, its parameters in one flat vector, and Adam.

Dense networks on a CPU are trained in C, bit-identically on every processor; all others in torch.
"""

import abc
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.divergence import OBSERVATION_REMEDY, REMEDY, Diverged
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.rows import name_row
from paddock.algos.networks.actor import as_features
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.library import find_problem
from paddock.algos.networks.dense.shape import Floats, LossSettings
from paddock.envs.errors import require
from paddock.envs.native.forward import expand
from paddock.envs.spaces.codecs import dotted
from paddock.envs.spaces.features import numbers_of
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.sparse import SparseRows
from paddock.envs.vector.contract import EnvError

Backend = Literal["auto", "dense", "torch"]

log = logging.getLogger(__name__)

MAX_DENSE_WIDTH = 512  # of hidden layers that `backend=auto` trains in C


@dataclass(frozen=True)
class BatchValues:
    """Values and log-probabilities of a rollout, computed before an update."""

    value: Floats  # [T, N]
    next_value: Floats  # [T, N], of the observation after each step
    logprob: Floats  # [T, N], under the current policy
    inputs: Any  # the rollout as the learner's own inputs


@dataclass(frozen=True)
class Batch:
    """Training data of a rollout, [T, N] each."""

    logprob: Floats  # under the acting policy
    advantage: Floats
    target: Floats  # of the values
    value: Floats  # before the update
    rows: NDArray[np.bool_] | None = None  # mask of the steps to learn from; None: all

    def pick(self, steps: Floats) -> Floats:
        """Select the steps to learn from out of [T, N]."""
        return steps if self.rows is None else steps[self.rows]


@dataclass(frozen=True)
class Report:
    """Metrics of each of M optimizer steps."""

    names: tuple[str, ...]  # metrics of the loss, then gradient_norm
    values: NDArray[np.float64]  # [M, R]

    @classmethod
    def join(cls, reports: "Sequence[Report]") -> "Report":
        """Concatenate reports; raise Diverged if a metric is not finite."""
        names, values = reports[0].names, np.concatenate([report.values for report in reports])
        for m, k in np.argwhere(~np.isfinite(values))[:1]:
            raise Diverged(f"in minibatch {m} of an update the {names[k]} is {values[m, k]}: {REMEDY}")
        return cls(names, values)

    def mean(self) -> dict[str, float]:
        """Return the mean of each metric over all steps."""
        return dict(zip(self.names, self.values.mean(axis=0).tolist(), strict=True))


class Learner(abc.ABC):
    """A network and its optimizer."""

    architecture: Architecture

    @abc.abstractmethod
    def evaluate_batch(self, rollout: Rollout, weights: Weights) -> BatchValues:
        """Compute the value of every observation and the log-probability of every action, given the current weights."""

    @abc.abstractmethod
    def optimizer_step(
        self,
        values: BatchValues,
        batch: Batch,
        minibatches: Sequence[NDArray[np.int64]],
        settings: LossSettings,
        rate: float,
        max_norm: float | None,
    ) -> Report:
        """Take one step of Adam with learning rate `rate` per minibatch.

        Minibatches are indices into the flattened batch of steps to learn from; with an LSTM, of environments.
        Gradients are clipped to `max_norm`, if not None.
        """

    def training_context(self) -> AbstractContextManager[Any]:
        """Return the context to train in."""
        return nullcontext()

    @abc.abstractmethod
    def parameters(self) -> Floats:
        """Return a copy of the flat parameters [P]."""

    @abc.abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return parameters and Adam's moments."""

    @abc.abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""


def is_dense(
    architecture: Architecture, backend: Backend, device: str, precision: str, needs: Sequence[str] = ()
) -> bool:
    """Return whether a network is trained in C; raise ConfigError if backend=dense does not support it.

    `backend=auto` selects C for dense networks of at most `MAX_DENSE_WIDTH` if the library was built. `needs` are
    configured settings that only torch supports, as `key=value`.
    """
    if backend == "torch":
        return False
    if not architecture.head.learns_in_c:
        needs = [*needs, f"{architecture.head.describe()} actions"]
    plain = architecture.is_dense and device == "cpu" and precision == "float32" and not needs
    if backend == "dense":
        require(not needs, f"{', '.join(needs)}: only torch supports this; use algo.backend=auto")
        require(
            plain,
            f"backend=dense is for dense networks on device=cpu with precision=float32; this one is "
            f"{architecture.encoder}{' with an LSTM' if architecture.lstm else ''} on {device} with {precision}; "
            "use backend=auto",
        )
        require(not (problem := find_problem()), f"backend=dense: {problem}, or use backend=torch")
        return True
    if not plain or max(architecture.hidden_sizes, default=0) > MAX_DENSE_WIDTH:
        return False
    if problem := find_problem():
        _warn_once(f"training dense networks in torch, which is slower and differs in the last bits: {problem}")
    return not problem


@functools.cache
def _warn_once(message: str) -> None:
    log.warning(message)


def dense_inputs(architecture: Architecture, rows: NDArray[Any], weights: Weights) -> tuple[Floats, SparseRows | None]:
    """Map rows of observations to a dense network's inputs: (features, None), or (action mask, sparse features)."""
    inputs = architecture.inputs
    if inputs.sparse is None:
        return as_features(architecture.prepare(rows, weights), inputs.greatest), None
    legal = inputs.legal(rows)
    legal = np.zeros((len(rows), 0), np.bool_) if legal is None else legal
    return legal.astype(np.float32), expand(inputs.sparse, inputs.layout.octets(rows), weights.normalizer)


def check_rollout(rollout: Rollout, layout: Layout) -> None:
    """Raise EnvError if a reward or an observation (rows of this layout) is not finite."""
    T, N = rollout.reward.shape
    for t, n in np.argwhere(~np.isfinite(rollout.reward))[:1]:
        raise _refuse(rollout, n, f"the reward {rollout.reward[t, n]}", t)
    if (found := _find_infinite(rollout.obs, layout)) is not None:
        raise _refuse(rollout, found[0] % N, found[1], found[0] // N)
    if (found := _find_infinite(rollout.final_obs, layout)) is not None:
        t, n = rollout.final_at[found[0]]
        raise _refuse(rollout, n, found[1], t + 1)
    if (found := _find_infinite(rollout.last_obs, layout)) is not None:
        raise _refuse(rollout, found[0], found[1], T)


def _find_infinite(rows: NDArray[Any], layout: Layout) -> tuple[int, str] | None:
    """Return the first row of observations that is not finite, and its description; None if all are finite."""
    for leaf in layout.leaves:
        if np.dtype(leaf.dtype).kind == "f":
            numbers = numbers_of(leaf, layout.octets(rows))
            with np.errstate(over="ignore"):
                finite = np.isfinite(numbers.astype(np.float32, copy=False))  # networks compute in single precision
            if not finite.all():
                k, at = np.argwhere(~finite)[0]
                where = f"whose {dotted(leaf.path)} has" if leaf.path else "with"
                return int(k), f"an observation {where} {numbers[k, at]}"
    return None


def _refuse(rollout: Rollout, row: int, given: str, step: int) -> EnvError:
    which = name_row(int(row), rollout.start.rows_per_env)
    return EnvError(f"{which} returned {given} in step {step} of a rollout; {OBSERVATION_REMEDY}")


def check_values(values: BatchValues, rows: NDArray[np.bool_] | None) -> None:
    """Raise Diverged if the value of an observation in `rows`, or of any, is not finite."""
    wrong = ~np.isfinite(values.value)
    for t, n in np.argwhere(wrong if rows is None else wrong & rows)[:1]:
        raise Diverged(f"the value of an observation is {values.value[t, n]}: {REMEDY}")


class SingleLearner:
    """Single learner with the interface of `data_parallel.Learners`."""

    def __init__(self, learner: Any, update: Callable[..., Any], device: str) -> None:
        """Wrap a `Learner`, which is trained by `update(learner, *batch)`."""
        self.first, self._update, self._device = learner, update, device

    def describe(self) -> str:
        """Return the number of learners and their device."""
        return f"1, on {self._device}"

    def training_context(self) -> AbstractContextManager[Any]:
        """Return the context to train in."""
        return self.first.training_context()

    def learn(self, *batch: Any) -> Any:
        """Update the learner with a batch and return the update's result."""
        return self._update(self.first, *batch)
