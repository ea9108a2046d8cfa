"""GPUs that give the same bits again: sums in one order, of whole float32."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import torch

_lock = threading.Lock()
_inside = 0  # threads that asked for one order and have not left
_order = contextlib.ExitStack()  # which they have


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Have GPUs add up in one order, and keep all bits of factors, so that the same numbers give the same bits.

    Torch warns of what an encoder of somebody's own does that has no such order. It has one setting for the whole
    process, so where several threads ask, the last to leave restores it.
    """
    global _inside
    with _lock:
        if not _inside:
            _order.enter_context(_deterministic())
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _order.close()


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which cuBLAS reads as it begins
    enabled, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    convolutions, name, whole = _factors()
    kept = getattr(convolutions, name)
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # which takes time, and nobody reads it
    setattr(convolutions, name, whole)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warns)
        memory.fill_uninitialized_memory = fills
        setattr(convolutions, name, kept)


def _factors() -> tuple[Any, str, Any]:
    """Return where torch is told how many bits of their factors convolutions keep, by what name, and what says: all."""
    cudnn: Any = torch.backends.cudnn
    try:
        cudnn.allow_tf32  # noqa: B018
    except RuntimeError:  # somebody has used the newer name, beside which torch refuses this one
        return cudnn.conv, "fp32_precision", "ieee"
    return cudnn, "allow_tf32", False
