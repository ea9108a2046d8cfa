"""How many cores this process may use, so that runs side by side do not each take all of them."""

import os


def usable_cores() -> int:
    """Those that the kernel grants, or fewer where PYTHON_CPU_COUNT says so, as from Python 3.13 on everywhere."""
    granted = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = os.environ.get("PYTHON_CPU_COUNT", "")
    return max(1, min(granted, int(told))) if told.isdecimal() else granted
