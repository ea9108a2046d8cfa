"""Compare training steps/s of PPO with peers in the same run.

    python scripts/bench/learn.py [--quick] [--json PATH] [--rows NAME ...] [--pufferlib PYTHON]

walker    RL-Zoo's recipe for BipedalWalker, and Stable-Baselines3
classic   CleanRL's recipe for CartPole, and Stable-Baselines3
cartpole  CartPole with each side's best settings, and PufferLib's trainer on its own CartPole in C
memory    CartPole with an LSTM of 64, and sb3-contrib's RecurrentPPO
workers   MinAtar's Breakout with 1 to 256 emulated environment workers: processes with one environment, whose steps wait
          as long as an Atari step; vec=multiprocess and Gymnasium's AsyncVectorEnv with the same PPO. Measured: acting,
          updates and messages with all processes on these cores; not the emulator's processor time, nor a network.
pictures  a convolutional network on images, on one core and on a GPU if there is one, and Stable-Baselines3

Sides run interleaved in separate processes (scripts/bench/peers/), each at its fastest setting of a small grid. Peers
that are not installed are skipped with a message; the extra `bench` installs them. PufferLib needs another version of
torch, so pass its interpreter as --pufferlib and its unpacked source distribution, from which CartPole is compiled, as
--pufferlib-source:

    pip install --no-deps pufferlib-core==3.0.23
    pip install rich rich_argparse nvidia-ml-py
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

from paddock.envs.native import library  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.contenders import contest  # noqa: E402
from scripts.bench.contenders.contest import Contender, claim  # noqa: E402
from scripts.bench.contenders.recipes import BIPEDAL, CARTPOLE, CLASSIC, PICTURES, PUFFER, WALKER  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

OURS, FILE = "paddock", "paddock_ppo.py"
PACKAGES = ("paddock", "torch", "numpy", "gymnasium", "stable-baselines3", "scipy", "pufferlib-core")
QUICK_ROWS = ["walker", "classic", "cartpole"]
WALKER_RATES = {"avx512": 60_000, "avx2": 45_000}  # target in steps/s on two cores, by instruction set
CARTPOLE_RATE = 1_000_000  # target in steps/s
SB3_TIMES, PUFFERLIB_TIMES, MEMORY_TIMES, PICTURE_TIMES = 20.0, 2.5, 5.0, {"cuda": 2.0, "cpu": 1.0}  # target ratios
LOADS = {"PYTHONPATH": str(Path(__file__).with_name("loads"))}  # contains the module `premade`
NATIVE = ["vec=native"]
WORKERS, JUDGED, WORKER_TIMES = (1, 2, 8, 32, 64, 128, 256), range(32, 257), 1.0  # the target applies to JUDGED
GRID = [  # ways to use two cores
    [*NATIVE, "algo.threads=2"],
    [*NATIVE, "vec.threads=2", "algo.threads=2"],
    [*NATIVE, "algo.rollouts=prefetch"],
    [*NATIVE, "algo.rollouts=prefetch", "algo.threads=2"],
]
PICTURE_GRID: dict[str, list[Any]] = {
    "cuda": [[], ["algo.rollouts=prefetch"], ["algo.rollouts=threads", "algo.num_actors=1"]],
    "cpu": [[]],
}


def main(arguments: list[str] | None = None) -> int:
    """Run the rows, and print medians and ratios; return 1 if a target is missed, else 0."""
    options = read_options(arguments)
    report: Report = {
        "machine": harness.describe_machine(),
        "instructions": library.widest(),
        "versions": harness.versions(*PACKAGES),
        "rows": {},
    }
    print(f"{report['machine']}; instructions: {report['instructions']}")
    print(harness.list_versions(report), flush=True)
    harness.warn_if_busy()
    for name in options.rows:
        report["rows"][name] = ROWS[name](options)
        print(f"\n{contest.render(report['rows'][name])}", flush=True)
    claims = [one for row in report["rows"].values() for one in row["claims"]]
    return harness.finish(report, options.json, all(one["reached"] for one in claims))


def bench_walker(options: argparse.Namespace) -> Report:
    """Measure RL-Zoo's recipe: steps/s with the widest instructions and with AVX2, and the ratio to SB3."""
    recipe = WALKER | {"env": BIPEDAL, "num_steps": 64 if options.quick else 2048}
    theirs = WALKER | ({"num_steps": 32} if options.quick else {})
    grid, widest = GRID[:1] if options.quick else GRID, library.widest()
    contenders = [Contender(OURS, FILE, recipe, grid, updates=1 if options.quick else 3)]
    avx2 = f"{OURS}, AVX2"
    if widest == "avx512":
        contenders.append(
            Contender(avx2, FILE, recipe, grid, contenders[0].updates, environment={library.SET_VARIABLE: "avx2"})
        )
    contenders.append(sb3(theirs, 1, options.quick))
    row = contest.measure(f"BipedalWalker-v3, RL-Zoo's recipe: {contest.describe(recipe)}", contenders, options.repeats)
    claims = rate_claims(row, OURS, widest, WALKER_RATES) + rate_claims(row, avx2, "avx2", WALKER_RATES)
    return row | {"claims": claims + contest.compare(row, OURS, {"sb3": SB3_TIMES})}


