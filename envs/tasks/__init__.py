"""Small environments in Python; importing this package registers their native versions."""

from paddock.envs.registration import import_modules

import_modules(__name__, __path__)
