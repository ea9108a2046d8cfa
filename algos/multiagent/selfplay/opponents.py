"""Opponents of policies that learn: their earlier versions, and each other as they are, drawn by key for every episode.

In some of the episodes a policy plays all seats of a world. In the others it has one side, and who plays the other
learns nothing there: those rows are no experience. Who plays is a function of run seed, world and episode, so any
process can enter an episode in its middle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.multiagent.policies import PolicyGroup, PolicySpec
from paddock.algos.multiagent.selfplay.meetings import EARLIER, FROZEN, LEARNER, Draw, Settings, name_opponent
from paddock.algos.multiagent.selfplay.sides import sides_of
from paddock.algos.multiagent.versions import stack
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.flat import check_memory
from paddock.envs.errors import require
from paddock.envs.spec import EnvSpec


@final
class Opponents:
    """The versions that are kept of each policy: spread over all of the run, as the newest alone are beaten in one way.

    In the beginning the first policy is in all places. Once all have versions of their own, every second one makes room
    for others that are twice as far apart, and so on. A world whose opponent is replaced goes on against the other.
    """

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        """Read settings; None: nobody is played against.

        Raises:
            ConfigError: see `Settings.of`.
        """
        self._settings = None if given is None else Settings.of(given)
        self._places: list[list[Weights]] = []  # of each policy

    def learning(self, policies: PolicyGroup, env: EnvSpec) -> PolicyGroup:
        """Return the policies that learn: as they are, or each policy of a league in the place of the only one.

        Raises:
            ConfigError: there is nobody to play against, or several policies learn already, each for its own agents.
        """
        settings = self._settings
        if settings is None:
            return policies
        what = f"opponents: {len(policies.specs)} policies learn in this world, each of some of the agents"
        require(policies.single, f"{what}; leave it at null, or have one policy for all agents")
        sides_of(env)
        if len(settings.names) == 1:
            return policies
        return PolicyGroup.of([replace(policies.specs[0], name=name) for name in settings.names], env)

    def add_to(self, config: RolloutConfig) -> RolloutConfig:
        """Return how rollouts are played with them."""
        settings, env, learning = self._settings, config.env, config.policy_group.specs
        if settings is None:
            return config
        league = len(learning) > 1
        each = list(learning) if league else [replace(learning[0], name=LEARNER)]
        for k, (now, versions) in settings.frozen.items():
            name = f"{learning[k].name}{EARLIER}" if league else FROZEN
            each.append(PolicySpec(name, learning[k].seats, learning[k].architecture, versions=now + versions))
        return replace(config, policies=PolicyGroup.of(each, env, Draw(config.seed, settings.drawn, sides_of(env))))

    def describe(self) -> dict[str, str]:
        """Return the lines of `dry_run=true`; nothing where there are none."""
        settings = self._settings
        if settings is None:
            return {}
        every = f"of every {settings.every} iterations"
        if len(settings.names) == 1:
            often = sum(one.share for one in settings.meetings if one.earlier)
            share = f"in {often:.0%} of episodes one of {settings.keep} earlier versions"
            return {FROZEN: f"{share} of the policy, {every}"}
        told = {FROZEN: f"{settings.keep} earlier versions of each policy, {every}"}
        for k, name in enumerate(settings.names):
            met = [one for one in settings.meetings if one.learner == k]
            shares = ", ".join(f"{name_opponent(settings.names, one)} in {one.share:.0%}" for one in met)
            anew = settings.fresh[k] if settings.fresh else 0
            told[f"{name} meets"] = f"{shares} of episodes" + (
                f", and begins anew every {anew} iterations" if anew else ""
            )
        return told

    def begin(self, first: Sequence[Weights]) -> None:
        """Have these first policies.

        Raises:
            ConfigError: this machine has no memory for so many versions.
        """
        if self._settings is None:
            return
        keep = self._settings.keep
        count = keep * sum(len(weights.parameters) for weights in first)
        check_memory(f"opponents.keep={keep}", count, "weights", 10)
        self._places = [[weights] * keep for weights in first]

    def observe(self, newest: Sequence[Weights]) -> None:
        """Keep the policies after an iteration, if it is the turn of that one."""
        for places, weights in zip(self._places, newest, strict=False):
            self._keep(places, weights)

    @property
    def is_league(self) -> bool:
        """Whether several policies learn that act for the same agents."""
        return self._settings is not None and len(self._settings.names) > 1

    @property
    def starts_anew(self) -> bool:
        """Whether a policy begins anew now and then."""
        return self._settings is not None and bool(self._settings.fresh)

    def begins_anew(self, iteration: int) -> list[int]:
        """Return the numbers of the policies that begin anew after so many iterations."""
        fresh = () if self._settings is None else self._settings.fresh
        return [k for k, apart in enumerate(fresh) if apart and iteration % apart == 0]

    def _keep(self, places: list[Weights], newest: Weights) -> None:
        apart = 0 if self._settings is None else self._settings.every
        while apart and newest.version % apart == 0:
            kept = [weights.version for weights in places]
            free = [k for k, version in enumerate(kept) if version % apart or version in kept[:k]]
            if free:
                places[min(free, key=lambda k: kept[k])] = newest
                return
            apart *= 2

    def acting(self, newest: Sequence[Weights]) -> list[Weights]:
        """Return the weights of each policy: of who learns, and of those who are met without learning."""
        frozen = {} if self._settings is None else self._settings.frozen
        met = [
            stack([*([newest[k]] if now else []), *(self._places[k] if versions else [])])
            for k, (now, versions) in frozen.items()
        ]
        return [*newest, *met]

    @property
    def first(self) -> list[Weights]:
        """The first version of each policy, which is always kept; nothing where there are no opponents."""
        return [places[0] for places in self._places]

    @property
    def versions(self) -> list[int]:
        """The iterations that versions are of, the oldest first."""
        return sorted({weights.version for places in self._places for weights in places})

    def version(self, iteration: int) -> list[Weights]:
        """Return the version of an iteration, of each policy."""
        return [next(weights for weights in places if weights.version == iteration) for places in self._places]

    def state_dict(self) -> dict[str, Any]:
        """All versions, as plain data under a name of their own; nothing where there are none."""
        each = [{str(k): weights.state_dict() for k, weights in enumerate(places)} for places in self._places]
        return {FROZEN: self._by_name(each)} if each else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, beside whatever else is in a state."""
        if self._settings is None:
            return
        names = self._settings.names
        each = [state[FROZEN]] if len(names) == 1 else [state[FROZEN][name] for name in names]
        self._places = [[Weights(**one[str(k)]) for k in range(self._settings.keep)] for one in each]

    def _by_name(self, each: list[Any]) -> Any:
        assert self._settings is not None
        return each[0] if len(each) == 1 else dict(zip(self._settings.names, each, strict=True))
