"""Recorded episodes of random actions, for comparison; the seed determines the actions."""

import copy
import hashlib
import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from paddock.envs.multiagent.env import ByAgent, MultiAgentEnv, Step, takes_turns
from paddock.envs.spaces.legal import MASK, sample_legal

CHOICES_SEED = 2**21  # of the actions; with the environment's own seed they would correlate with its randomness
LIVES = ("episodes", "born", "died", "left", "strayed", "waited", "shown", "changed")  # counters


@dataclass(frozen=True)
class Episode:
    """Record of an episode with random actions."""

    digests: tuple[bytes, ...]  # of the results of reset and of each step
    rewards: tuple[float, ...] = field(compare=False)  # summed over agents; NaN is not equal to itself
    ended: str  # "terminated", "truncated", "raised" (also for unusable results), or "" if it was not finished
    wrong: str  # the first violation of the spaces, or the error; "" if there is none
    lives: Mapping[str, float] = field(default_factory=dict, compare=False)  # `LIVES`, lowest and highest reward


class SingleAgentEnv:
    """Multi-agent interface of a Gymnasium environment, with one agent."""

    name = "agent"

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env
        self.possible_agents, self.agents = [self.name], list[str]()

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the environment's observation space."""
        return self._env.observation_space

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the environment's action space."""
        return self._env.action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode."""
        observation, info = self._env.reset(seed=seed)
        self.agents = [self.name]
        return {self.name: observation}, {self.name: info}

    def step(self, actions: dict[str, Any]) -> Step:
        """Step the environment."""
        observation, reward, terminated, truncated, info = self._env.step(actions[self.name])
        self.agents = [] if terminated or truncated else [self.name]
        name = self.name
        return {name: observation}, {name: reward}, {name: terminated}, {name: truncated}, {name: info}


def play(env: Any, seed: int, most: int) -> Generator[None, None, Episode]:
    """Play an episode for at most `most` steps; yield after each, so that two episodes can be interleaved."""
    world: Any = SingleAgentEnv(env) if isinstance(env, gymnasium.Env) else env
    agents = list(world.possible_agents)
    choices = {agent: copy.deepcopy(world.action_space(agent)) for agent in agents}
    for k, space in enumerate(choices.values()):
        space.seed(CHOICES_SEED + len(agents) * seed + k)
    digests, rewards, ended = list[bytes](), list[float](), ""
    lives: dict[str, float] = dict.fromkeys(LIVES, 0) | {"episodes": 1, "lowest": math.inf, "highest": -math.inf}
    here = f"reset on seed {seed}"
    try:
        seen, infos = world.reset(seed=seed)
    except Exception as error:
        return Episode((), (), "raised", f"{here} raised {format_error(error)}")
    if wrong := _find_broken(world, seen, set(), here):
        return Episode((), (), "raised", wrong)
    wrong = _find_misfit(world, seen, here)
    living, shown = list(world.agents), digest_of(_by_seat(seen, agents))
    digests.append(shown)
    while len(rewards) < most and not ended:
        here = f"step {len(rewards) + 1} on seed {seed}"
        acting = list(world.acting) if takes_turns(world) else living
        actions = {}
        for agent in acting:
            holders = [one for one in (infos.get(agent, {}), seen[agent]) if isinstance(one, Mapping) and MASK in one]
            actions[agent] = sample_legal(choices[agent], holders[0][MASK] if holders else None)
        try:
            seen, paid, terminated, truncated, infos = world.step(actions)
        except Exception as error:
            ended, wrong = "raised", wrong or f"{here} raised {format_error(error)}"
            break
        if strange := next((agent for agent, reward in paid.items() if not is_number(reward)), None):
            what = f"{here}, {strange}: the reward is {shorten(paid[strange])}, which is not a number"
            ended, wrong = "raised", wrong or what
            break
        results = [_by_seat(one, agents) for one in (seen, paid, terminated, truncated)]
        digests.append(digest_of((*results, [agent for agent in agents if agent in world.agents])))
        flagged = {agent for flags in (terminated, truncated) for agent, flag in flags.items() if flag}
        broken = _find_broken(world, seen, flagged, here)
        wrong = wrong or broken or _find_misfit(world, seen, here) or _find_unpaid(paid, here)
        before, living = set(living), list(world.agents)
        lives["born"] += len(set(living) - before)
        lives["died"] += len(before - set(living)) if living else 0
        lives["left"] += len(before - set(living) - flagged)
        lives["strayed"] += sum(agent not in before and bool(reward) for agent, reward in paid.items())
        lives["waited"] += len(before) - len(acting)
        lives["lowest"] = min([lives["lowest"], *map(float, paid.values())])
        lives["highest"] = max([lives["highest"], *map(float, paid.values())])
        rewards.append(float(sum(paid.values())))
        before_it, shown = shown, digest_of(results[0])
        lives["shown"] += bool(living)
        lives["changed"] += bool(living) and shown != before_it
        if broken:
            ended = "raised"
        elif not living:
            ended = "terminated" if any(terminated.values()) else "truncated"
        yield
    return Episode(tuple(digests), tuple(rewards), ended, wrong, lives)


def _by_seat(values: Mapping[str, Any], agents: list[str]) -> dict[str, Any]:
    return {agent: values[agent] for agent in agents if agent in values}


def _find_broken(world: MultiAgentEnv, seen: Mapping[str, Any], flagged: set[str], here: str) -> str:
    """Describe why an episode cannot continue; "" if it can."""
    known, listed = set(world.possible_agents), list(world.agents)
    if strange := sorted(str(agent) for agent in listed if agent not in known):
        return f"{here}: agents contains {', '.join(strange)}, missing in possible_agents"
    if len(set(listed)) != len(listed):
        return f"{here}: agents contains duplicates: {listed}"
    if again := sorted(str(agent) for agent in listed if agent in flagged):
        return f"{here}: agents still contains {', '.join(again)} after terminated or truncated"
    blind = next((agent for agent in listed if agent not in seen), None)
    return "" if blind is None else f"{here}: {blind} is alive but has no observation"


def _find_misfit(world: MultiAgentEnv, seen: Mapping[str, Any], here: str) -> str:
    known = [agent for agent in seen if agent in set(world.possible_agents)]
    wrong = {agent: find_misfit(world.observation_space(agent), seen[agent]) for agent in known}
    return next((f"{here}, {agent}: {what}" for agent, what in wrong.items() if what), "")


def _find_unpaid(paid: Mapping[str, Any], here: str) -> str:
    endless = next((agent for agent, reward in paid.items() if not math.isfinite(reward)), None)
    return "" if endless is None else f"{here}, {endless}: the reward is {paid[endless]}"


def is_number(reward: Any) -> bool:
    """Return whether a reward is a number, finite or not."""
    try:
        float(reward)
    except (TypeError, ValueError):
        return False
    return True


def find_misfit(space: gymnasium.Space[Any], observation: Any, at: str = "") -> str:
    """Describe the element of an observation that is not in its space; "" if there is none."""
    if observation in space:
        return ""
    items: dict[Any, gymnasium.Space[Any]] = {}
    if isinstance(space, gymnasium.spaces.Dict) and isinstance(observation, dict):
        items = dict(space.spaces) if observation.keys() == space.spaces.keys() else {}
    elif isinstance(space, gymnasium.spaces.Tuple) and isinstance(observation, tuple):
        items = dict(enumerate(space.spaces)) if len(observation) == len(space.spaces) else {}
    if items:
        return next(filter(None, (find_misfit(item, observation[k], f"{at}[{k!r}]") for k, item in items.items())), "")
    got = shorten(observation)
    if isinstance(observation, np.ndarray) and observation.size:
        got = f"{observation.dtype} {observation.shape} from {observation.min()} to {observation.max()}"
    return f"the observation{f' at {at}' if at else ''} is {got}, which is not in {' '.join(str(space).split())}"


def digest_of(value: Any) -> bytes:
    """Return a digest of the bits of an environment's results."""
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
    """Format a space or another object in at most 120 characters."""
    if isinstance(thing, gymnasium.spaces.Box):
        return f"Box{thing.shape} {thing.dtype}"
    if isinstance(thing, gymnasium.spaces.Dict):
        return f"Dict({', '.join(f'{key}: {shorten(part)}' for key, part in thing.items())})"
    text = " ".join(str(thing).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def format_error(error: Exception) -> str:
    """Format an exception in one short line."""
    return f"{type(error).__name__}: {shorten(error)}"


def format_duration(seconds: float) -> str:
    """Format a duration in microseconds or milliseconds."""
    return f"{seconds * 1e6:,.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:,.0f} ms"
