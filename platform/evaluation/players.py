"""Players of matches: runs' policies, the versions that runs keep, and scripted players."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.algos.multiagent.joint_policy import JointPolicy
from paddock.algos.networks.inputs import spaces_of
from paddock.algos.protocol import KeepsVersions, LearnsInEnv, Policy, can_draw
from paddock.envs.errors import nearest, require
from paddock.envs.spec import EnvSpec

from ..config.build import build
from .load import load

SCRIPTED = "paddock.algos.multiagent.selfplay.scripted"
SHORT = {
    name: f"{SCRIPTED}.{cls}"
    for name, cls in (("random", "random_player"), ("twoply", "TwoPly"), ("perfect", "Perfect"))
}


@dataclass(frozen=True, eq=False)
class MatchPlayer:
    """Player of a match, learned or scripted."""

    name: str
    policy: Policy
    iteration: int | None  # of its run; None: a scripted player
    population: str = ""  # in a league, of the run whose matches these are

    @property
    def learned(self) -> bool:
        """Return whether the player is a run's policy."""
        return self.iteration is not None

    @property
    def deterministic(self) -> bool:
        """Return whether the player is a run's policy without an action distribution to sample from."""
        return self.learned and not can_draw(self.policy)


def players_of(algorithm: Any, iteration: int, versions: bool) -> list[MatchPlayer]:
    """Return a run's players, its current policy last; in a league, for each population."""
    kept = algorithm.versions if versions and isinstance(algorithm, KeepsVersions) else ()
    each = [(algorithm.version(number), number) for number in kept if number < iteration]
    each.append((algorithm.policy(), iteration))
    populations = [policy.populations if isinstance(policy, JointPolicy) else {} for policy, _ in each]
    if not populations[-1]:
        return [MatchPlayer(f"@{number}", policy, number) for policy, number in each]
    return [
        MatchPlayer(f"{name}@{number}", of[name], number, name)
        for name in populations[-1]
        for of, (_, number) in zip(populations, each, strict=True)
    ]


def find_players(words: Sequence[str], env: EnvSpec) -> list[MatchPlayer]:
    """Find players by RUN, RUN@ITERATION, a scripted player's name, or the dotted path of a class.

    Raises:
        PaddockError: no player has that name, or it does not fit the environment.
    """
    return [_find(word, env) for word in words]


def is_dotted(word: str) -> bool:
    """Return whether a word is a dotted path such as `my_package.players.Clever`."""
    return "." in word and all(part.isidentifier() for part in word.split("."))


def _find(word: str, env: EnvSpec) -> MatchPlayer:
    folder, at, number = word.rpartition("@")
    path = Path(folder if at and number.isdecimal() else word)
    if path.is_dir():
        return _of_run(word, path, int(number) if at and number.isdecimal() else None, env)
    known = f"players={word} is neither a run's folder nor a known player"
    require(word in SHORT or is_dotted(word), f"{known}; {nearest(word, SHORT)}, or the dotted path of a class")
    policy = build("players", {"_target_": SHORT.get(word, word)}, env=env)
    require(isinstance(policy, Policy), f"players={word} has no act(obs, state) method; name a class that has one")
    several = f"players={word} is one policy, and env.id={env.id} has agents of {len(env.roles)} roles"
    seated = len(env.roles) == 1 or isinstance(policy, JointPolicy)
    require(seated, f"{several}; name a function that returns a paddock.algos.multiagent.joint_policy.JointPolicy")
    return MatchPlayer(word, policy, None)


def _seats(env: EnvSpec) -> list[Any]:
    """Return the seats of each role with its observations and actions."""
    if env.seats == 1:
        return [spaces_of(env)]
    return [(role.seats, role.observations, role.action_space) for role in env.roles]


def _of_run(word: str, run: Path, number: int | None, env: EnvSpec) -> MatchPlayer:
    algorithm, progress = load(run)
    iteration = int(progress.metrics["iteration"])
    fits = isinstance(algorithm, LearnsInEnv) and _seats(algorithm.env) == _seats(env)
    require(fits, f"players={word} was trained on other observations or actions than env.id={env.id}; name another")
    if number is None or number == iteration:
        return MatchPlayer(word, algorithm.policy(), iteration)
    kept = list(algorithm.versions) if isinstance(algorithm, KeepsVersions) else []
    listed = ", ".join(map(str, sorted({*kept, iteration})))
    require(number in kept, f"players={word}: {run} keeps no policy of iteration {number}; available: {listed}")
    assert isinstance(algorithm, KeepsVersions)
    return MatchPlayer(word, algorithm.version(number), number)
