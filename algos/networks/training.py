"""Training of torch networks: parameters as one vector, Adam, and mixed-precision encoders."""

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
    """Turn the parameters of a network into views of one vector [P]; return it."""
    parameters = list(network.parameters())
    theta = nn.utils.parameters_to_vector(parameters).detach().clone()
    start = 0
    for parameter in parameters:
        parameter.data = theta[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return theta


def builtin_layers(network: nn.Module) -> Iterator[nn.Linear | nn.Conv2d]:
    """Yield linear layers and convolutions outside of custom encoders."""
    encoders = [module for module in network.modules() if isinstance(module, CustomEncoder)]
    custom = {id(module) for encoder in encoders for module in encoder.modules()}
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d) and id(layer) not in custom:
            yield layer


def init_layers(network: nn.Module, generator: np.random.Generator) -> None:
    """Initialize layers outside of custom encoders with torch's default distribution."""
    for layer in builtin_layers(network):
        initial = init_uniform((layer.weight[0].numel(), len(layer.weight)), generator)
        nn.utils.vector_to_parameters(torch.from_numpy(initial), layer.parameters())


def attach_gradients(network: nn.Module, theta: Tensor) -> Tensor:
    """Turn the gradients of a network into views of one vector [P]; return it."""
    gradient, start = torch.zeros_like(theta), 0
    for parameter in network.parameters():
        parameter.grad = gradient[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return gradient


def copy_network(network: Network) -> tuple[Network, Tensor]:
    """Copy a network without gradients; return the copy and its parameter vector [P]."""
    target = copy.deepcopy(network).requires_grad_(False)
    return target, flatten(target)


@torch.no_grad()
def polyak_update(target: Tensor, theta: Tensor, tau: float) -> None:
    """Move target parameters [P] towards `theta` [P]; tau = 1 copies them."""
    target.copy_(theta) if tau == 1 else target.add_(theta - target, alpha=tau)


class ParameterVector:
    """Parameters and gradients of a network as one vector each, with Adam's moments, for operations on all at once."""

    def __init__(self, network: nn.Module, adam_epsilon: float) -> None:
        self.theta = flatten(network)
        self.gradient = attach_gradients(network, self.theta)
        self._adam_epsilon = adam_epsilon
        self._momentum, self._variance = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self._descents = torch.zeros((), device=self.theta.device)

    @torch.no_grad()
    def optimizer_step(self, rate: float, max_norm: float | None) -> Tensor:
        """Take one step of Adam, clipping gradients to `max_norm`; return the norm before clipping."""
        norm = torch.linalg.vector_norm(self.gradient)
        if max_norm is not None:
            self.gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        # torch.optim.Adam imports torch's compiler, which takes a second.
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
        """Return a copy of the parameters [P]."""
        return to_numpy(self.theta)

    def state_dict(self) -> dict[str, Any]:
        """Return the parameters and Adam's moments."""
        return {
            "parameters": self.parameters(),
            "momentum": to_numpy(self._momentum),
            "variance": to_numpy(self._variance),
            "descents": int(self._descents.item()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from `state_dict`."""
        self.theta.copy_(torch.from_numpy(state["parameters"]))
        self._momentum.copy_(torch.from_numpy(state["momentum"]))
        self._variance.copy_(torch.from_numpy(state["variance"]))
        self._descents.fill_(state["descents"])


def to_numpy(tensor: Tensor) -> NDArray[np.float32]:
    """Copy a tensor to an array."""
    array: NDArray[np.float32] = tensor.detach().cpu().numpy().copy()
    return array


class MixedPrecisionEncoder(nn.Module):
    """Encoder in bfloat16 where precision allows it."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self._layers = layers

    def forward(self, obs: Tensor) -> Tensor:
        """Encode observations."""
        with torch.autocast(obs.device.type, torch.bfloat16):
            # Back to float32, since 8 bits are too few for values and LSTM states.
            return self._layers(obs).float()


def wrap_encoders(network: nn.Module, precision: str) -> None:
    """Wrap the encoders of a network if `precision` is bfloat16."""
    for name, encoder in list(network.named_children()) if precision == "bfloat16" else []:
        if name.endswith("_encoder"):
            setattr(network, name, MixedPrecisionEncoder(encoder))


@contextlib.contextmanager
def computing_with(threads: int, device: torch.device) -> Iterator[None]:
    """Set the number of threads of torch and NumPy, and determinism on GPUs, for a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads), deterministic() if device.type == "cuda" else contextlib.nullcontext():
            yield
    finally:
        torch.set_num_threads(before)
