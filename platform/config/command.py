"""What the commands beside the main one share: RUN and key=value arguments, errors in one line, files written whole."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from paddock.envs.errors import NO_ROOM, ConfigError, PaddockError, nearest, require, split_details

from ..runs.checkpoint import FULL, write_atomically

Readers = Mapping[str, tuple[Callable[[str], Any], str]]  # key -> (from text, raising ValueError; what is allowed)


def run_command(help_page: str, command: Callable[[Sequence[str]], int | None]) -> int:
    """Run a command on the process's arguments, or print its help page.

    Returns:
        The exit code: what the command says, or else 0 done, 2 bad input, or that of `to_its_end`.
    """

    def begin() -> int | None:
        arguments = sys.argv[1:]
        if {"--help", "-h"} & set(arguments):
            return print(help_page)
        try:
            return command(arguments)
        except PaddockError as error:
            return complain(error, 2)

    return to_its_end(begin)


def to_its_end(command: Callable[[], int | None]) -> int:
    """Run a command until all of its output is written.

    Returns:
        The exit code: what the command says, or else 0 done, 74 the disk behind the output is full, 130 stopped by
        Ctrl-C, 141 nobody reads the output any more.
    """
    open_standard_files()
    try:
        code = command()
        print(end="", flush=True)  # to no stream at all where the shell has closed it
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return fall_silent()
    except OSError as error:
        if error.errno not in FULL:
            raise
        _discard(sys.stdout)  # else Python itself would write what is left at its end
        said = f"{error.filename or 'the output'} cannot be written ({error.strerror})"
        return complain(ConfigError(f"{said}; make room, or choose another disk"), NO_ROOM)
    return code or 0


def open_standard_files() -> None:
    """Open standard files that the shell has closed (`2>&-`): memory or a pipe that got the number would be written to.

    Child processes inherit them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def fall_silent() -> int:
    """Write no more, since whoever read the output has gone; returns the exit code."""
    _discard(sys.stdout)
    return 141


@contextlib.contextmanager
def saying(stream: TextIO | None) -> Iterator[None]:
    """Print within this what is only said: where nothing more can be, as to a log on a full disk, that changes no end.

    Python itself would turn what is left in the stream's buffer into another exit code.

    Args:
        stream: a standard one; None where the shell has closed it.
    """
    try:
        yield
        if stream is not None:
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError:
        if stream is not None:
            _discard(stream)


def _discard(stream: TextIO | None) -> None:
    """Have what is still written to a stream go nowhere."""
    if stream is not None:  # which the shell may have closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def complain(error: PaddockError, code: int) -> int:
    """Put an error on the standard error stream, in one line after somebody else's traceback; returns the code."""
    line, details = split_details(error)
    with saying(sys.stderr):
        print(*([details] if details else []), f"paddock: {line}", sep="\n", file=sys.stderr)
    return code


def parse(command: str, arguments: Sequence[str], readers: Readers) -> tuple[list[Path], dict[str, Any]]:
    """Tell runs from keys: (the paths, the keys that were given with their values).

    Raises:
        ConfigError: a key is unknown, or its value cannot be read.
    """
    runs: list[Path] = []
    values: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if key in readers and equals:
            read, allowed = readers[key]
            try:
                values[key] = read(text)
            except ValueError as error:
                raise ConfigError(f"{argument} cannot be read; allowed: {key}={allowed}") from error
        elif argument in readers and not os.path.exists(argument):
            raise ConfigError(f"{argument} lacks its value; write {argument}={readers[argument][1]}")
        elif argument.startswith("-"):
            raise ConfigError(f"{argument} is not an option of {command}; keys are written key=value; see --help")
        elif equals and not os.path.exists(argument):
            raise ConfigError(f"{argument}: {key} is not a key of {command}; {nearest(key, readers)}")
        else:
            runs.append(Path(argument))
    return runs, values


def check_output(key: str, path: Path, suffixes: Sequence[str]) -> None:
    """Check that a file can be written, without leaving a trace.

    Raises:
        ConfigError: another suffix, a folder, or no folder to write it in.
    """
    require(path.suffix in suffixes, f"{key}={path} is not a file that can be made; allowed: *{', *'.join(suffixes)}")
    require(not os.path.isdir(path), f"{key}={path} is a folder; name a file in it")
    require(os.path.isdir(path.parent), f"{key}={path}: there is no folder {path.parent}; make it, or choose another")
    writable = os.access(path.parent, os.W_OK | os.X_OK)
    require(writable, f"{key}={path}: the folder {path.parent} is closed to you; choose another")


def write_output(key: str, path: Path, content: bytes) -> None:
    """Write a file whole or not at all; of several processes that write it at once, the last one's stays.

    Raises:
        ConfigError: the disk is full or refuses.
    """
    try:
        write_atomically(path, content, alone=False)
    except OSError as error:
        raise ConfigError(f"{key}={path} cannot be written ({error.strerror}); choose another place") from error


def shown(path: Path) -> str:
    """Return a path as people write it: from here, if it is below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
