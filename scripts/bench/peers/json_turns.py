"""Steps of one message as OpenEnv sends them: JSON text over a WebSocket, to a server in another process.

    python scripts/bench/peers/json_turns.py ENVIRONMENTS COUNT

prints the median of COUNT turns, microseconds: actions [N, 4] there, observations [N, 24] and rewards [N] back, all
lists.
OpenEnv (0.3) checks them by pydantic besides, which is left out here.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import websockets

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # started by its path

from scripts.bench.peers.turns import run_sides


async def serve(num_envs: int) -> None:
    """Answer every step with the same arrays, until standard input ends."""
    observation, reward = np.ones((num_envs, 24), np.float32), np.ones(num_envs, np.float32)

    async def answer(socket: Any) -> None:
        async for message in socket:
            np.array(json.loads(message)["action"], np.float32)
            told = {"observation": observation.tolist(), "reward": reward.tolist(), "done": False}
            await socket.send(json.dumps({"type": "observation", "data": told}))

    async with websockets.serve(answer, "127.0.0.1", 0, max_size=100 << 20) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def play(port: str, num_envs: int, count: int) -> float:
    """Return the median of the turns, microseconds."""
    actions, times = np.ones((num_envs, 4), np.float32), []
    async with websockets.connect(f"ws://127.0.0.1:{port}", max_size=100 << 20) as socket:
        for _ in range(count):
            begun = time.perf_counter()
            await socket.send(json.dumps({"type": "step", "action": actions.tolist()}))
            told = json.loads(await socket.recv())["data"]
            observation = np.array(told["observation"], np.float32)
            np.array(told["reward"], np.float32)
            times.append(time.perf_counter() - begun)
            assert observation.shape == (num_envs, 24)
    return 1e6 * median(times)


if __name__ == "__main__":
    run_sides(__file__, lambda num_envs: asyncio.run(serve(num_envs)), lambda *asked: asyncio.run(play(*asked)))
