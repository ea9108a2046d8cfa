"""Reproducibility checks of an environment: play it with random actions, and compare episodes of equal seeds."""

import math
import random
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec

from .episodes import LIVES, Episode, format_duration, play, shorten
from .installed import Finding

GENERATORS = "paddock.envs.seeding."
EPISODES = 4  # compared at most
OTHER_SEED = 2**20  # of the interleaved environment
ENOUGH = 10  # steps with unchanged observations that are taken for a fault


def check_env(spec: EnvSpec, steps: int) -> Iterator[tuple[str, Finding]]:
    """Play an environment for at least so many steps, and yield (name of the check, finding)."""
    started = time.perf_counter()
    env = spec.make()
    yield "created", Finding("ok", f"{spec.id} in {format_duration(time.perf_counter() - started)}")
    yield "spaces", _check_spaces(spec)
    started = time.perf_counter()
    first = _play_episodes(env, steps)
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
        Finding("ok", f"{format_duration(seconds / max(_total(first), 1))} per step, including resets and checks"),
    )


def _play_to_end(env: Any, seed: int, most: int) -> Episode:
    return _interleave(play(env, seed, most), None)


def _interleave(episode: Generator[None, None, Episode], other: Generator[None, None, Episode] | None) -> Episode:
    """Play an episode to its end, alternating steps with another one."""
    while True:
        try:
            next(episode)
        except StopIteration as end:
            played: Episode = end.value
            return played
        if other is not None:
            next(other, None)


def _play_episodes(env: Any, steps: int) -> list[Episode]:
    """Play consecutive episodes on seeds 0, 1, ..., for so many steps in total."""
    episodes: list[Episode] = []
    while (left := steps - _total(episodes)) > 0:
        episodes.append(_play_to_end(env, len(episodes), left))
        if episodes[-1].wrong or not episodes[-1].rewards:
            break
    return episodes


def _check_seeds(spec: EnvSpec, lengths: list[int]) -> Iterator[tuple[str, Finding]]:
    """Compare episodes of equal seeds in new environments, after other episodes, and next to another environment."""
    target = GENERATORS + ("MultiAgentOwnGenerators" if spec.seats > 1 else "OwnGenerators")
    own = replace(spec, wrappers=(*spec.wrappers, {"_target_": target}))
    wrap = f"add the wrapper: 'env.wrappers=[{{_target_: {target}}}]'"
    before = _global_state()
    alone = _in_new(spec, lengths)
    touched = _global_state() != before
    random.random()  # advances the global generators
    np.random.random()
    if seeded := _differ(alone, _in_new(spec, lengths)):
        fixed = not _differ(_in_new(own, lengths), _in_new(own, lengths))
        cause = "it uses a global generator" if fixed else "its randomness is not controlled by reset's seed"
        remedy = wrap if fixed else "find out how it is seeded, and do that in a wrapper"
        yield "seed", Finding("FAIL", f"same seed in a new environment: {seeded}; {cause}", remedy)
        if not fixed:
            return
        spec, alone, touched = own, _in_new(own, lengths), False
    else:
        yield "seed", Finding("ok", f"{len(lengths)} episodes are identical in new environments")

    history = _differ(alone, _after_others(spec, lengths))
    if history and not spec.fresh:
        yield "history", Finding("FAIL", f"same seed after other episodes: {history}", "set env.fresh=true")
    elif spec.fresh:
        need = "reset keeps some state" if history else "no state leaks between episodes"
        yield "history", Finding("ok", f"{need}; env.fresh=true creates a new environment for each episode")
    else:
        yield "history", Finding("ok", "no state leaks between episodes")

    if difference := _differ(alone[:1], [_next_to_another(spec, lengths[0])]):
        fixed = not _differ(_in_new(own, lengths[:1]), [_next_to_another(own, lengths[0])])
        one_per_process = "use one environment per process: vec=multiprocess vec.num_workers=vec.num_envs"
        remedy = wrap if fixed else one_per_process
        yield "others", Finding("FAIL", f"next to another environment in the process: {difference}", remedy)
    elif touched:
        text = "it changes the state of a global generator, which affects other code in the process"
        yield "others", Finding("warn", text, wrap)
    else:
        yield "others", Finding("ok", "interleaved episodes are identical, and global generators are untouched")


def _in_new(spec: EnvSpec, lengths: Sequence[int]) -> list[Episode]:
    """Play episodes of these lengths on seeds 0, 1, ..., each in a new environment."""
    episodes = []
    for seed, most in enumerate(lengths):
        env = spec.make()
        episodes.append(_play_to_end(env, seed, most))
        env.close()
    return episodes


