"""Environments compiled from C for `vec=native`; each SIMD register steps several of them.

Importing this module also registers them as single environments, such as `paddock/NativeBipedalWalker-v3`.
"""

import gymnasium

from paddock.envs.native.originals import NATIVE

for _id, _source in NATIVE.items():
    _spec = gymnasium.spec(_source.rpartition(":")[2])
    gymnasium.register(
        id=_id,
        entry_point="paddock.envs.native.single:NativeEnv",
        kwargs={"source": _source},
        max_episode_steps=_spec.max_episode_steps,
        reward_threshold=_spec.reward_threshold,
    )
