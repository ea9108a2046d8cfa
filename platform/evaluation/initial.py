"""The policy that a run begins with where `init_from` names another run, and what the run's folder keeps of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.algos.networks.initial import Initial, restore
from paddock.algos.protocol import TakesPolicy
from paddock.envs.errors import ConfigError, require

from ..config.experiment import Experiment
from ..runs.checkpoint import CheckpointError, read
from ..runs.folder import INITIAL, FolderError, read_config
from ..runs.identity import algorithm_name, env_name
from .load import load


@dataclass(frozen=True)
class Origin:
    """A policy, and where it is from."""

    policy: Initial
    facts: Mapping[str, Any]  # the run, what learned it and where, and how far it had come

    def describe(self) -> str:
        """Return it in a line."""
        run, algorithm, env, iteration, step = self.facts.values()
        return f"the policy of {run}: {algorithm} on {env}, iteration {iteration:,}, {step:,} steps"

    def state_dict(self) -> dict[str, Any]:
        """Return what a run's folder keeps of it, whatever becomes of the run that it is from."""
        return {"policy": self.policy.state_dict(), "facts": dict(self.facts)}


def begin(parts: Experiment) -> Origin | None:
    """Let the algorithm of a run that has not begun start from the policy that `init_from` names; None: from its own.

    Raises:
        PaddockError: there is no such policy, or the algorithm cannot start from it.
    """
    given = parts.config["init_from"]
    if given is None:
        return None
    try:
        # Begun before, and killed before its first checkpoint: with what it had then.
        kept = parts.path / INITIAL
        origin = _read(kept if kept.exists() else Path(given))
        _taking(parts.algorithm).start_from(origin.policy)
    except (ConfigError, CheckpointError, FolderError) as error:
        raise ConfigError(f"init_from={given}: {error}") from error
    return origin


def _read(source: Path) -> Origin:
    """The policy of a run's newest checkpoint, or one that a run began with, in its file."""
    if source.is_file():
        run = next((str(folder) for folder in source.parents if (folder / "config.yaml").exists()), "a run's folder")
        require(source.name == INITIAL, f"it is a file; name {run}, or the {INITIAL} that a run began with")
        state = read(source)
        return Origin(restore(state["policy"]), state["facts"])
    config = read_config(source)
    algorithm, progress = load(source)
    facts = {
        "run": str(source),
        "algorithm": algorithm_name(config),
        "environment": env_name(config),
        "iteration": int(progress.metrics["iteration"]),
        "step": int(progress.metrics["step"]),
    }
    return Origin(_taking(algorithm).initial_policy(), facts)


def _taking(algorithm: Any) -> TakesPolicy:
    if not isinstance(algorithm, TakesPolicy):
        known = "algorithms that define initial_policy and start_from (algos/protocol.py) can"
        raise ConfigError(f"{type(algorithm).__name__} neither gives nor takes a policy; {known}")
    return algorithm
