"""Environments at a server of this machine against the same in worker processes here, environment steps per second.

    python scripts/bench/remote.py [--quick] [--json PATH]

Walkers of env=bipedal with random actions drawn beforehand, on as many workers, in turns: all together, and 64 in two
groups of which one is under way while the other is looked at; 64 with TLS against 64 without. Then how long a message
takes there and back whose answer has 64 rows of 24 numbers, how soon a killed server is noticed, and how soon 64
walkers are where they were at another.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from envs.cores import usable_cores  # noqa: E402
from envs.process import start_python  # noqa: E402
from envs.remote.client.place import Lost, Wire  # noqa: E402
from envs.remote.client.vector import RemoteVectorEnv  # noqa: E402
from envs.remote.frames import Kind, join  # noqa: E402
from envs.spec import EnvSpec  # noqa: E402
from envs.vector import Multiprocess, Remote, Vec, VectorEnv  # noqa: E402
from envs.vector.recipes import largest_divisor  # noqa: E402
from envs.vector.remote import make_place  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.harness import BUSY, Report  # noqa: E402

WALKER = EnvSpec("envs.bipedal:paddock/BipedalWalker-v3", {}, (), None, False)
TARGETS = {(16, 1): 0.65, (64, 1): 0.88, (256, 1): 0.95, (64, 2): 0.85}  # remote / multiprocess, by (N, groups)
TLS_TARGET = 0.95  # of the rate without
PING_US, NOTICE_S, REENTER_S = 450.0, 0.05, 10.0
ROUNDS, PLAY_S, STEPS_BEFORE = 5, 1.5, 300
SERVE = "import sys; from paddock.serve import main; sys.exit(main())"


def main(arguments: list[str] | None = None) -> int:
    """Print medians and ratios; returns 1 if one is below its target, else 0."""
    options = read_options(arguments)
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"others are at work here (load {load:.1f}): who has most processes then gets most, so trust no ratio")
    rounds, play_s = (1, 0.3) if options.quick else (ROUNDS, PLAY_S)
    print(harness.describe_machine())
    with ExitStack() as stack:
        server = stack.enter_context(Server())
        rows = [play_pair(server.address, N, groups, rounds, play_s) for N, groups in TARGETS]
        tls_ratio = play_encrypted(stack, server.address, rounds, play_s)
        ping_us = ping(server.address, 100 if options.quick else 2000)
        notice_s, reenter_s = lose(server)
    report: Report = {"machine": harness.describe_machine(), "versions": harness.versions("grpcio", "numpy", "msgpack")}
    report |= {
        "load_before": load,
        "rows": rows,
        "tls_ratio": tls_ratio,
        "ping_us": ping_us,
        "notice_s": notice_s,
        "reenter_s": reenter_s,
    }
    print(f"there and back, 64 rows of 24 numbers: {ping_us:.0f} us (at most {PING_US:.0f})")
    print(f"killed server noticed after {1000 * notice_s:.0f} ms (at most {1000 * NOTICE_S:.0f})")
    print(f"64 walkers of {STEPS_BEFORE} steps at another after {reenter_s:.1f} s (at most {REENTER_S:.0f})")
    print(harness.list_versions(report))
    reached = all(row["ratio"] >= row["target"] for row in rows) and tls_ratio >= TLS_TARGET
    reached &= ping_us <= PING_US and notice_s <= NOTICE_S and reenter_s <= REENTER_S
    return harness.finish(report, options.json, reached)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    return harness.command_line(__doc__, "one short round").parse_args(arguments)


class Server:
    """A server in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.address = "127.0.0.1:0"
        self._arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, at the address that it had."""
        words = [
            "env=bipedal",
            "vec=multiprocess",
            "vec.num_envs=1024",
            f"serve.address={self.address}",
            *self._arguments,
        ]
        self.process = start_python(SERVE, *words, *self._arguments, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().decode().split(" at ")[1].partition(",")[0]

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: Any) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


def remote(address: str, num_envs: int, ca: str | None = None) -> Remote:
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


def play_encrypted(stack: ExitStack, plain: str, rounds: int, play_s: float) -> float:
    """Return the rate of 64 walkers at a server with TLS in relation to that of one without."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    own = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *own]
    subprocess.run(made, check=True, capture_output=True)
    server = stack.enter_context(Server(f"serve.tls.cert={cert}", f"serve.tls.key={key}"))
    with ExitStack() as both:
        recipes = {"plain": remote(plain, 64), "tls": remote(server.address, 64, cert)}
        venvs = {name: both.enter_context(closing(one.make(WALKER, copy=False))) for name, one in recipes.items()}
        for venv in venvs.values():
            venv.begin(0)
        rates = harness.in_turns(rounds, {name: partial(rate, venv, 1, play_s) for name, venv in venvs.items()})
    ratio = statistics.median(tls / plain for tls, plain in zip(rates["tls"], rates["plain"], strict=True))
    print(f"  64 walkers with TLS in relation to without: {ratio:.2f} (at least {TLS_TARGET})", flush=True)
    return ratio


