"""Versions of the packages that affect an environment's results."""

import contextlib
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Literal

import gymnasium
import numpy as np

SameVersions = Literal["run", "here", "none"]  # required at servers: versions at the run's start, of this process
PACKAGES = ("box2d", "mujoco", "ale-py", "paddock")  # besides Python, NumPy and Gymnasium


def read_versions() -> dict[str, str]:
    """Return the versions of the installed packages."""
    found = {"python": platform.python_version(), "numpy": np.__version__, "gymnasium": gymnasium.__version__}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def describe_others(there: Mapping[str, str], here: Mapping[str, str], whose: str = "here") -> str:
    """Return the version differences as text, such as "numpy 2.0 there and 2.1 here"; "" if there are none."""
    others = [name for name in there if name in here and there[name] != here[name]]
    return ", ".join(f"{name} {there[name]} there and {here[name]} {whose}" for name in others)
