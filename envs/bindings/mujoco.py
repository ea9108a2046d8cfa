"""MuJoCo's tasks (Todorov et al. 2012) as Gymnasium has them, quiet: `paddock.envs.bindings.mujoco:HalfCheetah-v5`.

MuJoCo writes warnings to a file in the folder where it is started, MUJOCO_LOG.TXT, and says of HalfCheetah, each time
it is made, that a future release will know one of its attributes no more. The others go to stderr alone.
"""

import sys

import mujoco


def tell(warning: str) -> None:
    """Print a warning of MuJoCo's, unless it is about the model of a task, which is Gymnasium's."""
    if "is deprecated" not in warning:
        print(f"MuJoCo: {warning}", file=sys.stderr)


mujoco.set_mju_user_warning(tell)