def play_pair(address: str, num_envs: int, groups: int, rounds: int, play_s: float) -> Report:
    """Return the rates of both sides, and their ratio."""
    workers = largest_divisor(num_envs, usable_cores())
    here = Multiprocess(num_envs=num_envs, workers=workers, batch_size=None, restart=False, timeout_s=60.0)
    sides: dict[str, Vec] = {"multiprocess": here, "remote": remote(address, num_envs)}
    with ExitStack() as stack:
        venvs = {name: stack.enter_context(closing(vec.make(WALKER, copy=False))) for name, vec in sides.items()}
        for venv in venvs.values():
            venv.begin(0)
            rate(venv, groups, play_s / 3)
        plays = {name: partial(rate, venv, groups, play_s) for name, venv in venvs.items()}
        rates = harness.in_turns(rounds, plays)
    pairs = zip(rates["remote"], rates["multiprocess"], strict=True)
    row: Report = {"num_envs": num_envs, "groups": groups, "rates": rates, "target": TARGETS[num_envs, groups]}
    row["ratio"] = statistics.median(there / here for there, here in pairs)
    median = {name: statistics.median(found) for name, found in rates.items()}
    print(
        f"{num_envs:4} walkers in {groups} group{'s' * (groups > 1)}: multiprocess {median['multiprocess']:8,.0f}, "
        f"remote {median['remote']:8,.0f} steps/s, ratio {row['ratio']:.2f} (at least {row['target']})",
        flush=True,
    )
    return row


def rate(venv: VectorEnv, groups: int, play_s: float) -> float:
    """Return environment steps per second."""
    size = venv.num_envs // groups
    parts = [slice(start, start + size) for start in range(0, venv.num_envs, size)]
    actions = np.random.default_rng(0).uniform(-1, 1, (32, venv.num_envs, 4)).astype(np.float32)
    for rows in parts:
        venv.send(actions[0, rows], rows)
    begun, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < play_s:
        steps += 1
        for rows in parts:
            venv.recv(rows)
            venv.send(actions[steps % 32, rows], rows)
    for rows in parts:
        venv.recv(rows)
    return steps * venv.num_envs / passed


def ping(address: str, count: int) -> float:
    """Return microseconds for a step of 64 walkers there and back, by asking again for one that was done."""
    place = make_place(address, None, {}, 10.0)
    request = {"nonce": os.urandom(16), "environment": WALKER.id, "num_envs": 64, "autoreset": "SAME_STEP"}
    opened = place.call(address, "Open", request, 60.0)
    wire = Wire(place, address, 10.0)
    wire.send(join(Kind.ATTACH, [opened["session"], opened["secret"], 0]))
    turn = join(Kind.TURN, [2, 0, [0, 64]], [np.zeros((64, 4), np.float32)])
    wire.send(join(Kind.BEGIN, [1, 0, 0, np.zeros(64, np.int64), np.arange(64)]))
    wire.send(turn)
    for _ in range(3):  # the session, the beginning, the step
        wire.receive()
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        wire.send(turn)
        frame = wire.receive()
        times.append(time.perf_counter() - begun)
        assert len(frame.body) >= 64 * 24 * 4
    wire.close()
    place.call(address, "Close", {"session": opened["session"], "secret": opened["secret"]}, 10.0)
    return 1e6 * statistics.median(times)


def lose(server: Server) -> tuple[float, float]:
    """Return seconds until a killed server is noticed, and from the next one's start to where 64 walkers were."""
    with closing(remote(server.address, 64).make(WALKER)) as venv:
        venv.begin(0)
        actions = np.random.default_rng(0).uniform(-1, 1, (32, 64, 4)).astype(np.float32)
        for t in range(STEPS_BEFORE):
            venv.step(actions[t % 32])
        assert isinstance(venv, RemoteVectorEnv)
        link = venv._links[0]
        assert server.process is not None and link._wire is not None
        server.process.kill()
        begun = time.perf_counter()
        try:
            while True:
                link._wire.receive()
        except Lost:
            notice_s = time.perf_counter() - begun
        server.process.wait()
        server.start()
        begun = time.perf_counter()
        venv.step(actions[0])
        return notice_s, time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
