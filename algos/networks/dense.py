"""Gradients of dense networks in NumPy: torch's numbers, without its cost of calls.

A network of two layers of 64 and a minibatch of 64 rows take torch longer to call than to compute.
"""

import numpy as np
from numpy.typing import NDArray

from algos.networks.architecture import Architecture

Floats = NDArray[np.float32]


class DenseNetwork:
    """The policy and the value of `ActorCritic`, on its own parameters: views of the same flat vectors."""

    def __init__(self, architecture: Architecture, parameters: Floats, gradient: Floats) -> None:
        """Lay the layers out.

        Args:
            parameters: [P], in torch's order: log standard deviations, the policy, the value.
            gradient: [P], which `backward` fills.
        """
        head, activation = architecture.head, architecture.activation
        inputs, hidden = int(np.prod(architecture.obs_shape)), architecture.hidden
        gaussians = head.width if head.kind == "gaussian" else 0
        self.log_std, self.log_std_gradient = parameters[:gaussians], gradient[:gaussians]
        width = hidden[-1] if hidden else inputs
        plans = [hidden, (), ()] if architecture.shared else [(), hidden, hidden]
        ends = [None, head.width, 1]
        self._chains, start = [], gaussians
        for plan, end in zip(plans, ends, strict=True):
            fan_in = inputs if end is None or not architecture.shared else width
            chain = Chain(fan_in, plan, end, activation, parameters[start:], gradient[start:])
            start += chain.size
            self._chains.append(chain)
        assert start == len(parameters)

    def forward(self, obs: Floats) -> tuple[Floats, Floats]:
        """Map obs [B, O] to outputs [B, W] and values [B]."""
        trunk, policy, value = self._chains
        features = trunk.forward(obs)
        return policy.forward(features), value.forward(features)[:, 0]

    def backward(self, by_out: Floats, by_value: Floats) -> None:
        """Fill the gradient, given the loss's by the outputs [B, W] and the values [B] of the last `forward`."""
        trunk, policy, value = self._chains
        shared = bool(trunk.layers)
        by_features = policy.backward(by_out, further=shared)
        more = value.backward(by_value[:, None], further=shared)
        if by_features is not None and more is not None:
            trunk.backward(by_features + more, further=False)


class Chain:
    """Dense layers one after another: hidden ones with an activation and, where there is an end, a linear last one."""

    def __init__(
        self,
        fan_in: int,
        hidden: tuple[int, ...],
        end: int | None,
        activation: str,
        parameters: Floats,
        gradient: Floats,
    ) -> None:
        self._tanh = activation == "tanh"
        self._activated = len(hidden)
        self.layers = []  # of weights [out, in], bias, and the gradients by them
        self.size = 0
        for fan_out in (*hidden, *([] if end is None else [end])):
            views = []
            for shape in ((fan_out, fan_in), (fan_out,)):
                part = slice(self.size, self.size + int(np.prod(shape)))
                views += [parameters[part].reshape(shape), gradient[part].reshape(shape)]
                self.size = part.stop
            self.layers.append(tuple(views))
            fan_in = fan_out

    def forward(self, x: Floats) -> Floats:
        """Map [B, in] to [B, out]; what `backward` needs is kept."""
        self._inputs = [x]
        for k, (weights, _, bias, _) in enumerate(self.layers):
            x = x @ weights.T
            x += bias
            if k < self._activated:
                if self._tanh:
                    np.tanh(x, out=x)
                else:
                    np.maximum(x, np.float32(0), out=x)
            self._inputs.append(x)
        return x

    def backward(self, by_output: Floats, further: bool) -> Floats | None:
        """Fill the gradient by the layers, given the loss's by the output; returns that by the input if wanted."""
        by = by_output
        for k in range(len(self.layers) - 1, -1, -1):
            weights, by_weights, _, by_bias = self.layers[k]
            if k < self._activated:
                out = self._inputs[k + 1]
                by = by * ((1 - out * out) if self._tanh else (out > 0))
            np.matmul(by.T, self._inputs[k], out=by_weights)
            by.sum(axis=0, out=by_bias)
            if k > 0 or further:
                by = by @ weights
        return by if further else None
