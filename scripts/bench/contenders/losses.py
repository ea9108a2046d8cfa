"""What a lost server or connection costs, and sessions that do nothing; for scripts/bench/remote.py."""

import os
import signal
import time
from contextlib import ExitStack, closing

import numpy as np

from paddock.envs.remote.client.link import Link
from paddock.envs.remote.client.place import Lost
from paddock.envs.remote.client.vector import RemoteVectorEnv
from paddock.envs.vector import VectorEnv
from scripts.bench.contenders.served import CARTPOLE, WALKER, Server, remote

STEPS_BEFORE, WALKERS = 300, 64
IDLE_S = 10.0


def lose(server: Server) -> dict[str, float]:
    """Return seconds until what happens to a server or a connection is noticed, or made good, with 64 walkers."""
    actions = np.random.default_rng(0).uniform(-1, 1, (32, WALKERS, 4)).astype(np.float32)
    found: dict[str, float] = {}
    with closing(remote(server.address, WALKERS).make(WALKER)) as venv:
        venv.begin(0)
        for t in range(STEPS_BEFORE):
            venv.step(actions[t % 32])
        link = link_of(venv)
        assert link._wire is not None
        link._wire._stream.cancel()
        begun = time.perf_counter()
        venv.step(actions[0])
        found["reconnect_s"] = time.perf_counter() - begun
        assert (link.reconnects, link.restarts) == (1, 0)
        server.process.kill()
        found["notice_killed_s"] = notice(link)
        server.process.wait()
        server.start()
        begun = time.perf_counter()
        venv.step(actions[0])
        found["reenter_s"] = time.perf_counter() - begun
        server.process.send_signal(signal.SIGSTOP)
        found["notice_stopped_s"] = notice(link)
        server.process.send_signal(signal.SIGCONT)
    return found


def link_of(venv: VectorEnv) -> Link:
    assert isinstance(venv, RemoteVectorEnv)
    return venv._links[0]


def notice(link: Link) -> float:
    """Return seconds until the stream is known to be lost."""
    assert link._wire is not None
    begun = time.perf_counter()
    try:
        while True:
            link._wire.receive()
    except Lost:
        return time.perf_counter() - begun


def idle(sessions: int) -> dict[str, float]:
    """Return of a server with idle sessions the share of a core, and the seconds of the slowest of 20 health checks."""
    import grpc  # not before clients have said how it is to poll: envs/remote/polling.py

    words = ["env=cartpole", "vec=serial", f"vec.num_envs={sessions}", f"serve.max_sessions={sessions}"]
    with Server(*words) as server, ExitStack() as stack:
        for _ in range(sessions):
            venv = stack.enter_context(closing(remote(server.address, 1).make(CARTPOLE)))
            venv.begin(0)
            venv.step(np.zeros(1, np.int64))
        with grpc.insecure_channel(server.address) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            check(b"")
            before, begun = processor_s(server.process.pid), time.perf_counter()
            time.sleep(IDLE_S)
            core = (processor_s(server.process.pid) - before) / (time.perf_counter() - begun)
            slowest = 0.0
            for _ in range(20):
                begun = time.perf_counter()
                check(b"")
                slowest = max(slowest, time.perf_counter() - begun)
    return {"core": core, "health_s": slowest}


def processor_s(pid: int) -> float:
    """Return seconds of a core that a process has had."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
