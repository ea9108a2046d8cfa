"""Learning in torch: networks of every kind, on every device, and several learners as one."""

import os
import shutil
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paddock.algos.learning.learner import Batch, BatchValues, plain_weights
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.actor_critic import ActorCritic, as_tensor, copy_to, logprob_and_entropy
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.shape import Surrogate
from paddock.algos.networks.training import ParameterVector, computing_with, wrap_encoders
from paddock.envs.errors import require

CHUNK = {"cpu": 128, "cuda": 8192}  # observations evaluated at once, whose convolutions fit a cache, or the memory


class TorchLearner:
    """A network and its optimizer."""

    def __init__(
        self,
        architecture: Architecture,
        seed: int,
        *,
        device: str,
        precision: str,
        compiled: bool,
        adam_epsilon: float,
        threads: int = 1,
        context: "DistributedContext | None" = None,
    ) -> None:
        """Build the network.

        Args:
            threads: of its arithmetic on a CPU, which may change last bits.
            precision: float32, or bfloat16: encoders in mixed precision, all after them in float32.
            compiled: run the encoders through `torch.compile`.
            context: of several learners; None for one alone.
        """
        self.device = torch.device(device)
        self.architecture = architecture
        self.context = context or DistributedContext()
        self._threads = threads
        self.network = ActorCritic(architecture, seed).to(self.device)
        wrap_encoders(self.network, precision, compiled)
        self._vector = ParameterVector(self.network, adam_epsilon)
        self.theta, self.gradient = self._vector.theta, self._vector.gradient

    def _apply(self, loss: Tensor, rate: float, max_norm: float | None) -> Tensor:
        """One step of Adam against the sum of all learners' losses; returns its gradient's norm before clipping."""
        self.gradient.zero_()
        loss.backward()
        self.context.all_reduce(self.gradient)
        return self._vector.optimizer_step(rate, max_norm)

    def at_work(self) -> AbstractContextManager[None]:
        """See `Learner.at_work`: with its threads, and afterwards those there were."""
        return computing_with(self._threads, self.device)

    def evaluate_batch(self, rollout: Rollout, weights: Weights) -> BatchValues:
        """See `Learner.evaluate_batch`; the rollout goes to the device."""
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
                parts = [self.network(part) for part in obs.split(CHUNK[self.device.type])]
                out = torch.cat([part for part, _ in parts]).unflatten(0, (T, N))
                value = torch.cat([part for _, part in parts]).unflatten(0, (T, N))
                states = state.new_zeros((T, N, 0))
            _, last, _ = self.network.step(self._observations(rollout.last_obs, weights), states[-1])
            following = torch.cat([value[1:], last[None]])
            if len(t):
                _, final, _ = self.network.step(self._observations(rollout.final_obs, weights), states[t, n])
                following[t, n] = final
            logprob, _ = logprob_and_entropy(
                self.architecture.head, out.flatten(0, 1), self.network.log_std, action.flatten(0, 1)
            )
        told = [each.cpu().numpy() for each in (value, following, logprob.view_as(value))]
        return BatchValues(told[0], told[1], told[2], _Inputs(obs, action, state, start, acts))

    def optimizer_step(
        self,
        values: BatchValues,
        batch: Batch,
        minibatches: Sequence[NDArray[np.int64]],
        objective: Surrogate,
        rate: float,
        max_norm: float | None,
    ) -> NDArray[np.float64]:
        """See `Learner.optimizer_step`: against the sum of all learners' losses."""
        known = [self._tensor(each) for each in (batch.logprob, batch.advantage, batch.target, batch.value)]
        learned = None if batch.rows is None else self._tensor(batch.rows)
        reports, norms = [], []
        for rows in minibatches:
            loss, report = self._loss(values.inputs, known, rows, objective, learned)
            norms.append(self._apply(loss, rate, max_norm))
            reports.append(torch.stack(report).detach())
        told = torch.stack(reports)
        self.context.all_reduce(told)
        return torch.column_stack([told, torch.stack(norms)]).cpu().numpy().astype(np.float64)

    def _loss(
        self,
        inputs: "_Inputs",
        known: list[Tensor],
        minibatch: NDArray[np.int64],
        objective: Surrogate,
        learned: Tensor | None,
    ) -> tuple[Tensor, list[Tensor]]:
        """This learner's part of a minibatch's loss and of what is reported of it; both add up over learners."""
        everyone = torch.from_numpy(minibatch).to(self.device)
        rows = torch.from_numpy(self.context.share(minibatch)).to(self.device)
        out, value = self._outputs(inputs, rows, learned)
        old, advantage, target, before = (self._pick(each, rows, learned) for each in known)
        all_advantages = self._pick(known[1], everyone, learned)
        logprob, entropy = logprob_and_entropy(
            self.architecture.head, out, self.network.log_std, self._pick(inputs.action, rows, learned)
        )
        difference = logprob - old
        ratio, clip, count = difference.exp(), objective.clip_coef, len(all_advantages)
        if objective.normalize_advantages and count > 1:
            advantage = (advantage - all_advantages.mean()) / (all_advantages.std() + 1e-8)
        policy_loss = -torch.min(advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip)).sum() / count
        errors = (value - target) ** 2
        if (limit := objective.value_clip_coef) is not None:
            errors = torch.max(errors, (before + (value - before).clamp(-limit, limit) - target) ** 2)
        value_loss = 0.5 * errors.sum() / count
        spread = entropy.sum() / count
        loss = policy_loss + objective.value_coef * value_loss - objective.entropy_coef * spread
        with torch.no_grad():
            divergence = (ratio - 1 - difference).sum() / count  # Schulman 2020, "Approximating KL divergence"
            clipped_share = ((ratio - 1).abs() > clip).float().sum() / count
        return loss, [policy_loss, value_loss, spread, divergence, clipped_share]

    def _outputs(self, inputs: "_Inputs", rows: Tensor, learned: Tensor | None) -> tuple[Tensor, Tensor]:
        """Outputs [B, W] and values [B], with gradients.

        Args:
            rows: of the flattened rollout; for an LSTM, environments, whose steps follow each other in the result.
            learned: [T, N], which of an LSTM's steps are in the result; None: all.
        """
        if not self.architecture.lstm:
            return self.network(inputs.obs[rows])
        T, N = inputs.start.shape
        obs = inputs.obs.unflatten(0, (T, N))[:, rows]
        acts = None if inputs.acts is None else inputs.acts[:, rows]
        out, value, _ = self.network.unroll(obs, inputs.state[rows], inputs.start[:, rows], acts)
        if learned is not None:
            return out[learned[:, rows]], value[learned[:, rows]]
        return out.flatten(0, 1), value.flatten()

    def _pick(self, array: Tensor, rows: Tensor, learned: Tensor | None) -> Tensor:
        """The rows of [T, N, ...] that go with `_outputs`, [B, ...]."""
        if not self.architecture.lstm:
            return array.flatten(0, 1)[rows]
        return array[:, rows].flatten(0, 1) if learned is None else array[:, rows][learned[:, rows]]

    def parameters(self) -> NDArray[np.float32]:
        """A copy of the flat parameters [P]."""
        return self._vector.parameters()

    def _observations(self, obs: NDArray, weights: Weights) -> Tensor:
        return as_tensor(self.architecture.prepare(obs, weights), self.device)

    def _tensor(self, array: NDArray) -> Tensor:
        return copy_to(array, self.device)

    def checksum(self) -> int:
        """See `LearnsBeside.checksum`."""
        return zlib.crc32(self.parameters().data)

    def weights(self, version: int) -> Weights:
        """See `Learner.weights`."""
        return plain_weights(version, self.parameters())

    def state_dict(self) -> dict[str, Any]:
        """See `ParameterVector.state_dict`."""
        return self._vector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._vector.load_state_dict(state)


