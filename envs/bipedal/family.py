"""Families of walker terrains: POET's obstacles (arXiv:1901.01753) and Enhanced POET's CPPNs (arXiv:2003.08536).

Encodings are keyword arguments of `paddock.envs.bipedal.terrain.Terrain`.
"""

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from paddock.envs.bipedal import cppn
from paddock.envs.bipedal.ground import HIGHEST as TALLEST
from paddock.envs.bipedal.ground import LARGEST, LONGEST, ROUGHEST, SHORTEST, is_number
from paddock.envs.errors import require
from paddock.envs.family import Encoding
from paddock.envs.ranges import Range, check_fields
from paddock.envs.spec import EnvSpec

Rule = Mapping[str, Any]  # {step, max}, plus {initial: [low, high]} for intervals

PROBABILITY = Range("must be a probability in [0, 1]", low=0, high=1)
Length = Annotated[
    int, Range(f"must be between {SHORTEST} and {LONGEST} points; 200 is Gymnasium's", low=SHORTEST, high=LONGEST)
]

DIGITS = 1  # decimals to which encodings are rounded
EXAMPLES = {2: "{step: 0.6, max: 10.0}", 3: "{initial: [0, 0.8], step: 0.4, max: 8.0}"}
MUTATION = ("node_add", "node_delete", "weight_rate", "weight_power", "amplitude_low", "amplitude_high")
INTERVALS = ("pit_gap", "stump_height", "stair_height", "stair_steps")


@dataclass(frozen=True, kw_only=True)
class Obstacles:
    """Terrains with roughness, pits, stumps and stairs; fields that are None keep their values of the flat terrain.

    Every mutation changes all other fields. Units are those of `paddock.envs.bipedal.ground.Course`.

    Attributes:
        roughness: {step, max}: uniform(-step, step) is added, within [0, max].
        pit_gap, stump_height, stair_height, stair_steps: {initial: [low, high], step, max}: the first mutation sets the
            initial interval; later ones move low, high or both by one step, within [initial, max], with equal
            probability.
        length: points of the course.
        max_episode_steps: None: 2,000, as published.
        wrappers: as in EnvSpec.
    """

    roughness: Rule | None
    pit_gap: Rule | None
    stump_height: Rule | None
    stair_height: Rule | None
    stair_steps: Rule | None
    length: Length
    max_episode_steps: int | None
    wrappers: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if self.roughness is not None:
            _check_rule("roughness", self.roughness, {"step", "max"}, ROUGHEST)
        for key, rule in self._intervals():
            _check_rule(key, rule, {"initial", "step", "max"}, LARGEST)
        if self.stair_steps is not None:
            given = f"stair_steps={dict(self.stair_steps)}"
            require(self.stair_height is not None, f"{given} needs stairs; set stair_height, or stair_steps=null")
            low, high = self.stair_steps["initial"]
            require(
                all(float(number).is_integer() for number in (low, high, self.stair_steps["step"])) and 1 <= low < high,
                f"{given} must have whole numbers and 1 <= initial low < high (exclusive), such as [1, 2]",
            )
        some = self.roughness is not None or bool(self._intervals())
        require(some, f"roughness={self.roughness}: all fields are null; set at least one rule")
        self.env_spec(self.flat(), None)  # which checks the rest

    def flat(self) -> Encoding:
        """Return the encoding of flat ground without obstacles."""
        return {"roughness": 0.0}

    def mutate(self, encoding: Encoding, generator: np.random.Generator) -> Encoding:
        """Change every field that is not None by one step."""
        child = dict(encoding)
        if self.roughness is not None:
            step, most = self.roughness["step"], self.roughness["max"]
            changed = round(encoding["roughness"] + generator.uniform(-step, step), DIGITS)
            child["roughness"] = float(min(max(changed, 0.0), most))
        for key, rule in self._intervals():
            whole = key == "stair_steps"
            if key in encoding:
                choices = interval_changes(encoding[key], rule, apart=1 if whole else 0)
                if choices:
                    child[key] = choices[int(generator.integers(len(choices)))]
            else:
                child[key] = [float(bound) for bound in rule["initial"]]
            if whole:
                child[key] = [int(bound) for bound in child[key]]
        return child

    def distance(self, one: Encoding, other: Encoding) -> float:
        """Return the Euclidean distance of roughness and interval bounds; a missing interval is [0, 0]."""
        return math.dist(_numbers(one), _numbers(other))

    def env_spec(self, encoding: Encoding, ground: int | None) -> EnvSpec:
        """Specify the walker on the terrain of an encoding."""
        return _terrain(self, encoding, ground)

    def _intervals(self) -> list[tuple[str, Rule]]:
        return [(key, getattr(self, key)) for key in INTERVALS if getattr(self, key) is not None]


