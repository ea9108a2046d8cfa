"""Games of our own, in plain Python: what serial vectors play, and what the C code is held to, to the bit.

Importing this registers them; the name to give is `env.id=paddock.envs.games:paddock/Game2048-v0`.
"""

from paddock.envs.registration import import_modules

import_modules(__name__, __path__)
