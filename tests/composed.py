"""Keep what Hydra and git make of files that do not change while tests run: composing takes a sixth of the time.

Kept are the files of conf/ and Hydra's own and words of commands, as they are parsed, the options that a command chooses, and what they
compose to before its values are set. With any other folder to search, Hydra composes as ever. Kept of what
every run notes are the commit and the edits of this repository, and the installed packages.
"""

import contextlib
import importlib.metadata
import itertools
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser

from paddock.runs import folder as run_folder
from paddock.runs import provenance

CONF = str(Path(__file__).resolve().parent.parent / "conf")
RUNS = Path(__file__).resolve().parent.parent / "platform/runs"
SAME = (("pkg", "hydra.conf"), ("file", CONF))  # what is never another while tests run

_nodes: dict[int, Any] = {}  # of options that have no file, by their id, which no other gets that way


def keep() -> None:
    """Have this process and its forks keep it, from now on."""
    for owner, name, own in KEPT:
        setattr(owner, name, own)


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """Have Hydra compose as it would by itself."""
    for (owner, name, _), plain in zip(KEPT, PLAIN, strict=True):
        setattr(owner, name, plain)
    try:
        yield
    finally:
        keep()


def _keep_files(load: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, bytes] = {}

    def load_config(repo: Any, config_path: str) -> Any:
        searched = _searched(repo)
        if searched is None:
            return load(repo, config_path)
        if (searched, config_path) not in kept:
            kept[searched, config_path] = pickle.dumps(load(repo, config_path))
        return pickle.loads(kept[searched, config_path])

    return load_config


def _keep_configs(compose: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, bytes] = {}

    def compose_config(loader: Any, defaults: Sequence[Any], repo: Any) -> Any:
        searched = _searched(repo)
        if searched is None:
            return compose(loader, defaults, repo)
        key = (searched, tuple((one.config_path, one.package, one.primary) for one in defaults))
        if key not in kept:
            kept[key] = pickle.dumps(compose(loader, defaults, repo))
        return pickle.loads(kept[key])

    return compose_config


def _keep_choices(create: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    def create_defaults_list(repo: Any, config_name: Any, overrides_list: Sequence[Any], **rest: Any) -> Any:
        searched = _searched(repo)
        if searched is None:
            return create(repo, config_name, overrides_list, **rest)
        single = [one for one in overrides_list if not one.is_sweep_override()]
        choice = [repo.group_exists(one.key_or_group) and not isinstance(one.value(), dict) for one in single]
        chosen = tuple(one.input_line for one in itertools.compress(single, choice))
        key = (searched, config_name, chosen, *sorted(rest.items()))
        if key not in kept:
            kept[key] = create(repo, config_name, overrides_list, **rest)
        return replace(
            kept[key], config_overrides=[one for one, is_choice in zip(single, choice, strict=True) if not is_choice]
        )

    return create_defaults_list


def _keep_words(parse: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, bytes] = {}

    def parse_rule(parser: Any, text: str, rule_name: str) -> Any:
        if (text, rule_name) not in kept:
            kept[text, rule_name] = pickle.dumps(parse(parser, text, rule_name))
        return pickle.loads(kept[text, rule_name])

    return parse_rule


def _keep_entry_points(read: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    def entry_points(**select: Any) -> Any:
        key = (tuple(_times(sys.path)), *sorted(select.items()))
        if key not in kept:
            kept[key] = read(**select)
        return kept[key]

    return entry_points


def _keep_source(find: Callable[[Path], Any]) -> Callable[[Path], Any]:
    kept: list[Any] = []

    def find_source(folder: Path) -> Any:
        if folder != RUNS:
            return find(folder)
        if not kept:
            kept.append(find(folder))
        return kept[0]

    return find_source


def _times(folders: Sequence[str]) -> Iterator[tuple[str, int]]:
    for folder in folders:
        try:
            yield os.path.abspath(folder), os.stat(folder or ".").st_mtime_ns
        except OSError:
            yield os.path.abspath(folder), 0


def _searched(repo: Any) -> tuple[Any, ...] | None:
    """What a repository looks through, or None if some of that may change."""
    sources = tuple((source.scheme(), source.path) for source in repo.get_sources())
    if any(source not in SAME and source[0] != "structured" for source in sources):
        return None
    return sources, version.getbase(), tuple(_registered(ConfigStore.instance().repo))


def _registered(group: dict[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """What plugins and tests have told Hydra of options that have no file."""
    for name, found in group.items():
        if isinstance(found, ConfigNode):
            yield f"{at}/{name}", id(_nodes.setdefault(id(found.node), found.node))
        else:
            yield from _registered(found, f"{at}/{name}")


_OWN: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (ConfigRepository, "load_config", _keep_files),
    (ConfigLoaderImpl, "_compose_config_from_defaults_list", _keep_configs),
    (config_loader_impl, "create_defaults_list", _keep_choices),
    (OverridesParser, "parse_rule", _keep_words),
    (importlib.metadata, "entry_points", _keep_entry_points),
    (run_folder, "find_source", _keep_source),
    (provenance, "_packages", lambda read: cache(lambda: list(read()))),
)
PLAIN = [getattr(owner, name) for owner, name, _ in _OWN]
KEPT = [(owner, name, own(plain)) for (owner, name, own), plain in zip(_OWN, PLAIN, strict=True)]
