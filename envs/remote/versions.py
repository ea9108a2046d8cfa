"""Versions of the packages on which an environment's numbers depend."""

import contextlib
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Literal

import gymnasium
import numpy as np

SameVersions = Literal["run", "here", "none"]  # whose a server must have: those that the run began with, this process's
PACKAGES = ("box2d", "mujoco", "ale-py", "paddock")  # beside Python, NumPy and Gymnasium


def read_versions() -> dict[str, str]:
    """Return the versions that this process has, of those packages that are installed."""
    found = {"python": platform.python_version(), "numpy": np.__version__, "gymnasium": gymnasium.__version__}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def describe_others(there: Mapping[str, str], here: Mapping[str, str], whose: str = "here") -> str:
    """Say which packages that both have are of other versions, as "numpy 2.0 there and 2.1 here"; "": none is."""
    others = [name for name in there if name in here and there[name] != here[name]]
    return ", ".join(f"{name} {there[name]} there and {here[name]} {whose}" for name in others)
