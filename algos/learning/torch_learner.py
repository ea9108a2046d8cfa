"""On-policy learner in torch, for all networks and devices, optionally data-parallel."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paddock.algos.learning.custom_loss import Loss, compute_loss
from paddock.algos.learning.learner import Batch, BatchValues, Learner, Report
from paddock.algos.learning.onpolicy.minibatch import Minibatch, Sequences
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.actor_critic import ActorCritic, as_tensor, copy_to
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.shape import LossSettings
from paddock.algos.networks.training import ParameterVector, computing_with, wrap_encoders
from paddock.envs.errors import require

CHUNK = {"cpu": 128, "cuda": 8192}  # observations per forward pass, so that activations fit the cache or GPU memory


class TorchLearner(Learner):
    """Network and its optimizer."""

    def __init__(
        self,
        architecture: Architecture,
        seed: int,
        loss: Loss,
        *,
        device: str,
        precision: str,
        adam_epsilon: float,
        threads: int = 1,
        context: "DistributedContext | None" = None,
    ) -> None:
        """Build the network.

        The loss is called with the network, a `Minibatch` and `LossSettings`. `precision=bfloat16` selects mixed
        precision in encoders, and `threads` may change the last bits.
        """
        self.device = torch.device(device)
        self.architecture, self._loss = architecture, loss
        self.context = context or DistributedContext()
        self._threads = threads
        self.network = ActorCritic(architecture, seed).to(self.device)
        wrap_encoders(self.network, precision)
        self._vector = ParameterVector(self.network, adam_epsilon)
        self.theta, self.gradient = self._vector.theta, self._vector.gradient

    def training_context(self) -> AbstractContextManager[None]:
        """See `Learner.training_context`; sets and restores the number of threads."""
        return computing_with(self._threads, self.device)

    def evaluate_batch(self, rollout: Rollout, weights: Weights) -> BatchValues:
        """See `Learner.evaluate_batch`; the rollout is moved to the device."""
        T, N = rollout.reward.shape
        obs = self._observations(rollout.obs.reshape(T * N, *rollout.obs.shape[2:]), weights)
        state, start = self._tensor(rollout.start.state), self._tensor(rollout.starts)
        acts = None if rollout.acts is None else self._tensor(rollout.acts[:-1])
        t, n = torch.from_numpy(rollout.final_at).to(self.device).unbind(1)
        action = self._tensor(rollout.action)
        with torch.no_grad():
            if self.architecture.lstm:
                out, value, states = self.network.unroll(obs.unflatten(0, (T, N)), state, start, acts)
            else:
                chunks = [self.network(chunk) for chunk in obs.split(CHUNK[self.device.type])]
                out = torch.cat([chunk for chunk, _ in chunks]).unflatten(0, (T, N))
                value = torch.cat([chunk for _, chunk in chunks]).unflatten(0, (T, N))
                states = state.new_zeros((T, N, 0))
            _, last, _ = self.network.step(self._observations(rollout.last_obs, weights), states[-1])
            following = torch.cat([value[1:], last[None]])
            if len(t):
                _, final, _ = self.network.step(self._observations(rollout.final_obs, weights), states[t, n])
                following[t, n] = final
            flat = out.flatten(0, 1), self.network.log_std, action.flatten(0, 1)
            logprob, _ = self.architecture.head.logprob_and_entropy(*flat)
        arrays = [each.cpu().numpy() for each in (value, following, logprob.view_as(value))]
        return BatchValues(arrays[0], arrays[1], arrays[2], _Rollout(obs, action, state, start, acts))

    def optimizer_step(
        self,
        values: BatchValues,
        batch: Batch,
        minibatches: Sequence[NDArray[np.int64]],
        settings: LossSettings,
        rate: float,
        max_norm: float | None,
    ) -> Report:
        """See `Learner.optimizer_step`; gradients are summed over all learners."""
        rollout: _Rollout = values.inputs
        known = [self._tensor(each) for each in (batch.logprob, batch.advantage, batch.target, batch.value)]
        learned = None if batch.rows is None else self._tensor(batch.rows)
        names: tuple[str, ...] = ()
        reports, norms = [], []
        for ids in minibatches:
            part = self._minibatch(rollout, known, learned, ids)
            loss, metrics = compute_loss(self._loss, self.network, part, settings)
            share = len(part.logprob) / max(len(part.all_advantages), 1)
            self.gradient.zero_()
            if share:  # a learner's share of a small minibatch may be empty
                (loss if share == 1 else loss * share).backward()
            self.context.all_reduce(self.gradient)
            norms.append(self._vector.optimizer_step(rate, max_norm))
            scalars = torch.stack([metric.detach() for metric in metrics.values()])
            reports.append(scalars * share if share else torch.zeros_like(scalars))
            names = tuple(metrics)
        metrics_of_steps = torch.stack(reports)
        self.context.all_reduce(metrics_of_steps)
        found = torch.column_stack([metrics_of_steps, torch.stack(norms)]).cpu().numpy().astype(np.float64)
        return Report((*names, "gradient_norm"), found)

    def _minibatch(
        self, rollout: "_Rollout", known: list[Tensor], learned: Tensor | None, ids: NDArray[np.int64]
    ) -> Minibatch:
        """Return this learner's share of a minibatch.

        `known` are log-probabilities, advantages, targets and values, [T, N] each; `learned` [T, N] masks an LSTM's
        steps to learn from; `ids` are indices into the flattened rollout, or, with an LSTM, of environments.
        """
        whole, own = (torch.from_numpy(each).to(self.device) for each in (ids, self.context.share(ids)))

        def pick(array: Tensor, rows: Tensor) -> Tensor:
            """Map [T, N, ...] to [B, ...]."""
            if not self.architecture.lstm:
                return array.flatten(0, 1)[rows]
            return array[:, rows].flatten(0, 1) if learned is None else array[:, rows][learned[:, rows]]

        obs, sequences = rollout.obs, None
        if self.architecture.lstm:
            obs = obs.unflatten(0, rollout.start.shape)
            acts, kept = (None if each is None else each[:, own] for each in (rollout.acts, learned))
            sequences = Sequences(rollout.state[own], rollout.start[:, own], acts, kept)
        logprob, advantage, target, value = (pick(each, own) for each in known)
        return Minibatch(
            obs[:, own] if self.architecture.lstm else obs[own],
            pick(rollout.action, own),
            logprob,
            advantage,
            target,
            value,
            all_advantages=pick(known[1], whole),
            sequences=sequences,
        )

    def parameters(self) -> NDArray[np.float32]:
        """Return a copy of the flat parameters [P]."""
        return self._vector.parameters()

    def _observations(self, obs: NDArray, weights: Weights) -> Tensor:
        return as_tensor(self.architecture.prepare(obs, weights), self.device)

    def _tensor(self, array: NDArray) -> Tensor:
        return copy_to(array, self.device)

    def checksum(self) -> int:
        """Return a checksum of the parameters."""
        return zlib.crc32(self.parameters().data)

    def state_dict(self) -> dict[str, Any]:
        """See `ParameterVector.state_dict`."""
        return self._vector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""
        self._vector.load_state_dict(state)


@dataclass(frozen=True)
class DistributedContext:
    """Rank of a data-parallel learner, and the sum over all learners."""

    rank: int = 0  # 0 runs in the main process
    world_size: int = 1
    all_reduce: Callable[[Tensor], None] = lambda tensor: None  # sums a tensor over all learners, in place

    def share(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this learner's share of a minibatch; may be empty."""
        return rows[self.rank :: self.world_size]


@dataclass(frozen=True)
class _Rollout:
    obs: Tensor  # [T * N, ...], as returned by `Architecture.prepare`
    action: Tensor  # [T, N, K]
    state: Tensor  # [N, S], recurrent state before the first step
    start: Tensor  # [T, N], True where an episode begins
    acts: Tensor | None  # [T, N], True where the row acts; None: everywhere


def check_device(device: str, key: str = "device") -> None:
    """Raise ConfigError unless torch supports the device, the value of setting `key`."""
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        require(
            False,
            f"{key}={device} is not a device; allowed: cpu, cuda, cuda:0, ... ({str(error).splitlines()[0]})",
        )
    require(kind in ("cpu", "cuda"), f"{key}={device} is not supported; allowed: cpu, cuda, cuda:0, ...")
    if kind == "cuda":
        count = torch.cuda.device_count()
        index = torch.device(device).index or 0
        found = f"PyTorch finds {count or 'no'} CUDA device{'s' if count > 1 else ''}"
        require(index < count, f"{key}={device}: {found}; use algo.{key}=cpu (see paddock.doctor)")
