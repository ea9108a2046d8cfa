"""The standard library's `platform`, standing in for itself where this folder shadows it.

In the root of the repository `python -m …` and `python -c …` look here first. So the standard library's own code runs
in this namespace: every name of it works, private ones, mock patching and pickling too. The code that lives in this
folder is imported as `paddock` (paddock.py).
"""

import os
import sys
from importlib.machinery import PathFinder

if sys.argv[:1] == ["-m"]:  # perhaps one of our commands by the wrong name, which paddock.py answers
    import paddock

    del paddock

_doc = __doc__
exec(PathFinder.find_spec(__name__, [os.path.dirname(os.__file__)]).loader.get_code(__name__))
__doc__ = _doc
del PathFinder, _doc
