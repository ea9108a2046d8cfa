"""How fast PPO learns: training steps/s against peers in the same run, and against what the processor allows.

    python scripts/bench/learn.py [--quick] [--json PATH] [--rows NAME ...] [--pufferlib PYTHON]

walker    RL-Zoo's recipe for BipedalWalker: 10 epochs of minibatches of 64; Stable-Baselines3, and a single file
classic   CleanRL's recipe for CartPole: the same two
cartpole  CartPole at settings of each one's choice: PufferLib's trainer on its own CartPole in C; ours have to learn it
goal      seconds until 20 episodes have a mean return of 475 on CartPole, of training and of the whole process
doorkey   MiniGrid's rows of bytes: our learner against torch, and seconds until 50 episodes have a mean return of 0.9
selfplay  Connect Four against itself and its earlier versions, by processor time: rules in C and PettingZoo's
spread    three agents that cover landmarks, by processor time: rules in C, in Python, and mpe2's
memory    CartPole with an LSTM of 64, and sb3-contrib's RecurrentPPO
pictures  convolutions on one core, and on a GPU where there is one; Stable-Baselines3 on the same
limit     the learner's share of what one core's arithmetic allows, and where its time goes
wide      products of wide layers: the lanes of envs/native/src/simd/product.h against SciPy's BLAS
grow      hidden layers of 64 to 512, minibatches of 64 to 32,768, one thread and two: our learner against torch

Sides play in turns, in processes of their own (scripts/bench/peers/), each at its fastest setting of a small grid. In
the first two rows peers have the same network and recipe; the walker is theirs in shorter rollouts, as much work for a
step. What is not installed is left out, and said so; what Paddock refuses, likewise. Peers come with the extra
`bench`; PufferLib goes there too, or into an environment of its own that --pufferlib names:

    pip install --no-deps pufferlib-core==3.0.23
    pip install rich rich_argparse nvidia-ml-py

That wheel is without environments in C: --pufferlib-source names the folder of an unpacked pufferlib-3.0.0.tar.gz (of
PyPI), from which CartPole is compiled.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from paddock.envs.native import library  # noqa: E402
from scripts.bench import ppo  # noqa: E402
from scripts.bench.contenders import contest  # noqa: E402
from scripts.bench.contenders.contest import Contender, Player, Refused, claim  # noqa: E402
from scripts.bench.harness import (  # noqa: E402
    BUSY,
    Report,
    command_line,
    describe_machine,
    finish,
    in_turns,
    interpreter,
    list_versions,
    positive_int,
    run_script,
    versions,
)
from scripts.bench.limits import learn_limit  # noqa: E402
from scripts.bench.ppo import BIPEDAL, CLASSIC, PACKAGES, WALKER  # noqa: E402
from scripts.bench.rows import doorkey, memory, pictures, selfplay, spread  # noqa: E402

OURS, AVX2 = "paddock", "paddock, AVX2"
QUICK_ROWS = ["walker", "classic", "cartpole"]
WALKER_RATES = {"avx512": 60_000, "avx2": 45_000}  # steps/s on two cores, by instructions
SB3_TIMES = 20.0  # ours / SB3
CARTPOLE_RATE, PUFFERLIB_TIMES = 1_000_000, 2.5
LEARN_SEEDS, LEARN_EVERY = (1, 2, 3, 4, 5), 65_536  # of runs that show that ours learn; steps between evaluations
GOAL_S, PROCESS_S = 1.0, 4.0
FILE = "paddock_ppo.py"
NATIVE, THREADS = ["vec=native"], [1, 2]
WAYS = [  # to use two cores
    [*NATIVE, "algo.threads=2"],
    [*NATIVE, "vec.threads=2", "algo.threads=2"],
    [*NATIVE, "algo.rollouts=prefetch"],
    [*NATIVE, "algo.rollouts=prefetch", "algo.threads=2"],
]
CARTPOLE = CLASSIC | {
    "num_envs": 256,
    "num_steps": 64,
    "minibatch_size": 4096,
    "epochs": 1,
    "hidden": [32, 32],  # PufferLib's network for it is one layer of 128, with fewer parameters
    "learning_rate": 5e-3,
    "gamma": 0.98,
    "value_clip_coef": None,
    "entropy_coef": 0.0,
    "anneal_steps": 1_000_000,
}
PUFFER = {"env": "puffer_cartpole", "num_steps": 64, "minibatch_size": 32_768, "epochs": 1}  # its cartpole.ini
FAST = [  # how experiment=ppo_cartpole is changed: fewer epochs, smaller minibatches, a larger and constant step size
    *NATIVE,
    "algo.epochs=2",
    "algo.minibatch_size=64",
    "algo.learning_rate=3e-3",
    "algo.anneal_steps=null",
    "algo.anneal_clip=false",
    "algo.gae_lambda=0.9",
    "algo.hidden=[32,32]",
]
HIDDEN, MINIBATCHES = (64, 128, 256, 512), (64, 512, 4096, 32_768)
QUICK_HIDDEN, QUICK_MINIBATCHES = (64, 256), (64, 4096)
GROW_ENVS, GROW_ROWS = 64, 4096  # and of a rollout, at least
BACKENDS = {"own": ["algo.backend=dense"], "torch": ["algo.backend=torch"]}


def main(arguments: list[str] | None = None) -> int:
    """Run the rows, print medians and ratios; returns 1 if ours is below a target, else 0."""
    options = read_options(arguments)
    load = os.getloadavg()[0]
    report: Report = {
        "machine": describe_machine(),
        "instructions": library.widest(),
        "versions": versions(*PACKAGES, "scipy", "pufferlib-core"),
        "rows": {},
    }
    print(f"{report['machine']}; instructions: {report['instructions']}")
    print(list_versions(report), flush=True)
    if load > BUSY:
        print(f"others are at work here (load {load:.1f}): trust no rate of two threads, and ratios more than rates")
    for name in options.rows:
        bench, render = ROWS[name]
        report["rows"][name] = bench(options)
        print(f"\n{render(report['rows'][name])}", flush=True)
    claims = [one for row in report["rows"].values() for one in row["claims"]]
    return finish(report, options.json, all(one["reached"] for one in claims))


def bench_walker(options: argparse.Namespace) -> Report:
    """RL-Zoo's recipe: steps/s with the widest instructions and with AVX2, and times SB3."""
    recipe = WALKER | {"env": BIPEDAL, "num_steps": 64 if options.quick else 2048}
    theirs = WALKER | ({"num_steps": 32} if options.quick else {})
    grid, widest = WAYS[:1] if options.quick else WAYS, library.widest()
    contenders = [Contender(OURS, FILE, recipe, grid, updates=1 if options.quick else 3)]
    if widest == "avx512":
        contenders.append(Contender(AVX2, FILE, recipe, grid, contenders[0].updates, environment=force("avx2")))
    contenders += peers(theirs, 1, options.quick)
    row = contest.measure(f"BipedalWalker-v3, RL-Zoo's recipe: {contest.describe(recipe)}", contenders, options.repeats)
    claims = rate_claims(row, OURS, widest, WALKER_RATES) + rate_claims(row, AVX2, "avx2", WALKER_RATES)
    return row | {"claims": claims + contest.compare(row, OURS, {"sb3": SB3_TIMES})}


