"""Who plays matches: runs' policies, the versions that they keep, and scripted players."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.algos.multiagent.seated import SeatedPolicy
from paddock.algos.networks.inputs import spaces_of, spaces_of_role
from paddock.algos.protocol import KeepsVersions, LearnsInEnv, Policy, can_draw
from paddock.envs.errors import nearest, require
from paddock.envs.spec import EnvSpec

from ..config.build import build
from .load import load

SCRIPTED = "paddock.algos.multiagent.selfplay.scripted"
SHORT = {
    name: f"{SCRIPTED}.{of}" for name, of in (("random", "random_player"), ("twoply", "TwoPly"), ("perfect", "Perfect"))
}


@dataclass(frozen=True, eq=False)
class MatchPlayer:
    """One who plays."""

    name: str
    policy: Policy
    iteration: int | None  # of a run that it is of; None: it is scripted
    population: str = ""  # of the run whose matches these are, in a league

    @property
    def learned(self) -> bool:
        """Whether it is a run's."""
        return self.iteration is not None

    @property
    def certain(self) -> bool:
        """Whether it is a run's that has no distribution of actions to draw from: it does the same every time."""
        return self.learned and not can_draw(self.policy)


def players_of(algorithm: Any, iteration: int, versions: bool) -> list[MatchPlayer]:
    """Return a run's own players, the oldest first: its present policy is the last one; of a league, each policy's.

    Args:
        algorithm: as `load` gives it.
        iteration: that its present policy is of.
        versions: whether those that it keeps play too.
    """
    kept = algorithm.versions if versions and isinstance(algorithm, KeepsVersions) else ()
    each = [(algorithm.version(number), number) for number in kept if number < iteration]
    each.append((algorithm.policy(), iteration))
    populations = [policy.populations if isinstance(policy, SeatedPolicy) else {} for policy, _ in each]
    if not populations[-1]:
        return [MatchPlayer(f"@{number}", policy, number) for policy, number in each]
    return [
        MatchPlayer(f"{name}@{number}", of[name], number, name)
        for name in populations[-1]
        for of, (_, number) in zip(populations, each, strict=True)
    ]


def find_players(words: Sequence[str], env: EnvSpec) -> list[MatchPlayer]:
    """Find those who are named: RUN, RUN@ITERATION, random and its like, or the dotted path of a class.

    Args:
        env: the environment that they play in.

    Raises:
        PaddockError: there is none of that name, or it cannot play there.
    """
    return [_find(word, env) for word in words]


def is_dotted(word: str) -> bool:
    """Return whether a word is a path as of a class: `my_package.players.Clever`."""
    return "." in word and all(part.isidentifier() for part in word.split("."))


def _find(word: str, env: EnvSpec) -> MatchPlayer:
    folder, at, number = word.rpartition("@")
    path = Path(folder if at and number.isdecimal() else word)
    if path.is_dir():
        return _of_run(word, path, int(number) if at and number.isdecimal() else None, env)
    known = f"players={word} is neither a run's folder nor a player of that name"
    require(word in SHORT or is_dotted(word), f"{known}; {nearest(word, SHORT)}, or the dotted path of a class")
    policy = build("players", {"_target_": SHORT.get(word, word)}, env=env)
    require(isinstance(policy, Policy), f"players={word} has no act(obs, state); name a class that has")
    several = f"players={word} is one policy, and env.id={env.id} has agents of {len(env.roles)} roles"
    seated = len(env.roles) == 1 or isinstance(policy, SeatedPolicy)
    require(seated, f"{several}; name what makes an paddock.algos.multiagent.seated.SeatedPolicy of one for each")
    return MatchPlayer(word, policy, None)


def _seats(env: EnvSpec) -> list[Any]:
    """Return who sits where in an environment, and what they see and do."""
    if env.seats == 1:
        return [spaces_of(env)]
    return [(role.seats, *spaces_of_role(env, role)) for role in env.roles]


def _of_run(word: str, run: Path, number: int | None, env: EnvSpec) -> MatchPlayer:
    algorithm, progress = load(run)
    iteration = int(progress.metrics["iteration"])
    fits = isinstance(algorithm, LearnsInEnv) and _seats(algorithm.env) == _seats(env)
    require(fits, f"players={word} learned where agents see or do other things than in env.id={env.id}; name another")
    if number is None or number == iteration:
        return MatchPlayer(word, algorithm.policy(), iteration)
    kept = list(algorithm.versions) if isinstance(algorithm, KeepsVersions) else []
    listed = ", ".join(map(str, sorted({*kept, iteration})))
    require(number in kept, f"players={word}: {run} keeps no policy of iteration {number}; there are {listed}")
    assert isinstance(algorithm, KeepsVersions)
    return MatchPlayer(word, algorithm.version(number), number)
