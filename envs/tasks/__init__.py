"""Small environments of our own, in Python; importing this registers their native versions."""

from paddock.envs.registration import import_modules

import_modules(__name__, __path__)
