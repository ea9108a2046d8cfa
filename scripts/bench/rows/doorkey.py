"""The row of `learn.py` about rows of bytes: PPO on MiniGrid's DoorKey-8x8, of 1,033 numbers a row 148 not 0."""

from argparse import Namespace

from scripts.bench import ppo
from scripts.bench.contenders import contest
from scripts.bench.contenders.contest import Contender, claim
from scripts.bench.harness import Report
from scripts.bench.ppo import CLASSIC

FILE = "paddock_ppo.py"
GRID = [  # of conf/env/minigrid_doorkey.yaml
    "vec=native",
    "env.wrappers=[{_target_: paddock.envs.bindings.minigrid.Choices}]",
    "env.without=[mission]",
]
RECIPE = CLASSIC | {
    "env": "minigrid:MiniGrid-DoorKey-8x8-v0",
    "num_envs": 32,
    "num_steps": 256,
    "minibatch_size": 512,
    "learning_rate": 1e-3,
    "gamma": 0.995,
    "gae_lambda": 0.99,
    "value_clip_coef": None,
}
TWO = ["vec.threads=2", "algo.threads=2"]
TORCH, TORCH_TIMES = "torch learns", 2.5  # ours / torch's
EXPERIMENT, GOAL, GOAL_S, SEEDS = "ppo_doorkey", 0.9, 30.0, (0, 1, 2)


def bench_doorkey(options: Namespace) -> Report:
    """Training steps/s by our learner and by torch; seconds of the process until 50 episodes average 0.9."""
    updates, threads = (1, [[]]) if options.quick else (4, [[], TWO])
    contenders = [
        Contender(title, FILE, RECIPE, [[*GRID, *backend, *more] for more in threads], updates)
        for title, backend in (("paddock", []), (TORCH, ["algo.backend=torch"]))
    ]
    row = contest.measure(f"DoorKey-8x8: {contest.describe(RECIPE)}", contenders, options.repeats)
    claims = contest.compare(row, "paddock", {TORCH: TORCH_TIMES})
    if not options.quick:
        runs = [ppo.reach_goal(seed, [], EXPERIMENT, GOAL) for seed in SEEDS]
        row["reached"] = [{name: run[name] for name in ("process_s", "steps", "return_mean")} for run in runs]
        share = [GOAL_S / run["process_s"] if run["return_mean"] >= GOAL else 0.0 for run in runs]
        claims.append(claim(f"{GOAL_S:g} s of the process / experiment={EXPERIMENT}", share, 1.0))
    return row | {"claims": claims}


def render(row: Report) -> str:
    """The rates, and the seconds of each seed."""
    seconds = [f"{run['process_s']:.1f} s ({run['steps']:,} steps)" for run in row.get("reached", [])]
    reached = [f"to {GOAL} with seeds {list(SEEDS)}: {', '.join(seconds)}"] if seconds else []
    return "\n".join([contest.render(row), *reached])
