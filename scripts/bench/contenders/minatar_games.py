"""Who plays in the games' rows of scripts/bench/native_fidelity.py: one policy in a game of ours, and in MinAtar's.

`PYTHON scripts/bench/contenders/minatar_games.py GAME POLICY FIRST LAST` plays MinAtar's by an interpreter that has it,
and prints returns and lengths as JSON. It imports nothing of ours, and of MinAtar it takes what its README names. Its
code is GPL-3.0: it is played here, and read by nobody who writes rules in envs/games.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 2_500  # steps after which an episode is left, as policies exist that never lose
LETTERS = "nlurdf"  # MinAtar's actions: nothing, left, up, right, down, fire

Planes = Mapping[str, NDArray[np.bool_]]  # [10, 10] each
Policy = Callable[[Planes, int, np.random.Generator], str]  # what is seen, the step, draws -> a letter
Played = dict[str, list[float]]


@dataclass(frozen=True)
class Pair:
    """A game of ours, and the one of MinAtar's that it is after.

    Attributes:
        letters: our actions in order, as MinAtar calls them.
        planes: ours -> MinAtar's name for the same, of those that policies look at.
    """

    ours: str
    theirs: str
    letters: str
    planes: Mapping[str, str]
    scripted: Policy


def follow(seen: Planes, step: int, draw: np.random.Generator) -> str:
    """Bring the paddle to the column that the ball is about to enter."""
    ball, trail = (np.argwhere(seen[name])[0][1] for name in ("ball", "trail"))
    paddle = np.flatnonzero(seen["paddle"].any(0))
    ahead = int(ball) + int(ball) - int(trail)
    ahead = 1 if ahead < 0 else 8 if ahead > 9 else ahead
    return "l" if ahead < paddle[0] else "r" if ahead > paddle[-1] else "n"


def always(letter: str) -> Policy:
    """Do one thing in every step."""
    return lambda seen, step, draw: letter


def dive_and_fire(seen: Planes, step: int, draw: np.random.Generator) -> str:
    """Go down for four steps, and fire from then on."""
    return "d" if step < 4 else "f"


PAIRS = {
    pair.ours: pair
    for pair in (
        Pair("Bricks", "breakout", "nlr", {name: name for name in ("ball", "trail", "paddle")}, follow),
        Pair("Road", "freeway", "nud", {}, always("u")),
        Pair("Harvest", "asterix", "nurdl", {}, always("n")),
        Pair("Fleet", "space_invaders", "nlrf", {}, always("f")),
        Pair("Depths", "seaquest", "nurdlf", {}, dive_and_fire),
    )
}
POLICIES = ("random", "scripted")


def policy_of(pair: Pair, name: str) -> Policy:
    """Return a policy: any action that does something, all as likely; or the pair's own."""
    if name == "scripted":
        return pair.scripted
    letters = sorted(pair.letters, key=LETTERS.index)
    return lambda seen, step, draw: letters[int(draw.integers(len(letters)))]


def play_ours(game: str, policy: str, first: int, last: int) -> Played:
    """Play episodes on the seeds first..last-1 of our game."""
    import gymnasium

    import paddock.envs.games  # noqa: F401, which registers them

    pair = PAIRS[game]
    env: Any = gymnasium.make(f"paddock/{game}-v0", disable_env_checker=True)
    kinds = list(env.unwrapped.kinds)

    def see(obs: Any) -> Planes:
        return {name: obs[..., kinds.index(name)] != 0 for name in pair.planes}

    def begin(seed: int) -> Planes:
        return see(env.reset(seed=seed)[0])

    def step(letter: str) -> tuple[Planes, float, bool]:
        obs, reward, terminated, truncated, _ = env.step(pair.letters.index(letter))
        return see(obs), float(reward), terminated or truncated

    return _play(begin, step, policy_of(pair, policy), first, last)


def play_theirs(game: str, policy: str, first: int, last: int) -> Played:
    """Play episodes on the seeds first..last-1 of MinAtar's game, whose actions never stick, as ours never do."""
    from minatar import Environment  # of an interpreter of its own

    pair = PAIRS[game]
    env = Environment(pair.theirs, sticky_action_prob=0.0)
    channels = env.env.channels

    def see() -> Planes:
        state = env.state()
        return {name: np.asarray(state[..., channels[theirs]], np.bool_) for name, theirs in pair.planes.items()}

    def begin(seed: int) -> Planes:
        env.seed(seed)
        env.reset()
        return see()

    def step(letter: str) -> tuple[Planes, float, bool]:
        reward, over = env.act(LETTERS.index(letter))
        return see(), float(reward), bool(over)

    return _play(begin, step, policy_of(pair, policy), first, last)


def _play(
    begin: Callable[[int], Planes],
    step: Callable[[str], tuple[Planes, float, bool]],
    policy: Policy,
    first: int,
    last: int,
) -> Played:
    """Return what the episodes of some seeds come to, each left after LONGEST steps."""
    played: Played = {"returns": [], "lengths": []}
    for seed in range(first, last):
        draw, seen, total, length, over = np.random.default_rng(seed), begin(seed), 0.0, 0, False
        while not over and length < LONGEST:
            seen, reward, over = step(policy(seen, length, draw))
            total, length = total + reward, length + 1
        played["returns"].append(total)
        played["lengths"].append(length)
    return played


if __name__ == "__main__":
    print(json.dumps(play_theirs(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
