"""What torch networks learn with: their parameters as one vector, Adam on it, and encoders in mixed precision."""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.optim.adam import adam

from paddock.algos.networks.dense.init import init_uniform
from paddock.algos.networks.determinism import deterministic
from paddock.algos.networks.encoders import CustomEncoder

Network = TypeVar("Network", bound=nn.Module)


def flatten(network: nn.Module) -> Tensor:
    """Make the parameters of a network views of one vector [P], and return it."""
    parameters = list(network.parameters())
    theta = nn.utils.parameters_to_vector(parameters).detach().clone()
    start = 0
    for parameter in parameters:
        parameter.data = theta[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return theta


def builtin_layers(network: nn.Module) -> Iterator[nn.Linear | nn.Conv2d]:
    """Find dense layers and convolutions, but none of an encoder of somebody's own."""
    own = {
        id(part) for encoder in network.modules() if isinstance(encoder, CustomEncoder) for part in encoder.modules()
    }
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d) and id(layer) not in own:
            yield layer


def init_layers(network: nn.Module, generator: np.random.Generator) -> None:
    """Draw dense layers and convolutions by torch's default, but none of an encoder of somebody's own."""
    for layer in builtin_layers(network):
        drawn = init_uniform((layer.weight[0].numel(), len(layer.weight)), generator)
        nn.utils.vector_to_parameters(torch.from_numpy(drawn), layer.parameters())


def attach_gradients(network: nn.Module, theta: Tensor) -> Tensor:
    """Make the gradients of a network views of one vector like its parameters [P], and return it."""
    gradient, start = torch.zeros_like(theta), 0
    for parameter in network.parameters():
        parameter.grad = gradient[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return gradient


def copy_network(network: Network) -> tuple[Network, Tensor]:
    """Return a copy of a network without gradients, and its parameters as one vector [P]."""
    target = copy.deepcopy(network).requires_grad_(False)
    return target, flatten(target)


@torch.no_grad()
def polyak_update(target: Tensor, theta: Tensor, tau: float) -> None:
    """Move targets [P] by a share of their way to parameters [P]; at 1 they are copied."""
    target.copy_(theta) if tau == 1 else target.add_(theta - target, alpha=tau)


class ParameterVector:
    """The parameters of a network and their gradients, views of one vector each, and Adam's moments.

    Clipping, the optimizer's step, copies for actors and the exchange between learners are then single operations.
    """

    def __init__(self, network: nn.Module, adam_epsilon: float) -> None:
        self.theta = flatten(network)
        self.gradient = attach_gradients(network, self.theta)
        self._adam_epsilon = adam_epsilon
        self._momentum, self._variance = torch.zeros_like(self.theta), torch.zeros_like(self.theta)  # Adam's moments
        self._descents = torch.zeros((), device=self.theta.device)

    @torch.no_grad()
    def optimizer_step(self, rate: float, max_norm: float | None) -> Tensor:
        """Take one step of Adam; returns the gradient's norm before clipping.

        Args:
            max_norm: the gradient is scaled down to it; None: it is left as it is.
        """
        norm = torch.linalg.vector_norm(self.gradient)
        if max_norm is not None:
            self.gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
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
        return norm

    def parameters(self) -> NDArray[np.float32]:
        """A copy of the flat parameters [P]."""
        return to_numpy(self.theta)

    def state_dict(self) -> dict[str, Any]:
        """Parameters and Adam's moments."""
        return {
            "parameters": self.parameters(),
            "momentum": to_numpy(self._momentum),
            "variance": to_numpy(self._variance),
            "descents": int(self._descents.item()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.theta.copy_(torch.from_numpy(state["parameters"]))
        self._momentum.copy_(torch.from_numpy(state["momentum"]))
        self._variance.copy_(torch.from_numpy(state["variance"]))
        self._descents.fill_(state["descents"])


def to_numpy(tensor: Tensor) -> NDArray[np.float32]:
    """Return a copy as an array."""
    array: NDArray[np.float32] = tensor.detach().cpu().numpy().copy()
    return array


class TrainedEncoder(nn.Module):
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


def wrap_encoders(network: nn.Module, precision: str, compiled: bool) -> None:
    """Have the encoders of a network, by their names, compute in a precision, and through `torch.compile`."""
    if precision == "bfloat16" or compiled:
        for name, encoder in list(network.named_children()):
            if name.endswith("_encoder"):
                setattr(network, name, TrainedEncoder(encoder, precision == "bfloat16", compiled))


@contextlib.contextmanager
def computing_with(threads: int, device: torch.device) -> Iterator[None]:
    """Let torch and NumPy compute with so many threads, on a GPU in one order, and afterwards as they did."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads), deterministic() if device.type == "cuda" else contextlib.nullcontext():
            yield
    finally:
        torch.set_num_threads(before)


def mark_batch_dynamic(obs: Tensor) -> None:
    """Have `torch.compile` make one kernel for observations [B, ...] of every B.

    The last bits must not depend on which minibatch came first. Torch has no public way to say so for one tensor.
    """
    torch._dynamo.maybe_mark_dynamic(obs, 0)
    torch._dynamo.mark_static(obs, list(range(1, obs.ndim)))
