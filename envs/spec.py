"""EnvSpec: a picklable, hashable recipe for an environment, which crosses process borders in its place."""

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

# What may differ where rollouts are played, and of which kind it is.
IN_TRAINING: dict[str, tuple[Any, str]] = {
    "kwargs": (Mapping, "a mapping"),
    "wrappers": ((list, tuple), "a list"),
    "max_episode_steps": (int, "a whole number"),
}

TAKEN = {"return", "length", "env_id"}  # of every episode, or of the vector


@dataclass(frozen=True)
class EnvSpec:
    """Recipe for an environment.

    Attributes:
        id: a Gymnasium id; ``package:Name-v0`` imports the package that registers it first. Or ``module:factory``: a
            class or function that gives a Gymnasium environment, or a world of several agents.
        kwargs: constructor arguments.
        wrappers: wrappers from the inside out, each a mapping with ``_target_`` (dotted path) and its arguments.
        max_episode_steps: truncate after so many steps; None keeps the environment's own limit.
        fresh: rebuild the environment for every episode. An episode then depends on its seed alone even where
            ``reset`` leaks history, as Box2D's world does in BipedalWalker.
        bounds: by the dotted path of a part of the observation that varies in size, how much there is of it at the
            most; see `Layout.of`. Mappings in mappings are joined: `{seen: {items: 3}}` is `{"seen.items": 3}`.
        action_bounds: the same of an action.
        without: dotted paths of parts of the observation that are left out.
        training: what differs where rollouts are played: ``kwargs`` over the others, more ``wrappers`` on the outside,
            other ``max_episode_steps``. Whole episodes, those of evaluations among them, are played without.
        metrics: numbers of the environment's own that become metrics: keys of the info at an episode's end, dotted
            where they lie in mappings.
        agents: how many agents there are, where the environment does not say so itself; see `paddock.envs.multiagent`.
        agent_id_feature: whether observations of several agents tell their seat; see `AgentIdFeature`.
    """

    id: str
    kwargs: Mapping[str, Any]
    wrappers: tuple[Mapping[str, Any], ...]
    max_episode_steps: Annotated[int | None, Range("must be at least 1, or null for no other limit", low=1)]
    fresh: bool
    bounds: Mapping[str, Any] = field(default_factory=dict)
    action_bounds: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    agents: Annotated[int | None, Range("must be at least 1, or null where it says so itself", low=1)] = None
    agent_id_feature: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        for wrapper in self.wrappers:
            require(
                "_target_" in dict(wrapper), f"wrappers: {dict(wrapper)} lacks '_target_', the wrapper's dotted path"
            )
        require(
            not isinstance(self.without, str), f"without={self.without!r} must be a list of paths: [{self.without}]"
        )
        object.__setattr__(self, "kwargs", freeze(dict(self.kwargs)))
        for bounds in ("bounds", "action_bounds"):
            object.__setattr__(self, bounds, freeze(dict(_join(dict(getattr(self, bounds)), ""))))
        object.__setattr__(self, "without", tuple(map(str, self.without)))
        object.__setattr__(self, "wrappers", tuple(freeze(dict(wrapper)) for wrapper in self.wrappers))
        require(not isinstance(self.metrics, str), f"metrics={self.metrics!r} must be a list: [{self.metrics}]")
        object.__setattr__(self, "metrics", tuple(map(str, self.metrics)))
        for name in self.metrics:
            once = name not in TAKEN and self.metrics.count(name) == 1
            require(once, f"metrics={list(self.metrics)}: {name} is taken; name others, each once")
        object.__setattr__(self, "training", freeze(dict(self.training)))
        self.in_training()

    def make(self, render_mode: str | None = None) -> Any:
        """Build one environment: a `gymnasium.Env`, or where there are several agents an `paddock.envs.multiagent.env.MultiAgentEnv`.

        Raises:
            ConfigError: unknown id, missing package, or arguments the constructor refuses.
        """
        kwargs = self.arguments | ({} if render_mode is None else {"render_mode": render_mode})
        with restored_modes():
            env = make_by_id(self.id, kwargs, self.max_episode_steps)
            for wrapper in self.wrappers:
                env = wrap(env, dict(thaw(wrapper)))
            return adapt(env, self.id, self.agents, self.max_episode_steps, self.agent_id_feature)

    @property
    def arguments(self) -> dict[str, Any]:
        """`kwargs` as a mapping again."""
        return dict(thaw(self.kwargs))

    @property
    def fields(self) -> dict[str, Any]:
        """The recipe as plain data: what it is built from again."""
        wrappers = [dict(thaw(wrapper)) for wrapper in self.wrappers]
        own = {name: getattr(self, name) for name in ("id", "max_episode_steps", "fresh")}
        own |= {name: dict(thaw(getattr(self, name))) for name in ("kwargs", "bounds", "action_bounds", "training")}
        own |= {} if self.agents is None else {"agents": self.agents}
        own |= {"agent_id_feature": True} if self.agent_id_feature else {}
        return own | {"wrappers": wrappers, "without": list(self.without), "metrics": list(self.metrics)}

    def in_training(self) -> "EnvSpec":
        """Return the recipe of the environments that rollouts are played in.

        Raises:
            ConfigError: `training` has what cannot differ there, or of another type.
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
        """Return the same recipe, with this limit where neither it nor the environment has one."""
        if self.max_episode_steps is not None or self.made.limit is not None:
            return self
        other = replace(self, max_episode_steps=max_episode_steps)
        other.__dict__["made"] = self.made  # the same but for that: none is made for it
        return other

    @property
    def spaces(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        """(observation space without what is left out, action space), read from an environment made for the purpose."""
        return self.observations.space, self.raw_spaces[1]

    @property
    def raw_spaces(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        """(observation space, action space) of the environment itself; ConfigError where there are several agents."""
        if self.seats > 1:
            what = f"env.id={self.id} is a world of {self.seats} agents, and this takes environments of one"
            raise ConfigError(f"{what}; choose an algorithm and a command that take worlds (docs/worlds.md)")
        return self.made.seats[0].observation_space, self.made.seats[0].action_space

    @property
    def seats(self) -> int:
        """Agents' places in an environment: 1, but for worlds; a vector of W worlds has W * seats rows."""
        return len(self.made.seats)

    @functools.cached_property
    def roles(self) -> tuple[Role, ...]:
        """The roles, in the order of their first seats; one for an environment of one agent."""
        return self.read_roles(self.made.seats)

    def read_roles(self, seats: Seats) -> tuple[Role, ...]:
        """Return the roles of those who sit in such an environment."""
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
        """Layout of an observation in a row; ConfigError where it has no known size."""
        return self.lay_out(self.raw_spaces[0])

    @functools.cached_property
    def actions(self) -> Layout:
        """Layout of an action in a row; ConfigError where it has no known size."""
        return self.lay_out_actions(self.raw_spaces[1])

    def lay_out(self, observation_space: gymnasium.Space) -> Layout:
        """Return how an observation of this space lies in a row.

        Raises:
            ConfigError: `bounds` and `without` do not give it a size, or name parts that it lacks.
        """
        return Layout.of(observation_space, dict(thaw(self.bounds)), self.without)

    def lay_out_actions(self, action_space: gymnasium.Space) -> Layout:
        """Return how an action of this space lies in a row; ConfigError where it has no known size."""
        return Layout.of(action_space, dict(thaw(self.action_bounds)), (), "env.action_bounds")

    @functools.cached_property
    def made(self) -> EnvProperties:
        """Properties of an environment that is made for the purpose, once."""
        return inspect_env(self.make, self.id, f"env.id={self.id} cannot be made with env.kwargs={self.arguments}")

    def __getstate__(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # without what was read from it


def _join(bounds: Mapping[Any, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Bounds with their whole paths: the command line makes mappings of those with dots."""
    for key, bound in bounds.items():
        if isinstance(bound, Mapping):
            yield from _join(bound, f"{path}{key}.")
        else:
            yield f"{path}{key}", bound
