"""The packages whose environments the C code was written after: versions, and where to go from what it has not."""

from importlib.metadata import version

ELSEWHERE = "choose vec=serial or vec=multiprocess"
EXACT = {"minigrid": "3.2.0", "pettingzoo": "1.27.0"}  # whose numbers the C code has, to the bit


def is_exact(package: str) -> bool:
    """Return whether the numbers of the package that is installed are those of the C code."""
    return version(package) == EXACT[package]
