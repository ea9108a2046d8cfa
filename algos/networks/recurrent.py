"""Evolved policies with an LSTM (Hochreiter and Schmidhuber 1997), many networks at once, with the same bits everywhere."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.architecture import Architecture
from paddock.envs.native.functions import activate, fast_tanh
from paddock.envs.native.networks import DenseLayout, Network, Networks

Rows = NDArray[np.float32]  # [S, width]


class RecurrentPopulation:
    """S networks of dense layers, an LSTM and an output layer, with their states, evaluated in one call."""

    def __init__(self, architecture: Architecture, slots: int) -> None:
        self.inputs = architecture.inputs
        self._head, self._activation, width = architecture.head, architecture.activation, architecture.features
        sizes = [(self.inputs.width, *architecture.hidden_sizes), (width, architecture.head.width)]
        self._layouts = [DenseLayout(one, out_first=True) for one in sizes]
        self._dense, self._output, self._lstm = (
            Networks(Network(one, self._activation, "unbounded"), slots) for one in (*sizes, (2 * width, 4 * width))
        )
        self.state = np.zeros((slots, 2 * width), np.float32)
        # sigmoid(x) = 0.5 + 0.5 tanh(0.5 x), for all gates but the third
        self._half = np.repeat(np.array([0.5, 0.5, 1, 0.5], np.float32), width)

    def load(self, slot: int, parameters: Rows) -> None:
        """Set the flat parameters [P] of network `slot`, in torch's order, and reset its state."""
        for layout, networks in zip(self._layouts, (self._dense, self._output), strict=True):
            own = DenseLayout(layout.sizes).layers(networks.parameters[slot])
            for source, target in zip(layout.layers(parameters), own, strict=True):
                target[0][:], target[1][:] = source
            parameters = parameters[layout.num_parameters :]
        width = self.state.shape[1] // 2
        weights, biases = parameters[: 8 * width**2], parameters[8 * width**2 :]
        joined = np.concatenate(weights.reshape(2, 4 * width, width).swapaxes(1, 2))
        self._lstm.parameters[slot] = np.concatenate([joined.ravel(), biases.reshape(2, -1).sum(0)])
        self.forget(slot)

    def forget(self, slot: int) -> None:
        """Reset the state of a network."""
        self.state[slot] = 0

    def act(
        self, obs: NDArray[Any], legal: NDArray[np.bool_] | None = None, acts: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Map observations [S, O] to actions [S, ...], one network per row; the states of rows not in `acts` are kept."""
        before, out = self.state, self.outputs(obs)
        self.state = self.state if acts is None else np.where(acts[:, None], self.state, before)
        return self._head(out if legal is None else self._head.masked(out, legal))

    def outputs(self, obs: NDArray[Any]) -> Rows:
        """Map observations [S, O] to head outputs [S, W], and advance the states."""
        features = activate(self._dense(obs), self._activation)
        hidden, cell = np.split(self.state, 2, axis=1)
        gates = self._half * fast_tanh(self._half * self._lstm(np.concatenate([features, hidden], 1)))
        keep_new, keep, new, show = np.split(gates + (1 - self._half), 4, axis=1)
        cell = keep * cell + keep_new * new
        hidden = show * fast_tanh(cell)
        self.state = np.concatenate([hidden, cell], 1)
        return self._output(hidden)
