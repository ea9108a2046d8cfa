"""Choice of a policy among those of a run."""

from collections.abc import Sequence
from pathlib import Path

from .elites import find_elite
from .load import load
from .policy import TrainedPolicy
from .target import find_env, find_policy, find_target


def choose_policy(
    run: Path,
    *,
    which: str = "last",
    of: str | None = None,
    niche: int | None = None,
    agent: int | None = None,
    cell: int | None = None,
    near: Sequence[float] | float | None = None,
) -> TrainedPolicy:
    """Return a policy of a run's newest checkpoint; see `Run.policy`."""
    algorithm, progress = load(run)
    target = find_target(algorithm, run, niche, agent)
    elite = find_elite(algorithm, run, cell, near)
    policy, iteration = find_policy(algorithm, run, which, target, progress, elite)
    return TrainedPolicy(policy, find_env(algorithm, run, target), iteration, of)