def bench_classic(options: argparse.Namespace) -> Report:
    """Measure CleanRL's recipe, and SB3."""
    grid = [NATIVE] if options.quick else [NATIVE, *GRID]
    contenders = [
        Contender(OURS, FILE, CLASSIC, grid, updates=20 if options.quick else 400),
        sb3(CLASSIC, 5 if options.quick else 20, options.quick),
    ]
    row = contest.measure(f"CartPole-v1, CleanRL's recipe: {contest.describe(CLASSIC)}", contenders, options.repeats)
    return row | {"claims": contest.compare(row, OURS, {"sb3": SB3_TIMES})}


def bench_cartpole(options: argparse.Namespace) -> Report:
    """Measure each side with its own settings: steps/s, and the ratio to PufferLib."""
    contenders = [Contender(OURS, FILE, CARTPOLE, GRID[:1] if options.quick else GRID, 2 if options.quick else 40)]
    if options.pufferlib:
        recipe = PUFFER | {"source": options.pufferlib_source}
        grid = [[1024, 0, 2]] if options.quick else [[N, w, t] for N in (1024, 4096) for w in (0, 2) for t in (1, 2)]
        updates = 1 if options.quick else 4
        contenders.append(Contender("pufferlib", "pufferlib_ppo.py", recipe, grid, updates, options.pufferlib))
    title = f"CartPole-v1, each side's own settings; Paddock's: {contest.describe(CARTPOLE)}"
    row = contest.measure(title, contenders, options.repeats)
    if not options.pufferlib:
        row["skipped"]["pufferlib"] = "pass an interpreter that has it: --pufferlib PYTHON"
    claims = rate_claims(row, OURS, "any", {"any": CARTPOLE_RATE})
    return row | {"claims": claims + contest.compare(row, OURS, {"pufferlib": PUFFERLIB_TIMES})}


def bench_memory(options: argparse.Namespace) -> Report:
    """Measure PPO with an LSTM, and sb3-contrib, each with one or two threads, whichever is faster."""
    quick, peer = options.quick, "sb3-contrib"
    recipe = CLASSIC | {"num_envs": 8, "minibatch_size": 256, "lstm": 64}  # four minibatches per epoch
    grid = [[*NATIVE, f"algo.threads={threads}"] for threads in (1, 2)]
    contenders = [
        Contender(OURS, FILE, recipe, grid[: 1 if quick else None], updates=4 if quick else 20),
        Contender(peer, "sb3_ppo.py", recipe, [1] if quick else [1, 2], updates=1 if quick else 4),
    ]
    row = contest.measure(f"CartPole-v1 with an LSTM of 64: {contest.describe(recipe)}", contenders, options.repeats)
    return row | {"claims": contest.compare(row, OURS, {peer: MEMORY_TIMES})}


