"""Family of CartPoles with different pole lengths, for tests and quick experiments."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from paddock.envs.errors import require
from paddock.envs.family import Encoding
from paddock.envs.spec import EnvSpec

DIGITS = 3  # decimals to which lengths are rounded


class PoleLength(gymnasium.Wrapper):
    """Wrapper that sets the half length of CartPole's pole, m, without changing its mass."""

    def __init__(self, env: gymnasium.Env, length: float) -> None:
        """Set the length; raise ValueError unless it is positive."""
        if not length > 0:
            raise ValueError(f"length={length} must be positive (m); 0.5 is Gymnasium's")
        super().__init__(env)
        cart: Any = env.unwrapped
        cart.length = length
        cart.polemass_length = cart.masspole * length


@dataclass(frozen=True, kw_only=True)
class Poles:
    """Family of CartPole-v1 with encodings {length: half length of the pole, m}.

    Attributes:
        start: initial length, m.
        step: a mutation adds uniform(-step, step), m.
        min: shortest, m.
        max: longest, m.
        max_episode_steps: None: 500, as in CartPole-v1.
    """

    start: float
    step: float
    min: float
    max: float
    max_episode_steps: int | None

    def __post_init__(self) -> None:
        require(0 < self.min <= self.max < float("inf"), f"min={self.min} and max={self.max} must be 0 < min <= max")
        require(self.min <= self.start <= self.max, f"start={self.start} must be within [{self.min}, {self.max}]")
        require(0 < self.step < float("inf"), f"step={self.step} must be positive (m); 0.1 suits most")
        self.env_spec(self.flat(), None)  # which checks the rest

    def flat(self) -> Encoding:
        """Return the encoding of length `start`."""
        return {"length": float(self.start)}

    def mutate(self, encoding: Encoding, generator: np.random.Generator) -> Encoding:
        """Change the length by up to one step."""
        changed = round(encoding["length"] + generator.uniform(-self.step, self.step), DIGITS)
        return {"length": float(min(max(changed, self.min), self.max))}

    def distance(self, one: Encoding, other: Encoding) -> float:
        """Return the difference of the lengths, m."""
        return abs(one["length"] - other["length"])

    def env_spec(self, encoding: Encoding, ground: int | None) -> EnvSpec:
        """Specify the environment of an encoding; `ground` has no effect."""
        pole = {"_target_": "paddock.envs.tasks.poles.PoleLength", "length": encoding["length"]}
        return EnvSpec("CartPole-v1", {}, (pole,), self.max_episode_steps, fresh=False)
