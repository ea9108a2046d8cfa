"""cpprb's prioritized replay buffer, as scripts/bench/replay.py asks of it.

Reads requests as JSON lines.
"""

import json
import sys
import time
from typing import Any

import numpy as np
from cpprb import PrioritizedReplayBuffer

BATCH, AT_ONCE = 256, 1000


def prioritized(rows: int, draws: int, seed: int) -> dict[str, Any]:
    """Draw a batch by priorities, and give its rows new ones, so many times."""
    fields = {"obs": {"shape": 4}, "act": {}, "rew": {}, "next_obs": {"shape": 4}, "done": {}}
    buffer, generator = PrioritizedReplayBuffer(rows, fields, alpha=0.6), np.random.default_rng(seed)
    for _ in range(rows // AT_ONCE):
        obs, reward = generator.standard_normal((AT_ONCE + 1, 4)), generator.standard_normal(AT_ONCE)
        nothing = np.zeros(AT_ONCE)
        buffer.add(obs=obs[:-1], act=nothing, rew=reward, next_obs=obs[1:], done=nothing)
    count = draws // 10
    for number in range(count + draws):
        if number == count:
            started = time.process_time()
        drawn = buffer.sample(BATCH, beta=0.4)
        buffer.update_priorities(drawn["indexes"], np.abs(drawn["rew"]).ravel())
    return {"steps": draws, "seconds": time.process_time() - started}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(prioritized(**json.loads(line))), flush=True)
