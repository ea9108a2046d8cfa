"""What a server offers: an environment, its spaces, and how its observations and actions lie in rows."""

from dataclasses import dataclass
from typing import Any

from gymnasium import Space

from envs.errors import ConfigError, require
from envs.remote.spaces import build_space
from envs.remote.values import Garbled, decode, encode
from envs.spaces.layout import Layout
from envs.spec import EnvSpec
from envs.vector.storage import Layouts

REMOTE_ID = "envs.remote.single:Remote-v0"  # of the environment that stands for whatever a server offers
COMPARED = ("id", "kwargs", "wrappers", "max_episode_steps", "fresh", "bounds", "action_bounds", "without")
LONG = 100_000  # steps that limit no episode but of environments without a limit of their own


@dataclass(frozen=True)
class Offer:
    """One server's environment.

    Attributes:
        environment: its recipe, as plain data.
        vec: how the server steps it.
    """

    address: str
    server: str
    environment: dict[str, Any]
    observation_space: Space  # without what is left out
    action_space: Space
    metadata: dict[str, Any]
    vec: str
    versions: dict[str, str]
    capacity: int
    free: int

    @classmethod
    def read(cls, address: str, told: dict[str, Any]) -> "Offer":
        """Return what a server told.

        Raises:
            ConfigError: it is no such server.
        """
        try:
            observation, action = (build_space(told[name]) for name in ("observation", "action"))
            return cls(
                address,
                told["server"],
                told["environment"],
                observation,
                action,
                told["metadata"],
                told["vec"],
                told["versions"],
                told["capacity"],
                told["free"],
            )
        except (KeyError, TypeError, Garbled) as error:
            raise ConfigError(f"vec.address={address} is no server of environments ({error})") from error

    def layouts(self) -> Layouts:
        """Return how observations and actions lie in rows."""
        environment = self.environment
        observation = Layout.of(self.observation_space, environment["bounds"], ())
        action = Layout.of(self.action_space, environment["action_bounds"], (), "env.action_bounds")
        return Layouts(observation, action, self.observation_space, self.action_space)

    def check_serves(self, spec: EnvSpec) -> None:
        """Raise ConfigError unless this is the environment that a recipe makes, or the recipe stands for any."""
        if spec.id == REMOTE_ID:
            own, theirs = spec.observations, self.layouts().observation
            require(own == theirs, f"env={spec.id} is of another server than vec.address={self.address}; name the same")
            require(not spec.wrappers, "env.wrappers are not applied to a server's environment; say them there")
            return
        own_fields, theirs_fields = decode(encode(spec.fields)), self.environment
        for key in COMPARED:
            own_value, value = own_fields[key], theirs_fields[key]
            same = own_value == value or (key == "max_episode_steps" and {own_value, value} == {None, LONG})
            require(
                same,
                f"env.{key}={own_value} here, and {value} at vec.address={self.address}; make them the same, or say "
                "env=remote to take what is served",
            )

    def check_same(self, other: "Offer") -> None:
        """Raise ConfigError unless another server offers the same environment."""
        same = self.environment == other.environment and self.action_space == other.action_space
        require(
            same and self.observation_space == other.observation_space,
            f"vec.address={other.address} serves {other.environment['id']} otherwise than {self.address} does; start "
            "both on the same env",
        )
