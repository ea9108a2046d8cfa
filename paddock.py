"""The import name of the folder platform/: `paddock.launch` is platform/launch.py, in every process.

The folder cannot be imported by its own name, which is a standard-library module's. A wheel keeps platform/ and
conf/ in _paddock/, where they can shadow nothing.
"""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_HOME = _HERE / "_paddock" if (_HERE / "_paddock").is_dir() else _HERE

__path__ = [str(_HOME / "platform")]
CONF = _HOME / "conf"  # absolute

if __name__ == "__main__":
    from paddock.launch import main

    sys.exit(main())
