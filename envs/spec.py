"""EnvSpec: picklable, hashable recipe of an environment."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

import gymnasium

from paddock.envs.errors import ConfigError, nearest, require
from paddock.envs.frozen import freeze, thaw
from paddock.envs.making import EnvProperties, inspect_env, make_by_id, restored_modes, wrap
from paddock.envs.multiagent.make import adapt
from paddock.envs.multiagent.roles import Role, Seats, group
from paddock.envs.ranges import Range, check_fields
from paddock.envs.spaces.layout import Layout

# Keys of `training`, with their types.
IN_TRAINING: dict[str, tuple[Any, str]] = {
    "kwargs": (Mapping, "a mapping"),
    "wrappers": ((list, tuple), "a list"),
    "max_episode_steps": (int, "an integer"),
}

TAKEN = {"return", "length", "env_id"}  # reserved names of metrics


@dataclass(frozen=True)
class EnvSpec:
    """Recipe of an environment.

    Attributes:
        id: a Gymnasium id (``package:Name-v0`` imports the package first) or ``module:factory``, a class or function
            that returns a Gymnasium or multi-agent environment.
        kwargs: constructor arguments.
        wrappers: wrappers from the inside out, each a mapping with ``_target_`` (dotted path) and its arguments.
        max_episode_steps: truncate episodes after this many steps; None keeps the environment's limit.
        fresh: rebuild the environment for every episode, so that an episode depends on its seed only even if ``reset``
            leaks state, as Box2D's does in BipedalWalker.
        bounds: largest size by the dotted path of each part of the observation of variable size (`Layout.of`). Nested
            mappings are flattened: `{seen: {items: 3}}` is `{"seen.items": 3}`.
        without: dotted paths of parts of the observation to leave out.
        training: overrides during rollouts, but not in evaluations: ``kwargs`` are updated, ``wrappers`` appended and
            ``max_episode_steps`` replaced.
        metrics: info keys at an episode's end that become metrics; dots separate nested keys.
        agents: number of agents, if the environment does not define it (`paddock.envs.multiagent`).
        agent_id_feature: add the agent's index to observations of multi-agent environments (`AgentIdFeature`).
    """

    id: str
    kwargs: Mapping[str, Any]
    wrappers: tuple[Mapping[str, Any], ...]
    max_episode_steps: Annotated[int | None, Range("must be at least 1, or null for no other limit", low=1)]
    fresh: bool
    bounds: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    agents: Annotated[int | None, Range("must be at least 1, or null if the environment reports it", low=1)] = None
    agent_id_feature: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        for wrapper in self.wrappers:
            require(
                "_target_" in dict(wrapper), f"wrappers: {dict(wrapper)} has no _target_, the wrapper's dotted path"
            )
        require(
            not isinstance(self.without, str), f"without={self.without!r} must be a list of paths: [{self.without}]"
        )
        object.__setattr__(self, "kwargs", freeze(dict(self.kwargs)))
        object.__setattr__(self, "bounds", freeze(dict(_join(dict(self.bounds), ""))))
        object.__setattr__(self, "without", tuple(map(str, self.without)))
        object.__setattr__(self, "wrappers", tuple(freeze(dict(wrapper)) for wrapper in self.wrappers))
        require(not isinstance(self.metrics, str), f"metrics={self.metrics!r} must be a list: [{self.metrics}]")
        object.__setattr__(self, "metrics", tuple(map(str, self.metrics)))
        for name in self.metrics:
            once = name not in TAKEN and self.metrics.count(name) == 1
            require(once, f"metrics={list(self.metrics)}: {name} is reserved or repeated; choose other names")
        object.__setattr__(self, "training", freeze(dict(self.training)))
        self.in_training()

    def make(self, render_mode: str | None = None) -> Any:
        """Make the environment: a `gymnasium.Env` or, for several agents, a `MultiAgentEnv`.

        Raises:
            ConfigError: the id is unknown, a package is missing, or the constructor refuses its arguments.
        """
        kwargs = self.arguments | ({} if render_mode is None else {"render_mode": render_mode})
        with restored_modes():
            env = make_by_id(self.id, kwargs, self.max_episode_steps)
            for wrapper in self.wrappers:
                env = wrap(env, dict(thaw(wrapper)))
            return adapt(env, self.id, self.agents, self.max_episode_steps, self.agent_id_feature)

    @property
    def arguments(self) -> dict[str, Any]:
        """Return `kwargs` as a mutable mapping."""
        return dict(thaw(self.kwargs))

    @property
    def fields(self) -> dict[str, Any]:
        """Return the recipe as plain data, from which it can be rebuilt."""
        wrappers = [dict(thaw(wrapper)) for wrapper in self.wrappers]
        own = {name: getattr(self, name) for name in ("id", "max_episode_steps", "fresh")}
        own |= {name: dict(thaw(getattr(self, name))) for name in ("kwargs", "bounds", "training")}
        own |= {} if self.agents is None else {"agents": self.agents}
        own |= {"agent_id_feature": True} if self.agent_id_feature else {}
        return own | {"wrappers": wrappers, "without": list(self.without), "metrics": list(self.metrics)}

    def in_training(self) -> "EnvSpec":
        """Return the recipe for rollouts, with the overrides of `training`.

        Raises:
            ConfigError: `training` has an unknown key or a wrong type.
        """
        changes = dict(thaw(self.training))
        for key, value in changes.items():
            require(key in IN_TRAINING, f"training.{key} is not a key of training; {nearest(key, IN_TRAINING)}")
            kinds, name = IN_TRAINING[key]
            require(isinstance(value, kinds), f"training.{key}={value} must be {name}")
        if not changes:
            return self
        return replace(
            self,
            kwargs=self.arguments | changes.get("kwargs", {}),
            wrappers=(*self.wrappers, *changes.get("wrappers", ())),
            max_episode_steps=changes.get("max_episode_steps", self.max_episode_steps),
            training={},
        )

    def limited(self, max_episode_steps: int) -> "EnvSpec":
        """Return this recipe with a time limit if neither it nor the environment has one."""
        if self.max_episode_steps is not None or self.made.limit is not None:
            return self
        other = replace(self, max_episode_steps=max_episode_steps)
        other.__dict__["made"] = self.made  # only the limit differs
        return other

    @property
    def spaces(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        """Return the observation space, without the parts in `without`, and the action space."""
        return self.observations.space, self.raw_spaces[1]

    @property
    def raw_spaces(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        """Return the environment's observation and action space; raise ConfigError for several agents."""
        if self.seats > 1:
            what = f"env.id={self.id} has {self.seats} agents, but a single-agent environment is needed"
            raise ConfigError(f"{what}; choose an algorithm and a command for several agents (docs/worlds.md)")
        return self.made.seats[0].observation_space, self.made.seats[0].action_space

    @property
    def seats(self) -> int:
        """Return the number of agents; a vector of W environments has W * seats rows."""
        return len(self.made.seats)

    @functools.cached_property
    def roles(self) -> tuple[Role, ...]:
        """Return the roles in the order of their first seats; a single-agent environment has one."""
        return self.read_roles(self.made.seats)

    def read_roles(self, seats: Seats) -> tuple[Role, ...]:
        """Return the roles of an environment's seats."""
        roles = []
        for name, own in group(seats).items():
            first = seats[own[0]]
            observations = self.lay_out(first.observation_space)
            actions = self.lay_out_actions(first.action_space)
            agents = tuple(seats[k].agent for k in own)
            roles.append(Role(name, own, agents, observations.space, first.action_space, observations, actions))
        return tuple(roles)

    @functools.cached_property
    def observations(self) -> Layout:
        """Return the layout of observations; raise ConfigError if their size is unknown."""
        return self.lay_out(self.raw_spaces[0])

    @functools.cached_property
    def actions(self) -> Layout:
        """Return the layout of actions; raise ConfigError if their size is unknown."""
        return self.lay_out_actions(self.raw_spaces[1])

    def lay_out(self, observation_space: gymnasium.Space) -> Layout:
        """Return the layout of an observation space.

        Raises:
            ConfigError: `bounds` and `without` leave its size unknown, or name missing parts.
        """
        return Layout.of(observation_space, dict(thaw(self.bounds)), self.without)

    def lay_out_actions(self, action_space: gymnasium.Space) -> Layout:
        """Return the layout of an action space; raise ConfigError if its elements vary in size."""
        return Layout.of(action_space, None, ())

    @functools.cached_property
    def made(self) -> EnvProperties:
        """Return the environment's properties, read once from an instance."""
        return inspect_env(self.make, self.id, f"env.id={self.id} cannot be made with env.kwargs={self.arguments}")

    def __getstate__(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}


def _join(bounds: Mapping[Any, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield bounds with their full paths; the command line turns dotted keys into nested mappings."""
    for key, bound in bounds.items():
        if isinstance(bound, Mapping):
            yield from _join(bound, f"{path}{key}.")
        else:
            yield f"{path}{key}", bound
