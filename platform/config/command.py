"""Shared by all commands: RUN and key=value arguments, one-line errors, and atomic output files."""

import contextlib
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.envs.errors import DISK_FULL, ConfigError, PaddockError, nearest, require, split_details

from ..runs.checkpoint import FULL, write_atomically

HELP = Path(__file__).parents[1] / "help"  # a page per command
EXIT_TIMEOUT_S = 10.0  # for threads that environments left running

Readers = Mapping[str, tuple[Callable[[str], Any], str]]  # key -> (parser that raises ValueError, allowed values)


def read_help(name: str) -> str:
    """Return the help page of a command."""
    return (HELP / f"{name}.txt").read_text()


def run_command(name: str, command: Callable[[Sequence[str]], int | None]) -> int:
    """Run a command with the process's arguments, or print its help page.

    Returns:
        The exit code: the command's own, 2 for bad input, or one of `run_and_flush`.
    """

    def begin() -> int | None:
        arguments = sys.argv[1:]
        if {"--help", "-h"} & set(arguments):
            return print(read_help(name))
        try:
            return command(arguments)
        except PaddockError as error:
            return print_error(error, 2)

    return run_and_flush(begin)


def run_and_flush(command: Callable[[], int | None]) -> int:
    """Run a command and flush its output.

    Returns:
        The exit code: the command's own (None means 0), 74 if the disk is full, 130 after Ctrl-C, 141 if the reader
        of the output has closed it.
    """
    code = 1
    try:
        code = command() or 0
        print(end="", flush=True)
    except SystemExit as stopped:  # by a signal
        code = stopped.code if isinstance(stopped.code, int) else 1
        raise
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        _discard_output()
        code = 141
    except OSError as error:
        if error.errno not in FULL:
            raise
        _discard_output()
        what = f"cannot write {error.filename or 'the output'} ({error.strerror})"
        code = print_error(ConfigError(f"{what}; free disk space or choose another disk"), DISK_FULL)
    finally:
        if threading.active_count() > 1:
            threading.Thread(target=_exit_without_others, args=(code,), daemon=True).start()
    return code


def _exit_without_others(code: int) -> None:
    """End the process after its main thread, even if an environment has left another thread running."""
    threading.main_thread().join()
    time.sleep(1.0)  # executor threads end by themselves
    if names := [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]:
        what = f"thread {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else "") + " still running"
        print(f"paddock: {what}; the process exits in {EXIT_TIMEOUT_S:g} s", file=sys.stderr, flush=True)
    time.sleep(EXIT_TIMEOUT_S)
    os._exit(code)


def _discard_output() -> None:
    """Discard unwritten output, which Python would otherwise try to write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main_command() -> str:
    """Return the main command in the form in which this process was started: script, `platform` or `paddock`."""
    words = sys.orig_argv
    if "-m" in words and words[words.index("-m") + 1] == "platform":
        return "python -m platform"
    return "paddock" if Path(sys.argv[0]).name == "paddock" else "python -m paddock"


def format_main_command(arguments: Sequence[str]) -> str:
    """Return the main command with these arguments, quoted for the shell."""
    return f"{main_command()} {shlex.join(arguments)}"


def print_error(error: PaddockError, code: int) -> int:
    """Print an error in one line on standard error, after any traceback of user code; return the code."""
    line, details = split_details(error)
    with contextlib.suppress(OSError):
        print(*([details] if details else []), f"paddock: {line}", sep="\n", file=sys.stderr)
    return code


def parse(command: str, arguments: Sequence[str], readers: Readers) -> tuple[list[Path], dict[str, Any]]:
    """Split arguments into run folders and values by key; raise ConfigError for bad input."""
    runs: list[Path] = []
    values: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if key in readers and equals:
            read, allowed = readers[key]
            try:
                values[key] = read(text)
            except ValueError as error:
                raise ConfigError(f"{argument} is invalid; allowed: {key}={allowed}") from error
        elif os.path.exists(argument):
            runs.append(Path(argument))
        elif argument.startswith("-"):
            raise ConfigError(f"{argument} is not an option of {command}; write keys as key=value (see --help)")
        elif argument in readers:
            raise ConfigError(f"{argument} needs a value: {argument}={readers[argument][1]}")
        elif equals:
            raise ConfigError(f"{argument}: {key} is not a key of {command}; {nearest(key, readers)}")
        else:
            runs.append(Path(argument))
    return runs, values


def split_overrides(arguments: Sequence[str], sections: Collection[str]) -> tuple[list[str], list[str]]:
    """Split arguments into overrides of configuration sections, such as `+env.kwargs.g=5`, and others."""
    ours: list[str] = []
    others: list[str] = []
    for argument in arguments:
        of_section = "=" in argument and re.split("[.@=/]", argument.lstrip("+~"))[0] in sections
        (ours if of_section else others).append(argument)
    return ours, others


def parse_overrides(
    command: str, arguments: Sequence[str], readers: Readers, sections: Collection[str]
) -> tuple[list[str], dict[str, Any]]:
    """Split arguments into overrides of sections with --config-dir=FOLDER, and values of the command's own keys."""
    words: list[str] = []
    for argument in arguments:
        if words[-1:] == ["--config-dir"]:
            words[-1] += f"={argument}"
        else:
            words.append(argument)
    flags = [word for word in words if word.startswith("--config-dir=")]
    overrides, others = split_overrides([word for word in words if word not in flags], sections)
    for argument in others:
        key, equals, _ = argument.partition("=")
        if not equals or key not in readers:
            hint = nearest(key, [*sections, *readers])
            raise ConfigError(f"{argument} is not an argument of {command}; {hint} (see --help)")
    return [*flags, *overrides], parse(command, others, readers)[1]


def read_names(text: str) -> list[str]:
    """Parse comma-separated names; duplicates are dropped."""
    return list(dict.fromkeys(filter(None, (name.strip() for name in text.strip("[]").split(",")))))


def read_numbers(text: str) -> list[float]:
    """Parse comma-separated numbers."""
    return [float(number) for number in text.strip("[]").split(",")]


def read_flag(text: str) -> bool:
    """Parse true or false."""
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def read_choice(*allowed: str) -> Callable[[str], str]:
    """Return a parser of one of several words."""

    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return read


def read_count(text: str) -> int:
    """Parse an integer of at least 1."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def check_output(key: str, path: Path, suffixes: Sequence[str]) -> Path:
    """Return the absolute path of an output file; raise ConfigError if it cannot be written."""
    require(path.suffix in suffixes, f"{key}={path}: unsupported file type; allowed: *{', *'.join(suffixes)}")
    require(not path.is_dir(), f"{key}={path} is a folder; use a file in it")
    require(path.parent.is_dir(), f"{key}={path}: folder {path.parent} does not exist; create it or choose another")
    writable = os.access(path.parent, os.W_OK | os.X_OK)
    require(writable, f"{key}={path}: permission denied in {path.parent}; choose another folder")
    return path.absolute()  # environments may change the working directory


def write_output(key: str, path: Path, content: bytes) -> None:
    """Write a file atomically; raise ConfigError if that fails."""
    try:
        write_atomically(path, content, alone=False)
    except OSError as error:
        raise ConfigError(f"{key}={path} cannot be written ({error.strerror}); choose another path") from error


def display_path(path: Path) -> str:
    """Return a path relative to the working directory if it lies below it, else unchanged."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
