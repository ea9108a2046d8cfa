"""Small tasks of known values, each of which one faculty of an algorithm solves: the sanity suite.

Importing this registers them; the name to give is `env.id=paddock.envs.sanity:paddock/Bandit-v0`. Those whose names
begin with Puffer have the rules of PufferLib 3.0's tasks of these names (pufferlib/ocean/sanity.py), to the constants
that its seeds give.
"""

from paddock.envs.registration import import_modules

import_modules(__name__, __path__)
