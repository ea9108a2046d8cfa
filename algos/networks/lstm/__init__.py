"""LSTM over sequences with resets (Hochreiter and Schmidhuber 1997), in C or torch."""

import torch
from torch import Tensor, nn

from paddock.algos.networks.lstm import compiled, reference

WIDEST_IN_C = 128  # hidden size; for wider cells torch's fused products are faster


def unroll(cell: nn.LSTMCell, inputs: Tensor, state: Tensor, start: Tensor, acts: Tensor | None = None) -> Tensor:
    """Return the state [T, B, 2H] after each step, hidden and cell state side by side.

    `inputs` are [T, B, F] and the initial state [B, 2H]. `start` [T, B] resets the state where an episode starts; where
    `acts` [T, B] is False, the state is kept unchanged.
    """
    small = cell.hidden_size <= WIDEST_IN_C and inputs.numel() > 0
    in_c = small and inputs.device.type == "cpu" and inputs.dtype == torch.float32 and compiled.find_functions()
    return (compiled if in_c else reference).unroll(inputs, state, start, acts, *cell.parameters())
