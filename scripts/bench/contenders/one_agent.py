"""Steps of one agent's tasks by the serial vector of the tree on PYTHONPATH, for scripts/bench/worlds.py --before.

Prints JSON: for each task microseconds of the processor a step, and a digest of all that the vector answered. Names
here what both trees have.
"""

import hashlib
import json
import sys
import time
from typing import Any

import numpy as np

from envs.spec import EnvSpec
from envs.vector import Serial

TASKS = ("Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1")
ENVS = 16


def main(steps: int) -> None:
    """Play all tasks."""
    print(json.dumps({id: play(id, steps) for id in TASKS}))


def play(id: str, steps: int) -> dict[str, Any]:
    """Play one, beside whose answers nothing is digested in the measured time."""
    spec = EnvSpec(id=id, kwargs={}, wrappers=(), max_episode_steps=100, fresh=False)
    venv = Serial(num_envs=ENVS).make(spec, copy=False)
    venv.action_space.seed(0)
    actions = [venv.action_space.sample() for _ in range(64)]
    digest = hashlib.sha256()
    venv.begin(0)
    for k in range(128):
        for array in venv.step(actions[k % 64])[:4]:
            digest.update(np.ascontiguousarray(array).tobytes())
    started = time.process_time()
    for k in range(steps):
        venv.step(actions[k % 64])
    us = (time.process_time() - started) * 1e6 / steps / ENVS
    venv.close()
    return {"us": us, "digest": digest.hexdigest()}


if __name__ == "__main__":
    main(int(sys.argv[1]))
