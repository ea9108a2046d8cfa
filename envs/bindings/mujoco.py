"""Gymnasium's MuJoCo tasks (Todorov et al. 2012) with less logging: `paddock.envs.bindings.mujoco:HalfCheetah-v5`.

By default MuJoCo writes warnings to MUJOCO_LOG.TXT in the working directory, including a deprecation warning for every
HalfCheetah built. Importing this module sends warnings only to stderr and drops deprecation warnings.
"""

import sys

import mujoco


def print_warning(warning: str) -> None:
    """Print a warning of MuJoCo to stderr, except deprecations in Gymnasium's models."""
    if "is deprecated" not in warning:
        print(f"MuJoCo: {warning}", file=sys.stderr)


mujoco.set_mju_user_warning(print_warning)
