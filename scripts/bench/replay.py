"""How fast learning from replay is on a CPU: updates/s against Stable-Baselines3, in the same run.

    python scripts/bench/replay.py [--quick] [--json PATH] [--rows NAME ...] [--peers PYTHON]

sac, sac_small, td3, dqn, dqn_small   updates/s of the algorithm's learner, batches drawn from its replay with them
sac_threads                           the same of two threads
prioritized                           a batch of 256 drawn by priorities from a million transitions, and given new ones
checkpoint                            one of a million transitions: how long it takes, and how much it writes
pendulum                              seconds of a process, from its start until ten episodes have a mean of -200
cartpole                              steps/s of experiment=dqn_cartpole, whole
apex                                  steps/s of algo=apex with two workers, and in one process; how long it waits
whole                                 steps/s of algo=dqn with all that it does, by the numbers of environments and of
                                      steps of a rollout
zeros                                 updates/s of algo=dqn on MiniGrid's one-hot rows, with their zeros and without

Sides play in turns, in processes of their own (scripts/bench/peers/). In the first rows both fill their replay from the
same environment, which does nothing, and then only learn, 64 updates a call; networks, batches and objectives are the
same. Seconds are the processor's, so that others may be at work; those of two threads (sac_threads, apex) pass by the
clock, and want a quiet machine, and so do those of a checkpoint, which waits for the disk.

Peers come with the extra `bench`; --peers names another interpreter that has them: stable-baselines3, and cpprb for
`prioritized`. What is not installed is left out, and said. `--json` puts the rows of a run in their places in a file
that has others: each says of which machine it is.
"""

import argparse
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from paddock.envs.native import library  # noqa: E402
from scripts.bench.contenders import contest  # noqa: E402
from scripts.bench.contenders.contest import Contender, claim  # noqa: E402
from scripts.bench.harness import (  # noqa: E402
    BUSY,
    Report,
    command_line,
    describe_machine,
    finish,
    interpreter,
    list_versions,
    positive_int,
    read_kept,
    run_script,
    versions,
)
from scripts.bench.rows.whole import (  # noqa: E402
    MILLION,
    OUR_FILE,
    OURS,
    PEER,
    PEER_FILE,
    bench_apex,
    bench_cartpole,
    bench_checkpoint,
    bench_pendulum,
    bench_whole,
    player,
    take_turns,
)

CPPRB, CPPRB_FILE = "cpprb", "cpprb_replay.py"
PACKAGES = ("paddock", "torch", "numpy", "gymnasium")
PEERS_PACKAGES = ("stable-baselines3", "cpprb")
LIST = "from importlib.metadata import distributions; print(*(f'{one.name}={one.version}' for one in distributions()))"

CONTINUOUS: Report = {"observed": 17, "actions": 6, "discrete": False, "hidden": [256, 256], "batch_size": 256}
CHOICE: Report = {"observed": 4, "actions": 2, "discrete": True, "hidden": [64, 64], "batch_size": 64, "algo": "dqn"}
PLAIN = {"algo.double": False}  # which SB3's is
RECIPES: dict[str, Report] = {
    "sac": CONTINUOUS | {"algo": "sac"},
    "sac_small": CONTINUOUS | {"algo": "sac", "observed": 3, "actions": 1, "hidden": [64, 64], "batch_size": 100},
    "td3": CONTINUOUS | {"algo": "td3"},
    "dqn": CHOICE | {"hidden": [256, 256], "overrides": PLAIN},
    "dqn_small": CHOICE | {"overrides": PLAIN},
}
TIMES = {"sac": 2.2, "sac_small": 12.0, "td3": 1.9, "dqn": 3.0, "dqn_small": 20.0}  # ours / SB3, a thread each
THREADS_TIMES = 3.0  # of SAC, two threads of ours by one of SB3's
UPDATES = {
    "sac": (512, 192),
    "sac_small": (8192, 512),
    "td3": (768, 256),
    "dqn": (4096, 1024),
    "dqn_small": (32_768, 1024),
}
LEAST, ROWS_KEPT, QUICK_ROWS = 16, 10_000, 1000
ZEROS, ZEROS_UPDATES, ZEROS_TIMES = "minigrid_doorkey", 1024, 2.5  # without them / with them
DRAWS, DRAW_S, CPPRB_TIMES = 5000, 0.2e-3, 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run the rows, print medians and ratios; returns 1 if ours is below a target, else 0."""
    options = read_options(arguments)
    kept = read_rows(options.json)
    load = os.getloadavg()[0]
    place: Report = {"machine": describe_machine(), "instructions": library.widest(), "versions": list_found(options)}
    print(f"{place['machine']}; instructions: {place['instructions']}")
    print(list_versions(place), flush=True)
    if load > BUSY:
        print(f"others are at work here (load {load:.1f}): trust no rate of two threads, and ratios more than rates")
    found: dict[str, Report] = {}
    for name in options.rows:
        found[name] = ROWS[name](options) | place
        print(f"\n{contest.render(found[name])}", flush=True)
    reached = all(one["reached"] for row in found.values() for one in row["claims"])
    return finish({"rows": kept | found}, options.json, reached)


def read_rows(path: Path | None) -> dict[str, Report]:
    """The rows of a file that is there, each with its machine, which older files told once for all."""
    held = read_kept(path)
    rows: dict[str, Report] = held.pop("rows")
    return {name: row | {key: held[key] for key in held if key not in row} for name, row in rows.items()}


def list_found(options: argparse.Namespace) -> dict[str, str]:
    """The versions of what takes part; peers' are those that their interpreter has."""
    told = subprocess.run([options.peers, "-c", LIST], capture_output=True, text=True, check=True).stdout
    theirs = dict(line.replace("_", "-").split("=") for line in told.split())
    return versions(*PACKAGES) | {name: theirs[name] for name in PEERS_PACKAGES if name in theirs}


