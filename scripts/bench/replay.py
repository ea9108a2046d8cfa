"""Compare off-policy learning on a CPU with Stable-Baselines3 in the same run.

    python scripts/bench/replay.py [--quick] [--json PATH] [--rows NAME ...] [--peers PYTHON]

sac, sac_small, td3, dqn, dqn_small   updates/s of one thread
sac_threads                           the same with two threads
cartpole                              steps/s of experiment=dqn_cartpole, acting and learning
whole                                 steps/s of algo=dqn on native CartPole, by number of environments and rollout length

Sides run interleaved in separate processes (scripts/bench/peers/). In the first rows both fill their replay from an
environment whose steps cost nothing, and then make 64 or more updates per step; networks, batches and objectives are
identical. Seconds are processor time, except with two threads, which need an idle machine.

The extra `bench` installs the peers, and --peers selects another interpreter that has them. Peers that are not installed
are skipped with a message. `--json` replaces the rows of this run in a file and keeps its other rows.
"""

import argparse
import contextlib
import functools
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

from paddock.envs.native import library  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.contenders import contest  # noqa: E402
from scripts.bench.contenders.contest import Contender, Missing, Player, claim  # noqa: E402
from scripts.bench.contenders.recipes import translate  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

OURS, PEER, OUR_FILE, PEER_FILE = "paddock", "sb3", "paddock_replay.py", "sb3_replay.py"
PACKAGES = ("paddock", "torch", "numpy", "gymnasium")
VERSION = "from importlib.metadata import version; print(version('stable-baselines3'))"

CONTINUOUS: Report = {"observed": 17, "actions": 6, "discrete": False, "hidden_sizes": [256, 256], "batch_size": 256}
DISCRETE: Report = {
    "observed": 4,
    "actions": 2,
    "discrete": True,
    "hidden_sizes": [64, 64],
    "batch_size": 64,
    "algo": "dqn",
}
PLAIN = {"algo.double": False}  # as in SB3
RECIPES: dict[str, Report] = {
    "sac": CONTINUOUS | {"algo": "sac"},
    "sac_small": CONTINUOUS | {"algo": "sac", "observed": 3, "actions": 1, "hidden_sizes": [64, 64], "batch_size": 100},
    "td3": CONTINUOUS | {"algo": "td3"},
    "dqn": DISCRETE | {"hidden_sizes": [256, 256], "overrides": PLAIN},
    "dqn_small": DISCRETE | {"overrides": PLAIN},
}
TIMES = {
    "sac": 2.2,
    "sac_small": 12.0,
    "td3": 1.9,
    "dqn": 3.0,
    "dqn_small": 20.0,
}  # target ratios, with one thread each
THREADS_TIMES = 3.0  # SAC with two threads of ours over one of SB3's
CARTPOLE_TIMES = 3.0
UPDATES = {
    "sac": (512, 192),
    "sac_small": (8192, 512),
    "td3": (768, 256),
    "dqn": (4096, 1024),
    "dqn_small": (32_768, 1024),
}
LEAST, ROWS_KEPT, QUICK_ROWS = 64, 10_000, 1000
WHOLE, WHOLE_RATE = ((1, 10), (16, 16), (64, 32)), 80_000  # environments and steps of a rollout; target on one core
CARTPOLE_STEPS = 8192


def main(arguments: list[str] | None = None) -> int:
    """Run the rows, and print medians and ratios; return 1 if a target is missed, else 0."""
    options = read_options(arguments)
    kept = harness.read_kept(options.json)["rows"]
    machine: Report = {"machine": harness.describe_machine(), "instructions": library.widest()}
    machine["versions"] = installed(options)
    print(f"{machine['machine']}; instructions: {machine['instructions']}")
    print(harness.list_versions(machine), flush=True)
    harness.warn_if_busy()
    found: dict[str, Report] = {}
    for name in options.rows:
        found[name] = ROWS[name](options) | machine
        print(f"\n{contest.render(found[name])}", flush=True)
    reached = all(one["reached"] for row in found.values() for one in row["claims"])
    return harness.finish({"rows": kept | found}, options.json, reached)


def installed(options: argparse.Namespace) -> dict[str, str]:
    """Return the versions of the packages, with the peer's from its interpreter."""
    asked = subprocess.run([options.peers, "-c", VERSION], capture_output=True, text=True)
    return harness.versions(*PACKAGES) | ({} if asked.returncode else {"stable-baselines3": asked.stdout.strip()})


def bench_updates(name: str, options: argparse.Namespace) -> Report:
    """Measure updates/s of a recipe, ours and SB3's, with one thread each."""
    recipe, ours, theirs = size(name, options)
    contenders = [
        Contender(OURS, OUR_FILE, recipe, [1], ours),
        Contender(PEER, PEER_FILE, recipe, [1], theirs, options.peers),
    ]
    row = contest.measure(describe(recipe), contenders, options.repeats) | {"unit": "updates/s"}
    return row | {"claims": contest.compare(row, OURS, {PEER: TIMES[name]})}


