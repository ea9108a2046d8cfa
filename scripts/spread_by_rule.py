"""Evaluate a rule in MPE's simple spread as a reference: each agent goes to its own landmark.

    python scripts/spread_by_rule.py [EPISODES]

The episodes are those of `python -m paddock.evaluate RUN seed=1 env=mpe_spread`. Landmarks are assigned once, with the
least total distance. Prints the mean return per agent, and per episode in the units of papers on OpenAI's original,
where each agent receives the sum of all rewards and counts itself as a collision.
"""

import argparse
import itertools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

import numpy as np  # noqa: E402

from paddock.algos.common.keys import Stream, episode_seed  # noqa: E402
from scripts.bench.harness import positive_int, require_package, run_script  # noqa: E402

STEPS, AGENTS = 25, 3
AHEAD = 0.3  # seconds of motion at the current speed until damping stops it
NEAR = 0.05  # distance to a landmark within which an agent does nothing
ACTIONS = {(0, -1): 1, (0, 1): 2, (1, -1): 3, (1, 1): 4}  # axis and sign


def main() -> None:
    """Print the returns of the rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("episodes", nargs="?", type=positive_int, default=300, metavar="EPISODES", help="(300)")
    episodes = parser.parse_args().episodes
    require_package("mpe2", "multiagent")
    from mpe2 import simple_spread_v3

    env = simple_spread_v3.parallel_env(N=AGENTS, local_ratio=0.5, max_cycles=STEPS, continuous_actions=False)
    ours, theirs = [], []
    for k in range(episodes):
        env.reset(seed=episode_seed(1, Stream.FRESH, 0, k))
        world, scenario = env.unwrapped.world, env.unwrapped.scenario
        landmarks = np.array([one.state.p_pos for one in world.landmarks])
        start = np.array([one.state.p_pos for one in world.agents])
        goals = [landmarks[list(order)] for order in itertools.permutations(range(AGENTS))]
        goal = min(goals, key=lambda each: float(np.linalg.norm(start - each, axis=1).sum()))
        paid, original = 0.0, 0.0
        while env.agents:
            states = [one.state for one in world.agents]
            left = [goal[k] - state.p_pos - AHEAD * state.p_vel for k, state in enumerate(states)]
            _, rewards, _, _, _ = env.step({agent: _towards(one) for agent, one in zip(env.agents, left, strict=True)})
            paid += sum(rewards.values()) / AGENTS
            met = sum(scenario.reward(agent, world) for agent in world.agents)  # -1 for each collision
            original += AGENTS * scenario.global_reward(world) + met - AGENTS
        ours.append(paid)
        theirs.append(original)
    print(f"an agent {np.mean(ours):.2f}, an episode of the original {np.mean(theirs):.1f}; {episodes} episodes")
    assert np.allclose(theirs, 2 * AGENTS * np.array(ours) - AGENTS * STEPS)


def _towards(left: np.ndarray) -> int:
    """Return the action that moves along the longer axis."""
    axis = int(abs(left[1]) > abs(left[0]))
    return 0 if abs(left[axis]) < NEAR else ACTIONS[axis, int(np.sign(left[axis]))]


if __name__ == "__main__":
    sys.exit(run_script(main))
