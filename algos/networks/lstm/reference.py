"""LSTM over sequences in torch, for every device and precision.

The gradient is written by hand: autograd would record some twenty operations per step, which cost several times the
arithmetic of small networks. Operations without a recurrence run once for all steps.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def unroll(inputs: Tensor, state: Tensor, start: Tensor, acts: Tensor | None, *weights: Tensor) -> Tensor:
    """Unroll an LSTM cell; the arguments are those of `lstm.unroll`."""
    memory: Tensor = _Unroll.apply(inputs, state, start, acts, *weights)
    return memory


class _Unroll(torch.autograd.Function):
    """Gates are ordered as in `nn.LSTMCell`: input, forget, cell (tanh), output."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, state: Tensor, start: Tensor, acts: Tensor | None, *weights: Tensor
    ) -> Tensor:
        in_weight, state_weight, in_bias, state_bias = weights
        T, B, _ = inputs.shape
        H = state_weight.shape[1]
        gates = torch.addmm(in_bias + state_bias, inputs.flatten(0, 1), in_weight.t()).unflatten(0, (T, B))
        memory, tanhs = inputs.new_empty((T, B, 2 * H)), inputs.new_empty((T, B, H))
        keep = _column(~start, inputs)
        arrays = (keep, gates, gates[..., : 2 * H], *gates.split(H, 2), tanhs, *memory.split(H, 2))
        output, cell = state.split(H, 1)
        for t, now in enumerate(zip(*(array.unbind() for array in arrays), strict=True)):
            kept, gate, input_forget_gates, input_gate, forget, new, output_gate, tanh, next_output, next_cell = now
            output, cell = output * kept, cell * kept
            gate.addmm_(output, state_weight.t())
            input_forget_gates.sigmoid_()
            new.tanh_()
            output_gate.sigmoid_()
            torch.mul(forget, cell, out=next_cell).addcmul_(input_gate, new)
            torch.mul(output_gate, torch.tanh(next_cell, out=tanh), out=next_output)
            if acts is not None:
                stays = ~acts[t, :, None]
                next_output.copy_(torch.where(stays, output, next_output))
                next_cell.copy_(torch.where(stays, cell, next_cell))
            output, cell = next_output, next_cell
        ctx.save_for_backward(inputs, state, keep, acts, in_weight, state_weight, gates, tanhs, memory)
        return memory

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_memory: Tensor) -> tuple[Tensor | None, ...]:
        inputs, state, keep, acts, in_weight, state_weight, gates, tanhs, memory = ctx.saved_tensors
        H = state_weight.shape[1]
        before = torch.cat([state[None], memory[:-1]]) * keep
        input_gate, forget, new, output_gate = gates.split(H, 2)
        slopes = gates * (1 - gates)
        torch.addcmul(torch.ones_like(new), new, new, value=-1, out=slopes[..., 2 * H : 3 * H])
        # Derivatives of the cell state (last block: of the output) by each gate's pre-activation.
        to_gates = torch.cat([new, before[..., H:], input_gate, tanhs], 2).mul_(slopes)
        through, past = output_gate * (1 - tanhs * tanhs), forget * keep
        if acts is not None:
            stays = ~acts.unsqueeze(2)
            to_gates.masked_fill_(stays, 0)
            through.masked_fill_(stays, 0)
            past = torch.where(stays, keep, past)
        of_cell = to_gates[..., : 3 * H].unflatten(2, (3, H))
        arrays = (*to_memory.split(H, 2), through, past, keep, of_cell, to_gates[..., 3 * H :], to_gates)
        to_output = to_cell = torch.zeros_like(state[:, :H])
        steps = list(zip(*(array.unbind() for array in arrays), strict=True))
        for t in reversed(range(len(steps))):
            more_output, more_cell, output_through, cell_past, kept, cell_gates, out_gate, all_gates = steps[t]
            to_output = to_output + more_output
            to_cell = (to_cell + more_cell).addcmul_(to_output, output_through)
            cell_gates.mul_(to_cell.unsqueeze(1))
            out_gate.mul_(to_output)
            back = all_gates @ state_weight
            if acts is not None:
                back.addcmul_(to_output, stays[t])
            to_output, to_cell = back.mul_(kept), to_cell * cell_past
        flat = to_gates.flatten(0, 1)
        bias = flat.sum(0)
        return (
            (flat @ in_weight).view_as(inputs) if ctx.needs_input_grad[0] else None,
            torch.cat([to_output, to_cell], 1) if ctx.needs_input_grad[1] else None,
            None,
            None,
            flat.t() @ inputs.flatten(0, 1),
            flat.t() @ before[..., :H].flatten(0, 1),
            bias,
            bias,
        )


def _column(flags: Tensor, like: Tensor) -> Tensor:
    return flags.to(like.dtype).unsqueeze(2)
