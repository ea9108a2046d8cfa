"""Episodes of actions that their seeds alone choose, recorded so that they can be compared."""

import copy
import hashlib
import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from paddock.envs.spaces.legal import MASK, sample_legal

CHOICES_SEED = 2**21  # of the actions, which would follow what the environment draws if both had one seed


@dataclass(frozen=True)
class Episode:
    """What happened in an episode with actions that its seed alone chose.

    Attributes:
        digests: of what reset gave and of what each step gave, in order.
        rewards: one for each step.
        ended: "terminated", "truncated", "raised" (or paid what is no number), or "" where it was left.
        wrong: what the environment gave that is not of its spaces, or raised; "" for nothing.
        lives: of a world, how often agents were born, died, and so on, and what they were paid.
    """

    digests: tuple[bytes, ...]
    rewards: tuple[float, ...] = field(compare=False)  # NaN is not equal to itself, and digests have them
    ended: str
    wrong: str
    lives: Mapping[str, float] = field(default_factory=dict, compare=False)


def play(env: gymnasium.Env[Any, Any], seed: int, most: int) -> Generator[None, None, Episode]:
    """Play an episode for at most so many steps; pauses after each, so that two can be played in turns."""
    choices = copy.deepcopy(env.action_space)
    choices.seed(CHOICES_SEED + seed)
    digests, rewards = list[bytes](), list[float]()
    ended = ""
    try:
        observation, info = env.reset(seed=seed)
    except Exception as error:
        return Episode((), (), "raised", f"reset(seed={seed}) raised {tell_error(error)}")
    digests.append(digest_of(observation))
    wrong = f"reset on seed {seed}: {own}" if (own := find_misfit(env.observation_space, observation)) else ""
    while len(rewards) < most and not ended:
        here = f"step {len(rewards) + 1} on seed {seed}"
        try:
            observation, reward, terminated, truncated, info = env.step(
                sample_legal(choices, find_mask(observation, info))
            )
        except Exception as error:
            ended, wrong = "raised", wrong or f"{here} raised {tell_error(error)}"
            break
        if not is_number(reward):
            ended, wrong = "raised", wrong or f"{here}: the reward is {shorten(reward)}, which is no number"
            break
        digests.append(digest_of((observation, float(reward), bool(terminated), bool(truncated))))
        rewards.append(float(reward))
        ended = "terminated" if terminated else "truncated" if truncated else ""
        own = find_misfit(env.observation_space, observation) or (
            "" if math.isfinite(reward) else f"the reward is {reward}"
        )
        wrong = wrong or (f"{here}: {own}" if own else "")
        yield
    return Episode(tuple(digests), tuple(rewards), ended, wrong)


def is_number(reward: Any) -> bool:
    """Whether a reward is a number, finite or not."""
    try:
        float(reward)
    except (TypeError, ValueError):
        return False
    return True


def find_misfit(space: gymnasium.Space[Any], observation: Any) -> str:
    """Say what of an observation is not of its space; "" if nothing is."""
    return "" if observation in space else _outside(space, observation, "")


def _outside(space: gymnasium.Space[Any], value: Any, at: str) -> str:
    where = f" at {at}" if at else ""
    if isinstance(space, gymnasium.spaces.Dict) and isinstance(value, dict):
        if value.keys() != space.spaces.keys():
            keys, declared = sorted(map(str, value)), sorted(map(str, space))
            return f"the observation{where} has keys {keys}, and {declared} are declared"
        return next(
            _outside(part, value[key], f"{at}[{key!r}]") for key, part in space.items() if value[key] not in part
        )
    if isinstance(space, gymnasium.spaces.Tuple) and isinstance(value, tuple) and len(value) == len(space):
        return next(_outside(part, value[k], f"{at}[{k}]") for k, part in enumerate(space) if value[k] not in part)
    if isinstance(space, gymnasium.spaces.Box) and isinstance(value, np.ndarray):
        if value.shape == space.shape and np.can_cast(value.dtype, space.dtype):
            beyond = value[(value < space.low) | (value > space.high) | np.isnan(value)]
            return f"the observation{where} holds {beyond.flat[0]}, which is out of its bounds"
        form = f"{space.dtype} {space.shape}"
        return f"the observation{where} is {value.dtype} {value.shape}, and {form} is declared"
    return f"the observation{where} is {shorten(value)}, which is not of {shorten(space)}"


def find_mask(observation: Any, info: Any) -> Any:
    """Return the mask of legal actions where the environment gives one; None: all are legal."""
    given = [holder[MASK] for holder in (info, observation) if isinstance(holder, Mapping) and MASK in holder]
    return given[0] if given else None


def digest_of(value: Any) -> bytes:
    """Return a digest of the bits of what an environment gave."""
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, value)
    return digest.digest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for key in value:
            digest.update(repr(key).encode())
            _feed(digest, value[key])
    elif isinstance(value, tuple | list):
        digest.update(f"{type(value).__name__} {len(value)}".encode())
        for part in value:
            _feed(digest, part)
    elif isinstance(value, np.ndarray | np.generic):
        digest.update(f"{value.dtype.str} {value.shape}".encode())
        digest.update(value.tobytes())
    else:
        digest.update(repr(value).encode())


def shorten(thing: Any) -> str:
    """Name a space or anything else in a few words."""
    if isinstance(thing, gymnasium.spaces.Box):
        return f"Box{thing.shape} {thing.dtype}"
    if isinstance(thing, gymnasium.spaces.Dict):
        return f"Dict({', '.join(f'{key}: {shorten(part)}' for key, part in thing.items())})"
    text = " ".join(str(thing).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def tell_error(error: Exception) -> str:
    return f"{type(error).__name__}: {shorten(error)}"


def tell_duration(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:,.0f} ms"
