"""Offer of a server: its environment, agents, layouts and capacity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from paddock.envs.errors import ConfigError, require
from paddock.envs.multiagent.roles import Role
from paddock.envs.remote.spaces import build_space, describe_space
from paddock.envs.remote.values import DecodeError, decode, encode
from paddock.envs.remote.versions import describe_others
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.storage import Layouts

REMOTE_ID = "paddock.envs.remote.single:Remote-v0"  # stands for the single-agent environment of any server
FACTORY_ID = "paddock.envs.remote.single:make"  # the same, also for several agents
COMPARED: tuple[str, ...] = (
    "id",
    "kwargs",
    "wrappers",
    "max_episode_steps",
    "fresh",
    "bounds",
    "without",
    "agents",
    "agent_id_feature",
)
LONG = 100_000  # time limit of environments without one


@dataclass(frozen=True)
class Offer:
    """Environment that a server offers."""

    address: str  # of the server
    environment: dict[str, Any]  # its recipe, as plain data
    roles: tuple[Role, ...]  # roles of its agents
    metadata: dict[str, Any]  # of the environment
    vec: str  # name of the server's vectorization
    versions: dict[str, str]  # package versions of the server
    limit: int | None  # steps after which episodes are truncated; None: unknown
    capacity: int  # number of environments
    free: int  # number of environments not in use

    @classmethod
    def read(cls, address: str, description: dict[str, Any]) -> "Offer":
        """Return the offer in a server's description; raise ConfigError if it is malformed."""
        try:
            own = {one.name: description[one.name] for one in fields(cls) if one.name not in ("address", "roles")}
            roles = tuple(_read_role(one, description["environment"]) for one in description["roles"])
            return cls(address=address, roles=roles, **own)
        except (KeyError, TypeError, ValueError, DecodeError) as error:
            raise ConfigError(f"vec.address={address} is not an environment server ({error})") from error

    def layouts(self, agents: Sequence[str] | None = None) -> Layouts:
        """Return the layouts of some agents, or of all for None."""
        whole = Layouts.of_roles(self.roles)
        return whole if agents is None else Layouts.of_roles(self.pick_roles(agents), whole)

    @property
    def seats(self) -> int:
        """Return the number of agents."""
        return sum(len(role.seats) for role in self.roles)

    def sort(self, agents: Sequence[str]) -> tuple[str, ...]:
        """Return agents in the order of their seats; raise ConfigError unless they are distinct agents of this offer."""
        known = self.layouts().agents
        if not agents or not set(agents) <= set(known) or len(set(agents)) < len(agents):
            what = f"agents={list(agents)} must be distinct agents of {self.environment['id']}"
            raise ConfigError(f"{what}: {', '.join(known)}")
        return tuple(agent for agent in known if agent in agents)

    def pick_roles(self, agents: Sequence[str] | None) -> tuple[Role, ...]:
        """Return the roles of some agents, with seats counted among these, or of all for None."""
        if agents is None:
            return self.roles
        chosen = self.sort(agents)
        picked = []
        for role in self.roles:
            own = tuple(agent for agent in role.agents if agent in chosen)
            picked.append(replace(role, agents=own, seats=tuple(map(chosen.index, own))))
        return tuple(role for role in picked if role.agents)

    def check_serves(self, spec: EnvSpec, agents: Sequence[str] | None = None) -> None:
        """Raise ConfigError unless this is a recipe's environment, or the recipe accepts any.

        `agents` are those of a joint environment that are requested; None: all.
        """
        if agents is not None:
            require(self.seats > 1, f"vec.agents: {self.environment['id']} has one agent; remove vec.world")
            require(
                spec.id == FACTORY_ID,
                f"vec.agents must be agents of the environment at vec.address={self.address}; use env=remote",
            )
        if spec.id in (REMOTE_ID, FACTORY_ID):
            what = "algo.agent_id_feature=true is not applied to a server's environment"
            require(not spec.agent_id_feature, f"{what}; start the server with +env.agent_id_feature=true instead")
            both = spec.roles, self.pick_roles(agents)
            own, theirs = ([(role.seats, role.observations) for role in roles] for roles in both)
            require(own == theirs, f"env={spec.id} uses another server than vec.address={self.address}; use the same")
            wrappers, limit = "env.wrappers", "env.max_episode_steps"
            require(not spec.wrappers, f"{wrappers} are not applied to a server's environment; set them on the server")
            own_limit, served = spec.max_episode_steps, (self.limit, self.environment.get("max_episode_steps"))
            what = f"{limit}={own_limit} is not applied to a server's environment"
            remedy = f"remove it, and start the server with env.max_episode_steps={own_limit}"
            require(own_limit in (None, LONG, *served), f"{what}; {remedy}")
            return
        own_fields = decode(encode(spec.fields))
        for key in COMPARED:
            own_value, value = own_fields.get(key), self.environment.get(key)
            same = own_value == value or (key == "max_episode_steps" and self._limits_like(spec))
            what = f"env.{key}={own_value} here, and {value} at vec.address={self.address}"
            require(same, f"{what}; make them equal, or use env=remote for the served environment")

    def _limits_like(self, spec: EnvSpec) -> bool:
        """Return whether the time limit equals a recipe's although the configured values differ."""
        limits = {spec.max_episode_steps, self.environment.get("max_episode_steps")}
        return limits == {None, LONG} or (self.limit is not None and self.limit == spec.made.limit)

    def check_capacity(self, num_envs: int) -> None:
        """Raise ConfigError if the server has less than `num_envs` environments."""
        what = f"vec.num_envs: {num_envs} environments are more than the {self.capacity} at vec.address={self.address}"
        require(num_envs <= self.capacity, f"{what}; request fewer, or start the server with a larger vec.num_envs")

    def check_same(self, other: "Offer") -> None:
        """Raise ConfigError unless another server offers the same environment."""
        both = [(one.environment, one.roles) for one in (self, other)]
        what = f"vec.address={other.address} and {self.address} serve different versions of {other.environment['id']}"
        require(both[0] == both[1], f"{what}; start both with the same env")

    def check_versions(self, versions: Mapping[str, str], whose: str) -> None:
        """Raise ConfigError unless the server has the same versions of the packages that both have."""
        others = describe_others(self.versions, versions, whose)
        fix = "install the same there, or set vec.same_versions=none"
        require(not others, f"vec.address={self.address}: {others}; {fix}")


def describe_roles(roles: Sequence[Role]) -> list[Any]:
    """Return roles as plain data; raise ConfigError if a space has a custom class."""
    spaces = [[describe_space(space) for space in (role.observation_space, role.action_space)] for role in roles]
    return [[role.name, list(role.seats), list(role.agents), *own] for role, own in zip(roles, spaces, strict=True)]


def _read_role(description: Any, environment: dict[str, Any]) -> Role:
    name, seats, agents, *spaces = description
    observation, action = map(build_space, spaces)
    layout = Layout.of(observation, environment["bounds"], ())
    actions = Layout.of(action, None, ())
    return Role(name, tuple(seats), tuple(agents), observation, action, layout, actions)
