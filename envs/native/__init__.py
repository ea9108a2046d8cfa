"""Compiled environments: Gymnasium's tasks in C, many in each vector register, for `vec=native`.

Importing this registers them as single environments too, `env.id=envs.native:paddock/NativeBipedalWalker-v3` and so on.
"""

import gymnasium

# By the id of the single environment: the id whose task it is, steps of an episode, and the return that solves it.
NATIVE = {
    "paddock/NativeCartPole-v1": ("CartPole-v1", 500, 475),
    "paddock/NativePendulum-v1": ("Pendulum-v1", 200, None),
    "paddock/NativeAcrobot-v1": ("Acrobot-v1", 500, -100),
    "paddock/NativeMountainCar-v0": ("MountainCar-v0", 200, -110),
    "paddock/NativeMountainCarContinuous-v0": ("MountainCarContinuous-v0", 999, 90),
    "paddock/NativeBipedalWalker-v3": ("BipedalWalker-v3", 1600, 300),
    "paddock/NativeBipedalWalkerHardcore-v3": ("BipedalWalkerHardcore-v3", 2000, 300),
    "paddock/NativeTerrain-v0": ("envs.bipedal:paddock/Terrain-v0", 2000, 230),
}

for _id, (_source, _steps, _solved) in NATIVE.items():
    gymnasium.register(
        id=_id,
        entry_point="envs.native.single:NativeEnv",
        kwargs={"source": _source},
        max_episode_steps=_steps,
        reward_threshold=_solved,
    )
