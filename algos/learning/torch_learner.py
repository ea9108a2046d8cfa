"""Learning in torch: networks of every kind, on every device, and several learners as one."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.optim.adam import adam

from algos.learning.learner import Batch, BatchValues, plain_weights
from algos.learning.rollout import Rollout
from algos.networks.actor_critic import ActorCritic, as_tensor, logprob_and_entropy
from algos.networks.architecture import Architecture, Weights
from algos.networks.dense.shape import Surrogate
from envs.errors import require

CHUNK = 8192  # observations evaluated at once, which bounds the memory that convolutions take


class TorchLearner:
    """A network and its optimizer.

    Parameters and gradients are views of one vector each: clipping, the optimizer's step, copies for actors and the
    exchange between learners are single operations.
    """

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
        self.context = context or DistributedContext(0, 1, lambda tensor: None)
        self.rank = self.context.rank
        self._threads = threads
        self.network = ActorCritic(architecture, seed).to(self.device)
        for name, encoder in list(self.network.named_children()):
            if name.endswith("_encoder") and (compiled or precision == "bfloat16"):
                setattr(self.network, name, _Encoder(encoder, precision == "bfloat16", compiled))
        parameters = list(self.network.parameters())
        self.theta = torch.nn.utils.parameters_to_vector(parameters).detach().clone()
        self.gradient = torch.zeros_like(self.theta)
        start = 0
        for parameter in parameters:
            stop = start + parameter.numel()
            parameter.data = self.theta[start:stop].view_as(parameter)
            parameter.grad = self.gradient[start:stop].view_as(parameter)
            start = stop
        self._adam_epsilon = adam_epsilon
        self._momentum, self._variance = torch.zeros_like(self.theta), torch.zeros_like(self.theta)  # Adam's moments
        self._descents = torch.zeros((), device=self.device)

    def _apply(self, loss: Tensor, rate: float, max_norm: float | None) -> Tensor:
        """One step of Adam against the sum of all learners' losses; returns its gradient's norm before clipping."""
        self.gradient.zero_()
        loss.backward()
        self.context.all_reduce(self.gradient)
        norm = torch.linalg.vector_norm(self.gradient)
        if max_norm is not None:
            self.gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        self._descend(rate)
        return norm

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """See `Learner.at_work`: with its threads, and afterwards those there were."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            with threadpool_limits(self._threads):
                yield
        finally:
            torch.set_num_threads(before)

    def evaluate_batch(self, rollout: Rollout, weights: Weights) -> BatchValues:
        """See `Learner.evaluate_batch`; the rollout goes to the device."""
        T, N = rollout.reward.shape
        obs = self._observations(rollout.obs.reshape(T * N, *rollout.obs.shape[2:]), weights)
        state, start = self._tensor(rollout.start.state), self._tensor(rollout.starts)
        t, n = torch.from_numpy(rollout.final_at).to(self.device).unbind(1)
        action = self._tensor(rollout.action)
        with torch.no_grad():
            if self.architecture.lstm:
                out, value, states = self.network.unroll(obs.unflatten(0, (T, N)), state, start)
            else:
                parts = [self.network(part) for part in obs.split(CHUNK)]
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
        return BatchValues(told[0], told[1], told[2], _Inputs(obs, action, state, start))

    def descend(
        self,
        values: BatchValues,
        batch: Batch,
        minibatches: Sequence[NDArray[np.int64]],
        objective: Surrogate,
        rate: float,
        max_norm: float | None,
    ) -> NDArray[np.float64]:
        """See `Learner.descend`: against the sum of all learners' losses."""
        known = [self._tensor(each) for each in (batch.logprob, batch.advantage, batch.target, batch.value)]
        reports, norms = [], []
        for rows in minibatches:
            loss, report = self._loss(values.inputs, known, rows, objective)
            norms.append(self._apply(loss, rate, max_norm))
            reports.append(torch.stack(report).detach())
        told = torch.stack(reports)
        self.context.all_reduce(told)
        return torch.column_stack([told, torch.stack(norms)]).cpu().numpy().astype(np.float64)

    def _loss(
        self, inputs: "_Inputs", known: list[Tensor], minibatch: NDArray[np.int64], objective: Surrogate
    ) -> tuple[Tensor, list[Tensor]]:
        """This learner's part of a minibatch's loss and of what is reported of it; both add up over learners."""
        everyone = torch.from_numpy(minibatch).to(self.device)
        rows = torch.from_numpy(self.context.share(minibatch)).to(self.device)
        out, value = self._outputs(inputs, rows)
        old, advantage, target, before = (self._pick(each, rows) for each in known)
        all_advantages = self._pick(known[1], everyone)
        logprob, entropy = logprob_and_entropy(
            self.architecture.head, out, self.network.log_std, self._pick(inputs.action, rows)
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

    def _outputs(self, inputs: "_Inputs", rows: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [B, W] and values [B], with gradients.

        Args:
            rows: of the flattened rollout; for an LSTM, environments, whose steps follow each other in the result.
        """
        if not self.architecture.lstm:
            return self.network(inputs.obs[rows])
        T, N = inputs.start.shape
        obs = inputs.obs.unflatten(0, (T, N))[:, rows]
        out, value, _ = self.network.unroll(obs, inputs.state[rows], inputs.start[:, rows])
        return out.flatten(0, 1), value.flatten()

    def _pick(self, array: Tensor, rows: Tensor) -> Tensor:
        """The rows of [T, N, ...] that go with `_outputs`, [B, ...]."""
        return array[:, rows].flatten(0, 1) if self.architecture.lstm else array.flatten(0, 1)[rows]

    def parameters(self) -> NDArray[np.float32]:
        """A copy of the flat parameters [P]."""
        return self.theta.detach().cpu().numpy().copy()

    def _observations(self, obs: NDArray, weights: Weights) -> Tensor:
        return as_tensor(self.architecture.prepare(obs, weights), self.device)

    def _tensor(self, array: NDArray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def weights(self, version: int) -> Weights:
        """See `Learner.weights`."""
        return plain_weights(version, self.parameters())

    def state_dict(self) -> dict[str, Any]:
        """Parameters and Adam's moments."""
        return {
            "parameters": self.parameters(),
            "momentum": self._momentum.cpu().numpy().copy(),
            "variance": self._variance.cpu().numpy().copy(),
            "descents": int(self._descents.item()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.theta.copy_(torch.from_numpy(state["parameters"]))
        self._momentum.copy_(torch.from_numpy(state["momentum"]))
        self._variance.copy_(torch.from_numpy(state["variance"]))
        self._descents.fill_(state["descents"])

    @torch.no_grad()
    def _descend(self, rate: float) -> None:
        # The class torch.optim.Adam brings torch's compiler with it, which takes a second to import.
        adam(
            [self.theta],
            [self.gradient],
            [self._momentum],
            [self._variance],
            [],
            [self._descents],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=rate,
            weight_decay=0.0,
            eps=self._adam_epsilon,
            maximize=False,
        )


@dataclass(frozen=True)
class DistributedContext:
    """Which of the learners this is that learn together, and how they add up tensors."""

    rank: int  # 0 is the run's own
    world_size: int
    all_reduce: Callable[[Tensor], None]  # replaces a tensor by its sum over all learners

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


class _Encoder(nn.Module):
    """An encoder in mixed precision, or compiled, or both."""

    def __init__(self, layers: nn.Module, mixed: bool, compiled: bool) -> None:
        super().__init__()
        self._layers = layers
        self._mixed = mixed
        self._compiled = torch.compile(self._encode) if compiled else None

    def forward(self, obs: Tensor) -> Tensor:
        # What is evaluated comes in many sizes and only a few times.
        if self._compiled is None or not torch.is_grad_enabled():
            return self._encode(obs)
        mark_batch_dynamic(obs)
        return self._compiled(obs)

    def _encode(self, obs: Tensor) -> Tensor:
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self._mixed):
            # Back to float32, since 8 bits are too few for values and for memory.
            return self._layers(obs).float()


def mark_batch_dynamic(obs: Tensor) -> None:
    """Have `torch.compile` make one kernel for observations [B, ...] of every B.

    The last bits must not depend on which minibatch came first. Torch has no public way to say so for one tensor.
    """
    torch._dynamo.maybe_mark_dynamic(obs, 0)
    torch._dynamo.mark_static(obs, list(range(1, obs.ndim)))


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
