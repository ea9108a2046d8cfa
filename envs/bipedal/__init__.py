"""Faster, bit-identical versions of Gymnasium's BipedalWalker and Hardcore, and POET's terrains.

Importing this package registers `paddock/BipedalWalker-v3`, `paddock/BipedalWalkerHardcore-v3` and
`paddock/Terrain-v0`; use `env.id=paddock.envs.bipedal:paddock/BipedalWalker-v3`.
"""

import gymnasium

for _id, _hardcore, _steps in (("BipedalWalker", False, 1600), ("BipedalWalkerHardcore", True, 2000)):
    gymnasium.register(
        id=f"paddock/{_id}-v3",
        entry_point="paddock.envs.bipedal.walker:Walker",
        kwargs={"hardcore": _hardcore},
        max_episode_steps=_steps,
        reward_threshold=300,
    )

gymnasium.register(
    id="paddock/Terrain-v0",
    entry_point="paddock.envs.bipedal.terrain:Terrain",
    max_episode_steps=2000,
    reward_threshold=230,
)