def bench_threads(options: argparse.Namespace) -> Report:
    """Measure updates/s of SAC with two threads, and SB3's with one and with two."""
    recipe, ours, theirs = size("sac", options)
    contenders = [
        Contender(f"{OURS}, 2 threads", OUR_FILE, recipe, [2], ours),
        Contender(PEER, PEER_FILE, recipe, [1], theirs, options.peers),
        Contender(f"{PEER}, 2 threads", PEER_FILE, recipe, [2], theirs, options.peers),
    ]
    row = contest.measure(describe(recipe), contenders, options.repeats) | {"unit": "updates/s"}
    return row | {"claims": contest.compare(row, f"{OURS}, 2 threads", {PEER: THREADS_TIMES})}


def bench_cartpole(options: argparse.Namespace) -> Report:
    """Measure steps/s of DQN with RL-Zoo's settings on CartPole in Python, acting and learning."""
    steps = CARTPOLE_STEPS // 4 if options.quick else CARTPOLE_STEPS
    theirs = {"recipe": translate("dqn_cartpole", "CartPole-v1"), "steps": steps, "every": 0, "episodes": 0}
    with contextlib.closing(Player(OUR_FILE)) as ours, contextlib.closing(Player(PEER_FILE, options.peers)) as peer:
        row, _ = take_turns(
            "DQN on CartPole in Python with RL-Zoo's settings: 256-256, 128 updates of 64 per 256 steps",
            options.repeats,
            {
                OURS: functools.partial(ours.ask, experiment="dqn_cartpole", steps=steps, seed=0),
                PEER: functools.partial(peer.ask, **theirs, seed=0),
            },
        )
    return row | {"claims": contest.compare(row, OURS, {PEER: CARTPOLE_TIMES})}


def bench_whole(options: argparse.Namespace) -> Report:
    """Measure steps/s of DQN on native CartPole with one environment, some, and many."""
    rows = 1 if options.quick else 10
    with contextlib.closing(Player(OUR_FILE)) as player:
        row, runs = take_turns(
            "DQN on native CartPole, 64-64, an update of 64 per 4 steps",
            options.repeats,
            {f"{N} x {T}": functools.partial(player.ask, num_envs=N, num_steps=T, rows=rows, seed=0) for N, T in WHOLE},
        )
    title, every = list(runs.items())[-1]
    reached = [run["rate"] / WHOLE_RATE for run in every]
    return row | {"claims": [claim(f"{title} / {WHOLE_RATE:,} steps/s", reached, 1.0)]}


Row = Callable[[argparse.Namespace], Report]
ROWS: dict[str, Row] = {
    **{name: functools.partial(bench_updates, name) for name in RECIPES},
    "sac_threads": bench_threads,
    "cartpole": bench_cartpole,
    "whole": bench_whole,
}


def size(name: str, options: argparse.Namespace) -> tuple[Report, int, int]:
    """Return a recipe, and the number of updates of each side."""
    rows, (ours, theirs) = QUICK_ROWS if options.quick else ROWS_KEPT, UPDATES[name]
    fewer = 16 if options.quick else 1
    return RECIPES[name] | {"rows": rows}, max(ours // fewer, LEAST), max(theirs // fewer, LEAST)


def describe(recipe: Report) -> str:
    """Describe a recipe in one line."""
    hidden = "-".join(map(str, recipe["hidden_sizes"]))
    sizes = f"{recipe['observed']} numbers, {recipe['actions']} {'discrete' if recipe['discrete'] else 'continuous'} actions"
    return f"{recipe['algo'].upper()}, {sizes}, {hidden} relu, batches of {recipe['batch_size']}"


def take_turns(
    title: str, repeats: int, sides: Mapping[str, Callable[[], Report]]
) -> tuple[Report, dict[str, list[Report]]]:
    """Return a row without claims, and the runs of each installed side with rates."""
    runs: dict[str, list[Report]] = {name: [] for name in sides}
    skipped: dict[str, str] = {}
    for _ in range(repeats):
        for name, play in sides.items():
            if name in skipped:
                continue
            try:
                run = play()
            except Missing as missing:
                skipped[name] = str(missing)
            else:
                runs[name].append(run | {"rate": run["steps"] / run["seconds"]})
    runs = {name: every for name, every in runs.items() if every}
    contenders = {name: contest.summarize(every) | {"setting": None} for name, every in runs.items()}
    return {"title": title, "unit": "steps/s", "contenders": contenders, "skipped": skipped}, runs


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the command line's options; --quick changes the defaults."""
    parser = harness.command_line(__doc__, "a sixteenth of the updates, 3 repeats")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="NAME", help="some (all)")
    parser.add_argument("--repeats", type=harness.positive_int, help="runs of each contender (5)")
    help = "interpreter that has the peers"
    parser.add_argument("--peers", type=harness.interpreter, metavar="PYTHON", default=sys.executable, help=help)
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (3 if options.quick else 5)
    return options


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
