"""What is wrong with an environment for who needs repeatable results: it is played, and compared with itself."""

import copy
import hashlib
import math
import random
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np

from envs.errors import ConfigError
from envs.spaces.parts import dotted
from envs.spec import EnvSpec

from .installed import Finding

OWN_GENERATORS = "envs.seeding.OwnGenerators"
WRAP = f"add the wrapper: 'env.wrappers=[{{_target_: {OWN_GENERATORS}}}]'"
TIMED_STEPS = 1000
EPISODES = 4  # at most, that are compared
OTHER_SEED = 2**20  # of the environment beside
CHOICES_SEED = 2**21  # of the actions, which would follow what the environment draws if both had one seed


@dataclass(frozen=True)
class Episode:
    """What happened in an episode with actions that its seed alone chose.

    Attributes:
        digests: of what reset gave and of what each step gave, in order.
        rewards: one for each step.
        ended: "terminated", "truncated", "raised", or "" where it was left.
        wrong: what the environment gave that is not of its spaces, or raised; "" for nothing.
        sizes: by the dotted path of what varies in size, how much of it there was at the most.
    """

    digests: tuple[bytes, ...]
    rewards: tuple[float, ...]
    ended: str
    wrong: str
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def check_env(spec: EnvSpec, steps: int) -> Iterator[tuple[str, Finding]]:
    """Play an environment for so many steps and more; yields what was looked at, and what was found.

    Raises:
        ConfigError: it cannot be made.
    """
    started = time.perf_counter()
    env = spec.make()
    yield "made", Finding("ok", f"{spec.id} in {_duration(time.perf_counter() - started)}")
    yield "spaces", _check_spaces(spec)
    first = _play_on(env, steps)
    env.close()
    yield "steps", _check_steps(first)
    if first[-1].ended == "raised":
        return
    if lacking := _unbounded(spec, first):
        yield "sizes", lacking
    yield "rewards", _check_rewards(first)
    yield "ends", _check_ends(spec, first)
    yield from _check_seeds(spec, [len(episode.rewards) for episode in first[:EPISODES]])
    yield "speed", _check_speed(spec, min(steps, TIMED_STEPS))


def play(env: gymnasium.Env[Any, Any], seed: int, most: int) -> Generator[None, None, Episode]:
    """Play an episode for at most so many steps; pauses after each, so that two can be played in turns."""
    choices = copy.deepcopy(env.action_space)
    choices.seed(CHOICES_SEED + seed)
    digests, rewards = list[bytes](), list[float]()
    ended = ""
    try:
        observation, info = env.reset(seed=seed)
    except Exception as error:
        return Episode((), (), "raised", f"reset(seed={seed}) raised {_told(error)}")
    digests.append(_digest(observation))
    sizes = dict[str, tuple[int, ...]]()
    _widen(sizes, env.observation_space, observation, ())
    wrong = f"reset on seed {seed}: {own}" if (own := _misfit(env, observation)) else ""
    while len(rewards) < most and not ended:
        here = f"step {len(rewards) + 1} on seed {seed}"
        try:
            observation, reward, terminated, truncated, info = env.step(choices.sample(_mask(observation, info)))
        except Exception as error:
            ended, wrong = "raised", wrong or f"{here} raised {_told(error)}"
            break
        digests.append(_digest((observation, float(reward), bool(terminated), bool(truncated))))
        rewards.append(float(reward))
        _widen(sizes, env.observation_space, observation, ())
        ended = "terminated" if terminated else "truncated" if truncated else ""
        own = _misfit(env, observation) or ("" if math.isfinite(reward) else f"the reward is {reward}")
        wrong = wrong or (f"{here}: {own}" if own else "")
        yield
    return Episode(tuple(digests), tuple(rewards), ended, wrong, sizes)


def _last(env: gymnasium.Env[Any, Any], seed: int, most: int) -> Episode:
    """Play an episode to its end."""
    return _in_turns(play(env, seed, most), None)


def _in_turns(episode: Generator[None, None, Episode], beside: Generator[None, None, Episode] | None) -> Episode:
    """Play an episode to its end, and another one step by step with it."""
    while True:
        try:
            next(episode)
        except StopIteration as end:
            told: Episode = end.value
            return told
        if beside is not None:
            next(beside, None)


