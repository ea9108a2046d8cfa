"""Small tasks of known values, each of which one faculty of an algorithm solves: the sanity suite.

Importing this registers them; the name to give is `env.id=paddock.envs.sanity:paddock/Bandit-v0`. The idea and several
tasks come from PufferLib 3.0 (pufferlib/ocean/sanity.py).
"""

from paddock.envs.registration import import_modules

import_modules(__name__, __path__)
