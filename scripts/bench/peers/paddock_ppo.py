"""Paddock's PPO with a recipe of scripts/bench/learn.py, with the peers' protocol.

Requests are JSON lines. "updates" measures the speed: steps, seconds, processor seconds, and the shares of environments,
policy and learning. "goal" trains until an evaluation reaches that mean return, "until" returns the rollouts up to that
step, and other requests return the score of the last policy. A setting is a list of overrides, such as vec=multiprocess.
A recipe may name an experiment of conf/experiment.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from hydra.errors import HydraException
from omegaconf import OmegaConf

from paddock.algos.pool.serial import SerialPool
from paddock.algos.ppo import PPO
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm
from paddock.envs.errors import ConfigError

SHARES = ("env", "policy", "learn", "wait")
SAME_NAME = (
    "num_steps",
    "minibatch_size",
    "epochs",
    "learning_rate",
    "gamma",
    "gae_lambda",
    "clip_coef",
    "value_clip_coef",
    "entropy_coef",
    "value_coef",
    "max_grad_norm",
)


def overrides(recipe: dict[str, Any]) -> list[str]:
    """Return a recipe as Paddock's overrides."""
    if "experiment" in recipe:
        return [f"experiment={recipe['experiment']}", "algo.eval_every_iterations=1000000"]
    values: dict[str, Any] = {f"algo.{name}": recipe[name] for name in SAME_NAME} | {
        "vec.num_envs": recipe["num_envs"],
        "algo.normalize_observations": recipe["normalize"],
        "algo.normalize_rewards": recipe["normalize"],
        "algo.eval_every_iterations": 1_000_000,
    }
    if "hidden_sizes" in recipe:
        values["algo.hidden_sizes"] = str(recipe["hidden_sizes"]).replace(" ", "")
    if "lstm" in recipe:  # its size, of the features too
        values |= {"algo.lstm": "true", "algo.shared": "true", "algo.hidden_sizes": f"[{recipe['lstm']}]"}
    values |= {f"algo.{name}": recipe[name] for name in ("activation", "shared", "device") if name in recipe}
    if "learning_rate_schedule" in recipe:
        values |= {"algo.learning_rate_schedule": recipe["learning_rate_schedule"], "budget.steps": recipe["steps"]}
    env = ["env=gymnasium", f"env.id={recipe['env']}", "env.fresh=false"]
    return ["algo=ppo", *env, *(f"{key}={'null' if value is None else value}" for key, value in values.items())]


def build(recipe: dict[str, Any], setting: list[str], seed: int) -> PPO:
    """Build the algorithm of a recipe; the setting takes precedence."""
    composed = compose_alone([*overrides(recipe), f"seed={seed}", *setting])
    config: Any = OmegaConf.to_container(composed, resolve=True)
    return build_algorithm(config, SerialPool())


def train(recipe: dict[str, Any], setting: list[str], updates: int, seed: int) -> dict[str, Any]:
    """Measure `updates` after one update to warm up, or return why the setting is refused."""
    try:
        ppo = build(recipe, setting, seed)
    except (ConfigError, HydraException) as error:
        return {"refused": str(error).splitlines()[0]}
    plan = ppo.plan()
    try:
        next(plan)
        first, started, used = ppo.count.step, time.perf_counter(), time.process_time()
        rows = [next(plan) for _ in range(updates)]
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - used
    finally:
        plan.close()
    returns = [row["train/return_mean"] for row in rows if "train/return_mean" in row]
    return {
        "steps": ppo.count.step - first,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "return_mean": returns[-1] if returns else None,
        "split": split(rows, seconds, concurrent=ppo.rollouts != "inline"),
    }


def reach(
    recipe: dict[str, Any], setting: list[str], goal: float, every: int, episodes: int, seed: int
) -> dict[str, Any]:
    """Train until an evaluation, every `every` steps, has that mean return; `return_mean` is None if none had."""
    iterations = max(1, every // (recipe["num_envs"] * recipe["num_steps"]))
    ppo = build(recipe, [*setting, f"algo.eval_every_iterations={iterations}", f"algo.eval_episodes={episodes}"], seed)
    plan = ppo.plan()
    met, started = None, time.perf_counter()
    try:
        while met is None and ppo.count.step < recipe["steps"]:
            evaluated = next(plan).get("eval/return_mean", float("-inf"))
            met = evaluated if evaluated >= goal else None
    finally:
        plan.close()
    return {"steps": ppo.count.step, "seconds": time.perf_counter() - started, "return_mean": met}


def follow(recipe: dict[str, Any], setting: list[str], until: int, seed: int) -> dict[str, Any]:
    """Train until that step of the recipe, and return the episodes of every rollout."""
    ppo, rows = build(recipe, setting, seed), list[dict[str, Any]]()
    plan = ppo.plan()
    try:
        while ppo.count.step < until:
            row = next(plan)
            kept = {"episodes": "train/episodes", "return_mean": "train/return_mean", "entropy": "ppo/entropy"}
            rows.append({"step": row["step"]} | {name: row.get(key) for name, key in kept.items()})
    finally:
        plan.close()
    return {"rows": rows}


def score(recipe: dict[str, Any], setting: list[str], episodes: int, seed: int) -> dict[str, Any]:
    """Train for the recipe's steps, in whole rollouts, and evaluate the deterministic policy."""
    iterations = -(-recipe["steps"] // (recipe["num_envs"] * recipe["num_steps"]))
    ppo = build(recipe, [*setting, f"algo.eval_episodes={episodes}"], seed)
    plan = ppo.plan()
    try:
        for _ in itertools.islice(plan, iterations):
            pass
        [row] = ppo.evaluate_last()
    finally:
        plan.close()
    return {"steps": ppo.count.step, "return_mean": row["eval/return_mean"]}


def split(rows: list[dict[str, float]], seconds: float, concurrent: bool) -> dict[str, float]:
    """Return the shares of environments, policy, learning and waiting; concurrent ones may sum to more than 1."""
    shares = {name: sum(row[f"system/{name}_s"] for row in rows) / seconds for name in SHARES}
    if not concurrent:
        shares["wait"] -= shares["env"] + shares["policy"]
    return shares


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        ways: dict[str, Callable[..., dict[str, Any]]] = {"goal": reach, "updates": train, "until": follow}
        answer = next((way for name, way in ways.items() if name in request), score)
        print(json.dumps(answer(**request)), flush=True)
