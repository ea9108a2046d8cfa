"""Steps of one agent's tasks by the serial vector of the tree on PYTHONPATH, for scripts/bench/worlds.py --before.

Reads requests as JSON lines: one that names a task and a number of steps is answered by microseconds of the processor a
step of an environment, one that names none by a digest of each task's first answers. Names here what both trees have.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Serial

TASKS = ("Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1")
ENVS = 16


def main() -> None:
    """Play each task for its digest, then whatever the input asks for."""
    played = {id: begin(id) for id in TASKS}
    digests = {id: digest for id, (digest, _) in played.items()}
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"us": played[request["id"]][1](request["steps"])} if request else digests
        print(json.dumps(answer), flush=True)


def begin(id: str) -> tuple[str, Callable[[int], float]]:
    """Return the digest of a task's first 128 answers, and what goes on from there and returns us a step."""
    spec = EnvSpec(id=id, kwargs={}, wrappers=(), max_episode_steps=100, fresh=False)
    venv = Serial(num_envs=ENVS).make(spec, copy=False)
    venv.action_space.seed(0)
    actions = [venv.action_space.sample() for _ in range(64)]
    digest = hashlib.sha256()
    venv.begin(0)
    for k in range(128):
        for array in venv.step(actions[k % 64])[:4]:
            digest.update(np.ascontiguousarray(array).tobytes())

    def play(steps: int, step: Callable[[Any], Any] = venv.step) -> float:
        started = time.process_time()
        for k in range(steps):
            step(actions[k % 64])
        return (time.process_time() - started) * 1e6 / steps / ENVS

    return digest.hexdigest(), play


if __name__ == "__main__":
    main()
