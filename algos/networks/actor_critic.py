"""Actor-critic network in torch: encoder, optional LSTM, policy and value heads."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.init import init_parameters
from paddock.algos.networks.dense.shape import DenseShape
from paddock.algos.networks.encoders import legal_in, make_encoder
from paddock.algos.networks.heads import LOWEST
from paddock.algos.networks.layers import allocate, linear
from paddock.algos.networks.lstm import unroll
from paddock.algos.networks.support import Support

if TYPE_CHECKING:
    from paddock.algos.learning.onpolicy.minibatch import Minibatch

ALIGNMENT = 64  # bytes, of a tensor's memory on a CPU


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread, since orthogonal initialization depends on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ActorCritic(nn.Module):
    """Policy and value network; the policy's parameters are registered first.

    Weights are orthogonal with gain sqrt(2), 0.01 for the policy's output and 1 for the value's; biases are 0.
    """

    def __init__(self, architecture: Architecture, seed: int, *, critic: bool = True) -> None:
        """Initialize the network; without `critic` it has no value function, and can only `act`."""
        super().__init__()
        self.architecture = architecture
        with one_thread():
            self._build(architecture, critic, torch.Generator().manual_seed(seed % 2**63))
        if architecture.is_dense:  # the same initialization as in C, bit-identical on every CPU
            initial = init_parameters(DenseShape.of(architecture), architecture.initial_log_std, seed)
            nn.utils.vector_to_parameters(torch.from_numpy(initial), self.parameters())

    def _build(self, architecture: Architecture, critic: bool, generator: torch.Generator) -> None:
        self.policy_encoder, width = make_encoder(architecture, generator)
        self.policy_head = linear(width, architecture.outputs, 0.01, generator)
        # Parameters of a module precede those of its submodules, so this is the start of the flat vector.
        self.log_std = nn.Parameter(torch.full((architecture.head.num_log_std,), architecture.initial_log_std))
        apart = critic and not architecture.shared
        self.value_encoder = make_encoder(architecture, generator)[0] if apart else None
        if critic:
            self.value_head = linear(width, 1, 1.0, generator)
        self.lstm = _lstm(architecture.features, generator) if architecture.lstm else None

    def encode(self, obs: Tensor) -> Tensor:
        """Map inputs [B, ...] from `Architecture.prepare` to features [B, F] of the policy, then of the value."""
        features = self.policy_encoder(obs)
        return features if self.value_encoder is None else torch.cat([features, self.value_encoder(obs)], 1)

    def decode(self, features: Tensor, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Map features [B, F] to masked head outputs [B, W] and values [B]."""
        policy, value = (features, features) if self.value_encoder is None else features.chunk(2, 1)
        return self._outputs(policy, obs), self.value_head(value).squeeze(1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Map inputs [B, ...] to head outputs [B, W] and values [B], without LSTM."""
        return self.decode(self.encode(obs), obs)

    def act(self, obs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Map inputs [B, ...] to head outputs and the next state, skipping values if there is no LSTM."""
        if self.lstm is None:
            return self.policy(obs), state
        features, after = self._remember(obs, state)
        return self._outputs(features if self.value_encoder is None else features.chunk(2, 1)[0], obs), after

    def policy(self, obs: Tensor) -> Tensor:
        """Map inputs [B, ...] to head outputs [B, W], without LSTM and values."""
        return self._outputs(self.policy_encoder(obs), obs)

    def _outputs(self, features: Tensor, obs: Tensor) -> Tensor:
        out, legal = self.policy_head(features), legal_in(self.architecture.inputs, obs)
        if self.architecture.support is not None:
            out = expect(out.unflatten(1, (self.architecture.head.width, -1)), self.architecture.support)
        return out if legal is None else masked(out, legal)

    def step(self, obs: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map inputs and LSTM state [B, S] to head outputs, values and the next state."""
        features, state = self._remember(obs, state)
        return *self.decode(features, obs), state

    def _remember(self, obs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encode(obs)
        if self.lstm is None:
            return features, state
        output, cell = self.lstm(features, state.chunk(2, 1))
        return output, torch.cat([output, cell], 1)

    def unroll(
        self, obs: Tensor, state: Tensor, start: Tensor, acts: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Map sequences [T, B, *shape] to outputs [T, B, W], values [T, B] and states [T, B, S]; see `lstm.unroll`."""
        T, B = obs.shape[:2]
        flat = obs.flatten(0, 1)
        features = self.encode(flat)
        states = state.new_zeros((T, B, state.shape[1]))
        if self.lstm is not None:
            states = unroll(self.lstm, features.unflatten(0, (T, B)), state, start, acts)
            features = states[..., : self.lstm.hidden_size].flatten(0, 1)
        out, value = self.decode(features, flat)
        return out.unflatten(0, (T, B)), value.unflatten(0, (T, B)), states

    def evaluate_actions(self, batch: "Minibatch") -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, entropies and values of a minibatch's steps, [B] each, with gradients."""
        if (sequences := batch.sequences) is None:
            out, value = self(batch.obs)
        else:
            out, value, _ = self.unroll(batch.obs, sequences.state, sequences.start, sequences.active)
            kept = sequences.learned
            out, value = (each.flatten(0, 1) if kept is None else each[kept] for each in (out, value))
        logprob, entropy = self.architecture.head.logprob_and_entropy(out, self.log_std, batch.action)
        return logprob, entropy, value


def acting_network(architecture: Architecture, seed: int = 0) -> ActorCritic:
    """Return a network for acting: without value function, unless one shares the LSTM."""
    return ActorCritic(architecture, seed, critic=architecture.lstm and not architecture.actor_only)


def expect(logits: Tensor, support: Support) -> Tensor:
    """Return the mean [...] of distributions over atoms with logits [..., N]."""
    mean: Tensor = torch.softmax(logits, -1) @ torch.from_numpy(support.values).to(logits.device)
    return mean


def masked(out: Tensor, legal: Tensor) -> Tensor:
    """Give outputs [..., W] that are not `legal` [..., W] probability 0 and no gradient; continuous ones are legal."""
    return torch.where(legal, out, LOWEST)


def copy_to(array: NDArray, device: torch.device) -> Tensor:
    """Copy an array to a device, on a CPU to aligned memory.

    On some CPUs the last bits of products depend on 16-byte alignment, which views of NumPy arrays do not guarantee.
    """
    return torch.tensor(array, device=device)


def aligned(tensor: Tensor) -> Tensor:
    """Return the tensor, copied if its memory is not aligned."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor


def as_tensor(obs: NDArray, device: torch.device) -> Tensor:
    """Copy observations to a device; bytes stay bytes until the encoder."""
    return copy_to(obs if obs.dtype == np.uint8 else obs.astype(np.float32, copy=False), device)


class TorchActor:
    """Actor in torch, for networks with an encoder or LSTM, and for GPUs."""

    def __init__(self, architecture: Architecture, device: str = "cpu") -> None:
        self._device = torch.device(device)
        # A separate stream, since several actors and the learner may use one GPU concurrently.
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
        self._network = acting_network(architecture).to(self._device)
        self._architecture = architecture
        self.log_std = np.zeros(0, np.float32)

    def load(self, weights: Weights) -> None:
        """See `Actor.load`."""
        self._weights = weights
        with self._on_stream():
            parameters = copy_to(weights.parameters, self._device)
            nn.utils.vector_to_parameters(parameters, self._network.parameters())
            self.log_std = self._network.log_std.detach().cpu().numpy()

    def act(self, obs: NDArray, state: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """See `Actor.act`."""
        with torch.inference_mode(), self._on_stream():
            inputs = as_tensor(self._architecture.prepare(obs, self._weights), self._device)
            outputs, after = self._network.act(inputs, copy_to(state, self._device))
            out, memory = outputs.cpu().numpy(), after.cpu().numpy()
        legal = self._architecture.inputs.legal(obs)
        return out if legal is None else self._architecture.head.masked(out, legal), memory

    def _on_stream(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


def _lstm(width: int, generator: torch.Generator) -> nn.LSTMCell:
    cell = allocate(nn.LSTMCell(width, width, device="meta"))
    for name, parameter in cell.named_parameters():
        if "weight" in name:
            nn.init.orthogonal_(parameter, 1.0, generator=generator)
        else:
            nn.init.zeros_(parameter)
    return cell
