"""Match players: policies of runs, earlier versions of them, and scripted players."""

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

BUILTIN = {"random": "paddock.algos.multiagent.selfplay.scripted.random_player"}


@dataclass(frozen=True, eq=False)
class MatchPlayer:
    """Match player, trained or scripted."""

    name: str
    policy: Policy
    iteration: int | None  # training iteration; None for a scripted player
    population: str = ""  # its population in a league run; else empty

    @property
    def learned(self) -> bool:
        """Return whether the player is a trained policy."""
        return self.iteration is not None

    @property
    def deterministic(self) -> bool:
        """Return whether the player is a trained policy without an action distribution."""
        return self.learned and not can_draw(self.policy)


def players_of(algorithm: Any, iteration: int, versions: bool) -> list[MatchPlayer]:
    """Return the players of a run, the current policy last; grouped by population in a league."""
    kept = algorithm.versions if versions and isinstance(algorithm, KeepsVersions) else ()
    policies = [(algorithm.version(number), number) for number in kept if number < iteration]
    policies.append((algorithm.policy(), iteration))
    populations = [policy.populations if isinstance(policy, JointPolicy) else {} for policy, _ in policies]
    if not populations[-1]:
        return [MatchPlayer(f"@{number}", policy, number) for policy, number in policies]
    return [
        MatchPlayer(f"{name}@{number}", members[name], number, name)
        for name in populations[-1]
        for members, (_, number) in zip(populations, policies, strict=True)
    ]


def find_players(words: Sequence[str], env: EnvSpec) -> list[MatchPlayer]:
    """Load players given as RUN, RUN@ITERATION, the name of a scripted player, or the dotted path of a class."""
    return [_find_player(word, env) for word in words]


def is_dotted(word: str) -> bool:
    """Return whether a word is a dotted path such as `my_package.players.Clever`."""
    return "." in word and all(part.isidentifier() for part in word.split("."))


def _find_player(word: str, env: EnvSpec) -> MatchPlayer:
    folder, at, number = word.rpartition("@")
    path = Path(folder if at and number.isdecimal() else word)
    if path.is_dir():
        return _load_player(word, path, int(number) if at and number.isdecimal() else None, env)
    problem = f"players={word} is neither a run folder nor a known player"
    require(word in BUILTIN or is_dotted(word), f"{problem}; {nearest(word, BUILTIN)}, or the dotted path of a class")
    policy = build("players", {"_target_": BUILTIN.get(word, word)}, env=env)
    require(isinstance(policy, Policy), f"players={word} has no act(obs, state) method; add one to the class")
    problem = f"players={word} is a single policy, but env.id={env.id} has agents with {len(env.roles)} roles"
    fits = len(env.roles) == 1 or isinstance(policy, JointPolicy)
    require(fits, f"{problem}; set a function that returns a paddock.algos.multiagent.joint_policy.JointPolicy")
    return MatchPlayer(word, policy, None)


def _spaces_by_role(env: EnvSpec) -> list[Any]:
    if env.seats == 1:
        return [spaces_of(env)]
    return [(role.seats, role.observations, role.action_space) for role in env.roles]


def _load_player(word: str, run: Path, number: int | None, env: EnvSpec) -> MatchPlayer:
    algorithm, progress = load(run)
    iteration = int(progress.metrics["iteration"])
    fits = isinstance(algorithm, LearnsInEnv) and _spaces_by_role(algorithm.env) == _spaces_by_role(env)
    require(fits, f"players={word} has a different observation or action space than env.id={env.id}; use another run")
    if number is None or number == iteration:
        return MatchPlayer(word, algorithm.policy(), iteration)
    kept = list(algorithm.versions) if isinstance(algorithm, KeepsVersions) else []
    listed = ", ".join(map(str, sorted({*kept, iteration})))
    require(number in kept, f"players={word}: {run} has no policy of iteration {number}; available: {listed}")
    assert isinstance(algorithm, KeepsVersions)
    return MatchPlayer(word, algorithm.version(number), number)
