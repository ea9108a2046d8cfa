"""The import name of the folder platform/: `paddock.launch` is platform/launch.py, in every process.

The folder cannot be imported by its own name, which is a standard-library module's. A wheel keeps platform/ and
conf/ in _paddock/, where they can shadow nothing.
"""

import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_HOME = _HERE / "_paddock" if (_HERE / "_paddock").is_dir() else _HERE

__path__ = [str(_HOME / "platform")]
CONF = _HOME / "conf"  # absolute

COMMANDS = ("doctor", "evaluate", "plot", "report", "rerun", "status", "upload")  # python -m paddock.NAME

# Python looks for the module that it is to run: the last moment to answer a mistyped command.
if sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv:
    _package, _, _name = sys.orig_argv[sys.orig_argv.index("-m") + 1].partition(".")
    if _name not in {"paddock": ("", "__main__", *COMMANDS), "platform": ("", "__main__")}.get(_package, (_name,)):
        from paddock.config.vocabulary import refuse_command

        refuse_command(f"{_package}.{_name}")


def script() -> int:
    """Run the console script, which finds modules of the working directory as `python -m paddock` does."""
    # Here, since every worker process imports the script anew, and needs nothing of this.
    from paddock.launch import main

    # Last, so that no file there hides what the command itself imports.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return main()


if __name__ == "__main__":
    from paddock.launch import main

    sys.exit(main())