def bench_classic(options: argparse.Namespace) -> Report:
    """CleanRL's recipe: times SB3."""
    grid = [NATIVE] if options.quick else [NATIVE, *WAYS]
    contenders = [
        Contender(OURS, FILE, CLASSIC, grid, updates=20 if options.quick else 400),
        *peers(CLASSIC, 5 if options.quick else 20, options.quick),
    ]
    row = contest.measure(f"CartPole-v1, CleanRL's recipe: {contest.describe(CLASSIC)}", contenders, options.repeats)
    return row | {"claims": contest.compare(row, OURS, {"sb3": SB3_TIMES})}


def bench_cartpole(options: argparse.Namespace) -> Report:
    """Settings of each one's choice: steps/s, times PufferLib, and that ours learn it."""
    contenders = [Contender(OURS, FILE, CARTPOLE, WAYS[:1] if options.quick else WAYS, 2 if options.quick else 40)]
    if options.pufferlib:
        recipe = PUFFER | {"source": options.pufferlib_source}
        grid = [[1024, 0, 2]] if options.quick else [[N, w, t] for N in (1024, 4096) for w in (0, 2) for t in THREADS]
        updates = 1 if options.quick else 4
        contenders.append(Contender("pufferlib", "pufferlib_ppo.py", recipe, grid, updates, options.pufferlib))
    title = f"CartPole-v1, settings of each one's choice; Paddock's: {contest.describe(CARTPOLE)}"
    row = contest.measure(title, contenders, options.repeats)
    if not options.pufferlib:
        row["skipped"]["pufferlib"] = "give an interpreter that has it: --pufferlib PYTHON"
    claims = rate_claims(row, OURS, "any", {"any": CARTPOLE_RATE})
    row["claims"] = claims + contest.compare(row, OURS, {"pufferlib": PUFFERLIB_TIMES})
    if not options.quick:
        learned = [learn_cartpole(seed, row["contenders"][OURS]["setting"]) for seed in LEARN_SEEDS]
        row["learned"] = learned
        row["claims"].append(
            claim("our settings learn it: runs that reach 475", [sum(map(bool, learned))], len(LEARN_SEEDS))
        )
    return row