def _after_others(spec: EnvSpec, lengths: Sequence[int]) -> list[Episode]:
    """Play the same episodes in one environment, in reverse order, each twice in a row."""
    env = spec.make()
    episodes = []
    for seed, most in reversed(list(enumerate(lengths))):
        _play_to_end(env, seed, most)
        episodes.append(_play_to_end(env, seed, most))
    env.close()
    return episodes[::-1]


def _next_to_another(spec: EnvSpec, most: int) -> Episode:
    """Play the episode on seed 0, interleaved with one on another seed in another environment."""
    env, other = spec.make(), spec.make()
    episode = _interleave(play(env, 0, most), play(other, OTHER_SEED, most))
    env.close()
    other.close()
    return episode


def _differ(one: Sequence[Episode], other: Sequence[Episode]) -> str:
    for seed, (a, b) in enumerate(zip(one, other, strict=True)):
        if a == b:
            continue
        for step, (x, y) in enumerate(zip(a.digests, b.digests, strict=False)):
            if x != y:
                return f"the episode on seed {seed} differs from {f'step {step}' if step else 'its reset'} on"
        return f"the episode on seed {seed} has another length ({len(a.rewards)} and {len(b.rewards)} steps)"
    return ""


def _global_state() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state(legacy=True)
    return random.getstate(), name, keys.tobytes(), *rest  # type: ignore[union-attr]


def _check_spaces(spec: EnvSpec) -> Finding:
    try:
        roles = spec.roles
    except ConfigError as error:
        return Finding("warn", str(error))
    descriptions = []
    for role in roles:
        size = f"{role.observations.itemsize:,} bytes per row, {len(role.observations.is_real):,} inputs of a dense network"
        spaces = f"observation {shorten(role.observation_space)} ({size}), action {shorten(role.action_space)}"
        descriptions.append(f"{len(role.seats)} {role.name}: {spaces}" if spec.seats > 1 else spaces)
    return Finding("ok", "; ".join(descriptions))


def _check_steps(episodes: Sequence[Episode]) -> Finding:
    wrong = next((episode.wrong for episode in episodes if episode.wrong), "")
    if wrong:
        return Finding("FAIL", wrong, "fix the environment, or add a wrapper to env.wrappers")
    return Finding("ok", f"{_total(episodes):,} steps in {len(episodes)} episodes, all within the spaces")


def _check_lives(episodes: Sequence[Episode]) -> Finding:
    """Summarize agents' lives, and check that their ends and rewards are reported."""
    count = {name: int(sum(episode.lives[name] for episode in episodes)) for name in LIVES}
    order = "in turns" if count["waited"] else "simultaneously"
    text = (
        f"agents act {order}; in {count['episodes']} episodes, {count['died']} died early and {count['born']} were born"
    )
    if count["left"]:
        what = f"{count['left']} disappeared without terminated or truncated, and count as truncated"
        return Finding("warn", f"{text}; {what}", "return terminated or truncated in the step that ends an agent")
    if count["strayed"]:
        what = f"{count['strayed']} rewards were for agents that are not alive, and are dropped"
        return Finding("warn", f"{text}; {what}", "reward agents no later than in the step that ends them")
    if count["shown"] >= ENOUGH and not count["changed"]:
        what = f"observations never changed in {count['shown']} steps"
        return Finding("warn", f"{text}; {what}", "image observations may need env.kwargs.render_mode=rgb_array")
    return Finding("ok", text)


def _check_rewards(episodes: Sequence[Episode]) -> Finding:
    low, high = min(one.lives["lowest"] for one in episodes), max(one.lives["highest"] for one in episodes)
    if low == high and len(episodes) > 1 and len({len(episode.rewards) for episode in episodes}) == 1:
        return Finding("warn", f"every reward is {low:g} with random actions", "learning may lack a signal")
    mean = sum(sum(episode.rewards) for episode in episodes) / _total(episodes)
    if not math.isfinite(mean):
        return Finding("FAIL", "a reward is NaN or infinite", "return finite rewards")
    return Finding("ok", f"from {low:g} to {high:g}, mean {mean:.3g} per step")


def _check_ends(spec: EnvSpec, episodes: Sequence[Episode]) -> Finding:
    ends = [episode.ended for episode in episodes if episode.ended]
    if not ends and spec.limited(1) is not spec:
        text = f"no episode ended in {_total(episodes):,} steps, and there is no step limit"
        return Finding("warn", text, "set env.max_episode_steps")
    lengths = [len(episode.rewards) for episode in episodes if episode.ended] or [_total(episodes)]
    counts = f"{ends.count('terminated')} terminated, {ends.count('truncated')} truncated"
    return Finding("ok", f"{counts}, {min(lengths):,} to {max(lengths):,} steps")


def _total(episodes: Sequence[Episode]) -> int:
    return sum(len(episode.rewards) for episode in episodes)
