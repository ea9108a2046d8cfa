"""Servers in processes of their own, vectors at them, and how long messages take; for scripts/bench/remote.py."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from paddock.envs.process import start_python
from paddock.envs.remote.client import place
from paddock.envs.remote.client.place import Wire
from paddock.envs.remote.frames import Kind, join
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Remote, VectorEnv
from paddock.envs.vector.remote import make_place

ROOT = Path(__file__).resolve().parents[3]
SERVE = "import sys; from paddock.serve import main; sys.exit(main())"
WALKER = EnvSpec("paddock.envs.bipedal:paddock/BipedalWalker-v3", {}, (), None, False)
CARTPOLE = EnvSpec("CartPole-v1", {}, (), None, False)


class Server:
    """A server in a process of its own."""

    def __init__(self, *words: str) -> None:
        """Serve what `python -m paddock.serve` makes of the words; vec=multiprocess if nothing else is said."""
        self.address = "127.0.0.1:0"
        self._words = words
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        """Start it, at the address that it had."""
        words = ["vec=multiprocess", "vec.num_envs=1024", *self._words, f"serve.address={self.address}"]
        self.process = start_python(SERVE, *words, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        for line in self.process.stdout:  # vec=auto says how it chose
            if line.startswith(b"serving "):
                self.address = line.decode().split(" at ")[1].partition(",")[0]
                return
        raise SystemExit(f"no server was started by {words}")

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.wait()


def remote(address: str, num_envs: int, ca: str | None = None) -> Remote:
    """Return the recipe of a vector at a server."""
    given = {"ca": ca, "cert": None, "key": None}
    return Remote(
        num_envs=num_envs,
        address=address,
        token_file=None,
        tls=given,
        wait_s=60.0,
        lost="replay",
        journal_mb=256.0,
        same_versions="run",
    )


@contextmanager
def over_grpc() -> Iterator[None]:
    """Have what is made meanwhile go the way of clients on other machines."""
    with mock.patch.object(place, "open_unix_stream", lambda *given: None):
        yield


def make_keys(folder: Path, host: str) -> tuple[str, str]:
    """Return files of a key, and of a certificate for a host's number that signs itself."""
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    own = ["-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{host}", "-keyout", key, "-out", cert]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *own]
    subprocess.run(made, check=True, capture_output=True)
    return key, cert


@contextmanager
def relay(address: str, delay_s: float) -> Iterator[str]:
    """Give the address of a relay that holds what it passes on back for so long, in either direction."""
    command = [sys.executable, str(ROOT / "scripts" / "bench" / "loads" / "relay.py"), address, str(delay_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def rate(venv: VectorEnv, groups: int, play_s: float) -> float:
    """Return environment steps per second, with random actions drawn beforehand."""
    size = venv.num_envs // groups
    parts = [slice(start, start + size) for start in range(0, venv.num_envs, size)]
    venv.action_space.seed(0)
    actions = [venv.action_space.sample() for _ in range(32)]
    for rows in parts:
        venv.send(actions[0][rows], rows)
    begun, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < play_s:
        steps += 1
        for rows in parts:
            venv.recv(rows)
            venv.send(actions[steps % 32][rows], rows)
    for rows in parts:
        venv.recv(rows)
    return steps * venv.num_envs / passed


def ping(address: str, id: str, actions: NDArray[Any], fewest_bytes: int, count: int) -> float:
    """Return microseconds for a step [N] there and back, by asking again for one that was done.

    Args:
        actions: of the step, [N, ...].
        fewest_bytes: that its answer has.
    """
    servers, N = make_place(address, None, {}, 10.0), len(actions)
    request = {"nonce": os.urandom(16), "environment": id, "num_envs": N, "autoreset": "SAME_STEP"}
    opened = servers.call(address, "Open", request, 60.0)
    wire = Wire(servers, address, 10.0, unix_name=opened["unix"])
    wire.send(join(Kind.ATTACH, [opened["session"], opened["secret"], 0]))
    turn = join(Kind.TURN, [2, 0, [0, N]], [actions])
    wire.send(join(Kind.BEGIN, [1, 0, 0, np.zeros(N, np.int64), np.arange(N), None]))
    wire.send(turn)
    for _ in range(3):  # the session, the beginning, the step
        wire.receive()
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        wire.send(turn)
        frame = wire.receive()
        times.append(time.perf_counter() - begun)
        assert len(frame.body) >= fewest_bytes
    wire.close()
    servers.call(address, "Close", {"session": opened["session"], "secret": opened["secret"]}, 10.0)
    return 1e6 * statistics.median(times)
