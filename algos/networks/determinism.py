"""Bit-reproducible computation on GPUs."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import torch

_lock = threading.Lock()
_inside = 0  # threads in a deterministic block
_settings = contextlib.ExitStack()  # restores torch's settings


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Use deterministic algorithms and full float32 precision on GPUs.

    Torch warns about nondeterministic operations in custom encoders. The setting is global, so the last of several
    threads restores it.
    """
    global _inside
    with _lock:
        if not _inside:
            _settings.enter_context(_deterministic())
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _settings.close()


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    enabled, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    convolutions, name, full = _precision_setting()
    previous = getattr(convolutions, name)
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # saves time
    setattr(convolutions, name, full)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warns)
        memory.fill_uninitialized_memory = fills
        setattr(convolutions, name, previous)


def _precision_setting() -> tuple[Any, str, Any]:
    """Return the object and attribute that set the precision of convolutions, and the value for full float32."""
    cudnn: Any = torch.backends.cudnn
    try:
        cudnn.allow_tf32  # noqa: B018
    except RuntimeError:  # torch rejects the old name once the new one was used
        return cudnn.conv, "fp32_precision", "ieee"
    return cudnn, "allow_tf32", False
