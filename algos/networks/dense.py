"""Dense networks in NumPy, and their gradients: torch's numbers, without its cost of calls.

A network of two layers of 64 and a minibatch of 64 rows take torch longer to call than to compute.
"""

import numpy as np
from numpy.typing import NDArray

from algos.networks.architecture import Architecture
from algos.networks.flat import Activation
from algos.networks.heads import LOWEST
from envs.native.networks import DenseLayout

Floats = NDArray[np.float32]
Layers = list[tuple[Floats, Floats]]  # weights [in, out] and bias [out] of each


class DenseNetwork:
    """The policy and the value of `ActorCritic`, on its own parameters: views of the same flat vectors."""

    def __init__(self, architecture: Architecture, parameters: Floats, gradient: Floats) -> None:
        """Lay the layers out.

        Args:
            parameters: [P], in torch's order: log standard deviations, the policy, the value.
            gradient: [P], which `backward` fills.
        """
        *trunk, width = architecture.policy_layout.sizes
        self._numbers, self._masked = architecture.inputs.width, architecture.inputs.legal_width > 0
        apart = trunk[-1:] if architecture.shared else trunk
        start = architecture.head.num_log_std
        self.log_std, self.log_std_gradient = parameters[:start], gradient[:start]
        self._chains = []
        for sizes in (trunk if architecture.shared else [], [*apart, width], [*apart, 1]):
            layout = DenseLayout(tuple(sizes), out_first=True)
            layers, gradients = layout.layers(parameters[start:]), layout.layers(gradient[start:])
            activated = len(layers) if sizes is trunk else len(layers) - 1
            self._chains.append(Chain(layers, gradients, activated, architecture.activation))
            start += layout.num_parameters
        assert start == len(parameters)

    def forward(self, obs: Floats) -> tuple[Floats, Floats]:
        """Map what `Architecture.prepare` gives [B, O] to outputs [B, W] and values [B]."""
        trunk, policy, value = self._chains
        features = trunk.forward(obs[:, : self._numbers] if self._masked else obs)
        out = policy.forward(features)
        if self._masked:
            out = np.where(obs[:, self._numbers :] != 0, out, np.float32(LOWEST))
        return out, value.forward(features)[:, 0]

    def backward(self, by_out: Floats, by_value: Floats) -> None:
        """Fill the gradient, given the loss's by the outputs [B, W] and the values [B] of the last `forward`."""
        trunk, policy, value = self._chains
        shared = bool(trunk.layers)
        by_features = policy.backward(by_out, further=shared)
        more = value.backward(by_value[:, None], further=shared)
        if by_features is not None and more is not None:
            trunk.backward(by_features + more, further=False)


class Chain:
    """Dense layers one after another, the first of which are activated, and the gradients by them."""

    def __init__(self, layers: Layers, gradients: Layers, activated: int, activation: Activation) -> None:
        self.layers = layers
        self._gradients = gradients
        self._activated = activated
        self._activation = activation

    def forward(self, x: Floats) -> Floats:
        """Map [B, in] to [B, out]; what `backward` needs is kept."""
        self._values = run_layers(x, self.layers, self._activated, self._activation)
        return self._values[-1]

    def backward(self, by_output: Floats, further: bool) -> Floats | None:
        """Fill the gradient by the layers, given the loss's by the output; returns that by the input if wanted."""
        by = by_output
        for k in range(len(self.layers) - 1, -1, -1):
            by_weights, by_bias = self._gradients[k]
            if k < self._activated:
                out = self._values[k + 1]
                by = by * ((1 - out * out) if self._activation == "tanh" else (out > 0))
            np.matmul(by.T, self._values[k], out=by_weights.T)
            by.sum(axis=0, out=by_bias)
            if k > 0 or further:
                by = by @ self.layers[k][0].T
        return by if further else None


def run_layers(x: Floats, layers: Layers, activated: int, activation: Activation) -> list[Floats]:
    """Return rows [B, in], and what each dense layer makes of them; the first layers are activated."""
    values = [x]
    for k, (weights, bias) in enumerate(layers):
        x = x @ weights
        x += bias
        if k < activated and activation == "tanh":
            np.tanh(x, out=x)
        elif k < activated:
            np.maximum(x, np.float32(0), out=x)
        values.append(x)
    return values
