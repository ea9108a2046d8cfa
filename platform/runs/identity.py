"""What a configuration says a run is: its algorithm and environment, what decides its numbers, what has changed."""

import json
import re
from collections.abc import Mapping
from typing import Any

# These decide where and for how long a run computes and who watches, and not what: they may change when it goes on.
CHANGEABLE = ("budget", "compute", "vec", "track", "run", "checkpoint", "resume", "dry_run")
# And so may this, which cuts work into tasks: what each comes to depends on no other.
CUTS = ("algo.pairs_per_task",)
# These choose processors, and change last bits at most: a run may go on where there are fewer GPUs, or no compiler.
PROCESSORS = tuple(f"algo.{member}{key}" for member in ("", "member.") for key in ("device", "compiled", "learners"))
# They play whole episodes, each keyed by itself: how many side by side changes no number.
WHOLE_EPISODES = ("es", "poet")
NUM_ENVS = "vec.num_envs"
FACTORIES = {"env", "parallel_env", "make"}  # names that say nothing of an environment


def env_name(config: Mapping[str, Any]) -> str:
    """The environment's id, or the name of the class that makes it."""
    section = config["env"]  # which nobody may have checked yet
    return str(section["id"]) if "id" in section else str(section.get("_target_")).rpartition(".")[2]


def short_name(id: str) -> str:
    """Return what people call an environment: BipedalWalker-v3 of `paddock.envs.bipedal:paddock/BipedalWalker-v3`.

    Where a module's factory has a usual name it is the module: simple_tag_v3 of `mpe2.simple_tag_v3:parallel_env`.
    """
    module, _, name = id.rpartition(":")
    return module.rpartition(".")[2] if name in FACTORIES and module else name.rpartition("/")[2]


def algorithm_name(config: Mapping[str, Any]) -> str:
    """The algorithm's name, or that of its class as names are written: random_search for RandomSearch."""
    algo = config["algo"]
    if algo.get("name") not in (None, ""):
        return str(algo["name"])
    name = str(algo.get("_target_", "run")).rpartition(".")[2]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def computation(config: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a run's numbers: each value by its dotted key.

    Not the number of environments, which only the state of a run can tell whether it goes on with.
    """
    decisive = flatten({name: section for name, section in config.items() if name not in CHANGEABLE})
    return {key: value for key, value in decisive.items() if key not in CUTS}


def count_envs(config: Mapping[str, Any]) -> int | None:
    """Return how many environments side by side a run's numbers are of; None where that is no matter."""
    counts = algorithm_name(config) not in WHOLE_EPISODES
    return config.get("vec", {}).get("num_envs") if counts else None


def experiment_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What makes runs samples of one experiment: all that decides their numbers but the seed, by dotted keys."""
    settings = {key: value for key, value in computation(config).items() if key != "seed"}
    count = count_envs(config)
    return settings if count is None else settings | {NUM_ENVS: count}


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The keys, with old and new values, in which two configurations name different computations."""
    before, after = computation(old), computation(new)
    missing = "(unset)"
    return [
        f"{key} was {before.get(key, missing)} and is now {after.get(key, missing)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)  # a key that was not there yet was null
    ]


def changed_processors(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The keys, with old and new values, in which two configurations compute on other processors."""
    return [change for change in changed_keys(old, new) if change.split(" ")[0] in PROCESSORS]


def format_value(value: Any) -> str:
    """A value of a configuration, briefly."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """The values in nested mappings, by their dotted keys."""
    if not isinstance(value, Mapping):
        return {path: value}
    inner = (flatten(item, f"{path}.{key}" if path else str(key)) for key, item in value.items())
    return {key: leaf for leaves in inner for key, leaf in leaves.items()}
