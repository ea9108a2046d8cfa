"""An LSTM over sequences, with the memory after each step (Hochreiter and Schmidhuber 1997): in C, or in torch."""

import torch
from torch import Tensor, nn

from paddock.algos.networks.lstm import compiled, reference

WIDEST_IN_C = 128  # outputs; of wider ones the products take most of the time, and torch's fuse operations


def unroll(cell: nn.LSTMCell, inputs: Tensor, state: Tensor, start: Tensor, acts: Tensor | None = None) -> Tensor:
    """Return a cell's memory after each step [T, B, 2H] of inputs [T, B, F]: its output, then the cell's state.

    Args:
        state: [B, 2H], the memory before the first step.
        start: [T, B], whether an episode begins at that step; the memory before it is then empty.
        acts: [T, B], whether the row acts in that step; if not, the memory stays as it is. None: all do.
    """
    small = cell.hidden_size <= WIDEST_IN_C and inputs.numel() > 0
    in_c = small and inputs.device.type == "cpu" and inputs.dtype == torch.float32 and compiled.find_functions()
    return (compiled if in_c else reference).unroll(inputs, state, start, acts, *cell.parameters())
