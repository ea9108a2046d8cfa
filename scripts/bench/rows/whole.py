"""The rows of scripts/bench/replay.py in which algorithms do all that they do: play, store, learn, go on, and save."""

import argparse
import contextlib
import functools
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from scripts.bench.contenders import contest
from scripts.bench.contenders.contest import PEERS, Missing, Player, claim
from scripts.bench.contenders.recipes import translate
from scripts.bench.harness import Report

ROOT = Path(__file__).resolve().parents[3]
OURS, PEER, OUR_FILE, PEER_FILE = "paddock", "sb3", "paddock_replay.py", "sb3_replay.py"
NATIVE = "paddock vec=native"
WHOLE, WHOLE_RATE = ((1, 10), (16, 16), (64, 32)), 80_000  # environments and steps of a rollout; on one core
APEX_TIMES, APEX_IDLE = 1.5, 0.1  # steps/s with two workers / in one process; share of the time
CARTPOLE_STEPS, CARTPOLE_TIMES = 8192, 3.0  # ours / SB3
GOAL, GOAL_EVERY, GOAL_EPISODES, GOAL_S, GOAL_TIMES = -200.0, 2000, 10, 4.0, 8.0  # SB3's seconds / ours
MILLION, OBSERVED, SAVES = 1_000_000, 17, 9
SAVE_S, SAVE_BYTES = 50e-3, {False: 5e6, True: 9e6}  # at most; of prioritized transitions


def bench_whole(options: argparse.Namespace) -> Report:
    """Steps/s of DQN on CartPole in C: one environment, some, and many."""
    rows = 1 if options.quick else 10
    with player(OUR_FILE) as asked:
        row, runs = take_turns(
            "DQN on CartPole in C, 64-64, an update of 64 for 4 steps",
            options.repeats,
            {
                f"{lanes} x {steps}": functools.partial(asked.ask, lanes=lanes, num_steps=steps, rows=rows, seed=0)
                for lanes, steps in WHOLE
            },
        )
    title, every = list(runs.items())[-1]
    reached = [run["rate"] / WHOLE_RATE for run in every]
    return row | {"claims": [claim(f"{title} / {WHOLE_RATE:,} steps/s", reached, 1.0)]}


def bench_apex(options: argparse.Namespace) -> Report:
    """Steps/s of Ape-X in Python: with two workers, and in one process, which plays and then learns.

    On LunarLander playing takes half as long as learning, and rollouts of 128 steps outweigh what sending them takes:
    there much is claimed of two workers. On CartPole playing takes a small part of it, and they win little.
    """
    rows = 2 if options.quick else 10
    with player(OUR_FILE) as asked:
        row, runs = take_turns(
            "Ape-X in Python, updates of 128: one for 16 steps of CartPole, in rollouts of 32 steps, or for 10 of "
            "LunarLander, in rollouts of 128",
            options.repeats,
            {
                f"{name}, {title}": functools.partial(
                    asked.ask,
                    actors=actors,
                    env=name.lower(),
                    num_steps=steps,
                    updates_per_step=updates,
                    rows=rows,
                    seed=0,
                )
                for name, steps, updates in (("CartPole", 32, 1 / 16), ("LunarLander", 128, 1 / 10))
                for title, actors in {"inline": 0, "two workers": 2}.items()
            },
        )
    shared = "LunarLander, two workers"
    idle = [APEX_IDLE / max(run["idle"], 1e-9) for run in runs[shared]]
    claims = contest.compare(row, shared, {"LunarLander, inline": APEX_TIMES})
    return row | {"claims": [*claims, claim(f"{APEX_IDLE:.0%} / share that the learner waits", idle, 1.0)]}


def bench_cartpole(options: argparse.Namespace) -> Report:
    """Steps/s of DQN by RL-Zoo's settings on CartPole in Python, learning and playing."""
    steps = CARTPOLE_STEPS // 4 if options.quick else CARTPOLE_STEPS
    recipe = translate("dqn_cartpole", "CartPole-v1")
    theirs = {"recipe": recipe, "steps": steps, "every": 0, "episodes": 0}
    with player(OUR_FILE) as ours, player(PEER_FILE, options.peers) as peer:
        row, _ = take_turns(
            "DQN on CartPole in Python by RL-Zoo's settings: 256-256, 128 updates of 64 for 256 steps",
            options.repeats,
            {
                OURS: functools.partial(ours.ask, experiment="dqn_cartpole", steps=steps, seed=0),
                PEER: functools.partial(peer.ask, **theirs, seed=0),
            },
        )
    return row | {"claims": contest.compare(row, OURS, {PEER: CARTPOLE_TIMES})}


