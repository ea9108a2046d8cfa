"""UDE's own experiment, sharper: a run's metrics.jsonl has one sha256 wherever its environments are.

    python scripts/bench/runs/anywhere.py [--quick] [--json PATH] [--algorithms ppo ...] [--environments pendulum ...]

PPO, SAC and DDPG on Pendulum, LunarLanderContinuous and, where MuJoCo is installed, Hopper, five seeds each (UDE:
arXiv:2205.06946, whose curves have "the same trend"): with vec=serial, at a server in the training process, at one in
another process of this machine, and at one in another network namespace, with token and TLS. That takes root, and is
left out where there is none. Runs are short, and take minutes in all; returns 1 unless all numbers are the same.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from scripts.bench import harness  # noqa: E402

harness.require_package("grpc", "remote")

from scripts.bench.contenders.served import make_keys  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

ENVIRONMENTS = {
    "pendulum": ["env=pendulum"],
    "lunarlander": ["env=lunarlander_continuous"],
    "hopper": ["env=mujoco", "env.id=Hopper-v5"],
}
REPLAYED = ["algo.batch_size=64", "algo.warmup=200", "algo.row_every=100", "algo.eval_every=300", "budget.steps=600"]
ALGORITHMS = {
    "ppo": ["algo=ppo", "algo.num_steps=64", "algo.groups=2", "algo.eval_every=2", "budget.iterations=4"],
    "sac": ["algo=sac", "algo.hidden=[64,64]", *REPLAYED],
    "ddpg": ["algo=ddpg", "algo.hidden=[64,64]", *REPLAYED],
}
ALWAYS = ["vec.num_envs=4", "compute=serial", "algo.eval_episodes=2", "algo.eval_max_steps=200"]
SERVED = ["vec=multiprocess", "vec.num_envs=32"]
SEEDS = 5
TRAIN = "import sys; from paddock.launch import main; sys.exit(main())"
TRAIN_INSIDE = """
import sys
from contextlib import closing
from paddock.launch import main
from paddock.serve import start
count = int(sys.argv.pop(1))
served = [sys.argv.pop(1) for _ in range(count)]
with closing(start([*served, "serve.address=127.0.0.1:0"])) as server:
    sys.argv.append(f"vec.address={server.address}")
    code = main()