def _play_on(env: gymnasium.Env[Any, Any], steps: int) -> list[Episode]:
    """Play one episode after another, on seeds 0, 1, ..., for so many steps in all."""
    episodes: list[Episode] = []
    while (left := steps - _total(episodes)) > 0:
        episodes.append(_last(env, len(episodes), left))
        if episodes[-1].wrong or not episodes[-1].rewards:
            break
    return episodes


def _check_seeds(spec: EnvSpec, lengths: list[int]) -> Iterator[tuple[str, Finding]]:
    """Compare episodes on the same seeds: in new environments, after other episodes, beside another environment."""
    own = replace(spec, wrappers=(*spec.wrappers, {"_target_": OWN_GENERATORS}))
    before = _global_state()
    alone = _in_new(spec, lengths)
    touched = _global_state() != before
    random.random()  # whoever looks at the global generators finds other numbers than before
    np.random.random()
    if seeded := _differ(alone, _in_new(spec, lengths)):
        mended = not _differ(_in_new(own, lengths), _in_new(own, lengths))
        cause = "it draws from a global generator" if mended else "what it draws does not come from reset's seed"
        remedy = WRAP if mended else "see in its documentation how it is seeded, and do that in a wrapper"
        yield "seed", Finding("FAIL", f"the same seed in a new environment: {seeded}; {cause}", remedy)
        if not mended:
            return
        spec, alone, touched = own, _in_new(own, lengths), False
    else:
        yield "seed", Finding("ok", f"{len(lengths)} episodes are the same in new environments")

    history = _differ(alone, _after_others(spec, lengths))
    if history and not spec.fresh:
        yield "history", Finding("FAIL", f"the same seed after other episodes: {history}", "set env.fresh=true")
    elif history:
        yield "history", Finding("ok", "reset does not forget all, and env.fresh=true makes it anew for each episode")
    elif spec.fresh:
        yield (
            "history",
            Finding("ok", "episodes after others are the same here; if they always are, env.fresh=false is faster"),
        )
    else:
        yield "history", Finding("ok", "episodes after others, and twice in a row, are the same")

    if beside := _differ(alone[:1], [_beside_another(spec, lengths[0])]):
        mended = not _differ(_in_new(own, lengths[:1]), [_beside_another(own, lengths[0])])
        remedy = (
            WRAP if mended else "keep to one environment in a process: vec=multiprocess vec.num_workers=vec.num_envs"
        )
        yield "others", Finding("FAIL", f"beside another environment in the process: {beside}", remedy)
    elif touched:
        text = "it draws from a global generator, or seeds one, which disturbs other programs' numbers"
        yield "others", Finding("warn", text, WRAP)
    else:
        yield (
            "others",
            Finding("ok", "an episode beside another environment's is the same, and global generators are untouched"),
        )


def _in_new(spec: EnvSpec, lengths: Sequence[int]) -> list[Episode]:
    """Play episodes of so many steps on seeds 0, 1, ..., each in a new environment."""
    episodes = []
    for seed, most in enumerate(lengths):
        env = spec.make()
        episodes.append(_last(env, seed, most))
        env.close()
    return episodes


def _after_others(spec: EnvSpec, lengths: Sequence[int]) -> list[Episode]:
    """Play the same episodes in one environment, the last seed first, each twice in a row."""
    env = spec.make()
    episodes = []
    for seed, most in reversed(list(enumerate(lengths))):
        _last(env, seed, most)
        episodes.append(_last(env, seed, most))
    env.close()
    return episodes[::-1]


def _beside_another(spec: EnvSpec, most: int) -> Episode:
    """Play the episode on seed 0, in turns with one on another seed in another environment."""
    env, other = spec.make(), spec.make()
    episode = _in_turns(play(env, 0, most), play(other, OTHER_SEED, most))
    env.close()
    other.close()
    return episode


def _differ(one: Sequence[Episode], other: Sequence[Episode]) -> str:
    """Say where the first difference between episodes on the same seeds is; "" where there is none."""
    for seed, (a, b) in enumerate(zip(one, other, strict=True)):
        if a == b:
            continue
        for step, (x, y) in enumerate(zip(a.digests, b.digests, strict=False)):
            if x != y:
                return f"the episode on seed {seed} differs {f'from step {step} on' if step else 'from its reset on'}"
        return f"the episode on seed {seed} ends elsewhere ({len(a.rewards)} and {len(b.rewards)} steps)"
    return ""


