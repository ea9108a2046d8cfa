"""Agent and niche of an evaluation: an agent of a POET run, or another run's policy, in any niche."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paddock.algos.evolution.niche import Niche
from paddock.algos.protocol import EvaluatesConcurrently, KeepsNiches, KeepsPolicies, KeepsVersions, LearnsInEnv
from paddock.envs.errors import require
from paddock.envs.spec import EnvSpec

from ..config.build import build
from ..config.niche import list_numbers
from ..runs.folder import read_config
from ..runs.journal import EVALUATION_OF
from ..runs.loop import Progress
from ..runs.results import read_columns
from .elites import Elite
from .load import load


@dataclass(frozen=True)
class EvaluationTarget:
    """Niche to play in, and the agent that plays there."""

    niche: Niche
    guest: Niche | None  # whose agent plays; None: the policy of a run without niches
    newest: bool  # the niche is the newest active one, by default

    @property
    def env(self) -> EnvSpec:
        """Return the niche's environment."""
        return self.niche.problem.env

    def describe(self) -> dict[str, str]:
        """Return facts about the niche and the agent by name."""
        niche, learner = self.niche, self.guest or self.niche
        active = "active" if niche.retired is None else f"retired in iteration {niche.retired}"
        facts = [
            f"{niche.number}, {'the newest active one' if self.newest else active}",
            f"created in iteration {niche.born}" + ("" if niche.parent is None else f" from niche {niche.parent}"),
            "not solved in the run" if niche.solved is None else f"solved in iteration {niche.solved}",
        ]
        own = f"niche {niche.number}'s own"
        agent = "the run's policy" if self.guest is None else f"niche {learner.number}'s"
        return {
            "niche": ", ".join(facts),
            "agent": own if self.guest is niche else agent,
            "run's score": f"{niche.score:.2f}, the last mean return of {own} agent",
            "trained": f"{learner.learned:,} environment steps, by niche {learner.number}'s agent in all its niches",
        }


def find_target(
    algorithm: Any, run: Path, niche: int | None, agent: int | None, on: Path | None = None
) -> EvaluationTarget | None:
    """Find the agent and the niche of an evaluation.

    Args:
        algorithm: of the run under evaluation.
        run: its folder.
        niche: number of the niche; None is the newest active one.
        agent: number of the niche whose agent plays; None is the niche's own, or with `on` the newest.
        on: the run that has the niche, if it is another one.

    Returns:
        None if the run has no niches and none is requested: its policy then plays in its own environment.
    """
    kind = f"is a run of {type(algorithm).__name__}, which has no niches"
    if not isinstance(algorithm, KeepsNiches):
        require(agent is None, f"agent={agent}: {run} {kind}; remove agent=")
        remedy = "remove niche=, or set on= to the POET run that has it"
        require(niche is None or on is not None, f"niche={niche}: {run} {kind}; {remedy}")
        if on is None:
            return None
    host = algorithm if on is None else load(on)[0]
    require(
        isinstance(host, KeepsNiches),
        f"on={on} is a run of {type(host).__name__}, which has no niches; use the folder of a POET run",
    )
    require(agent is None or niche is not None, f"agent={agent} needs a niche to play in; add niche=")
    there = _find("niche", niche, host, on or run)
    if not isinstance(algorithm, KeepsNiches):
        guest = None
    elif agent is None and on is None:
        guest = there
    else:
        guest = _find("agent", agent, algorithm, run)
    if on is not None:
        _check_fit(algorithm, run, there, on)
    return EvaluationTarget(there, guest, newest=niche is None)


def find_policy(
    algorithm: Any,
    run: Path,
    which: str,
    target: EvaluationTarget | None,
    progress: Progress,
    elite: Elite | None = None,
) -> tuple[Any, int]:
    """Return the target's agent, an elite, or the algorithm's policy of that name, and its iteration.

    The best policy is looked up in the run's journals, since a checkpoint lacks the final evaluations.
    """
    guest = None if target is None else target.guest
    keeps = isinstance(algorithm, KeepsPolicies) and guest is None
    allowed = algorithm.policy_names if keeps else ("last",)
    name, iteration = type(algorithm).__name__, int(progress.metrics["iteration"])
    require(which in allowed, f"which={which} is not a policy that {name} keeps; allowed: {', '.join(allowed)}")
    if guest is not None:
        return algorithm.policy(guest.number), iteration if guest.retired is None else guest.retired
    if elite is not None:
        return algorithm.policy(elite.cell), iteration
    if keeps:
        opposed = isinstance(algorithm, KeepsVersions) and len(algorithm.versions) > 0
        best = _find_best(run, opposed) if which == "best" else None
        if best == (last := algorithm.policy_iteration("last")):
            return algorithm.policy("last"), last
        if isinstance(algorithm, EvaluatesConcurrently) and best == (evaluated := algorithm.evaluated_policy())[1]:
            return evaluated
        return algorithm.policy(which), algorithm.policy_iteration(which)
    return algorithm.policy(), iteration


def find_env(algorithm: Any, run: Path, target: EvaluationTarget | None) -> EnvSpec:
    """Return the environment of an evaluation: a niche's, or the algorithm's."""
    if target is not None:
        return target.env
    spec: EnvSpec = algorithm.env if isinstance(algorithm, LearnsInEnv) else build("env", read_config(run)["env"])
    return spec


def _find_best(run: Path, newest: bool) -> int | None:
    """Return the iteration with the best evaluation in the journals, of equals the newest or the first; None if there is none."""
    columns = read_columns(run)
    iterations, returns = columns.get(EVALUATION_OF), columns.get("eval/return_mean")
    if iterations is None or returns is None or np.isnan(returns).all():
        return None
    best = iterations[np.flatnonzero(returns == np.nanmax(returns))[-1 if newest else 0]]
    return int(best) if np.isfinite(best) else None


def _find(key: str, number: int | None, algorithm: Any, run: Path) -> Niche:
    known = algorithm.archive | algorithm.niches
    number = max(algorithm.niches) if number is None else number
    require(number in known, f"{key}={number} is not a niche of {run}; {list_numbers(known)}")
    return known[number]


def _check_fit(algorithm: Any, run: Path, niche: Niche, on: Path) -> None:
    (seen, acts), (shown, taken) = algorithm.env.spaces, niche.problem.env.spaces
    fits = (seen.shape, seen.dtype, acts) == (shown.shape, shown.dtype, taken)
    has = f"observations {_format_space(shown)} and actions {_format_space(taken)}"
    wants = f"{_format_space(seen)} and {_format_space(acts)}"
    remedy = "choose a run with the same spaces"
    require(fits, f"on={on}: niche {niche.number} has {has}, but the policy of {run} expects {wants}; {remedy}")


def _format_space(space: Any) -> str:
    """Describe a space without its bounds."""
    return f"Box{space.shape} {space.dtype}" if hasattr(space, "low") else str(space)