def learn_cartpole(seed: int, setting: list[str]) -> int | None:
    """Steps of CARTPOLE until an evaluation reaches the goal; None where its budget did not suffice."""
    player = Player(FILE)
    try:
        run = player.ask(
            recipe=CARTPOLE, setting=setting, goal=ppo.GOAL, every=LEARN_EVERY, episodes=ppo.GOAL_EPISODES, seed=seed
        )
    finally:
        player.close()
    return run["steps"] if run["return_mean"] is not None else None


def bench_goal(options: argparse.Namespace) -> Report:
    """The time until an evaluation reaches the goal, and that of the whole process."""
    seeds = list(range(1, 2 if options.quick else 1 + options.repeats))
    ways = {OURS: FAST, f"{OURS}, compute=serial": [*FAST, "compute=serial"]}
    runs = in_turns(len(seeds), {title: reach_by_turns(seeds, setting) for title, setting in ways.items()})
    contenders = {title: contest.summarize(reached) | {"setting": ways[title]} for title, reached in runs.items()}
    best = min(runs, key=lambda title: contenders[title]["process_s"])
    title = f"CartPole-v1 to a mean return of {ppo.GOAL:.0f} over {ppo.GOAL_EPISODES} episodes, seeds {seeds}"
    claims = [
        claim(f"{GOAL_S:g} s of training / {best}", [GOAL_S / run["rate"] for run in runs[best]], 1.0),
        claim(f"{PROCESS_S:g} s of the process / {best}", [PROCESS_S / run["process_s"] for run in runs[best]], 1.0),
    ]
    return {"title": title, "unit": "seconds", "contenders": contenders, "skipped": {}, "claims": claims}


def reach_by_turns(seeds: list[int], overrides: list[str]) -> Callable[[], Report]:
    """A call that runs the next seed each time."""
    left = iter(seeds)
    return lambda: ppo.reach_goal(next(left), overrides)


def bench_limit(options: argparse.Namespace) -> Report:
    """The learner's share of the arithmetic's limit of one core, with the walker's recipe."""
    peak = learn_limit.measure_peak()
    networks: Report = {}
    player = Player(FILE)
    try:
        for hidden in QUICK_HIDDEN:
            recipe = WALKER | {"env": BIPEDAL, "hidden": [hidden, hidden], "num_steps": 64}
            runs = [player.ask(recipe=recipe, setting=NATIVE, updates=1, seed=k) for k in range(options.repeats)]
            per_step = median(run["split"]["learn"] * run["seconds"] / run["steps"] for run in runs)
            operations = learn_limit.count_operations(sizes_of(hidden), recipe["epochs"])
            networks[str(hidden)] = {
                "learn_us": 1e6 * per_step,
                "operations": operations,
                "of_limit": operations / per_step / peak,
                "split": {name: median(run["split"][name] for run in runs) for name in contest.SPLIT},
            }
    finally:
        player.close()
    return {"title": "one core, BipedalWalker by RL-Zoo's recipe", "peak": peak, "networks": networks, "claims": []}


def render_limit(row: Report) -> str:
    """The learner's share, in lines."""
    lines = [f"{row['title']}: at most {row['peak'] / 1e9:.1f} GFLOP/s without fused operations"]
    for hidden, one in row["networks"].items():
        shares = ", ".join(f"{contest.SPLIT[name]} {share:.0%}" for name, share in one["split"].items())
        lines.append(
            f"2 x {hidden}: a step is learned in {one['learn_us']:.1f} us, its matrix products are "
            f"{one['operations'] / 1e3:,.0f} thousand operations: {one['of_limit']:.0%} of the limit; {shares}"
        )
    return "\n".join(lines)


def bench_wide(options: argparse.Namespace) -> Report:
    """Square matrices by own lanes and by BLAS."""
    products = learn_limit.measure_products(3 if options.quick else 15)
    return {"products": products, "peak": learn_limit.measure_peak(), "claims": []}


