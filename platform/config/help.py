"""Text of `--help`: a page about the command, the options of a group, and the keys of options."""

import argparse
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddock.envs.errors import nearest, require

from .. import CONF
from .command import main_command, read_help
from .options import read_option, read_summary
from .plugins import ENTRY_POINTS

GROUPS = ("algo", "env", "vec", "compute", "track", "experiment", "sweep")  # groups of installed packages follow
PAGE_WIDTH = 80


def print_help(arguments: argparse.Namespace) -> None:
    """Print the groups and options named on the command line, else the page."""
    folders = list(config_folders(arguments))
    others = {option.parent.name for folder in folders for option in folder.glob("*/*.yaml")} - {*GROUPS, "hydra"}
    groups = (*GROUPS, *sorted(others))
    known = {*groups, *(key.partition(".")[0] for key in read_option("config.yaml", folders).rows)}
    topics = list[str]()
    for argument in arguments.overrides:
        key, equals, value = argument.lstrip("+~").partition("=")
        group = key.partition("@")[0]
        options = _find_options(group, folders)
        exists = bool(options or (equals and group.partition(".")[0] in known))
        require(exists, f"{group} is not a group{' or a key' if equals else ''}; {nearest(group, known)}")
        if options and not equals:
            topics.append(_describe_group(group, options))
        for name in split_sources(value) if options else ():
            require(name in options, f"{group}={name} is not an option of {group}; {nearest(name, options)}")
            topics.append(_describe_option(group, name, folders))
    print("\n\n".join(topics) or _page(groups, folders))


def _page(groups: Sequence[str], folders: Sequence[Path]) -> str:
    lines = []
    for group in groups:
        options = _find_options(group, folders)
        text = f"    {group:10} {len(options):2}  {', '.join(sorted(options))}"
        lines.append(text if len(text) <= PAGE_WIDTH else text[: PAGE_WIDTH - 5].rpartition(" ")[0] + " ...")
    page = _as_started(read_help("paddock")).rstrip("\n")
    return page.format(groups="\n".join(lines), folders=", ".join(map(str, folders)))


def _find_options(group: str, folders: Sequence[Path]) -> dict[str, Path]:
    """Return the files of a group's options by name; of several files, the first."""
    return {option.stem: option for folder in reversed(folders) for option in sorted((folder / group).glob("*.yaml"))}


def _describe_group(group: str, options: dict[str, Path]) -> str:
    width = max(map(len, options))
    lines = [f"    {name:{width}}  {read_summary(option)}" for name, option in sorted(options.items())]
    return "\n".join([f"{group}=", *lines, _as_started(f"\nKeys of an option: python -m platform {group}=NAME --help")])


def _describe_option(group: str, name: str, folders: Sequence[Path]) -> str:
    from rich.console import Console  # slow to import
    from rich.table import Table

    option = read_option(f"{group}/{name}.yaml", folders)
    lines = [f"{group}={name}: {option.summary}"]
    if option.selected:
        selected = " ".join(option.selected)
        lines += [_as_started(f"selects {selected}; for its keys: python -m platform {selected} --help")]
    terminal = sys.stdout.isatty()  # elsewhere one line per key, which can be searched
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", max_width=36 if terminal else None, overflow="fold")
    table.add_column()
    for row in option.rows.values():
        table.add_row(f"{row.key}={row.default}" if row.default else row.key, row.meaning)
    console = Console(width=None if terminal else 10_000, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join([*lines, "", *(line.rstrip() for line in captured.get().splitlines())])


def _as_started(text: str) -> str:
    """Replace `python -m platform` with the form in which this process was started; columns stay aligned."""
    pattern = re.compile(r"python -m platform( .*?)?(?=  |$)", re.M)
    text = pattern.sub(lambda match: (main_command() + (match[1] or "")).ljust(len(match[0])), text)
    return re.sub(r" +$", "", text, flags=re.M)


def config_folders(arguments: argparse.Namespace) -> Iterator[Path]:
    """Yield the config folders: Paddock's own, those named on the command line, those of installed packages."""
    named = [arguments.config_dir] if arguments.config_dir else []
    named += searched(arguments)
    yield CONF
    for path in [*named, *(f"pkg://{entry.value}" for entry in importlib.metadata.entry_points(group=ENTRY_POINTS))]:
        yield from folders_of(path)


def searched(arguments: argparse.Namespace) -> list[str]:
    """Return the entries of hydra.searchpath on the command line, as written."""
    pairs = (override.partition("=") for override in arguments.overrides)
    return [
        source for key, _, value in pairs if key.lstrip("+") == "hydra.searchpath" for source in split_sources(value)
    ]


def split_sources(value: str) -> list[str]:
    """Split a search path as written on the command line into its entries."""
    entries = (entry.strip(" '\"") for entry in value.strip("[]").split(","))
    return [entry for entry in entries if entry]


def check_sources(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for a config folder that does not exist, which Hydra would ignore."""
    given = arguments.config_path
    require(
        given is None or Path(given).is_dir(), f"--config-path={given} is not a folder; --config-dir=FOLDER adds one"
    )
    for source in searched(arguments):
        if "${" not in source and not source.startswith("structured://"):
            found = any(folder.is_dir() for folder in folders_of(source))
            allowed = "use file:///a/folder or pkg://my_package.conf"
            require(found, f"hydra.searchpath={source} is not a folder or an installed package: {allowed}")


def folders_of(path: str) -> list[Path]:
    """Return the folders of a search-path entry; empty for a package that is not installed."""
    if not path.startswith("pkg://"):
        return [Path(path.removeprefix("file://"))]
    try:
        spec = importlib.util.find_spec(path.removeprefix("pkg://").replace("/", "."))
    except ModuleNotFoundError:
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
