"""Check of an environment for repeatable results: it is played, and compared with itself."""

import random
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec

from .episodes import LIVES, Episode, play, shorten, tell_duration
from .installed import Finding

GENERATORS = "paddock.envs.seeding."
EPISODES = 4  # at most, that are compared
OTHER_SEED = 2**20  # of the environment beside
ENOUGH = 10  # times that agents were shown what they had seen before, after which it is no chance


def check_env(spec: EnvSpec, steps: int) -> Iterator[tuple[str, Finding]]:
    """Play an environment for so many steps and more; yields what was looked at, and what was found.

    Raises:
        ConfigError: it cannot be made.
    """
    started = time.perf_counter()
    env = spec.make()
    yield "made", Finding("ok", f"{spec.id} in {tell_duration(time.perf_counter() - started)}")
    yield "spaces", _check_spaces(spec)
    started = time.perf_counter()
    first = _play_on(env, steps)
    seconds = time.perf_counter() - started
    env.close()
    yield "steps", _check_steps(first)
    if first[-1].ended == "raised":
        return
    if spec.seats > 1:
        yield "lives", _check_lives(first)
    yield "rewards", _check_rewards(first)
    yield "ends", _check_ends(spec, first)
    yield from _check_seeds(spec, [len(episode.rewards) for episode in first[:EPISODES]])
    yield (
        "speed",
        Finding("ok", f"{tell_duration(seconds / max(_total(first), 1))} a step, with resets and these checks"),
    )


def _last(env: Any, seed: int, most: int) -> Episode:
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


def _play_on(env: Any, steps: int) -> list[Episode]:
    """Play one episode after another, on seeds 0, 1, ..., for so many steps in all."""
    episodes: list[Episode] = []
    while (left := steps - _total(episodes)) > 0:
        episodes.append(_last(env, len(episodes), left))
        if episodes[-1].wrong or not episodes[-1].rewards:
            break
    return episodes


def _check_seeds(spec: EnvSpec, lengths: list[int]) -> Iterator[tuple[str, Finding]]:
    """Compare episodes on the same seeds: in new environments, after other episodes, beside another environment."""
    target = GENERATORS + ("MultiAgentOwnGenerators" if spec.seats > 1 else "OwnGenerators")
    own = replace(spec, wrappers=(*spec.wrappers, {"_target_": target}))
    wrap = f"add the wrapper: 'env.wrappers=[{{_target_: {target}}}]'"
    before = _global_state()
    alone = _in_new(spec, lengths)
    touched = _global_state() != before
    random.random()  # whoever looks at the global generators finds other numbers than before
    np.random.random()
    if seeded := _differ(alone, _in_new(spec, lengths)):
        mended = not _differ(_in_new(own, lengths), _in_new(own, lengths))
        cause = "it draws from a global generator" if mended else "what it draws does not come from reset's seed"
        remedy = wrap if mended else "see in its documentation how it is seeded, and do that in a wrapper"
        yield "seed", Finding("FAIL", f"the same seed in a new environment: {seeded}; {cause}", remedy)
        if not mended:
            return
        spec, alone, touched = own, _in_new(own, lengths), False
    else:
        yield "seed", Finding("ok", f"{len(lengths)} episodes are the same in new environments")

    history = _differ(alone, _after_others(spec, lengths))
    if history and not spec.fresh:
        yield "history", Finding("FAIL", f"the same seed after other episodes: {history}", "set env.fresh=true")
    elif spec.fresh:
        need = "reset does not forget all" if history else "episodes after others are the same here"
        yield "history", Finding("ok", f"{need}; env.fresh=true makes it anew for each episode")
    else:
        yield "history", Finding("ok", "episodes after others, and twice in a row, are the same")

    if beside := _differ(alone[:1], [_beside_another(spec, lengths[0])]):
        mended = not _differ(_in_new(own, lengths[:1]), [_beside_another(own, lengths[0])])
        alone_in_process = "keep to one environment in a process: vec=multiprocess vec.num_workers=vec.num_envs"
        remedy = wrap if mended else alone_in_process
        yield "others", Finding("FAIL", f"beside another environment in the process: {beside}", remedy)
    elif touched:
        text = "it draws from a global generator, or seeds one, which disturbs other programs' numbers"
        yield "others", Finding("warn", text, wrap)
    else:
        yield "others", Finding("ok", "an episode beside another is the same, and global generators are untouched")


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
    try:
        roles = spec.roles
    except ConfigError as error:
        return Finding("warn", str(error))
    parts = []
    for role in roles:
        size = f"{role.observations.itemsize:,} bytes a row, {len(role.observations.is_real):,} numbers for a dense network"
        spaces = f"observation {shorten(role.observation_space)} ({size}), action {shorten(role.action_space)}"
        parts.append(f"{len(role.seats)} {role.name}: {spaces}" if spec.seats > 1 else spaces)
    return Finding("ok", "; ".join(parts))


def _check_steps(episodes: Sequence[Episode]) -> Finding:
    wrong = next((episode.wrong for episode in episodes if episode.wrong), "")
    if wrong:
        return Finding("FAIL", wrong, "mend it in the environment, or by a wrapper that env.wrappers names")
    return Finding("ok", f"{_total(episodes):,} steps in {len(episodes)} episodes, all within the spaces")


def _check_lives(episodes: Sequence[Episode]) -> Finding:
    """Say how agents lived, and what of it was not told as it should be."""
    count = {name: int(sum(episode.lives[name] for episode in episodes)) for name in LIVES}
    how = "by turns" if count["waited"] else "all at once"
    text = f"{how}; in {count['episodes']} episodes {count['died']} died before the end, and {count['born']} were born"
    if count["left"]:
        what = f"{count['left']} were left without a word of their end, and count as truncated"
        return Finding("warn", f"{text}; {what}", "tell terminated or truncated of each agent in the step that ends it")
    if count["strayed"]:
        what = f"{count['strayed']} rewards were for agents that did not live, and are not given"
        return Finding("warn", f"{text}; {what}", "pay agents in the step that ends them, at the latest")
    if count["shown"] >= ENOUGH and not count["changed"]:
        what = f"what they saw did not change once in {count['shown']} steps"
        return Finding("warn", f"{text}; {what}", "images may need env.kwargs.render_mode=rgb_array to be drawn at all")
    return Finding("ok", text)


def _check_rewards(episodes: Sequence[Episode]) -> Finding:
    low, high = min(one.lives["lowest"] for one in episodes), max(one.lives["highest"] for one in episodes)
    if low == high and len(episodes) > 1 and len({len(episode.rewards) for episode in episodes}) == 1:
        return Finding("warn", f"each is {low:g} whatever is done at random", "there may be little to learn from")
    mean = sum(sum(episode.rewards) for episode in episodes) / _total(episodes)
    return Finding("ok", f"from {low:g} to {high:g}, {mean:.3g} a step on average")


def _check_ends(spec: EnvSpec, episodes: Sequence[Episode]) -> Finding:
    ends = [episode.ended for episode in episodes if episode.ended]
    if not ends and spec.limited(1) is not spec:
        text = f"no episode ended in {_total(episodes):,} steps, and there is no limit"
        return Finding("warn", text, "set env.max_episode_steps")
    lengths = [len(episode.rewards) for episode in episodes if episode.ended] or [_total(episodes)]
    counts = f"{ends.count('terminated')} terminated, {ends.count('truncated')} truncated"
    return Finding("ok", f"{counts}, {min(lengths):,} to {max(lengths):,} steps long")


def _total(episodes: Sequence[Episode]) -> int:
    return sum(len(episode.rewards) for episode in episodes)