def _global_state() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state(legacy=True)
    return random.getstate(), name, keys.tobytes(), *rest  # type: ignore[union-attr]


def _check_spaces(spec: EnvSpec) -> Finding:
    observation, action = spec.spaces
    try:
        layout = spec.observations
    except ConfigError as error:
        return Finding("warn", f"observation {_short(observation)}, action {_short(action)}: {error}")
    size = f"{layout.itemsize:,} bytes a row, {len(layout.is_real):,} numbers for a dense network"
    return Finding("ok", f"observation {_short(observation)} ({size}), action {_short(action)}")


def _unbounded(spec: EnvSpec, episodes: Sequence[Episode]) -> Finding | None:
    """Propose bounds for what varies in size, where they are not said and all there was has been seen."""
    try:
        spec.observations  # noqa: B018, which is made when it is asked for
    except ConfigError:
        most: dict[str, tuple[int, ...]] = {}
        for episode in episodes:
            for path, count in episode.sizes.items():
                most[path] = _larger(most.get(path), count)
        said = [f"{' and '.join(map(str, count))} at {path}" for path, count in most.items()]
        twice = [(path, [max(2 * one, 1) for one in count]) for path, count in most.items()]
        given = [
            f"'+env.bounds.{path}={count if len(count) > 1 else count[0]}'".replace(" ", "") for path, count in twice
        ]
        if said:
            seen = f"at the most there were {', '.join(said)} in {_total(episodes):,} steps"
            return Finding("warn", seen, f"say how much there may be, such as twice as much: {' '.join(given)}")
    return None


def _widen(sizes: dict[str, tuple[int, ...]], space: gymnasium.Space[Any], value: Any, path: tuple[Any, ...]) -> None:
    """Take notice of how much there is of each part that varies in size; what is not of its space is left out."""
    key = dotted(path) or "element"
    counts: tuple[int, ...] = ()
    if isinstance(space, gymnasium.spaces.Dict) and isinstance(value, Mapping):
        for name, part in space.items():
            if name in value:
                _widen(sizes, part, value[name], (*path, name))
    elif isinstance(space, gymnasium.spaces.Tuple) and isinstance(value, tuple):
        for k, (part, one) in enumerate(zip(space, value, strict=False)):
            _widen(sizes, part, one, (*path, k))
    elif isinstance(space, gymnasium.spaces.OneOf) and isinstance(value, tuple):
        _widen(sizes, space.spaces[int(value[0])], value[1], (*path, int(value[0])))
    elif isinstance(space, gymnasium.spaces.Graph) and isinstance(value, gymnasium.spaces.GraphInstance):
        counts = (len(_any_part(value.nodes)), 0 if value.edge_links is None else len(_any_part(value.edge_links)))
    elif isinstance(space, gymnasium.spaces.Sequence) and space.stack:
        counts = (len(_any_part(value)),)
    elif isinstance(space, gymnasium.spaces.Sequence) and isinstance(value, tuple):
        counts = (len(value),)
        for item in value:
            _widen(sizes, space.feature_space, item, (*path, "items"))
    elif isinstance(value, str) and not isinstance(space, gymnasium.spaces.Text):
        counts = (len(value),)
    if counts:
        sizes[key] = _larger(sizes.get(key), counts)


def _any_part(value: Any) -> Any:
    """Return an array of a batch of items, each of which is as long as all others."""
    while isinstance(value, Mapping | tuple) and len(value):
        value = next(iter(value.values() if isinstance(value, Mapping) else value))
    return value


def _larger(one: tuple[int, ...] | None, other: tuple[int, ...]) -> tuple[int, ...]:
    return other if one is None else tuple(map(max, one, other))


def _check_steps(episodes: Sequence[Episode]) -> Finding:
    wrong = next((episode.wrong for episode in episodes if episode.wrong), "")
    if wrong:
        return Finding("FAIL", wrong, "mend it in the environment, or by a wrapper that env.wrappers names")
    return Finding("ok", f"{_total(episodes):,} steps in {len(episodes)} episodes, all within the spaces")


