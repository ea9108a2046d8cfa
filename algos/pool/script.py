"""The script that a driver runs: what it defines goes by reference to workers that have such a file, else by value.

As with `multiprocessing`'s spawn a worker runs the file as `__mp_main__` when the first task needs it, so that its
globals live as long as the worker serves the driver. By value each call of the pool has globals of its own. The text
of the file travels with the driver's greeting, so that workers run what the driver does, however the file has been
edited since.
"""

import ast
import functools
import importlib
import io
import multiprocessing
import operator
import os
import pickle
import sys
import threading
import types
from collections.abc import Iterator
from multiprocessing import process
from pathlib import Path
from typing import Any

import cloudpickle

from paddock.envs.errors import PaddockError

UNGUARDED_EXIT_CODE = 76
MAIN, THEIRS = "__main__", "__mp_main__"  # what a script's module is called where it runs, and on workers
_local = threading.local()  # .script: whose tasks this thread runs; .importing: whether it runs a script's file


class Unguarded(PaddockError):
    """The script opens workers when it is imported, which its workers do."""

    def __init__(self, text: str = "") -> None:
        said = "the script opens its Pool whenever it is imported, which workers do, too"
        super().__init__(text or f'{said}; open it below `if __name__ == "__main__":`')


class Script:
    """A file that runs as `__main__`, as its driver and its workers know it.

    Args:
        path: the file.
        package: that it belongs to, where it was started by `python -m`; else "".
        source: its contents when the driver imported this.
    """

    def __init__(self, path: str, package: str, source: bytes) -> None:
        self.path, self.package, self.source = path, package, source
        self.travelled = False  # whether anything went by reference
        self._module: types.ModuleType | None = None
        self._loading = threading.RLock()

    @property
    def message(self) -> list[str | bytes]:
        """What the script is made of elsewhere."""
        return [self.path, self.package, self.source]

    # On the driver

    def defines(self, value: Any) -> bool:
        """Whether a worker that imports the file finds this class or function there."""
        name = getattr(value, "__qualname__", "")
        if getattr(value, "__module__", None) not in (MAIN, THEIRS) or name.partition(".")[0] not in self._names:
            return False
        try:
            found = bool(operator.attrgetter(name)(sys.modules[MAIN]) is value)
        except AttributeError:
            return False
        self.travelled |= found
        return found

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        try:
            return frozenset(_bound(ast.parse(self.source).body))
        except (SyntaxError, ValueError):  # such as one that was compiled before
            return frozenset()

    # On a worker

    def is_here(self) -> bool:
        """Whether the driver's machine is this one, or this one has such a file, with what it imports beside it."""
        return _begun_with(self.path) is not None or Path(self.path).is_file()

    def module(self) -> types.ModuleType:
        """The file's module as the driver has it; it runs once."""
        with self._loading:
            if self._module is None:
                begun = _begun_with(self.path)
                self._module = begun[0] if begun and begun[1] == self.source else self._load()
            return self._module

    def _load(self) -> types.ModuleType:
        root = Path(self.path).parents[self.package.count(".") + 1 if self.package else 0]
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        if self.package:
            importlib.import_module(self.package)
        module = types.ModuleType(THEIRS)
        vars(module).update(__file__=self.path, __package__=self.package or None)
        before = {name: sys.modules.get(name) for name in (MAIN, THEIRS)}
        sys.modules[MAIN] = sys.modules[THEIRS] = module
        _local.importing = True
        try:
            exec(compile(self.source, self.path, "exec"), vars(module))
        except BaseException:
            sys.modules.update({name: module for name, module in before.items() if module is not None})
            raise
        finally:
            _local.importing = False
        return module


def find_script() -> Script | None:
    """The script of this process; None where there is no file, or what was typed in goes beyond it."""
    main = sys.modules[MAIN]
    spec = getattr(main, "__spec__", None)
    path = getattr(main, "__file__", None)
    if not path or hasattr(sys, "ps1") or sys.flags.interactive or (spec is not None and spec.name.endswith(MAIN)):
        return None
    path = os.path.normpath(os.path.join(getattr(process, "ORIGINAL_DIR", None) or "", path))
    source = _read_once(path)
    return None if source is None else Script(path, spec.parent or "" if spec is not None else "", source)


def check_guarded() -> None:
    """Check that this is no worker that only imports its driver's script at the moment.

    Raises:
        Unguarded: it is.
    """
    begins = is_beginning()
    if begins and multiprocessing.current_process().name.startswith("Dask Worker"):
        os._exit(UNGUARDED_EXIT_CODE)  # the driver says it, once for all its workers
    if begins or getattr(_local, "importing", False):
        raise Unguarded


def is_beginning() -> bool:
    """Whether this process was spawned and has not yet what it is to run, as multiprocessing notes for itself."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def dump(value: Any, script: Script | None = None) -> bytes:
    """Pickle a value; by value where the other side could not import it.

    Args:
        script: of this process, where the other side has it.
    """
    try:
        data = pickle.dumps(value, 5)
        # What was defined in the script itself has another script's name on the other side.
        if b"__main__" not in data:
            return data
    except Exception:  # whatever it is, cloudpickle will say it again, or can
        pass
    if script is None:
        return cloudpickle.dumps(value)
    file = io.BytesIO()
    _Pickler(file, script).dump(value)
    return file.getvalue()


def load(data: bytes) -> Any:
    """Unpickle what a driver sent, whose task this thread runs."""
    script = getattr(_local, "script", None)
    return pickle.loads(data) if script is None or b"_main__" not in data else _Unpickler(data, script).load()


def run_for(script: Script | None) -> None:
    """Let what this thread unpickles from now on be that of a driver's script."""
    _local.script = script


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, script: Script) -> None:
        super().__init__(file, 5)
        self._script = script

    def reducer_override(self, obj: Any) -> Any:
        by_reference = isinstance(obj, type | types.FunctionType) and self._script.defines(obj)
        return NotImplemented if by_reference else super().reducer_override(obj)


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, script: Script) -> None:
        super().__init__(io.BytesIO(data))
        self._script = script

    def find_class(self, module: str, name: str) -> Any:
        if module in (MAIN, THEIRS):
            return operator.attrgetter(name)(self._script.module())
        return super().find_class(module, name)


def _bound(statements: list[ast.stmt]) -> Iterator[str]:
    """Names that a module binds when it is imported: not those under `if __name__ == "__main__"`."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
            continue
        guard = isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test)
        for field, value in ast.iter_fields(statement):
            if isinstance(value, list) and not (guard and field == "body"):
                yield from _bound([part for part in value if isinstance(part, ast.stmt)])
                branches = [part for part in value if isinstance(part, ast.ExceptHandler | ast.match_case)]
                yield from _bound([part for branch in branches for part in branch.body])
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
            yield from (name.id for name in names if isinstance(name.ctx, ast.Store))


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes() if Path(path).is_file() else None  # and not what comes from a pipe
    except OSError:
        return None


@functools.cache
def _begun_with(path: str) -> tuple[types.ModuleType, bytes | None] | None:
    """The module of a file that this process was spawned with, and what the file held at the first greeting."""
    module = sys.modules.get(THEIRS)
    if module is None or getattr(module, "__file__", None) != path:
        return None
    is_driver = multiprocessing.parent_process() is None  # whose worker is a thread of it
    return module, _read_once(path) if is_driver else _read(path)


_read_once = functools.cache(_read)
find_script()  # as it is now that it runs, and not when it opens a pool
