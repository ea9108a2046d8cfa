"""Reference runs: short recipes of every algorithm, and the sha256 of their metrics.

A change that preserves behaviour preserves these hashes. Recipes that learn in C are identical on every processor;
those marked `torch` or `box2d` round differently by processor class, so the table has a column for each class.

    python scripts/reference_runs.py                    run all recipes and print their hashes
    python scripts/reference_runs.py ppo_serial sac     run these
    python scripts/reference_runs.py --check            compare with scripts/reference_runs.json; exit 1 on a difference
    python scripts/reference_runs.py --update           write new and different hashes to that table
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "scripts" / "reference_runs.json"
TIMEOUT_S = 300.0

SERIAL = "compute=serial"
PPO = f"{SERIAL} algo=ppo algo.num_steps=32 algo.minibatch_size=64 algo.eval_every_iterations=2 algo.eval_episodes=2 vec.num_envs=4"
REPLAY = (
    f"{SERIAL} algo.learning_starts=256 algo.num_steps=8 algo.batch_size=32 algo.log_every_steps=256 "
    "algo.eval_every_steps=512 algo.eval_episodes=2 vec.num_envs=4 budget.steps=1024"
)
LINEAR = "algo.learning_rate_schedule=linear budget.steps=2000"
ES = "algo.population=16 algo.pairs_per_task=2 algo.hidden_sizes=[16] algo.eval_every_iterations=2 algo.eval_episodes=2"
GROUND = (
    "algo.num_steps=16 algo.minibatch_size=64 budget.iterations=4 algo.eval_every_iterations=2 algo.eval_episodes=4"
)
# name -> (the library that rounds by processor class, or "", and the overrides)
RECIPES = {
    "es_serial": ("", f"algo=es env=cartpole {SERIAL} {ES} budget.iterations=5"),
    "es_dask": ("", f"algo=es env=cartpole compute=dask {ES} budget.iterations=5"),
    "es_normalized": ("", f"algo=es env=pendulum {SERIAL} {ES} algo.observation_sampling=0.5 budget.iterations=3"),
    "es_native": ("", f"algo=es env=bipedal vec=native {SERIAL} {ES} env.max_episode_steps=200 budget.iterations=4"),
    "poet": ("", f"experiment=poet_poles {SERIAL} algo.population=8 budget.minutes=null budget.iterations=11"),
    "pbt": (
        "",
        f"experiment=pbt_cartpole {SERIAL} algo.members=3 algo.interval=2 algo.eval_episodes=2 budget.iterations=3",
    ),
    "ppo_serial": ("", f"{PPO} env=cartpole budget.iterations=5"),
    "ppo_multiprocess": ("", f"{PPO} env=cartpole vec=multiprocess vec.workers=2 budget.iterations=5"),
    "ppo_prefetch": ("", f"{PPO} env=pendulum algo.rollouts=prefetch algo.advantage=vtrace budget.iterations=5"),
    "ppo_actors": (
        "",
        f"{PPO} env=cartpole algo.rollouts=actors {LINEAR} budget.iterations=5",
    ),
    "ppo_native": (
        "",
        f"{PPO} env=bipedal vec=native algo.normalize_observations=true algo.normalize_rewards=true "
        "algo.target_kl=0.1 algo.value_clip_coef=0.2 budget.iterations=5",
    ),
    "ppo_masked": ("", f"{PPO} env=connect4 algo.eval_every_iterations=100 budget.iterations=4"),
    "ppo_agents": ("", f"experiment=ppo_spread {SERIAL} vec.num_envs=4 {GROUND} algo.agent_id_feature=true"),
    "ppo_roles": ("", f"{PPO} env=roles env.kwargs.blind=true budget.iterations=4"),
    "ppo_selfplay": ("", f"experiment=ppo_tictactoe {SERIAL} vec.num_envs=8 {GROUND} algo.opponents.every=2"),
    "ppo_league": ("", f"experiment=ppo_league_tictactoe {SERIAL} vec.num_envs=8 {GROUND} algo.opponents.every=2"),
    "ppo_lstm": ("torch", f"experiment=ppo_recall {SERIAL} vec.num_envs=4 {GROUND} algo.num_steps=32"),
    "ppo_torch": (
        "torch",
        f"{PPO} env=pendulum algo.backend=torch algo.continuous_distribution=squashed_gaussian budget.iterations=4",
    ),
    "ppo_image": (
        "box2d",
        f"{PPO} env=gymnasium env.id=CarRacing-v3 +env.kwargs.continuous=false env.max_episode_steps=20 "
        "vec.num_envs=2 algo.epochs=1 algo.num_steps=16 algo.minibatch_size=32 budget.iterations=2",
    ),
    "ppo_remote": ("", f"{PPO} env=remote vec=remote vec.address=file:ADDRESS budget.iterations=4"),
    "a2c": (
        "",
        f"algo=a2c env=cartpole {SERIAL} algo.eval_every_iterations=20 algo.eval_episodes=2 budget.iterations=40",
    ),
    "dqn": ("", f"algo=dqn env=cartpole {REPLAY} algo.n_step=3"),
    "dqn_prioritized": ("", f"algo=dqn env=cartpole {REPLAY} algo.priority_exponent=0.6 algo.dueling=true"),
    "dqn_agents": ("", f"algo=dqn env=spread {REPLAY} algo.agent_id_feature=true"),
    "rainbow": ("torch", f"experiment=rainbow_cartpole {REPLAY}"),
    "quantiles": ("torch", f"algo=dqn env=cartpole {REPLAY} algo.quantiles=8"),
    "apex": ("", f"algo=apex env=cartpole {REPLAY}"),
    "sac": ("", f"algo=sac env=pendulum {REPLAY}"),
    "sac_discrete": ("", f"experiment=sac_cartpole vec=serial {REPLAY}"),
    "sac_torch": ("torch", f"algo=sac env=pendulum algo.backend=torch {REPLAY}"),
    "td3": ("", f"algo=td3 env=pendulum {REPLAY}"),
    "ddpg": ("", f"algo=ddpg env=pendulum {REPLAY}"),
    "r2d2": (
        "torch",
        f"experiment=r2d2_recall {SERIAL} algo.learning_starts=512 algo.log_every_steps=256 vec.num_envs=4 budget.steps=1536",
    ),
    "pqn": ("", f"experiment=pqn_cartpole {SERIAL} vec.num_envs=4 algo.num_steps=32 budget.steps=1024"),
    "pqn_torch": ("torch", f"experiment=pqn_cartpole {SERIAL} algo.layer_norm=true vec.num_envs=4 budget.steps=1024"),
}


def processor_class() -> str:
    """Return the instruction set that determines the rounding of torch and Box2D, such as `x86_64-avx2`."""
    flags = Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    machine = os.uname().machine
    return f"{machine}-{'avx512' if 'avx512f' in flags else 'avx2' if 'avx2' in flags else 'base'}"


def play(name: str) -> str:
    """Run a recipe in a temporary folder, and return the sha256 of its metrics.

    Raises:
        RuntimeError: the command failed; the message contains the end of its error output.
    """
    overrides = RECIPES[name][1]
    with tempfile.TemporaryDirectory() as folder:
        server = None
        if "ADDRESS" in overrides:
            address = f"{folder}/address"
            overrides = overrides.replace("ADDRESS", address)
            serve = ["-m", "paddock.serve", "env=cartpole", "vec.num_envs=8", f"serve.address_file={address}"]
            server = subprocess.Popen([sys.executable, *serve, "serve.address=127.0.0.1:0"], cwd=ROOT)
        try:
            words = [*_split(overrides), f"run.dir={folder}/run"]
            done = subprocess.run(
                [sys.executable, "-m", "platform", *words], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
            )
            if done.returncode:
                raise RuntimeError(f"{name}: exit code {done.returncode}: {done.stderr[-2000:]}")
            return hashlib.sha256(Path(folder, "run", "metrics.jsonl").read_bytes()).hexdigest()
        finally:
            if server is not None:
                server.terminate()
                server.wait()


def _split(overrides: str) -> list[str]:
    """Split the overrides; the last one of a repeated key or group counts."""
    return list({word.partition("=")[0]: word for word in overrides.split()}.values())


def main() -> int:
    """Run, print, and compare or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="RECIPE", help=f"{', '.join(RECIPES)} (all)")
    parser.add_argument("--check", action="store_true", help="compare with the table")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of concurrent runs")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(RECIPES))
    if unknown:
        parser.error(f"unknown recipe {', '.join(unknown)}; allowed: {', '.join(RECIPES)}")
    names = arguments.names or list(RECIPES)
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    processor, different = processor_class(), []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        plays = {name: pool.submit(play, name) for name in names}
    for name in names:
        column = processor if RECIPES[name][0] else "any"
        known = table.get(name, {}).get(column)
        try:
            found = plays[name].result()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            found = f"failed: {error}"
        verdict = "new" if known is None else "same" if known == found else "DIFFERS"
        if verdict == "DIFFERS" or found.startswith("failed"):
            different.append(name)
        if arguments.update and not found.startswith("failed"):
            table.setdefault(name, {})[column] = found
        print(f"{name:18} {column:14} {found}  {verdict if arguments.check else ''}".rstrip())
    if arguments.update:
        TABLE.write_text(json.dumps({name: table[name] for name in RECIPES if name in table}, indent=1) + "\n")
    failed = [name for name in different if arguments.check or not arguments.update]
    if arguments.check and failed:
        print(f"{len(failed)} of {len(names)} differ: {', '.join(failed)}", file=sys.stderr)
    return 1 if arguments.check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
