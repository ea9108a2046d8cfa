"""What a server offers: an environment, who sits there, and how observations and actions lie in rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from paddock.envs.errors import ConfigError, require
from paddock.envs.multiagent.roles import Role
from paddock.envs.remote.spaces import build_space, describe_space
from paddock.envs.remote.values import DecodeError, decode, encode
from paddock.envs.remote.versions import describe_others
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.storage import Layouts

REMOTE_ID = "paddock.envs.remote.single:Remote-v0"  # of the environment that stands for whatever a server offers
FACTORY_ID = "paddock.envs.remote.single:make"  # the same for worlds too
COMPARED: tuple[str, ...] = (
    "id",
    "kwargs",
    "wrappers",
    "max_episode_steps",
    "fresh",
    "bounds",
    "action_bounds",
    "without",
    "agents",
)
LONG = 100_000  # steps that limit no episode but of environments without a limit of their own


@dataclass(frozen=True)
class Offer:
    """One server's environment.

    Attributes:
        environment: its recipe, as plain data.
        roles: its kinds of seats; one, of one seat, where it has one agent.
        vec: how the server steps it.
        free_arguments: whether a client may choose the arguments of the environment and its wrappers.
        limit: steps after which the environment truncates its episodes; None: none are known.
        capacity, free: environments in all, and those not in use.
        most: environments that a session may have.
    """

    address: str
    environment: dict[str, Any]
    roles: tuple[Role, ...]
    metadata: dict[str, Any]
    vec: str
    free_arguments: bool
    versions: dict[str, str]
    limit: int | None
    capacity: int
    free: int
    most: int

    @classmethod
    def read(cls, address: str, told: dict[str, Any]) -> "Offer":
        """Return the offer in a server's description; raises ConfigError where it is malformed."""
        try:
            own = {field.name: told[field.name] for field in fields(cls) if field.name not in ("address", "roles")}
            roles = tuple(_read_role(one, told["environment"]) for one in told["roles"])
            return cls(address=address, roles=roles, **own)
        except (KeyError, TypeError, ValueError, DecodeError) as error:
            raise ConfigError(f"vec.address={address} is no server of environments ({error})") from error

    def layouts(self, agents: Sequence[str] | None = None) -> Layouts:
        """Return how observations and actions lie in rows, of some agents alone; None: all."""
        whole = Layouts.of_roles(self.roles)
        return whole if agents is None else Layouts.of_roles(self.pick_roles(agents), whole)

    @property
    def seats(self) -> int:
        """Agents' places in an environment."""
        return sum(len(role.seats) for role in self.roles)

    def order(self, agents: Sequence[str]) -> tuple[str, ...]:
        """Return agents in the order of their seats.

        Raises:
            ConfigError: there are none, or one has no seat, or is named twice.
        """
        known = self.layouts().agents
        if not agents or not set(agents) <= set(known) or len(set(agents)) < len(agents):
            said = f"agents={list(agents)} are not some of {self.environment['id']}'s, each once"
            raise ConfigError(f"{said}: {', '.join(known)}")
        return tuple(agent for agent in known if agent in agents)

    def pick_roles(self, agents: Sequence[str] | None) -> tuple[Role, ...]:
        """Return the roles of some agents, with indices among these agents; None: all."""
        if agents is None:
            return self.roles
        own = self.order(agents)
        picked = []
        for role in self.roles:
            mine = tuple(agent for agent in role.agents if agent in own)
            picked.append(replace(role, agents=mine, seats=tuple(map(own.index, mine))))
        return tuple(role for role in picked if role.agents)

    def check_serves(self, spec: EnvSpec, agents: Sequence[str] | None = None, *, joint: bool = False) -> None:
        """Raise ConfigError unless this is the environment that a recipe makes, or the recipe stands for any.

        Args:
            agents: whose seats of a joint world are asked for; None: all.
            joint: they are seats of joint worlds.
        """
        if agents is not None:
            require(self.seats > 1, f"vec.agents: {self.environment['id']} has one agent; leave vec.world out")
            require(
                spec.id == FACTORY_ID, f"vec.agents are seats of what vec.address={self.address} serves; env=remote"
            )
        tells, told = "algo.agent_id_feature=true", self.environment.get("agent_id_feature", False)
        require(not (spec.agent_id_feature and joint), f"{tells}: seats of vec.world are not told; leave it at false")
        if spec.id in (REMOTE_ID, FACTORY_ID):
            already = f"{tells}: what vec.address={self.address} serves tells them already"
            require(not (spec.agent_id_feature and told), f"{already}; leave it at false")
            both = replace(spec, agent_id_feature=False).roles, self.pick_roles(agents)
            own, theirs = ([(role.seats, role.observations) for role in roles] for roles in both)
            require(own == theirs, f"env={spec.id} is of another server than vec.address={self.address}; name the same")
            wrappers, limit = "env.wrappers", "env.max_episode_steps"
            require(not spec.wrappers, f"{wrappers} are not applied to a server's environment; say them there")
            own_limit, served = spec.max_episode_steps, (self.limit, self.environment.get("max_episode_steps"))
            what = f"{limit}={own_limit} is not applied to a server's environment"
            remedy = f"leave it out, and start the server with env.max_episode_steps={own_limit}"
            require(own_limit in (None, LONG, *served), f"{what}; {remedy}")
            return
        remedy = "say algo.agent_id_feature=true, or start the server with env.agent_id_feature=false"
        require(spec.agent_id_feature or not told, f"vec.address={self.address} tells agents their seats; {remedy}")
        own_fields, theirs_fields = decode(encode(spec.fields)), self.environment
        if self.free_arguments:
            own_fields, theirs_fields = _without_arguments(own_fields), _without_arguments(theirs_fields)
        for key in COMPARED:
            own_value, value = own_fields.get(key), theirs_fields.get(key)
            same = own_value == value or (key == "max_episode_steps" and self._limits_like(spec))
            what = f"env.{key}={own_value} here, and {value} at vec.address={self.address}"
            require(same, f"{what}; make them the same, or say env=remote to take what is served")

    def _limits_like(self, spec: EnvSpec) -> bool:
        """Whether episodes are as long as a recipe's, although it says so otherwise."""
        said = {spec.max_episode_steps, self.environment.get("max_episode_steps")}
        return said == {None, LONG} or (self.limit is not None and self.limit == spec.made.limit)

    def check_capacity(self, num_envs: int, joint: bool) -> None:
        """Raise ConfigError where the server has no room for so many environments, whoever has some.

        Args:
            joint: they are joint environments, each with a separate session.
        """
        most = self.capacity if joint else self.most
        what = f"vec.num_envs: {num_envs} environments are more than the {most} that a client may have"
        remedy = "ask for fewer, or start the server with a larger vec.num_envs"
        require(num_envs <= most, f"{what} at vec.address={self.address}; {remedy}")

    def arguments(self, spec: EnvSpec) -> dict[str, Any]:
        """Return the arguments of Open that a recipe needs: constructor arguments and `agent_id_feature`, where they differ."""
        seat = (
            {"agent_id_feature": True} if spec.agent_id_feature and not self.environment.get("agent_id_feature") else {}
        )
        if spec.id in (REMOTE_ID, FACTORY_ID):
            return seat
        own, theirs = _arguments(decode(encode(spec.fields))), _arguments(self.environment)
        return seat if own == theirs else seat | {"arguments": own}

    def check_same(self, other: "Offer") -> None:
        """Raise ConfigError unless another server offers the same environment."""
        both = [(one.environment, one.roles, one.free_arguments) for one in (self, other)]
        what = f"vec.address={other.address} serves {other.environment['id']} otherwise than {self.address} does"
        require(both[0] == both[1], f"{what}; start both on the same env and serve.free_arguments")

    def check_versions(self, versions: Mapping[str, str], whose: str) -> None:
        """Raise ConfigError unless the server has these versions of the packages that both have."""
        others = describe_others(self.versions, versions, whose)
        fix = "install the same there, or say vec.same_versions=none"
        require(not others, f"vec.address={self.address}: {others}; {fix}")