@dataclass(frozen=True)
class DistributedContext:
    """Which of the learners this is that learn together, and how they add up tensors."""

    rank: int = 0  # 0 is the run's own
    world_size: int = 1
    all_reduce: Callable[[Tensor], None] = lambda tensor: None  # replaces a tensor by its sum over all learners
    all_gather: Callable[[Tensor], Tensor] = lambda tensor: tensor  # joins tensors [N, ...] of all, by their ranks

    def share(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """This learner's part of a minibatch; may be empty."""
        return rows[self.rank :: self.world_size]


@dataclass(frozen=True)
class _Inputs:
    """A rollout on the learner's device."""

    obs: Tensor  # [T * N, ...], as `Architecture.prepare` gives them
    action: Tensor  # [T, N, K]
    state: Tensor  # [N, S], before the first step
    start: Tensor  # [T, N], whether an episode begins
    acts: Tensor | None  # [T, N], whether the row acts; None: all do


def check_compiler(device: str) -> None:
    """Raise ConfigError unless `torch.compile` finds the compiler that it needs on a cpu."""
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    missing = f"compiled=true needs a C++ compiler on a cpu, and {compiler} is not installed"
    require(device != "cpu" or shutil.which(compiler) is not None, f"{missing}; install it, or use compiled=false")


def check_device(device: str) -> None:
    """Raise ConfigError unless torch can compute there."""
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        require(
            False, f"device={device} is not a device; allowed: cpu, cuda, cuda:0, ... ({str(error).splitlines()[0]})"
        )
    require(kind in ("cpu", "cuda"), f"device={device} is not supported; allowed: cpu, cuda, cuda:0, ...")
    if kind == "cuda":
        count = torch.cuda.device_count()
        index = torch.device(device).index or 0
        require(index < count, f"device={device}: torch sees {count} GPUs here; use device=cpu")