def bench_pendulum(options: argparse.Namespace) -> Report:
    """Seconds of SAC's whole process until Pendulum swings up, as a user starts it, with layers of 64 for all.

    Once in Gymnasium's environment, as SB3 plays it, and once in Paddock's own in C, whose last bits are others.
    """
    runs: dict[str, list[Report]] = {OURS: [], NATIVE: [], PEER: []}
    skipped: dict[str, str] = {}
    for seed in range(1, 1 + options.repeats):
        runs[OURS].append(reach_ours(seed, "serial"))
        runs[NATIVE].append(reach_ours(seed, "native"))
        if not skipped:
            try:
                runs[PEER].append(reach_theirs(seed, options.peers))
            except Missing as missing:
                skipped[PEER] = str(missing)
    row: Report = {
        "title": f"SAC on Pendulum to a mean return of {GOAL:g} over {GOAL_EPISODES} episodes, looked at every "
        f"{GOAL_EVERY:,} steps, 64-64, seeds 1 to {options.repeats}",
        "unit": "seconds",
        "contenders": {title: contest.summarize(every) | {"setting": None} for title, every in runs.items() if every},
        "skipped": skipped,
    }
    claims = [claim(f"{GOAL_S:g} s / {OURS}", [GOAL_S / run["rate"] for run in runs[OURS]], 1.0)]
    return row | {
        "claims": claims + ([] if skipped else contest.compare(row, PEER, dict.fromkeys((OURS, NATIVE), GOAL_TIMES)))
    }


def reach_ours(seed: int, vec: str) -> Report:
    """One run of the recipe, in one process, to the goal."""
    words = ["experiment=sac_pendulum", f"seed={seed}", f"budget.return={GOAL}", "compute=serial", "algo.threads=1"]
    words += [f"vec={vec}"]
    words += [f"algo.eval_every={GOAL_EVERY}", f"algo.eval_episodes={GOAL_EPISODES}"]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        seconds, _ = spend([sys.executable, "-m", "paddock", *words, f"run.dir={run}"], "")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    met = max(row.get("eval/return_mean", -float("inf")) for row in rows)
    return {"rate": seconds if met >= GOAL else float("inf"), "process_s": seconds, "steps": rows[-1]["step"]}


def reach_theirs(seed: int, python: str) -> Report:
    """The same by SB3."""
    recipe = translate("sac_pendulum", "Pendulum-v1")
    request = {"recipe": recipe, "steps": recipe["steps"], "every": GOAL_EVERY, "episodes": GOAL_EPISODES, "goal": GOAL}
    seconds, told = spend([python, "-W", "ignore", str(PEERS / PEER_FILE)], json.dumps(request | {"seed": seed}))
    run = json.loads(told)
    met = run["evaluations"][-1]["eval/return_mean"] >= GOAL
    return {"rate": seconds if met else float("inf"), "process_s": seconds, "steps": run["steps"]}


def spend(command: list[str], told: str) -> tuple[float, str]:
    """Run a command to its end; returns what it took of the processor, with all that it started, and what it printed.

    Raises:
        Missing: it ended by an ImportError.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, input=told, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise contest.failure(" ".join(command), done.returncode, done.stderr)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout


def bench_checkpoint(options: argparse.Namespace) -> Report:
    """A checkpoint of a million transitions of 17 numbers, beside SB3's file of its replay."""
    rows = MILLION // 10 if options.quick else MILLION
    with player(OUR_FILE) as ours, player(PEER_FILE, options.peers) as peer:
        row, runs = take_turns(
            f"a checkpoint of {rows:,} transitions of {OBSERVED} numbers",
            1,
            {
                OURS: functools.partial(ours.ask, observed=OBSERVED, rows=rows, prioritized=False, saves=SAVES),
                f"{OURS}, prioritized": functools.partial(
                    ours.ask, observed=OBSERVED, rows=rows, prioritized=True, saves=SAVES
                ),
                PEER: functools.partial(peer.ask, observed=OBSERVED, rows=rows),
            },
        )
    for title, (run,) in runs.items():
        row["contenders"][title] |= {"bytes": run["bytes"], "seconds": run["seconds"]}
    (plain,), (prioritized,) = runs[OURS], runs[f"{OURS}, prioritized"]
    claims = [claim(f"{1e3 * SAVE_S:g} ms / {OURS}", [SAVE_S / plain["seconds"]], 1.0)]
    for title, run, most in ((OURS, plain, SAVE_BYTES[False]), (f"{OURS}, prioritized", prioritized, SAVE_BYTES[True])):
        claims.append(claim(f"{most / 1e6:g} MB / {title}", [most / run["bytes"]], 1.0))
    return row | {"unit": "checkpoints/s", "claims": claims}


@contextlib.contextmanager
def player(file: str, python: str = sys.executable) -> Iterator[Player]:
    """A contender's process, which ends with the block."""
    with contextlib.closing(Player(file, python)) as made:
        yield made


def take_turns(
    title: str, repeats: int, sides: Mapping[str, Callable[[], Report]]
) -> tuple[Report, dict[str, list[Report]]]:
    """A row of sides that play in turns, without claims, and their runs, with rates; who is missing is left out."""
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
