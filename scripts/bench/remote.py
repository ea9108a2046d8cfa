"""Environments at a server of this machine against the same in worker processes here, and what a loss costs.

    python scripts/bench/remote.py [--quick] [--json PATH] [--rows NAME ...] [--peers PYTHON]

Rows: env=bipedal with random actions drawn beforehand, on as many workers, in turns, all together and in two groups of
which one is under way while the other is looked at (walkers), and the same over gRPC, as from another machine (grpc);
CartPole and native walkers, 1,024 of each (small);
walkers with TLS against without (tls); at a server 20 ms away, by a relay that delays (far); how long a message takes
there and back, beside gRPC's bare stream, dm_env_rpc's and OpenEnv's way, and one environment a call, which is UDE's
(messages); how soon a lost server is noticed and 64 walkers are where they were (losses); what 100 sessions cost that
do nothing (sessions).

The peers go into an environment of their own, whose interpreter --peers names: pip install dm-env-rpc websockets
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from scripts.bench import harness  # noqa: E402

harness.require_package("grpc", "remote")

from paddock.envs.machine import usable_cores  # noqa: E402
from paddock.envs.spec import EnvSpec  # noqa: E402
from paddock.envs.vector import Multiprocess, Native, Vec, in_groups  # noqa: E402
from paddock.envs.vector.recipes import largest_divisor  # noqa: E402
from scripts.bench.contenders.losses import idle, lose  # noqa: E402
from scripts.bench.contenders.served import (  # noqa: E402
    CARTPOLE,
    WALKER,
    Server,
    make_keys,
    over_grpc,
    ping,
    rate,
    relay,
    remote,
)
from scripts.bench.harness import BUSY, Report  # noqa: E402

PEERS = ROOT / "scripts" / "bench" / "peers"
ROUNDS, PLAY_S = 5, 1.5
TURNS, TURN_S = 31, 0.25  # of two sides: as what else a machine does comes and goes in seconds
WALKERS = {(16, 1): 0.65, (64, 1): 0.88, (256, 1): 0.95, (64, 2): 0.85}  # targets by (N, groups)
GRPC = {(16, 1): 0.6, (64, 1): 0.8, (256, 1): 0.9, (64, 2): 0.7}  # the same, over gRPC
FAR_S = 0.02  # there and back
GROUPS_FAR = (2, 8)
PICTURE = "scripts.bench.peers.blank:bench/Pictures-v0"


def main(arguments: list[str] | None = None) -> int:
    """Print medians and ratios; returns 1 if one misses its target, else 0."""
    options = read_options(arguments)
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"others are at work here (load {load:.1f}): who has most processes then gets most, so trust no ratio")
    bench = Bench(options)
    print(harness.describe_machine())
    for name in options.rows:
        ROWS[name](bench)
    report: Report = {"machine": harness.describe_machine(), "load_before": load, "rows": bench.rows}
    report["versions"] = harness.versions("grpcio", "numpy", "msgpack")
    print(harness.list_versions(report))
    return harness.finish(report, options.json, all(row["reached"] for row in bench.rows))


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = harness.command_line(__doc__, "one short round")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME", help=", ".join(ROWS))
    parser.add_argument(
        "--peers",
        type=harness.interpreter,
        metavar="PYTHON",
        default=sys.executable,
        help="an interpreter that has the peers",
    )
    return parser.parse_args(arguments)


class Bench:
    """What was found so far.

    Attributes:
        rows: a name, what was measured, its target and whether that is reached, of each.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rounds, self.play_s = (1, 0.3) if options.quick else (ROUNDS, PLAY_S)
        self.turns, self.turn_s = (1, 0.3) if options.quick else (TURNS, TURN_S)
        self.count = 100 if options.quick else 2000  # messages
        self.rows: list[Report] = []

    def enter(self, name: str, value: float, target: float, unit: str = "", *, most: bool = False) -> None:
        """Note and print a figure, which is to be at least its target, or at most."""
        reached = value <= target if most else value >= target
        self.rows.append({"name": name, "value": value, "target": target, "unit": unit, "reached": reached})
        bound = f"at {'most' if most else 'least'} {target:g}"
        print(f"{name}: {value:.4g}{unit} ({bound}){'' if reached else ' MISSED'}", flush=True)

    def compare(self, name: str, spec: EnvSpec, here: Vec, there: Vec, target: float, groups: int = 1) -> None:
        """Play in short turns; enter the median of the rounds' ratios, of the second to the first."""
        with ExitStack() as stack:
            sides = {"here": here, "there": there}
            plays = {side: player(spec, vec, groups, self.turn_s, stack) for side, vec in sides.items()}
            rates = harness.in_turns(self.turns, plays)
        self.enter(name, ratio(rates["there"], rates["here"]), target)
        self.rows[-1]["rates"] = rates
        median = {side: statistics.median(found) for side, found in rates.items()}
        print(f"  {median['here']:,.0f} steps/s against {median['there']:,.0f}", flush=True)

    def ask_peer(self, name: str, *arguments: object, python: str | None = None) -> float | None:
        """Return what a peer's script prints by the interpreter of the peers, or another; None where it is missing."""
        command = [python or self.options.peers, str(PEERS / name), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{name} is left out ({(done.stderr.strip() or 'it failed').splitlines()[-1]})")
            return None
        return float(done.stdout)


def player(spec: EnvSpec, vec: Vec, groups: int, play_s: float, stack: ExitStack) -> Callable[[], float]:
    """Return what plays for a turn, in environments that the stack closes, and says how fast."""
    venv = stack.enter_context(closing(in_groups(vec, groups).make(spec, copy=False)))
    venv.begin(0)
    rate(venv, groups, play_s)
    return partial(rate, venv, groups, play_s)


def ratio(some: list[float], others: list[float]) -> float:
    """Return the median of the rounds' ratios."""
    return statistics.median(one / other for one, other in zip(some, others, strict=True))


def workers_of(num_envs: int) -> Multiprocess:
    workers = largest_divisor(num_envs, usable_cores())
    return Multiprocess(num_envs=num_envs, workers=workers, batch_size=None, restart=False, timeout_s=60.0)


def walkers(bench: Bench, targets: dict[tuple[int, int], float] = WALKERS, way: str = "") -> None:
    with Server("env=bipedal") as server:
        for (N, groups), target in targets.items():
            name = f"{N} walkers{' in two groups' if groups > 1 else ''}, server / workers here{way}"
            bench.compare(name, WALKER, workers_of(N), remote(server.address, N), target, groups)


def grpc(bench: Bench) -> None:
    with over_grpc():
        walkers(bench, GRPC, ", over gRPC")


def small(bench: Bench) -> None:
    with Server("env=cartpole") as server:
        N = 1024
        bench.compare(f"{N} CartPoles", CARTPOLE, workers_of(N), remote(server.address, N), 0.7)
    with Server("env=bipedal", "vec=native") as server:
        native = Native(num_envs=N, threads=1)
        bench.compare(f"{N} native walkers", WALKER, native, remote(server.address, N), 0.85)


def tls(bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        key, cert = make_keys(Path(folder), "127.0.0.1")
        secure = [f"serve.tls.cert={cert}", f"serve.tls.key={key}"]
        with over_grpc(), Server("env=bipedal") as plain, Server("env=bipedal", *secure) as server:
            bench.compare(
                "64 walkers, TLS / none", WALKER, remote(plain.address, 64), remote(server.address, 64, cert), 0.95
            )


def far(bench: Bench) -> None:
    N, workers = 256, workers_of(256)
    with over_grpc(), Server("env=bipedal") as server, relay(server.address, FAR_S / 2) as address:
        for groups in GROUPS_FAR:
            with ExitStack() as stack:
                sides: dict[str, Vec] = {"here": workers, "there": remote(address, N)}
                plays = {side: player(WALKER, vec, groups, bench.play_s, stack) for side, vec in sides.items()}
                rates = harness.in_turns(bench.rounds, plays)
            bounds = [min(N / FAR_S, rate) for rate in rates["here"]]
            # An action and what comes of it are 20 ms apart, and a group's step beside: no server is faster.
            limits = [min(N / (FAR_S + N / groups / rate), rate) for rate in rates["here"]]
            what = f"{N} walkers in {groups} groups 20 ms away / the least of N / 20 ms and here"
            bench.enter(what, ratio(rates["there"], bounds), 0.8)
            limit, share = ratio(limits, bounds), ratio(rates["there"], limits)
            bench.rows[-1] |= {"rates": rates, "limit": limit, "of_limit": share}
            print(
                f"  where {limit:.2f} is the limit, with a group's step beside the way: {share:.2f} of it", flush=True
            )


def messages(bench: Bench) -> None:
    rows, blank = 64, "scripts.bench.peers.blank:bench/Blank-v0"
    here: dict[str, list[float]] = {}
    there: dict[str, list[float]] = {}
    ours, near = list[float](), list[float]()
    kwargs = [f"+env.kwargs.{word}" for word in ("observed=24", "actions=4", "discrete=false")]
    names = {
        "gRPC's public stream of as many bytes": ("grpc_turns.py", 1.0),
        "dm_env_rpc": ("dm_env_rpc_turns.py", 1.7),
        "JSON over a WebSocket (OpenEnv)": ("json_turns.py", 2.8),
    }
    with Server("env=gymnasium", f"env.id={blank}", *kwargs, "vec=serial") as server:
        asked = server.address, blank, np.zeros((rows, 4), np.float32), rows * 24 * 4, bench.count
        for _ in range(bench.rounds):
            with over_grpc():
                ours.append(ping(*asked))
            near.append(ping(*asked))
            for name, (script, _) in names.items():
                python = sys.executable if script == "grpc_turns.py" else None  # which needs nothing else
                if (found := bench.ask_peer(script, rows, bench.count, python=python)) is not None:
                    there.setdefault(name, []).append(found)
                    here.setdefault(name, []).append(ours[-1])
    bench.enter("64 rows of 24 numbers there and back", statistics.median(near), 250.0, " us", most=True)
    bench.enter("  over gRPC, as from another machine", statistics.median(ours), 450.0, " us", most=True)
    for name, times in there.items():
        bench.enter(f"  {name} / ours over gRPC", ratio(times, here[name]), names[name][1])
    with Server("env=gymnasium", f"env.id={PICTURE}", "vec=serial") as server:
        took = ping(server.address, PICTURE, np.zeros(16, np.int64), 16 * 4 * 84 * 84, bench.count)
    bench.enter("16 stacks of four pictures there and back", took / 1000, 2.0, " ms", most=True)
    with Server("env=bipedal") as server, closing(remote(server.address, rows).make(WALKER)) as venv:
        venv.begin(0)
        pairs = [
            (rate(venv, 1, bench.play_s), bench.ask_peer("one_by_one.py", rows, bench.play_s, python=sys.executable))
            for _ in range(bench.rounds)
        ]
    ratios = [own / other for own, other in pairs if other is not None]
    if ratios:
        bench.enter("64 walkers / one environment a call", statistics.median(ratios), 4.0)


def losses(bench: Bench) -> None:
    with Server("env=bipedal") as server:
        found = lose(server)
    bench.enter("a killed server is noticed after", 1000 * found["notice_killed_s"], 50.0, " ms", most=True)
    bench.enter("a stopped one after", found["notice_stopped_s"], 10.0, " s", most=True)
    bench.enter("a broken connection is made good after", found["reconnect_s"], 0.5, " s", most=True)
    bench.enter("64 walkers of 300 steps are at another server after", found["reenter_s"], 10.0, " s", most=True)


def sessions(bench: Bench) -> None:
    bench.enter("an idle session", 100 * idle(1)["core"], 1.0, " % of a core", most=True)
    bench.enter("health of a server with 100 sessions", 1000 * idle(100)["health_s"], 100.0, " ms", most=True)


ROWS: dict[str, Callable[[Bench], None]] = {
    "walkers": walkers,
    "grpc": grpc,
    "small": small,
    "tls": tls,
    "far": far,
    "messages": messages,
    "losses": losses,
    "sessions": sessions,
}


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
