"""Noisy networks (Fortunato et al. 2018, arXiv:1706.10295): dense layers explore by noise of their parameters."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from paddock.algos.networks.training import ParameterVector, attach_gradients, builtin_layers, copy_network, flatten

ONLINE, TARGET, ACTING = range(3)  # whose noise it is


class NoisyNetworks:
    """A network and its target, each of parameters mean + deviation * noise; means and deviations are what is learned.

    The noise of a dense layer is factorised: f(p) f(q) of a normal number for each input and one for each output, where
    f(x) = sgn(x) sqrt(|x|). Convolutions and encoders of somebody's own have none. It depends on the number of the
    update, or of the rollout, alone.
    """

    def __init__(
        self,
        network: nn.Module,
        sigma: float,
        generator: Callable[[int, int], np.random.Generator],
        adam_epsilon: float,
    ) -> None:
        """Take the parameters of a network as means.

        Args:
            sigma: deviations are at first this much of 1 / sqrt(inputs of the layer).
            generator: the one for a number and for whose noise it is, ONLINE, TARGET or ACTING.
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
        """Give both networks the noise of an update."""
        self._noise = self._draw(update, ONLINE)
        _place(self._theta, self.learned.theta, self._noise)
        _place(self._target_theta, self.targets, self._draw(update, TARGET))

    def zero_grad(self) -> None:
        """Let gradients of the online network be 0."""
        self._gradient.zero_()

    @torch.no_grad()
    def split_gradient(self) -> None:
        """Pass the gradients of the online network on to means and deviations."""
        mean, deviation = self.learned.gradient.chunk(2)
        mean.copy_(self._gradient)
        torch.mul(self._gradient, self._noise, out=deviation)

    def act(self, rollout: int | None) -> None:
        """Give the online network the noise of a rollout; None: none, until the next update."""
        noise = torch.zeros_like(self._theta) if rollout is None else self._draw(rollout, ACTING)
        _place(self._theta, self.learned.theta, noise)

    def _draw(self, number: int, whose: int) -> Tensor:
        """The noise [P] of all parameters."""
        count = sum(outputs + inputs for _, outputs, inputs in self._layers)
        normal = self._generator(number, whose).standard_normal(count, dtype=np.float32)
        factors = torch.from_numpy(np.copysign(np.sqrt(np.abs(normal)), normal)).to(self._theta.device)
        noise, first = torch.zeros_like(self._theta), 0
        for start, outputs, inputs in self._layers:
            out, given = factors[first : first + outputs + inputs].split([outputs, inputs])
            weights = outputs * inputs
            torch.outer(out, given, out=noise[start : start + weights].view(outputs, inputs))
            noise[start + weights : start + weights + outputs] = out
            first += outputs + inputs
        return noise


@torch.no_grad()
def _place(theta: Tensor, learned: Tensor, noise: Tensor) -> None:
    """Set parameters [P] to means and deviations [2P] with noise [P]."""
    mean, deviation = learned.chunk(2)
    torch.add(mean, deviation * noise, out=theta)
