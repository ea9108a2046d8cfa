"""Sanity suite: small tasks with known optima, each of which tests one ability of an algorithm.

Importing this package registers them; use `env.id=paddock.envs.sanity:paddock/Bandit-v0`. The idea and several tasks
come from PufferLib 3.0 (pufferlib/ocean/sanity.py).
"""

from paddock.envs.registration import import_modules

import_modules(__name__, __path__)