@dataclass(frozen=True, kw_only=True)
class Cppns:
    """Terrains generated by CPPNs.

    Attributes:
        node_add, node_delete, weight_rate, weight_power, amplitude_low, amplitude_high: arguments of
            `paddock.envs.bipedal.cppn.mutate`.
        length: points of the course.
        max_episode_steps: None: 2,000, as published.
        wrappers: as in EnvSpec.
    """

    node_add: Annotated[float, PROBABILITY]
    node_delete: Annotated[float, PROBABILITY]
    # The flat course changes only by its single weight.
    weight_rate: Annotated[float, PROBABILITY, Range("must be positive, or all terrains stay flat", above=0)]
    weight_power: Annotated[float, Range("must be in (0, 10]; 0.1 is published", above=0, high=10)]
    amplitude_low: float
    amplitude_high: float
    length: Length
    max_episode_steps: int | None
    wrappers: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        check_fields(self)
        require(
            self.node_add + self.node_delete <= 1,
            f"node_delete={self.node_delete} and node_add={self.node_add}: the sum must be <= 1",
        )
        low, high = self.amplitude_low, self.amplitude_high
        require(
            low > 0 and 4 * low <= high <= TALLEST,
            f"amplitude_low={low} must be positive and at most a quarter of amplitude_high={high}, which is at most "
            f"{TALLEST} m; 0.25 and 16 are published",
        )
        self.env_spec(self.flat(), None)  # which checks the rest

    def flat(self) -> Encoding:
        """Return a network with output 0 everywhere."""
        return {"cppn": copy.deepcopy(cppn.FLAT)}

    def mutate(self, encoding: Encoding, generator: np.random.Generator) -> Encoding:
        """Change structure and weights."""
        rules = {key: getattr(self, key) for key in MUTATION}
        return {"cppn": cppn.mutate(encoding["cppn"], self.length, generator, **rules)}

    def distance(self, one: Encoding, other: Encoding) -> float:
        """Return the root mean square difference of heights over the course, m."""
        apart = cppn.height_profile(one["cppn"], self.length) - cppn.height_profile(other["cppn"], self.length)
        return float(np.sqrt(np.mean(apart**2)))

    def env_spec(self, encoding: Encoding, ground: int | None) -> EnvSpec:
        """Specify the walker on the terrain of an encoding, the same in every episode; `ground` only moves the clouds."""
        return _terrain(self, encoding, ground)


def interval_changes(interval: Sequence[float], rule: Rule, apart: float) -> list[list[float]]:
    """Return all intervals [low, high] reached by one step of one or both bounds, with `low + apart <= high`.

    The rule has lower bounds of low and high (`initial`), `step`, and an upper bound of both (`max`).
    """
    (least_low, least_high), step, most = rule["initial"], rule["step"], rule["max"]
    found = []
    for by_low, by_high in itertools.product((step, 0, -step), repeat=2):
        low, high = round(interval[0] + by_low, DIGITS), round(interval[1] + by_high, DIGITS)
        changed = [low, high] != list(interval)
        if changed and least_low <= low <= most and least_high <= high <= most and low + apart <= high:
            found.append([low, high])
    return found


def _terrain(family: Obstacles | Cppns, encoding: Encoding, ground: int | None) -> EnvSpec:
    return EnvSpec(
        id="paddock.envs.bipedal:paddock/Terrain-v0",
        kwargs={**encoding, "ground": ground, "length": family.length},
        wrappers=tuple(family.wrappers),
        max_episode_steps=family.max_episode_steps,
        fresh=False,
    )


def _numbers(encoding: Encoding) -> list[float]:
    return [encoding["roughness"], *itertools.chain(*(encoding.get(key, (0.0, 0.0)) for key in INTERVALS))]


def _check_rule(key: str, rule: Rule, keys: set[str], most: float) -> None:
    such = f"{key}={dict(rule)} must be numbers with one decimal, such as {EXAMPLES[len(keys)]}"
    require(rule.keys() == keys, such)
    numbers = [*rule.get("initial", [0, 0]), rule["step"], rule["max"]]
    require(len(numbers) == 4 and all(map(is_number, numbers)), such)
    low, high, step, top = numbers
    rounded = numbers if "initial" in keys else [top]  # values that occur in encodings
    require(all(round(number, DIGITS) == number for number in rounded), such)
    require(
        step > 0 and 0 <= low <= high <= top <= most,
        f"{key}={dict(rule)} must have step > 0 and 0 <= initial low <= high <= max <= {most}",
    )
