"""Package `paddock`: public names and the path to its folders.

`paddock.launch` is platform/launch.py, `paddock.algos` is algos/ and `paddock.envs` is envs/. Names in `__all__` are
imported lazily, since every worker process imports this module.
"""

import importlib
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.api import Run, defaults, load, run
    from paddock.envs.emulation.envs import emulate, emulate_vector
    from paddock.evaluation.policy import TrainedPolicy
    from paddock.runs.results import read_events, read_metrics, read_runs
    from paddock.sweep.finals import read_finals
    from paddock.sweep.study import read_trials

_HERE = Path(__file__).resolve().parent
_IN_REPOSITORY = (_HERE / "platform").is_dir()  # in a wheel, all folders are next to this file
if _IN_REPOSITORY:
    __path__ = [str(_HERE / "platform"), str(_HERE)]
CONF = _HERE / "conf"  # absolute
ROOT = _HERE if _IN_REPOSITORY else _HERE.parent  # the folder that PYTHONPATH must contain

_PUBLIC = {
    "paddock.api": ("Run", "defaults", "load", "run"),
    "paddock.envs.emulation.envs": ("emulate", "emulate_vector"),
    "paddock.evaluation.policy": ("TrainedPolicy",),
    "paddock.runs.results": ("read_events", "read_metrics", "read_runs"),
    "paddock.sweep.finals": ("read_finals",),
    "paddock.sweep.study": ("read_trials",),
}
__all__ = [
    "CONF",
    "ROOT",
    "Run",
    "TrainedPolicy",
    "defaults",
    "emulate",
    "emulate_vector",
    "load",
    "read_events",
    "read_finals",
    "read_metrics",
    "read_runs",
    "read_trials",
    "run",
]

COMMANDS = (
    "check",
    "compare",
    "doctor",
    "evaluate",
    "export",
    "plot",
    "report",
    "rerun",
    "sanity",
    "serve",
    "status",
)  # python -m paddock.NAME


def _exit_quietly(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Exit without a traceback if Ctrl-C arrives before a command handles signals."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(130)
    sys.__excepthook__(kind, error, trace)


# Python imports this package before it looks for the module to run, so a mistyped command is reported here.
if sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv:
    _package, _, _name = sys.orig_argv[sys.orig_argv.index("-m") + 1].partition(".")
    if _package in ("paddock", "platform"):
        sys.excepthook = _exit_quietly
    if _name not in {"paddock": ("", "__main__", *COMMANDS), "platform": ("", "__main__")}.get(_package, (_name,)):
        from paddock.config.vocabulary import refuse_command

        refuse_command(f"{_package}.{_name}")


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    for module, names in _PUBLIC.items():
        if name in names:
            value = globals()[name] = getattr(importlib.import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List public names, imported or not."""
    return sorted({*globals(), *__all__})


def script() -> int:
    """Run the console script, which imports modules of the working directory as `python -m paddock` does."""
    sys.excepthook = _exit_quietly
    # Imported here because worker processes import this module but never launch.
    from paddock.launch import main

    # Appended last, so that no file there shadows the command's own imports.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return main()


if __name__ == "__main__":
    sys.excepthook = _exit_quietly
    from paddock.launch import main

    sys.exit(main())
