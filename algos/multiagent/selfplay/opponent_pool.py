"""Opponent pool of self-play: earlier versions of the learning policies, sampled for every episode.

In a share of episodes a policy plays all seats of an environment. In the others it plays one side; the other side does
not learn, and its rows are no experience. The opponent is a function of run seed, environment and episode, so any
process can resume an episode in its middle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.multiagent.policies import PolicyGroup, PolicySpec
from paddock.algos.multiagent.selfplay.matchups import (
    EARLIER,
    FROZEN,
    LEARNER,
    SampledMatchups,
    SelfPlaySettings,
    name_opponent,
)
from paddock.algos.multiagent.selfplay.sides import sides_of
from paddock.algos.multiagent.versions import stack
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.flat import check_memory
from paddock.envs.errors import require
from paddock.envs.spec import EnvSpec


@final
class OpponentPool:
    """Kept versions of each policy, spread over the whole run, since the newest alone can be beaten in one way.

    Initially every slot holds the first policy. When all slots hold distinct versions, every second one is replaced by
    newer versions at twice the interval, and so on. An episode whose opponent is replaced continues against the new one.
    """

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        self._settings = None if given is None else SelfPlaySettings.of(given)
        self._slots: list[list[Weights]] = []  # of each policy

    def learning_policies(self, policies: PolicyGroup, env: EnvSpec) -> PolicyGroup:
        """Return the policies that learn: those given, or a league's policies instead of the only one."""
        settings = self._settings
        if settings is None:
            return policies
        what = f"opponents needs one policy for all agents, but there are {len(policies.specs)}"
        require(policies.single, f"{what}; set algo.opponents=null, or algo.policies to one policy")
        sides_of(env)
        if len(settings.names) == 1:
            return policies
        return PolicyGroup.of([replace(policies.specs[0], name=name) for name in settings.names], env)

    def add_to(self, config: RolloutConfig) -> RolloutConfig:
        """Add the opponents to the settings of rollouts."""
        settings, env, learning = self._settings, config.env, config.policy_group.specs
        if settings is None:
            return config
        league = len(learning) > 1
        each = list(learning) if league else [replace(learning[0], name=LEARNER)]
        for k, (now, versions) in settings.frozen.items():
            name = f"{learning[k].name}{EARLIER}" if league else FROZEN
            each.append(PolicySpec(name, learning[k].seats, learning[k].architecture, versions=now + versions))
        return replace(
            config, policies=PolicyGroup.of(each, env, SampledMatchups(config.seed, settings.numbered, sides_of(env)))
        )

    def describe(self) -> dict[str, str]:
        """Return the lines of `dry_run=true`; empty without opponents."""
        settings = self._settings
        if settings is None:
            return {}
        every = f"every {settings.every} iterations"
        if len(settings.names) == 1:
            often = sum(one.share for one in settings.matchups if one.earlier)
            share = f"{settings.keep} earlier versions of the policy, in {often:.0%} of episodes"
            return {FROZEN: f"{share}, one saved {every}"}
        lines = {FROZEN: f"{settings.keep} earlier versions of each policy, one saved {every}"}
        for k, name in enumerate(settings.names):
            matchups = [one for one in settings.matchups if one.learner == k]
            shares = ", ".join(f"{name_opponent(settings.names, one)} in {one.share:.0%}" for one in matchups)
            lines[f"{name} meets"] = f"{shares} of episodes"
        return lines

    def reset(self, first: Sequence[Weights]) -> None:
        """Fill all slots with the first version of each policy; raise ConfigError if this machine lacks the memory."""
        if self._settings is None:
            return
        keep = self._settings.keep
        count = keep * sum(len(weights.parameters) for weights in first)
        check_memory(f"opponents.keep={keep}", count, "weights", 10)
        self._slots = [[weights] * keep for weights in first]

    def update(self, newest: Sequence[Weights]) -> None:
        """Keep the policies of an iteration, if one is due."""
        for slots, weights in zip(self._slots, newest, strict=False):
            self._keep(slots, weights)

    @property
    def is_league(self) -> bool:
        """True if several policies learn to play the same agents."""
        return self._settings is not None and len(self._settings.names) > 1

    def _keep(self, slots: list[Weights], newest: Weights) -> None:
        apart = 0 if self._settings is None else self._settings.every
        while apart and newest.version % apart == 0:
            kept = [weights.version for weights in slots]
            free = [k for k, version in enumerate(kept) if version % apart or version in kept[:k]]
            if free:
                slots[min(free, key=lambda k: kept[k])] = newest
                return
            apart *= 2

    def acting_weights(self, newest: Sequence[Weights]) -> list[Weights]:
        """Return the weights of all policies: those that learn, then those that play without learning."""
        frozen = {} if self._settings is None else self._settings.frozen
        frozen_weights = [
            stack([*([newest[k]] if now else []), *(self._slots[k] if versions else [])])
            for k, (now, versions) in frozen.items()
        ]
        return [*newest, *frozen_weights]

    @property
    def first(self) -> list[Weights]:
        """The first version of each policy, which is always kept; empty without opponents."""
        return [slots[0] for slots in self._slots]

    @property
    def versions(self) -> list[int]:
        """Sorted iterations of the kept versions."""
        return sorted({weights.version for slots in self._slots for weights in slots})

    def version(self, iteration: int) -> list[Weights]:
        """Return each policy's version of an iteration."""
        return [next(weights for weights in slots if weights.version == iteration) for slots in self._slots]

    def state_dict(self) -> dict[str, Any]:
        """Return all versions as plain data under one key; empty without opponents."""
        each = [{str(k): weights.state_dict() for k, weights in enumerate(slots)} for slots in self._slots]
        return {FROZEN: self._by_name(each)} if each else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the versions from an algorithm's state."""
        if self._settings is None:
            return
        names = self._settings.names
        each = [state[FROZEN]] if len(names) == 1 else [state[FROZEN][name] for name in names]
        self._slots = [[Weights(**one[str(k)]) for k in range(self._settings.keep)] for one in each]

    def _by_name(self, each: list[Any]) -> Any:
        assert self._settings is not None
        return each[0] if len(each) == 1 else dict(zip(self._settings.names, each, strict=True))