def bench_pictures(options: argparse.Namespace) -> Report:
    """Measure both sides on pregenerated images, on each device."""
    import torch

    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    short = {"num_steps": 32, "minibatch_size": 64} if options.quick else {}
    contenders = []
    for device in devices:
        recipe = PICTURES | short | {"device": device}
        updates = 1 if device == "cpu" else 4 if options.quick else 20
        contenders += [
            Contender(f"{OURS}, {device}", FILE, recipe, PICTURE_GRID[device], updates, environment=LOADS),
            Contender(f"sb3, {device}", "sb3_ppo.py", recipe, [1], updates, environment=LOADS),
        ]
    gpu = torch.cuda.get_device_name() if "cuda" in devices else "no GPU"
    title = f"images of 4 x 84 x 84: {contest.describe(PICTURES | short)}; {gpu}"
    row = contest.measure(title, contenders, options.repeats)
    claims = [contest.compare(row, f"{OURS}, {name}", {f"sb3, {name}": PICTURE_TIMES[name]}) for name in devices]
    return row | {"claims": [one for each in claims for one in each]}


def bench_workers(options: argparse.Namespace) -> Report:
    """Measure PPO by number of environment workers, with Paddock's and Gymnasium's."""
    steps = 32 if options.quick else 128
    recipe = CLASSIC | {"env": "waiting:bench/WaitingBreakout-v0", "num_steps": steps}
    contenders, claims = [], list[Report]()
    for count in options.workers or ((8,) if options.quick else WORKERS):
        sides = {
            OURS: ["vec=multiprocess", f"vec.workers={count}"],
            "async": ["vec=vector", "vec.target=waiting.asynchronous"],
        }
        sized = recipe | {"num_envs": count, "minibatch_size": steps * count // 4}
        contenders += [
            Contender(f"{side}, {count}", FILE, sized, [setting], updates=4, environment=LOADS)
            for side, setting in sides.items()
        ]
    title = f"emulated workers, rollouts of {steps} steps per worker, 4 minibatches, 4 epochs"
    row = contest.measure(title, contenders, options.repeats)
    for count in options.workers or WORKERS:
        claims += contest.compare(
            row, f"{OURS}, {count}", {f"async, {count}": WORKER_TIMES if count in JUDGED else 0.0}
        )
    return row | {"claims": claims}


ROWS = {
    "workers": bench_workers,
    "walker": bench_walker,
    "classic": bench_classic,
    "cartpole": bench_cartpole,
    "memory": bench_memory,
    "pictures": bench_pictures,
}


def sb3(recipe: Report, updates: int, quick: bool) -> Contender:
    """Return Stable-Baselines3 with a recipe, with one or two torch threads."""
    return Contender("sb3", "sb3_ppo.py", recipe, [1] if quick else [1, 2], updates)


def rate_claims(row: Report, ours: str, instructions: str, least: Mapping[str, float]) -> list[Report]:
    """Return the claim on our steps/s with an instruction set, if there is a target and it was measured."""
    if ours not in row["contenders"] or instructions not in least:
        return []
    target = least[instructions]
    named = "" if instructions == "any" else f" with {instructions}"
    rates = row["contenders"][ours]["all"]
    return [claim(f"{ours} / {target:,} steps/s{named}", [rate / target for rate in rates], 1.0)]


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the command line's options; --quick changes the defaults."""
    parser = harness.command_line(__doc__, "under a minute: three rows, short runs, 3 repeats, one setting")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), metavar="NAME", help="some (all)")
    parser.add_argument("--repeats", type=harness.positive_int, help="runs of each contender (5)")
    parser.add_argument("--pufferlib", type=harness.interpreter, metavar="PYTHON", help="interpreter with PufferLib")
    parser.add_argument("--pufferlib-source", metavar="DIR", help="its unpacked source distribution, for CartPole in C")
    parser.add_argument("--workers", nargs="+", type=harness.positive_int, metavar="N", help="of the row workers")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (QUICK_ROWS if options.quick else list(ROWS))
    options.repeats = options.repeats or (3 if options.quick else 5)
    return options


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
