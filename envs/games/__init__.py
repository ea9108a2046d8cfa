"""Games in Python, the reference for their bit-identical versions in C.

Importing this package registers them; use `env.id=paddock.envs.games:paddock/Pong-v0`.
"""

from paddock.envs.registration import import_modules

import_modules(__name__, __path__)