def _arguments(fields: Mapping[str, Any]) -> list[Any]:
    """Return a recipe's arguments: the constructor's, and those of each wrapper."""
    others = [{key: one for key, one in wrapper.items() if key != "_target_"} for wrapper in fields["wrappers"]]
    return [fields["kwargs"], others]


def _without_arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {**fields, "kwargs": {}, "wrappers": [wrapper["_target_"] for wrapper in fields["wrappers"]]}


def replace_arguments(spec: EnvSpec, arguments: Any) -> EnvSpec:
    """Return a recipe with the arguments that a client asks for: plain data, for the same constructors.

    Raises:
        ConfigError: a constructor refuses them, they hold text that the server does not have, or another observation or
            action comes of them.
    """
    wrappers: list[dict[str, Any]] = spec.fields["wrappers"]
    kwargs, others = arguments
    require(len(others) == len(wrappers), f"arguments are of {len(others)} wrappers, and {len(wrappers)} are served")
    for theirs, own in zip([kwargs, *others], [spec.fields["kwargs"], *wrappers], strict=True):
        for key, value in theirs.items():
            text = "text is the server's to choose, as it may name a file"
            same = encode(value) == encode(own.get(key))
            require(same or not _holds_text(value), f"arguments: {key}={value}: {text}; leave it out")
    given = tuple({**other, "_target_": own["_target_"]} for other, own in zip(others, wrappers, strict=True))
    chosen = replace(spec, kwargs=kwargs, wrappers=given)
    require(chosen.roles == spec.roles, f"arguments={arguments} give other spaces than those of {spec.id} as served")
    return chosen


def _holds_text(value: Any) -> bool:
    if isinstance(value, Mapping | list | tuple):
        return any(map(_holds_text, value.values() if isinstance(value, Mapping) else value))
    if isinstance(value, np.ndarray):
        return any(map(_holds_text, value.ravel())) if value.dtype.hasobject else value.dtype.kind in "US"
    return isinstance(value, str | bytes)


def describe_roles(roles: Sequence[Role]) -> list[Any]:
    """Return the kinds of seats as plain data; raises ConfigError: a space is of a custom class."""
    spaces = [[describe_space(space) for space in (role.observation_space, role.action_space)] for role in roles]
    return [[role.name, list(role.seats), list(role.agents), *own] for role, own in zip(roles, spaces, strict=True)]


def _read_role(told: Any, environment: dict[str, Any]) -> Role:
    name, seats, agents, *spaces = told
    observation, action = map(build_space, spaces)
    layout = Layout.of(observation, environment["bounds"], ())
    actions = Layout.of(action, environment["action_bounds"], (), "env.action_bounds")
    return Role(name, tuple(seats), tuple(agents), observation, action, layout, actions)
