"""Compiled environments: Gymnasium's tasks in C, many in each vector register, for `vec=native`.

Importing this registers them as single environments too, `env.id=paddock.envs.native:paddock/NativeBipedalWalker-v3` and so on.
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
