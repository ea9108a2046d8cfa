"""Steps of one message by gRPC's public stream and nothing else: as many bytes, to a server in another process.

    python scripts/bench/peers/grpc_turns.py ENVIRONMENTS COUNT

prints the median of COUNT turns, microseconds: the bytes of actions [N, 4] there, those of observations [N, 24] and
rewards [N] back, which nobody makes or reads.
"""

import queue
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from statistics import median
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # started by its path

from scripts.bench.peers.turns import run_sides


def serve(num_envs: int) -> None:
    """Answer every message with the same bytes, until standard input ends."""
    answer = bytes(num_envs * 25 * 4)

    def play(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for _ in requests:
            yield answer

    server = grpc.server(futures.ThreadPoolExecutor(4))
    handler = grpc.stream_stream_rpc_method_handler(play)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Bare", {"Play": handler}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(0)


def play(port: str, num_envs: int, count: int) -> float:
    """Return the median of the turns, microseconds."""
    actions, times = bytes(num_envs * 4 * 4), []
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answers = channel.stream_stream("/Bare/Play")(iter(requests.get, None))
        for _ in range(count):
            begun = time.perf_counter()
            requests.put(actions)
            next(answers)
            times.append(time.perf_counter() - begun)
        requests.put(None)
    return 1e6 * median(times)


if __name__ == "__main__":
    run_sides(__file__, serve, play)
