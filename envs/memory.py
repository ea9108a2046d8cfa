"""The memory of this machine, with which what somebody asks for is compared before it is taken."""

import os


def memory_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def spell(count: int) -> str:
    """Return bytes as they are read."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
