"""MinAtar (Young and Tian 2019, arXiv:1903.03176): its own ids, as `envs.bindings.minatar:MinAtar/Breakout-v1`.

Gymnasium looks for them no more by itself. Their `reset` leaks the last action, which sticky actions repeat, so they
are made anew for every episode (`fresh: true`).
"""

import gymnasium
from minatar.gym import register_envs

if not any(id.startswith("MinAtar/") for id in gymnasium.registry):
    register_envs()
