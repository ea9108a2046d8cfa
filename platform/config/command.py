"""What the commands share: RUN and key=value arguments, errors in one line, files written whole."""

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.envs.errors import NO_ROOM, ConfigError, PaddockError, nearest, require, split_details

from ..runs.checkpoint import FULL, write_atomically
from ..runs.trust import trust

LEFT_S = 10.0  # in which threads that environments left running may end

Readers = Mapping[str, tuple[Callable[[str], Any], str]]  # key -> (from text, raising ValueError; what is allowed)


def run_command(help_page: str, command: Callable[[Sequence[str]], int | None]) -> int:
    """Run a command on the process's arguments, or print its help page.

    Returns:
        The exit code: the command's, or else 0 done, 2 bad input, or that of `run_and_flush`.
    """

    def begin() -> int | None:
        arguments = sys.argv[1:]
        if {"--help", "-h"} & set(arguments):
            return print(help_page)
        try:
            return command(arguments)
        except PaddockError as error:
            return print_error(error, 2)

    return run_and_flush(begin)


def run_and_flush(command: Callable[[], int | None]) -> int:
    """Run a command until all of its output is written.

    Returns:
        The exit code: the command's, or else 0 done, 74 the disk behind the output is full, 130 stopped by
        Ctrl-C, 141 nobody reads the output any more.
    """
    code = 1
    try:
        code = command() or 0
        print(end="", flush=True)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()
        return 141
    except OSError as error:
        if error.errno not in FULL:
            raise
        _discard_output()
        what = f"{error.filename or 'the output'} cannot be written ({error.strerror})"
        return print_error(ConfigError(f"{what}; make room, or choose another disk"), NO_ROOM)
    finally:
        if threading.active_count() > 1:
            threading.Thread(target=_exit_without_others, args=(code,), daemon=True).start()
    return code


def _exit_without_others(code: int) -> None:
    """End the process when the main thread has ended, though an environment has left a thread that has not."""
    threading.main_thread().join()
    time.sleep(1.0)  # threads of executors end by themselves
    if names := [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]:
        what = f"thread {names[0]} was left running" + (f", and {len(names) - 1} more" if names[1:] else "")
        print(f"paddock: {what}; the process ends in {LEFT_S:g} s", file=sys.stderr, flush=True)
    time.sleep(LEFT_S)
    os._exit(code)


def _discard_output() -> None:
    """Discard what is left to print: Python itself would try to write it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(error: PaddockError, code: int) -> int:
    """Print an error on the standard error stream, in one line after somebody else's traceback; return the code."""
    line, details = split_details(error)
    with contextlib.suppress(OSError):
        print(*([details] if details else []), f"paddock: {line}", sep="\n", file=sys.stderr)
    return code


def parse(command: str, arguments: Sequence[str], readers: Readers) -> tuple[list[Path], dict[str, Any]]:
    """Separate runs from keys, and return the paths and the values of the keys that were given.

    Raises:
        ConfigError: a key is unknown, or its value cannot be read.
    """
    runs: list[Path] = []
    values: dict[str, Any] = {}
    readers = {**readers, "trust": (read_flag, "true or false")}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if key in readers and equals:
            read, allowed = readers[key]
            try:
                values[key] = read(text)
            except ValueError as error:
                raise ConfigError(f"{argument} cannot be read; allowed: {key}={allowed}") from error
        elif os.path.exists(argument):
            runs.append(Path(argument))
        elif argument.startswith("-"):
            raise ConfigError(f"{argument} is not an option of {command}; keys are written key=value; see --help")
        elif argument in readers:
            raise ConfigError(f"{argument} lacks its value; write {argument}={readers[argument][1]}")
        elif equals:
            raise ConfigError(f"{argument}: {key} is not a key of {command}; {nearest(key, readers)}")
        else:
            runs.append(Path(argument))
    if values.pop("trust", False):
        for path in (*runs, *(value for value in values.values() if isinstance(value, Path))):
            trust(path)
    return runs, values


def split_overrides(arguments: Sequence[str], sections: Collection[str]) -> tuple[list[str], list[str]]:
    """Separate overrides of sections of the configuration, such as `+env.kwargs.g=5`, from other arguments."""
    ours: list[str] = []
    others: list[str] = []
    for argument in arguments:
        of_section = "=" in argument and re.split("[.@=/]", argument.lstrip("+~"))[0] in sections
        (ours if of_section else others).append(argument)
    return ours, others


def parse_overrides(
    command: str, arguments: Sequence[str], readers: Readers, sections: Collection[str]
) -> tuple[list[str], dict[str, Any]]:
    """Separate overrides of sections from the command's own keys, and return both; nothing else may be given.

    Raises:
        ConfigError: an argument is neither, or its value cannot be read.
    """
    overrides, others = split_overrides(arguments, sections)
    for argument in others:
        key, equals, _ = argument.partition("=")
        if not equals or key not in readers:
            hint = nearest(key, [*sections, *readers])
            raise ConfigError(f"{argument} is not an argument of {command}; {hint} (see --help)")
    return overrides, parse(command, others, readers)[1]


def read_names(text: str) -> list[str]:
    """Read names with commas between, each once."""
    return list(dict.fromkeys(filter(None, (name.strip() for name in text.strip("[]").split(",")))))


def read_flag(text: str) -> bool:
    """Read true or false."""
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def read_count(text: str) -> int:
    """Read a whole number, at least 1."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def check_output(key: str, path: Path, suffixes: Sequence[str]) -> Path:
    """Check that a file can be written, without leaving a trace, and return its absolute path.

    Raises:
        ConfigError: another suffix, a folder, or no folder to write it in.
    """
    require(path.suffix in suffixes, f"{key}={path} is not a file that can be made; allowed: *{', *'.join(suffixes)}")
    require(not path.is_dir(), f"{key}={path} is a folder; name a file in it")
    require(path.parent.is_dir(), f"{key}={path}: there is no folder {path.parent}; make it, or choose another")
    writable = os.access(path.parent, os.W_OK | os.X_OK)
    require(writable, f"{key}={path}: the folder {path.parent} is closed to you; choose another")
    return path.absolute()  # environments may change the working directory


def write_output(key: str, path: Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        ConfigError: the disk is full or refuses.
    """
    try:
        write_atomically(path, content, alone=False)
    except OSError as error:
        raise ConfigError(f"{key}={path} cannot be written ({error.strerror}); choose another place") from error


def display_path(path: Path) -> str:
    """Return a path as people write it: relative to the working directory, if it is below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