def _check_rewards(episodes: Sequence[Episode]) -> Finding:
    rewards = [reward for episode in episodes for reward in episode.rewards]
    low, high = min(rewards), max(rewards)
    if low == high and len(episodes) > 1 and len({len(episode.rewards) for episode in episodes}) == 1:
        return Finding("warn", f"each is {low:g} whatever is done at random", "there may be little to learn from")
    return Finding("ok", f"from {low:g} to {high:g}, on average {sum(rewards) / len(rewards):.3g} a step")


def _check_ends(spec: EnvSpec, episodes: Sequence[Episode]) -> Finding:
    ends = [episode.ended for episode in episodes if episode.ended]
    if not ends and spec.limited(1) is not spec:
        text = f"no episode ended in {_total(episodes):,} steps, and there is no limit"
        return Finding("warn", text, "set env.max_episode_steps")
    lengths = [len(episode.rewards) for episode in episodes if episode.ended] or [_total(episodes)]
    counts = f"{ends.count('terminated')} terminated, {ends.count('truncated')} truncated"
    return Finding("ok", f"{counts}, {min(lengths):,} to {max(lengths):,} steps long")


def _check_speed(spec: EnvSpec, steps: int) -> Finding:
    env = spec.make()
    actions = [env.action_space.sample() for _ in range(steps)] if _mask(*env.reset(seed=0)) is None else []
    stepping, resets, reset_time, over = 0.0, 0, 0.0, True
    for action in actions:
        if over:
            started = time.perf_counter()
            env.reset(seed=resets)
            reset_time += time.perf_counter() - started
            resets += 1
        started = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        stepping += time.perf_counter() - started
        over = terminated or truncated
    env.close()
    if not actions:
        return Finding("ok", "not measured, as only some actions are legal")
    return Finding("ok", f"{_duration(stepping / steps)} a step, {_duration(reset_time / resets)} a reset")


def _misfit(env: gymnasium.Env[Any, Any], observation: Any) -> str:
    """Say what of an observation is not of its space; "" if nothing is."""
    return "" if observation in env.observation_space else _outside(env.observation_space, observation, "")


def _outside(space: gymnasium.Space[Any], value: Any, at: str) -> str:
    where = f" at {at}" if at else ""
    if isinstance(space, gymnasium.spaces.Dict) and isinstance(value, Mapping):
        if value.keys() != space.spaces.keys():
            return (
                f"the observation{where} has keys {sorted(map(str, value))}, and {sorted(map(str, space))} are declared"
            )
        return next(
            _outside(part, value[key], f"{at}[{key!r}]") for key, part in space.items() if value[key] not in part
        )
    if isinstance(space, gymnasium.spaces.Tuple) and isinstance(value, tuple) and len(value) == len(space):
        return next(_outside(part, value[k], f"{at}[{k}]") for k, part in enumerate(space) if value[k] not in part)
    if isinstance(space, gymnasium.spaces.Box) and isinstance(value, np.ndarray):
        if value.shape == space.shape and np.can_cast(value.dtype, space.dtype):
            beyond = value[(value < space.low) | (value > space.high) | np.isnan(value)]
            return f"the observation{where} holds {beyond.flat[0]}, which is out of its bounds"
        declared = f"{space.dtype} {space.shape}"
        return f"the observation{where} is {value.dtype} {value.shape}, and {declared} is declared"
    return f"the observation{where} is {_short(value)}, which is not of {_short(space)}"


def _mask(observation: Any, info: Any) -> Any:
    """The mask of legal actions where the environment gives one, in the form that a Discrete takes."""
    for holder in (info, observation):
        if isinstance(holder, Mapping) and "action_mask" in holder:
            return np.asarray(holder["action_mask"], np.int8)
    return None


def _digest(value: Any) -> bytes:
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


def _total(episodes: Sequence[Episode]) -> int:
    return sum(len(episode.rewards) for episode in episodes)


def _short(thing: Any) -> str:
    """Name a space or anything else in a few words."""
    if isinstance(thing, gymnasium.spaces.Box):
        return f"Box{thing.shape} {thing.dtype}"
    if isinstance(thing, gymnasium.spaces.Dict):
        return f"Dict({', '.join(f'{key}: {_short(part)}' for key, part in thing.items())})"
    text = " ".join(str(thing).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {_short(error)}"


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:,.0f} ms"
