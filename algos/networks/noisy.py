"""NoisyNets (Fortunato et al. 2018, arXiv:1706.10295): exploration by parameter noise in dense layers."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from paddock.algos.networks.training import ParameterVector, attach_gradients, builtin_layers, copy_network, flatten

ONLINE, TARGET, ACTING = range(3)  # noise streams


class NoisyNetworks:
    """Network and target network with parameters mean + sigma * noise; means and sigmas are learned.

    The noise of a dense layer is factorised: f(p) f(q) of one normal sample per input and output, with
    f(x) = sgn(x) sqrt(|x|). Convolutions and custom encoders have no noise. It depends on the update or rollout index only.
    """

    def __init__(
        self,
        network: nn.Module,
        sigma: float,
        generator: Callable[[int, int], np.random.Generator],
        adam_epsilon: float,
    ) -> None:
        """Use the parameters of a network as means, with initial deviations sigma / sqrt(inputs of the layer).

        `generator` returns the random generator of an index and a stream: ONLINE, TARGET or ACTING.
        """
        self._generator = generator
        self._theta = flatten(network)
        self.target, self._target_theta = copy_network(network)
        self._gradient = attach_gradients(network, self._theta)
        starts, start = {}, 0
        for parameter in network.parameters():
            starts[id(parameter)] = start
            start += parameter.numel()
        self._layers = [
            (starts[id(a.weight)], *a.weight.shape) for a in builtin_layers(network) if isinstance(a, nn.Linear)
        ]
        deviation = torch.zeros_like(self._theta)
        for start, outputs, inputs in self._layers:
            deviation[start : start + outputs * (inputs + 1)] = sigma / inputs**0.5
        self.learned = ParameterVector(nn.ParameterList([self._theta, deviation]), adam_epsilon)  # [2P]
        self.targets = self.learned.theta.clone()  # [2P]
        self._noise = torch.zeros_like(self._theta)  # of the online network

    def resample(self, update: int) -> None:
        """Resample the noise of both networks for an update."""
        self._noise = self._sample(update, ONLINE)
        _set_parameters(self._theta, self.learned.theta, self._noise)
        _set_parameters(self._target_theta, self.targets, self._sample(update, TARGET))

    def zero_grad(self) -> None:
        """Reset the gradients of the online network."""
        self._gradient.zero_()

    @torch.no_grad()
    def split_gradient(self) -> None:
        """Compute the gradients of means and deviations from those of the online network."""
        mean, deviation = self.learned.gradient.chunk(2)
        mean.copy_(self._gradient)
        torch.mul(self._gradient, self._noise, out=deviation)

    def act(self, rollout: int | None) -> None:
        """Set the online network's noise for a rollout; None removes it until the next update."""
        noise = torch.zeros_like(self._theta) if rollout is None else self._sample(rollout, ACTING)
        _set_parameters(self._theta, self.learned.theta, noise)

    def _sample(self, index: int, stream: int) -> Tensor:
        count = sum(outputs + inputs for _, outputs, inputs in self._layers)
        normal = self._generator(index, stream).standard_normal(count, dtype=np.float32)
        factors = torch.from_numpy(np.copysign(np.sqrt(np.abs(normal)), normal)).to(self._theta.device)
        noise, first = torch.zeros_like(self._theta), 0
        for start, outputs, inputs in self._layers:
            out, into = factors[first : first + outputs + inputs].split([outputs, inputs])
            weights = outputs * inputs
            torch.outer(out, into, out=noise[start : start + weights].view(outputs, inputs))
            noise[start + weights : start + weights + outputs] = out
            first += outputs + inputs
        return noise


@torch.no_grad()
def _set_parameters(theta: Tensor, learned: Tensor, noise: Tensor) -> None:
    mean, deviation = learned.chunk(2)
    torch.add(mean, deviation * noise, out=theta)
