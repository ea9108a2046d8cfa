"""What gradient-based algorithms learn with: one network, its parameters in one flat vector, Adam, several devices."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.adam import adam

from algos.learning.rollout import Rollout
from algos.networks.actor_critic import ActorCritic, as_tensor
from algos.networks.architecture import Architecture, Weights
from algos.networks.dense import DenseNetwork
from envs.errors import require

CHUNK = 8192  # observations evaluated at once, which bounds the memory that convolutions take


class Learner:
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
        context: "DistributedContext | None" = None,
    ) -> None:
        """Build the network.

        Args:
            precision: float32, or bfloat16: encoders in mixed precision, all after them in float32.
            compiled: run the encoders through `torch.compile`.
            context: of several learners; None for one alone.
        """
        self.device = torch.device(device)
        self.architecture = architecture
        self.context = context or DistributedContext(0, 1, lambda tensor: None)
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
        plain = architecture.is_dense and precision == "float32" and not compiled
        self.dense: DenseNetwork | None = None  # does without torch where that is faster
        if plain and self.device.type == "cpu" and self.context.world_size == 1:
            self.dense = DenseNetwork(architecture, self.theta.numpy(), self.gradient.numpy())
        self._adam_epsilon = adam_epsilon
        self._momentum, self._variance = torch.zeros_like(self.theta), torch.zeros_like(self.theta)  # Adam's moments
        self._descents = torch.zeros((), device=self.device)

    def apply_loss(self, loss: Tensor, rate: float, max_norm: float | None) -> Tensor:
        """One step of Adam against the sum of all learners' losses; returns its gradient's norm before clipping."""
        self.gradient.zero_()
        loss.backward()
        return self.apply_gradient(rate, max_norm)

    def apply_gradient(self, rate: float, max_norm: float | None) -> Tensor:
        """One step of Adam against the sum of all learners' gradients; returns its norm before clipping."""
        self.context.all_reduce(self.gradient)
        norm = torch.linalg.vector_norm(self.gradient)
        if max_norm is not None:
            self.gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        self._descend(rate)
        return norm

    def evaluate_batch(self, rollout: Rollout, weights: Weights) -> "BatchValues":
        """Send a rollout to the device, and compute the value of every observation and the outputs there.

        Args:
            weights: whose normalization of observations holds.
        """
        T, N = rollout.reward.shape
        obs = self._observations(rollout.obs.reshape(T * N, *rollout.obs.shape[2:]), weights)
        state, start = self._tensor(rollout.start.state), self._tensor(rollout.starts)
        t, n = torch.from_numpy(rollout.final_at).to(self.device).unbind(1)
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
        action = self._tensor(rollout.action)
        return BatchValues(obs, action, state, start, out, value.cpu().numpy(), following.cpu().numpy())

    def outputs(self, values: "BatchValues", rows: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [B, W] and values [B], with gradients.

        Args:
            rows: of the flattened rollout; for an LSTM, environments, whose steps follow each other in the result.
        """
        if not self.architecture.lstm:
            return self.network(values.obs[rows])
        T, N = values.start.shape
        obs = values.obs.unflatten(0, (T, N))[:, rows]
        out, value, _ = self.network.unroll(obs, values.state[rows], values.start[:, rows])
        return out.flatten(0, 1), value.flatten()

    def pick(self, array: Tensor, rows: Tensor) -> Tensor:
        """The rows of [T, N, ...] that go with `outputs`, [B, ...]."""
        return array[:, rows].flatten(0, 1) if self.architecture.lstm else array.flatten(0, 1)[rows]

    def parameters(self) -> NDArray[np.float32]:
        """A copy of the flat parameters [P]."""
        return self.theta.detach().cpu().numpy().copy()

    def _observations(self, obs: NDArray, weights: Weights) -> Tensor:
        return as_tensor(self.architecture.prepare(obs, weights), self.device)

    def _tensor(self, array: NDArray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def weights(self, version: int) -> Weights:
        """The policy for actors, with observations as they are."""
        nothing = np.zeros(0, np.float32)
        return Weights(version, self.parameters(), nothing, nothing, 0.0)

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
class BatchValues:
    """A rollout on the learner's device, and what the network says of it before it learns."""

    obs: Tensor  # [T * N, ...], as `Architecture.prepare` gives them
    action: Tensor  # [T, N, K]
    state: Tensor  # [N, S], before the first step
    start: Tensor  # [T, N], whether an episode begins
    out: Tensor  # [T, N, W]
    value: NDArray[np.float32]  # [T, N]
    next_value: NDArray[np.float32]  # [T, N], of the observation that each step led to


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
