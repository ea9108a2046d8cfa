"""Usable cores and memory of this machine."""

import os


def usable_cores() -> int:
    """Return the number of cores of this process, limited by PYTHON_CPU_COUNT (as Python 3.13 does itself)."""
    granted = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("PYTHON_CPU_COUNT", "")
    return max(1, min(granted, int(limit))) if limit.isdecimal() else granted


def memory_bytes() -> int:
    """Return the physical memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def format_bytes(count: int) -> str:
    """Return a number of bytes as text in MB or GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
