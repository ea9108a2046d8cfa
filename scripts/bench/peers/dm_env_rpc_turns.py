"""Steps of one message with dm_env_rpc (1.1.7): a stream of its own packed tensors, to a server in another process.

    python scripts/bench/peers/dm_env_rpc_turns.py ENVIRONMENTS COUNT

prints the median of COUNT turns, microseconds: actions [N, 4] there, observations [N, 24] and rewards [N] back, all
float32.
"""

import sys
import time
from concurrent import futures
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import numpy as np
from dm_env_rpc.v1 import connection, dm_env_rpc_pb2, dm_env_rpc_pb2_grpc, tensor_utils

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # started by its path

from scripts.bench.peers.turns import run_sides

ACTION, OBSERVATION, REWARD = 1, 1, 2  # the numbers of their tensors


class Blank(dm_env_rpc_pb2_grpc.EnvironmentServicer):
    """Answers every step with the same arrays."""

    def __init__(self, num_envs: int) -> None:
        self._observation, self._reward = np.ones((num_envs, 24), np.float32), np.ones(num_envs, np.float32)

    def Process(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        """Answer."""
        for request in request_iterator:
            tensor_utils.unpack_tensor(request.step.actions[ACTION])
            response = dm_env_rpc_pb2.EnvironmentResponse()
            response.step.state = dm_env_rpc_pb2.RUNNING
            response.step.observations[OBSERVATION].CopyFrom(tensor_utils.pack_tensor(self._observation))
            response.step.observations[REWARD].CopyFrom(tensor_utils.pack_tensor(self._reward))
            yield response


def serve(num_envs: int) -> None:
    """Serve until standard input ends."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Blank(num_envs), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(0)


def play(port: str, num_envs: int, count: int) -> float:
    """Return the median of the turns, microseconds."""
    actions, times = np.ones((num_envs, 4), np.float32), []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, connection.Connection(channel) as wire:
        for _ in range(count):
            begun = time.perf_counter()
            request = dm_env_rpc_pb2.StepRequest(requested_observations=[OBSERVATION, REWARD])
            request.actions[ACTION].CopyFrom(tensor_utils.pack_tensor(actions))
            response = wire.send(request)
            observation = tensor_utils.unpack_tensor(response.observations[OBSERVATION])
            tensor_utils.unpack_tensor(response.observations[REWARD])
            times.append(time.perf_counter() - begun)
            assert observation.shape == (num_envs, 24)
    return 1e6 * median(times)


if __name__ == "__main__":
    run_sides(__file__, serve, play)