def bench_updates(name: str, options: argparse.Namespace) -> Report:
    """Updates/s of a recipe, ours and SB3's, on one thread each."""
    recipe, ours, theirs = size(name, options)
    contenders = [
        Contender(OURS, OUR_FILE, recipe, [1], ours),
        Contender(PEER, PEER_FILE, recipe, [1], theirs, options.peers),
    ]
    row = contest.measure(describe(recipe), contenders, options.repeats) | {"unit": "updates/s"}
    return row | {"claims": contest.compare(row, OURS, {PEER: TIMES[name]})}


def bench_threads(options: argparse.Namespace) -> Report:
    """Updates/s of SAC on two threads, beside SB3's on one and on two."""
    recipe, ours, theirs = size("sac", options)
    contenders = [
        Contender(f"{OURS}, 2 threads", OUR_FILE, recipe, [2], ours),
        Contender(PEER, PEER_FILE, recipe, [1], theirs, options.peers),
        Contender(f"{PEER}, 2 threads", PEER_FILE, recipe, [2], theirs, options.peers),
    ]
    row = contest.measure(describe(recipe), contenders, options.repeats) | {"unit": "updates/s"}
    return row | {"claims": contest.compare(row, f"{OURS}, 2 threads", {PEER: THREADS_TIMES})}


def size(name: str, options: argparse.Namespace) -> tuple[Report, int, int]:
    """A recipe, and how many updates each side makes by it."""
    rows, (ours, theirs) = QUICK_ROWS if options.quick else ROWS_KEPT, UPDATES[name]
    fewer = 16 if options.quick else 1
    return RECIPES[name] | {"rows": rows}, max(ours // fewer, LEAST), max(theirs // fewer, LEAST)


def bench_prioritized(options: argparse.Namespace) -> Report:
    """Batches of 256 drawn by priorities, and given new ones."""
    rows, draws = (MILLION // 10, DRAWS // 10) if options.quick else (MILLION, DRAWS)
    with player(OUR_FILE) as ours, player(CPPRB_FILE, options.peers) as peer:
        row, runs = take_turns(
            f"256 of {rows:,} transitions drawn by priorities, and given new ones",
            options.repeats,
            {
                OURS: functools.partial(ours.ask, rows=rows, draws=draws, seed=1),
                CPPRB: functools.partial(peer.ask, rows=rows, draws=draws, seed=1),
            },
        )
    claims = [claim(f"{1e3 * DRAW_S:g} ms / {OURS}", [DRAW_S * run["rate"] for run in runs[OURS]], 1.0)]
    return row | {"unit": "batches/s", "claims": claims + contest.compare(row, OURS, {CPPRB: CPPRB_TIMES})}


def bench_zeros(options: argparse.Namespace) -> Report:
    """Updates/s of DQN on rows that are mostly zeros: all of them multiplied, and those that are none gathered."""
    updates = ZEROS_UPDATES // 8 if options.quick else ZEROS_UPDATES
    with player(OUR_FILE) as asked:
        row, runs = take_turns(
            f"DQN on {ZEROS}, 64-64, batches of 64",
            options.repeats,
            {
                side: functools.partial(asked.ask, zeros=ZEROS, whole=whole, updates=updates, seed=0)
                for side, whole in (("with zeros", True), ("without", False))
            },
        )
    values = {run["value"] for every in runs.values() for run in every}
    assert len(values) == 1, f"both ways learn the same: {values}"
    return row | {"unit": "updates/s", "claims": contest.compare(row, "without", {"with zeros": ZEROS_TIMES})}


Row = Callable[[argparse.Namespace], Report]
UPDATING: dict[str, Row] = {name: functools.partial(bench_updates, name) for name in RECIPES}
ROWS: dict[str, Row] = {
    **UPDATING,
    "sac_threads": bench_threads,
    "prioritized": bench_prioritized,
    "checkpoint": bench_checkpoint,
    "pendulum": bench_pendulum,
    "cartpole": bench_cartpole,
    "apex": bench_apex,
    "whole": bench_whole,
    "zeros": bench_zeros,
}


def describe(recipe: Report) -> str:
    """A recipe in one line."""
    hidden = "-".join(map(str, recipe["hidden"]))
    sizes = f"{recipe['observed']} numbers, {recipe['actions']} {'choices' if recipe['discrete'] else 'actions'}"
    return f"{recipe['algo'].upper()}, {sizes}, {hidden} relu, batches of {recipe['batch_size']}"


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; --quick changes what is not given."""
    parser = command_line(__doc__, "a sixteenth of the updates, 3 repeats")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="NAME", help="some (all)")
    parser.add_argument("--repeats", type=positive_int, help="runs of each contender (5)")
    parser.add_argument(
        "--peers", type=interpreter, metavar="PYTHON", default=sys.executable, help="an interpreter that has the peers"
    )
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (3 if options.quick else 5)
    return options


if __name__ == "__main__":
    sys.exit(run_script(main))