def bench_grow(options: argparse.Namespace) -> Report:
    """Rows learned in a second, one epoch, at every size, by our learner and by torch."""
    hiddens, minibatches = (QUICK_HIDDEN, QUICK_MINIBATCHES) if options.quick else (HIDDEN, MINIBATCHES)
    numbers = THREADS[:1] if options.quick else THREADS
    sides = {
        (side, threads): [*NATIVE, *more, f"algo.threads={threads}"]
        for side, more in BACKENDS.items()
        for threads in numbers
    }
    cells: list[Report] = []
    skipped: dict[str, str] = {}
    player = Player(FILE)
    try:
        for hidden, minibatch in itertools.product(hiddens, minibatches):
            steps = max(minibatch, GROW_ROWS) // GROW_ENVS
            recipe = WALKER | {"env": BIPEDAL, "num_envs": GROW_ENVS, "num_steps": steps, "epochs": 1}
            recipe |= {"hidden": [hidden, hidden], "minibatch_size": minibatch}
            rates: dict[str, list[float]] = {}
            for repeat, ((side, threads), setting) in itertools.product(
                range(1 if options.quick else 3), sides.items()
            ):
                name = f"{side}, {contest.phrase(threads)}"
                if name in skipped:
                    continue
                try:
                    run = player.ask(recipe=recipe, setting=setting, updates=2, seed=repeat)
                except Refused as refused:
                    skipped[name] = str(refused)
                    continue
                rates.setdefault(name, []).append(run["steps"] / (run["split"]["learn"] * run["seconds"]))
            medians = {name: median(every) for name, every in rates.items()}
            cells.append({"hidden": hidden, "minibatch": minibatch, "rates": medians})
    finally:
        player.close()
    return {"cells": cells, "skipped": skipped, "claims": []}


def render_grow(row: Report) -> str:
    """A line for every size: rows/s of each side, and who is the fastest."""
    names = list(dict.fromkeys(name for cell in row["cells"] for name in cell["rates"]))
    lines = [
        "rows learned in a second, walkers, one epoch",
        f"{'hidden, minibatch':20}" + "".join(f"{name:>18}" for name in names),
    ]
    for cell in row["cells"]:
        rates = cell["rates"]
        size = f"2 x {cell['hidden']}, {cell['minibatch']:,}"
        fastest = max(rates, key=lambda name: rates[name], default="nobody")
        lines.append(f"{size:20}" + "".join(f"{rates[name]:18,.0f}" for name in rates) + f"   {fastest}")
    return "\n".join(lines + [f"{name:20}left out: {why}" for name, why in row["skipped"].items()])


Row = tuple[Callable[[argparse.Namespace], Report], Callable[[Report], str]]
ROWS: dict[str, Row] = {
    "walker": (bench_walker, contest.render),
    "classic": (bench_classic, contest.render),
    "cartpole": (bench_cartpole, contest.render),
    "goal": (bench_goal, contest.render),
    "doorkey": (doorkey.bench_doorkey, doorkey.render),
    "selfplay": (selfplay.bench_selfplay, contest.render),
    "spread": (spread.bench_spread, contest.render),
    "memory": (memory.bench_memory, contest.render),
    "pictures": (pictures.bench_pictures, contest.render),
    "limit": (bench_limit, render_limit),
    "wide": (bench_wide, lambda row: learn_limit.render_products(row["products"], row["peak"])),
    "grow": (bench_grow, render_grow),
}


def peers(recipe: Report, updates: int, quick: bool) -> list[Contender]:
    """Who plays our recipe too: of a quick run Stable-Baselines3 alone, which targets are about."""
    return list(ppo.peers(recipe, updates, quick))[: 1 if quick else None]


def rate_claims(row: Report, ours: str, instructions: str, least: Mapping[str, float]) -> list[Report]:
    """What is claimed of our steps/s with these instructions, where there is something and they were measured."""
    if ours not in row["contenders"] or instructions not in least:
        return []
    target = least[instructions]
    named = "" if instructions == "any" else f" with {instructions}"
    rates = row["contenders"][ours]["all"]
    return [claim(f"{ours} / {target:,} steps/s{named}", [rate / target for rate in rates], 1.0)]


def sizes_of(hidden: int) -> list[list[int]]:
    """Widths of the walker's policy and value, with two hidden layers each."""
    return [[24, hidden, hidden, 4], [24, hidden, hidden, 1]]


def force(instructions: str) -> dict[str, str]:
    """What makes a process take these instructions."""
    return {library.CHOICE: instructions}


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; --quick changes what is not given."""
    parser = command_line(__doc__, "under a minute: three rows, short runs, 3 repeats, one setting, fewer sizes")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), metavar="NAME", help="some (all)")
    parser.add_argument("--repeats", type=positive_int, help="runs of each contender (5)")
    parser.add_argument("--pufferlib", type=interpreter, metavar="PYTHON", help="an interpreter that has PufferLib")
    parser.add_argument("--pufferlib-source", metavar="DIR", help="its unpacked source distribution, for CartPole in C")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (QUICK_ROWS if options.quick else list(ROWS))
    options.repeats = options.repeats or (3 if options.quick else 5)
    return options


if __name__ == "__main__":
    sys.exit(run_script(main))
