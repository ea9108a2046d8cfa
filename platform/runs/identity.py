"""Identity of a run, derived from its configuration: names, and keys that affect results."""

import json
import re
from collections.abc import Mapping
from typing import Any

# Sections that do not affect results and may be changed on resume.
CHANGEABLE = ("budget", "compute", "vec", "track", "run", "checkpoint", "resume", "dry_run")
# Keys that only affect how work is split into tasks.
TASK_KEYS = ("algo.pairs_per_task",)
# Keys that select hardware. They only affect rounding, so runs may be resumed on other hardware.
DEVICE_KEYS = tuple(f"algo.{member}{key}" for member in ("", "member.") for key in ("device", "learners"))
# Algorithms that seed each episode separately, so that results do not depend on vec.num_envs.
WHOLE_EPISODES = ("es", "poet", "map_elites", "cma_me", "cma_mae")
NUM_ENVS = "vec.num_envs"
FACTORIES = {"env", "parallel_env", "make"}  # generic names of functions that make environments


def env_name(config: Mapping[str, Any]) -> str:
    """Return the environment's id, or the name of the class or function that makes it."""
    section = config["env"]  # may not be validated yet
    return str(section["id"]) if "id" in section else str(section.get("_target_")).rpartition(".")[2]


def short_name(id: str) -> str:
    """Return an environment's short name: BipedalWalker-v3 for `paddock.envs.bipedal:paddock/BipedalWalker-v3`.

    If the function name is generic, return the module name: simple_tag_v3 for `mpe2.simple_tag_v3:parallel_env`.
    """
    module, _, name = id.rpartition(":")
    return module.rpartition(".")[2] if name in FACTORIES and module else name.rpartition("/")[2]


def algorithm_name(config: Mapping[str, Any]) -> str:
    """Return the algorithm's name, by default its class name in snake case."""
    algo = config["algo"]
    if algo.get("name") not in (None, ""):
        return str(algo["name"])
    name = str(algo.get("_target_", "run")).rpartition(".")[2]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def computation(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that determine a run's results, by dotted key.

    The number of environments is excluded, because it is checked when the state is restored.
    """
    relevant = flatten({name: section for name, section in config.items() if name not in CHANGEABLE})
    return {key: value for key, value in relevant.items() if key not in TASK_KEYS}


def count_envs(config: Mapping[str, Any]) -> int | None:
    """Return the number of environments if results depend on it, else None."""
    relevant = algorithm_name(config) not in WHOLE_EPISODES
    return config.get("vec", {}).get("num_envs") if relevant else None


def experiment_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that determine results, except the seed, by dotted key; repetitions have equal values."""
    settings = {key: value for key, value in computation(config).items() if key != "seed"}
    count = count_envs(config)
    return settings if count is None else settings | {NUM_ENVS: count}


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Describe how keys that affect results differ between two configurations."""
    before, after = computation(old), computation(new)
    missing = "(unset)"
    return [
        f"{key} was {before.get(key, missing)} and is now {after.get(key, missing)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)  # a missing key is equal to null
    ]


def changed_processors(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Describe how hardware keys differ between two configurations."""
    return [change for change in changed_keys(old, new) if change.split(" ")[0] in DEVICE_KEYS]


def format_value(value: Any) -> str:
    """Format a configuration value compactly."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Flatten nested mappings into a single mapping with dotted keys."""
    if not isinstance(value, Mapping):
        return {path: value}
    inner = (flatten(item, f"{path}.{key}" if path else str(key)) for key, item in value.items())
    return {key: leaf for leaves in inner for key, leaf in leaves.items()}
