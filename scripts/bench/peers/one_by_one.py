"""Environments stepped by one gRPC call each, as UDE does it (aws-deepracer/ude 0.1.5), at a server in another process.

    python scripts/bench/peers/one_by_one.py ENVIRONMENTS SECONDS

prints environment steps per second of N walkers of env=bipedal; the arrays travel as their bytes alone, which costs
less than UDE's own coding.
"""

import sys
import time
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from paddock.envs.spec import EnvSpec  # noqa: E402
from scripts.bench.peers.turns import run_sides  # noqa: E402

WALKER = EnvSpec("paddock.envs.bipedal:paddock/BipedalWalker-v3", {}, (), None, False)


def serve(num_envs: int) -> None:
    """Serve until standard input ends."""
    envs = [WALKER.make() for _ in range(num_envs)]
    for k, env in enumerate(envs):
        env.reset(seed=k)

    def step(request: bytes, context: Any) -> bytes:
        k, action = int.from_bytes(request[:4], "little"), np.frombuffer(request, np.float32, 4, 4)
        observation, reward, terminated, truncated, _ = envs[k].step(action)
        if terminated or truncated:
            observation, _ = envs[k].reset()
        told: bytes = observation.astype(np.float32).tobytes() + np.float64(reward).tobytes()
        return told + bytes([terminated, truncated])

    server = grpc.server(futures.ThreadPoolExecutor(4))
    calls = {"Step": grpc.unary_unary_rpc_method_handler(step)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("one", calls)])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(0)


def play(port: str, num_envs: int, play_s: float) -> float:
    """Return steps per second."""
    actions = np.random.default_rng(0).uniform(-1, 1, (32, num_envs, 4)).astype(np.float32)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        step = channel.unary_unary("/one/Step")
        step(bytes(20))
        begun, steps = time.perf_counter(), 0
        while (passed := time.perf_counter() - begun) < play_s:
            for k in range(num_envs):
                told = step(k.to_bytes(4, "little") + actions[steps % 32, k].tobytes())
                np.frombuffer(told, np.float32, 24)
            steps += 1
    return steps * num_envs / passed


if __name__ == "__main__":
    run_sides(__file__, serve, play, float)