sys.exit(code)
"""
NAMESPACE, LINK, HERE, THERE = f"paddock{os.getpid()}", f"pd{os.getpid()}", "10.213.77.1", "10.213.77.2"

Train = Callable[[list[str]], int]  # to the exit code, given a run's arguments


def main(arguments: list[str] | None = None) -> int:
    """Print who agrees with whom; returns 1 unless all do."""
    options = read_options(arguments)
    seeds = 1 if options.quick else SEEDS
    print(harness.describe_machine())
    rows: list[Report] = []
    for name in options.environments:
        if name == "hopper" and find_spec("mujoco") is None:
            print("hopper is left out: pip install 'paddock[mujoco]'")
            continue
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            ways = {
                "serial": lambda run: call([sys.executable, "-c", TRAIN, *run, "vec=serial"]),
                "in process": train_inside([*ENVIRONMENTS[name], *SERVED]),
                "loopback": stack.enter_context(train_at(ENVIRONMENTS[name], [], "127.0.0.1", {})),
            }
            if can_make_namespaces():
                stack.enter_context(namespace())
                key, cert = make_keys(folder, THERE)
                secure = {"key": key, "cert": cert, "token": str(folder / "token")}
                inside = ["ip", "netns", "exec", NAMESPACE]
                ways["namespace"] = stack.enter_context(train_at(ENVIRONMENTS[name], inside, THERE, secure))
            else:
                print("the other network namespace is left out: it takes root and `ip netns add`")
            for algorithm in options.algorithms:
                rows += compare(folder, algorithm, name, ways, seeds)
    same = all(row["same"] for row in rows)
    print(f"{sum(row['same'] for row in rows)} of {len(rows)} runs have one sha256 wherever they are")
    report: Report = {"machine": harness.describe_machine(), "rows": rows}
    report["versions"] = harness.versions("grpcio", "numpy", "gymnasium", "box2d", "mujoco", "torch")
    print(harness.list_versions(report))
    return harness.finish(report, options.json, same and bool(rows))


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = harness.command_line(__doc__, "one seed")
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    return parser.parse_args(arguments)


def compare(folder: Path, algorithm: str, name: str, ways: Mapping[str, Train], seeds: int) -> list[Report]:
    """Return a row for each seed: the digest of what was measured by each way, and whether they are one."""
    every = ",".join(map(str, range(seeds)))
    for way, train in ways.items():
        sweep = folder / f"{algorithm}_{way.replace(' ', '_')}"
        run = [*ALGORITHMS[algorithm], *ENVIRONMENTS[name], *ALWAYS]
        code = train(["--multirun", f"seed={every}", f"hydra.sweep.dir={sweep}", *run])
        if code:
            raise SystemExit(f"{algorithm} on {name}, {way}: exit code {code}")
    rows: list[Report] = []
    for seed in range(seeds):
        paths = {way: folder / f"{algorithm}_{way.replace(' ', '_')}" / str(seed) / "metrics.jsonl" for way in ways}
        digests = {way: sha256(path.read_bytes()).hexdigest() for way, path in paths.items()}
        lines = paths["serial"].read_bytes().count(b"\n")
        same = len(set(digests.values())) == 1 and lines > 0
        rows.append({"algorithm": algorithm, "environment": name, "seed": seed, "lines": lines, "same": same})
        rows[-1]["digests"] = digests
    alike = sum(row["same"] for row in rows)
    print(f"{algorithm:5} {name:12} {', '.join(ways)}: {alike} of {seeds} seeds have one sha256", flush=True)
    return rows


def call(command: list[str]) -> int:
    """Return the exit code of a command, which is run in the repository; what it says is shown where it fails."""
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    return done.returncode


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}


def train_inside(served: list[str]) -> Train:
    """Return how to train at a server in the same process."""
    begin = [sys.executable, "-c", TRAIN_INSIDE, str(len(served)), *served]
    return lambda run: call([*begin, *run, "vec=remote"])


@contextmanager
def train_at(served: list[str], prefix: list[str], host: str, keys: Mapping[str, str]) -> Iterator[Train]:
    """Start a server in a process of its own, by a command before it; gives how to train there."""
    command = [*prefix, sys.executable, "-m", "paddock.serve", *served, *SERVED, f"serve.address={host}:0"]
    if keys:
        command += [
            f"serve.tls.cert={keys['cert']}",
            f"serve.tls.key={keys['key']}",
            f"serve.token_file={keys['token']}",
        ]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split(" at ")[1].partition(",")[0]
            there = ["vec=remote", f"vec.address={address}"]
            there += [f"vec.tls.ca={keys['cert']}", f"vec.token_file={keys['token']}"] if keys else []
            yield lambda run: call([sys.executable, "-c", TRAIN, *run, *there])
        finally:
            process.terminate()


def can_make_namespaces() -> bool:
    """Return whether this process may make network namespaces."""
    try:
        made = subprocess.run(["ip", "netns", "add", NAMESPACE], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
    if made:
        ip("netns", "del", NAMESPACE)
    return made


@contextmanager
def namespace() -> Iterator[None]:
    """Make a network namespace at THERE that sees this machine's other end of a cable at HERE, and nothing else."""
    ip("netns", "add", NAMESPACE)
    try:
        ip("link", "add", f"{LINK}a", "type", "veth", "peer", "name", f"{LINK}b", "netns", NAMESPACE)
        ip("addr", "add", f"{HERE}/30", "dev", f"{LINK}a")
        ip("link", "set", f"{LINK}a", "up")
        ip("-n", NAMESPACE, "addr", "add", f"{THERE}/30", "dev", f"{LINK}b")
        ip("-n", NAMESPACE, "link", "set", f"{LINK}b", "up")
        ip("-n", NAMESPACE, "link", "set", "lo", "up")
        yield
    finally:
        ip("netns", "del", NAMESPACE)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
