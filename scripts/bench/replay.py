"""How fast learning from replay is on a CPU: updates/s against Stable-Baselines3, in the same run.

    python scripts/bench/replay.py [--quick] [--json PATH] [--rows NAME ...] [--peers PYTHON]

sac, sac_small, td3, dqn, dqn_small   updates/s of the algorithm's learner, batches drawn from its replay with them
prioritized                           a batch of 256 drawn by priorities from a million transitions, and given new ones

apex                                  steps/s of algo=apex with two workers, and in one process; how long it waits
whole                                 steps/s of a core's own time, of algo=dqn with all that it does, by the numbers of
                                      environments and of steps of a rollout
zeros                                 updates/s of a core's own time, of algo=dqn on MiniGrid's one-hot rows, with their
                                      zeros and without

Sides play in turns, in processes of their own (scripts/bench/peers/): both fill their replay from the same environment,
which does nothing, and then only learn, 64 updates a call. Networks, batches and objectives are the same; targets are
for one thread each, and for SAC's usual size for two as well. Peers come with the extra `bench`; --peers names another
interpreter that has them: stable-baselines3, and cpprb for the last row. What is not installed is left out, and said.
"""

import argparse
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from envs.native import library  # noqa: E402
from scripts.bench import ppo  # noqa: E402
from scripts.bench.harness import (  # noqa: E402
    BUSY,
    Report,
    command_line,
    describe_machine,
    finish,
    in_turns,
    list_versions,
    versions,
)
from scripts.bench.ppo import Contender, Missing, Player, claim  # noqa: E402

