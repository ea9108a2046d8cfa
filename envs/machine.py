"""The cores of this machine that this process may use, and its memory."""

import os


def usable_cores() -> int:
    """Those that the kernel grants, or fewer where PYTHON_CPU_COUNT says so, as from Python 3.13 on everywhere."""
    granted = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("PYTHON_CPU_COUNT", "")
    return max(1, min(granted, int(limit))) if limit.isdecimal() else granted


def memory_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def format_bytes(count: int) -> str:
    """Return bytes as they are read."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
