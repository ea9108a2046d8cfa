"""What is wrong with an environment of several agents: its seats, lives and turns, besides what all are checked for."""

import copy
import math
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from paddock.envs.spaces.legal import sample_legal
from paddock.envs.spec import EnvSpec
from paddock.envs.worlds.world import World, takes_turns

from .episodes import (
    CHOICES_SEED,
    Episode,
    digest_of,
    find_mask,
    find_misfit,
    is_number,
    shorten,
    tell_error,
)
from .installed import Finding

LIVES = ("episodes", "born", "died", "left", "strayed", "waited", "shown", "changed")  # what is counted
ENOUGH = 10  # times that agents were shown what they had seen before, after which it is no chance


def play_world(world: World, seed: int, most: int) -> Generator[None, None, Episode]:
    """Play an episode of a world for at most so many steps; pauses after each, so that two can be played in turns."""
    agents = list(world.possible_agents)
    choices = {agent: copy.deepcopy(world.action_space(agent)) for agent in agents}
    for k, space in enumerate(choices.values()):
        space.seed(CHOICES_SEED + len(agents) * seed + k)
    digests, rewards, wrong, ended = list[bytes](), list[float](), "", ""
    lives: dict[str, float] = dict.fromkeys(LIVES, 0) | {"episodes": 1, "lowest": math.inf, "highest": -math.inf}
    try:
        seen, infos = world.reset(seed=seed)
    except Exception as error:
        return Episode((), (), "raised", f"reset(seed={seed}) raised {tell_error(error)}")
    living = list(world.agents)
    shown = digest_of(_by_seat(seen, agents))
    digests.append(shown)
    wrong = _find_wrong(world, seen, set(), f"reset on seed {seed}")
    while len(rewards) < most and not ended and not wrong:
        here = f"step {len(rewards) + 1} on seed {seed}"
        acting = list(world.acting) if takes_turns(world) else living
        actions = {
            agent: sample_legal(choices[agent], find_mask(seen[agent], infos.get(agent, {}))) for agent in acting
        }
        try:
            seen, paid, terminated, truncated, infos = world.step(actions)
        except Exception as error:
            ended, wrong = "raised", f"{here} raised {tell_error(error)}"
            break
        if strange := next((agent for agent, reward in paid.items() if not is_number(reward)), None):
            ended, wrong = "raised", f"{here}, {strange}: the reward is {shorten(paid[strange])}, which is no number"
            break
        told = [_by_seat(one, agents) for one in (seen, paid, terminated, truncated)]
        digests.append(digest_of((*told, [agent for agent in agents if agent in world.agents])))
        flagged = {agent for flags in (terminated, truncated) for agent, flag in flags.items() if flag}
        wrong = _find_wrong(world, seen, flagged, here) or _find_unpaid(paid, here)
        before, living = set(living), list(world.agents)
        lives["born"] += len(set(living) - before)
        lives["died"] += len(before - set(living)) if living else 0
        lives["left"] += len(before - set(living) - flagged)
        lives["strayed"] += sum(agent not in before and bool(reward) for agent, reward in paid.items())
        lives["waited"] += len(before) - len(acting)
        lives["lowest"] = min([lives["lowest"], *map(float, paid.values())])
        lives["highest"] = max([lives["highest"], *map(float, paid.values())])
        rewards.append(float(sum(paid.values())))
        before_it, shown = shown, digest_of(told[0])
        lives["shown"] += bool(living)
        lives["changed"] += bool(living) and shown != before_it
        if not living:
            ended = "terminated" if any(terminated.values()) else "truncated"
        yield
    return Episode(tuple(digests), tuple(rewards), ended, wrong, lives=lives)


def check_roles(spec: EnvSpec) -> Finding:
    """Say who sits there, what they see and what they do."""
    parts = []
    for role in spec.roles:
        size = f"{role.observations.itemsize:,} bytes a row"
        spaces = f"observation {shorten(role.observation_space)} ({size}), action {shorten(role.action_space)}"
        parts.append(f"{len(role.seats)} {role.name}: {spaces}")
    text = f"{spec.seats} seats in {len(parts)} {'role' if len(parts) == 1 else 'roles'}: {'; '.join(parts)}"
    return Finding("ok", text)


def check_paid(lives: Sequence[Mapping[str, float]]) -> Finding:
    """Say what agents were paid in a step."""
    low, high = min(one["lowest"] for one in lives), max(one["highest"] for one in lives)
    if low == high:
        return Finding("warn", f"each is {low:g} whatever is done at random", "there may be little to learn from")
    return Finding("ok", f"from {low:g} to {high:g} for an agent and step")


def check_lives(lives: Sequence[Mapping[str, float]]) -> Finding:
    """Say how agents lived, and what of it was not told as it should be."""
    count = {name: int(sum(one[name] for one in lives)) for name in LIVES}
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


def _by_seat(told: Mapping[str, Any], agents: Sequence[str]) -> dict[str, Any]:
    return {agent: told[agent] for agent in agents if agent in told}


def _find_wrong(world: World, seen: Mapping[str, Any], flagged: set[str], here: str) -> str:
    """Say what of a step is not as a world has to be; "" if nothing is."""
    known, listed = set(world.possible_agents), list(world.agents)
    if strange := sorted(str(agent) for agent in listed if agent not in known):
        return f"{here}: agents has {', '.join(strange)}, whom possible_agents do not name"
    if len(set(listed)) != len(listed):
        return f"{here}: agents names somebody twice: {listed}"
    if again := sorted(str(agent) for agent in listed if agent in flagged):
        return f"{here}: agents still has {', '.join(again)}, whose end was told; it would be born again"
    for agent in listed:
        if agent not in seen:
            return f"{here}: {agent} lives, and was given no observation"
    for agent in (agent for agent in seen if agent in known):
        if wrong := find_misfit(world.observation_space(agent), seen[agent]):
            return f"{here}, {agent}: {wrong}"
    return ""


def _find_unpaid(paid: Mapping[str, Any], here: str) -> str:
    endless = next((agent for agent, reward in paid.items() if not math.isfinite(reward)), None)
    return "" if endless is None else f"{here}, {endless}: the reward is {paid[endless]}"