OURS, PEER, CPPRB = "paddock", "sb3", "cpprb"
OUR_FILE, PEER_FILE, CPPRB_FILE = "paddock_replay.py", "sb3_replay.py", "cpprb_replay.py"
PACKAGES = ("paddock", "torch", "numpy", "gymnasium", "stable-baselines3", "cpprb")

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
TWO_THREADS = {"sac": 3.0}  # likewise, two threads of ours by SB3's
UPDATES = {
    "sac": (512, 192),
    "sac_small": (8192, 512),
    "td3": (768, 256),
    "dqn": (4096, 1024),
    "dqn_small": (32_768, 1024),
}
LEAST, ROWS_KEPT, QUICK_ROWS = 16, 10_000, 1000
WHOLE, WHOLE_RATE = ((1, 10), (16, 16), (64, 32)), 80_000  # environments and steps of a rollout; on one core
APEX_TIMES, APEX_IDLE = 1.5, 0.1  # steps/s with two workers / in one process; share of the time
ZEROS, ZEROS_UPDATES, ZEROS_TIMES = "minigrid_doorkey", 1024, 2.5  # without them / with them
MILLION, DRAWS, DRAW_S, CPPRB_TIMES = 1_000_000, 5000, 0.2e-3, 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run the rows, print medians and ratios; returns 1 if ours is below a target, else 0."""
    options = read_options(arguments)
    load = os.getloadavg()[0]
    report: Report = {
        "machine": describe_machine(),
        "instructions": library.widest(),
        "versions": versions(*PACKAGES),
        "rows": {},
    }
    print(f"{report['machine']}; instructions: {report['instructions']}")
    print(list_versions(report), flush=True)
    if load > BUSY:
        print(f"others are at work here (load {load:.1f}): trust no rate of two threads, and ratios more than rates")
    for name in options.rows:
        report["rows"][name] = ROWS[name](name, options)
        print(f"\n{ppo.render(report['rows'][name])}", flush=True)
    claims = [one for row in report["rows"].values() for one in row["claims"]]
    return finish(report, options.json, all(one["reached"] for one in claims))


def bench_updates(name: str, options: argparse.Namespace) -> Report:
    """Updates/s of a recipe, ours and SB3's."""
    recipe = RECIPES[name] | {"rows": QUICK_ROWS if options.quick else ROWS_KEPT}
    ours, theirs = (max(count // 16, LEAST) if options.quick else count for count in UPDATES[name])
    contenders = [
        Contender(OURS, OUR_FILE, recipe, [1], ours),
        Contender(PEER, PEER_FILE, recipe, [1], theirs, options.peers),
    ]
    if name in TWO_THREADS and not options.quick:
        contenders.append(Contender(f"{OURS}, 2 threads", OUR_FILE, recipe, [2], ours))
        contenders.append(Contender(f"{PEER}, 2 threads", PEER_FILE, recipe, [2], theirs, options.peers))
    row = ppo.measure(describe(recipe), contenders, options.repeats) | {"unit": "updates/s"}
    row["claims"] = ppo.compare(row, OURS, {PEER: TIMES[name]})
    if f"{OURS}, 2 threads" in row["contenders"]:
        row["claims"] += ppo.compare(row, f"{OURS}, 2 threads", {PEER: TWO_THREADS[name]})
    return row


def bench_prioritized(name: str, options: argparse.Namespace) -> Report:
    """Batches of 256 drawn by priorities, and given new ones."""
    rows, draws = (MILLION // 10, DRAWS // 10) if options.quick else (MILLION, DRAWS)
    players = {OURS: Player(OUR_FILE), CPPRB: Player(CPPRB_FILE, options.peers)}
    row: Report = {"title": f"256 of {rows:,} transitions drawn by priorities, and given new ones", "unit": "batches/s"}
    skipped: dict[str, str] = {}
    try:
        sides: dict[str, Callable[[], Report]] = {}
        for title, player in players.items():
            try:
                player.ask(rows=rows, draws=draws, seed=0)
            except Missing as missing:
                skipped[title] = str(missing)
            else:
                sides[title] = functools.partial(player.ask, rows=rows, draws=draws, seed=1)
        runs = in_turns(options.repeats, sides)
    finally:
        for player in players.values():
            player.close()
    rated = {title: [run | {"rate": run["steps"] / run["seconds"]} for run in every] for title, every in runs.items()}
    row |= {"contenders": {title: ppo.summarize(every) | {"setting": None} for title, every in rated.items()}}
    seconds = [run["seconds"] / run["steps"] for run in runs[OURS]]
    claims = [claim(f"{1e3 * DRAW_S:g} ms / {OURS}", [DRAW_S / one for one in seconds], 1.0)]
    return row | {"skipped": skipped, "claims": claims + ppo.compare(row, OURS, {CPPRB: CPPRB_TIMES})}


def bench_whole(name: str, options: argparse.Namespace) -> Report:
    """Steps/s of DQN on CartPole in C: one environment, some, and many."""
    player, rows = Player(OUR_FILE), 1 if options.quick else 10
    row: Report = {
        "title": "DQN on CartPole in C, 64-64, an update of 64 for 4 steps",
        "unit": "steps/s",
        "skipped": {},
    }
    try:
        sides: dict[str, Callable[[], Report]] = {
            f"{lanes} x {steps}": functools.partial(player.ask, lanes=lanes, num_steps=steps, rows=rows, seed=0)
            for lanes, steps in WHOLE
        }
        runs = in_turns(options.repeats, sides)
    finally:
        player.close()
    rated = {title: [run | {"rate": run["steps"] / run["seconds"]} for run in every] for title, every in runs.items()}
    row["contenders"] = {title: ppo.summarize(every) | {"setting": None} for title, every in rated.items()}
    title, every = list(rated.items())[-1]
    return row | {
        "claims": [claim(f"{title} / {WHOLE_RATE:,} steps/s", [run["rate"] / WHOLE_RATE for run in every], 1.0)]
    }


def bench_apex(name: str, options: argparse.Namespace) -> Report:
    """Steps/s of Ape-X on CartPole in Python: with two workers, and in one process, which plays and then learns."""
    player, rows = Player(OUR_FILE), 2 if options.quick else 10
    title = "Ape-X on CartPole in Python, an update of 128 for 16 steps"
    row: Report = {"title": title, "unit": "steps/s", "skipped": {}}
    who = {"inline": 0, "two workers": 2}
    try:
        sides: dict[str, Callable[[], Report]] = {
            title: functools.partial(player.ask, actors=actors, rows=rows, seed=0) for title, actors in who.items()
        }
        runs = in_turns(options.repeats, sides)
    finally:
        player.close()
    rated = {title: [run | {"rate": run["steps"] / run["seconds"]} for run in every] for title, every in runs.items()}
    row["contenders"] = {title: ppo.summarize(every) | {"setting": None} for title, every in rated.items()}
    idle = [APEX_IDLE / max(run["idle"], 1e-9) for run in runs["two workers"]]
    claims = ppo.compare(row, "two workers", {"inline": APEX_TIMES})
    return row | {"claims": [*claims, claim(f"{APEX_IDLE:.0%} / share that the learner waits", idle, 1.0)]}


def bench_zeros(name: str, options: argparse.Namespace) -> Report:
    """Updates/s of DQN on rows that are mostly zeros: all of them multiplied, and those that are none gathered."""
    player, updates = Player(OUR_FILE), ZEROS_UPDATES // 8 if options.quick else ZEROS_UPDATES
    title = f"DQN on {ZEROS}, 64-64, batches of 64, by the processor's time"
    row: Report = {"title": title, "unit": "updates/s", "skipped": {}}
    try:
        sides: dict[str, Callable[[], Report]] = {
            side: functools.partial(player.ask, zeros=ZEROS, whole=whole, updates=updates, seed=0)
            for side, whole in (("with zeros", True), ("without", False))
        }
        runs = in_turns(options.repeats, sides)
    finally:
        player.close()
    values = {run["value"] for every in runs.values() for run in every}
    assert len(values) == 1, f"both ways learn the same: {values}"
    rated = {title: [run | {"rate": run["steps"] / run["seconds"]} for run in every] for title, every in runs.items()}
    row["contenders"] = {title: ppo.summarize(every) | {"setting": None} for title, every in rated.items()}
    return row | {"claims": ppo.compare(row, "without", {"with zeros": ZEROS_TIMES})}


Row = Callable[[str, argparse.Namespace], Report]
OTHERS: dict[str, Row] = {
    "prioritized": bench_prioritized,
    "apex": bench_apex,
    "whole": bench_whole,
    "zeros": bench_zeros,
}
ROWS: dict[str, Row] = dict.fromkeys(RECIPES, bench_updates) | OTHERS


def describe(recipe: Report) -> str:
    """A recipe in one line."""
    hidden = "-".join(map(str, recipe["hidden"]))
    sizes = f"{recipe['observed']} numbers, {recipe['actions']} {'choices' if recipe['discrete'] else 'actions'}"
    return f"{recipe['algo'].upper()}, {sizes}, {hidden} relu, batches of {recipe['batch_size']}"


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; --quick changes what is not given."""
    parser = command_line(__doc__, "under a minute: a sixteenth of the updates, 3 repeats, one thread")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="NAME", help="some (all)")
    parser.add_argument("--repeats", type=int, help="runs of each contender (5)")
    parser.add_argument("--peers", metavar="PYTHON", default=sys.executable, help="an interpreter that has the peers")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (3 if options.quick else 5)
    return options


if __name__ == "__main__":
    sys.exit(main())
