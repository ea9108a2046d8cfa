"""Initial policy of a run with `init_from`, taken from another run, and its copy in the run's folder."""

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
    """Initial policy and its provenance."""

    policy: Initial
    facts: Mapping[str, Any]  # run, algorithm, environment, iteration and step

    def describe(self) -> str:
        """Return a one-line description."""
        run, algorithm, env, iteration, step = self.facts.values()
        return f"the policy of {run}: {algorithm} on {env}, iteration {iteration:,}, {step:,} steps"

    def state_dict(self) -> dict[str, Any]:
        """Return the copy that the run's folder keeps, so that the source run may be deleted."""
        return {"policy": self.policy.state_dict(), "facts": dict(self.facts)}


def load_initial_policy(experiment: Experiment) -> Origin | None:
    """Load the policy that `init_from` names into the algorithm of a new run; return None without `init_from`."""
    given = experiment.config["init_from"]
    if given is None:
        return None
    try:
        # A run that was killed before its first checkpoint restarts from the copy in its own folder.
        kept = experiment.path / INITIAL
        origin = _read(kept if kept.exists() else Path(given))
        _require_takes_policy(experiment.algorithm).start_from(origin.policy)
    except FolderError as error:  # which names the folder
        raise ConfigError(f"init_from: {error}") from error
    except (ConfigError, CheckpointError) as error:
        raise ConfigError(f"init_from={given}: {error}") from error
    return origin


def _read(source: Path) -> Origin:
    if source.is_file():
        run = next((str(folder) for folder in source.parents if (folder / "config.yaml").exists()), "a run's folder")
        require(source.name == INITIAL, f"it is a file; use {run}, or a run's {INITIAL}")
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
    return Origin(_require_takes_policy(algorithm).initial_policy(), facts)


def _require_takes_policy(algorithm: Any) -> TakesPolicy:
    if not isinstance(algorithm, TakesPolicy):
        remedy = "define initial_policy and start_from (algos/protocol.py)"
        raise ConfigError(f"{type(algorithm).__name__} does not support init_from; {remedy}")
    return algorithm
