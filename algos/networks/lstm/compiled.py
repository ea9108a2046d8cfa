"""LSTM over sequences in C (`../dense/src/lstm.h`). Calls release the GIL."""

import ctypes
import functools
import logging
from typing import Any

import torch
from torch import Tensor

from paddock.algos.networks.dense import library
from paddock.envs.errors import ConfigError, require

log = logging.getLogger(__name__)

_POINTER = ctypes.c_void_p


class _Lstm(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("in_weight", "state_weight", "in_bias", "state_bias")),
        *((name, _POINTER) for name in ("inputs", "state", "start", "acts", "memory", "tape")),
        *((name, ctypes.c_int64) for name in ("steps", "rows")),
        *((name, ctypes.c_int32) for name in ("in", "width", "kept", "threads")),
    )


class _Gradient(ctypes.Structure):
    _fields_ = tuple((name, _POINTER) for name in ("memory", "inputs", "state", "in_weight", "state_weight", "bias"))


@functools.cache
def find_functions() -> Any:
    """Return the C functions; None without library, with a warning once per process."""
    try:
        return library.functions()
    except ConfigError as error:
        log.warning("training LSTMs in torch, which is slower: %s", error)
        return None


def unroll(inputs: Tensor, state: Tensor, start: Tensor, acts: Tensor | None, *weights: Tensor) -> Tensor:
    """Unroll in float32 on the CPU, with torch's number of threads, which does not affect results."""
    memory: Tensor = _Unroll.apply(torch.is_grad_enabled(), inputs, state, start, acts, *weights)
    return memory


class _Unroll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kept: bool, inputs: Tensor, state: Tensor, start: Tensor, acts: Tensor | None, *given: Tensor
    ) -> Tensor:
        weights = [each.contiguous() for each in given]
        (T, B, F), H = inputs.shape, weights[1].shape[1]
        arrays = [each.contiguous() for each in (inputs, state, start)]
        flags = None if acts is None else acts.contiguous()
        memory = inputs.new_empty((T, B, 2 * H))
        described = _Lstm(
            *(each.data_ptr() for each in (*weights, *arrays)),
            None if flags is None else flags.data_ptr(),
            memory.data_ptr(),
            None,
            *(T, B, F, H),
            kept,
            torch.get_num_threads(),
        )
        tape = inputs.new_empty(find_functions().lstm_tape(ctypes.byref(described)))
        described.tape = tape.data_ptr()
        _run(described, None)
        ctx.save_for_backward(*weights, *arrays, flags, memory, tape)
        ctx.described = described
        return memory

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, to_memory: Tensor) -> tuple[Tensor | None, ...]:
        in_weight, state_weight, bias, _, inputs, state, *_ = ctx.saved_tensors
        to_memory = to_memory.contiguous()
        asked = [
            each if wanted else None for each, wanted in zip((inputs, state), ctx.needs_input_grad[1:3], strict=True)
        ]
        gradients = [
            None if each is None else torch.empty_like(each) for each in (*asked, in_weight, state_weight, bias)
        ]
        pointers = [None if each is None else each.data_ptr() for each in (to_memory, *gradients)]
        assert ctx.described.tape, "backward can run only once"
        _run(ctx.described, _Gradient(*pointers))
        ctx.described.tape = None  # used up
        to_inputs, to_state, to_in_weight, to_state_weight, to_bias = gradients
        return None, to_inputs, to_state, None, None, to_in_weight, to_state_weight, to_bias, to_bias


def _run(described: _Lstm, gradient: _Gradient | None) -> None:
    back = None if gradient is None else ctypes.byref(gradient)
    failed = find_functions().lstm_run(ctypes.byref(described), back)
    require(not failed, f"out of memory for an LSTM of width {described.width}")
