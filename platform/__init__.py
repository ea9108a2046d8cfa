"""Proxy of the standard library's `platform`, which this folder shadows.

In the root of the repository `python -m …` and `python -c …` import this package first, so it runs the standard
library's code in its own namespace. The code in this folder is imported as `paddock` (paddock.py).
"""

import os
import sys
from importlib.machinery import PathFinder

if sys.argv[:1] == ["-m"]:  # paddock.py answers misspelled commands
    import paddock

    del paddock

_doc = __doc__
exec(PathFinder.find_spec(__name__, [os.path.dirname(os.__file__)]).loader.get_code(__name__))
__doc__ = _doc
del PathFinder, _doc
