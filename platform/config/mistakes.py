"""One-line messages for errors of Hydra and OmegaConf, with the nearest valid name."""

import argparse
import contextlib
import re
from collections.abc import Iterator
from typing import Any

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from paddock.envs.errors import ConfigError, nearest

from .vocabulary import find_usual, suggest_key

SHOWN = 12  # names in a message


def explain(error: Exception, arguments: argparse.Namespace, loader: ConfigLoader) -> ConfigError:
    """Convert a composition error into a one-line ConfigError with the nearest valid name."""
    if isinstance(error, ConfigError):
        return error
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        hint = nearest(option, error.options)
        if group == "env" and re.search(r"-v\d+$|:", option):
            hint += f" (for a Gymnasium id or a class use env=gymnasium env.id={option})"
        return ConfigError(f"{group}={option} is not an option of {group}; {hint}")
    if isinstance(error, OverrideParseException):
        remedy = "write key=value, lists as [1,2], and special characters in quotes"
        return ConfigError(f"cannot read the argument '{error.override}'; {remedy}")
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return ConfigError(f"cannot read the YAML {mark.name}, line {mark.line + 1}: {error.problem}")
    text = f"{error} {error.__cause__ or ''}"
    if missing := re.search(r"Could not load '([^']+)/([^'/]+)'", text):  # of several options of a group
        group, option = missing.groups()
        hint = nearest(option, loader.get_group_options(group))
        return ConfigError(f"{option} is not an option of {group}; {hint}")
    if typed := re.search(r"Error merging override (\S+?=\S*)", text):
        kind = "list: [...]" if "ListConfig" in text else "mapping: {key: value}"
        return ConfigError(f"{typed[1]} must be a {kind}")
    if several := re.search(r"Ambiguous value for argument '([^=]+)=(.*?)'\n", text):
        key, values = several.groups()
        remedy = "add --multirun to run each"
        if key == "track" or not loader.get_group_options(key):
            remedy += f", or write a list as {key}=[{values}]"
        return ConfigError(f"{key}={values} has several values; {remedy}")
    if moved := re.search(r"Could not override '([\w/]+)@", text):
        return ConfigError(f"{moved[1]}@...: the package of a group is fixed; write {moved[1]}=OPTION")
    unknown = re.search(r"Could not (override|append to config|delete from config)[^']*'[+~]*([^'@=]+)", text)
    if unknown is None or "already at" in text:
        return ConfigError(one_line(error))
    if "/" in unknown[2] and loader.get_group_options(unknown[2]):
        return ConfigError(f"{unknown[2]}= does not belong to the chosen {unknown[2].partition('/')[0]}; remove it")
    inner = re.search(r"Key '([^']+)' is not in struct", text)
    key, known = unknown.group(2), _known_keys(arguments, loader)
    for meant in (key, *find_usual(key.rpartition(".")[2])):
        group, _, option = meant.rpartition(".")[0].partition(".")
        if group in known and option in loader.get_group_options(group) and f"{group}.{option}" not in known:
            return ConfigError(f"{meant} belongs to {group}={option}; add that option")
    return ConfigError(_explain_unknown(key, inner and inner.group(1), known))


def _explain_unknown(key: str, inner: str | None, known: list[str]) -> str:
    if inner and key in known:
        return f"{key}.{inner} does not exist yet; add it with +{key}.{inner}=..."
    section, _, name = key.rpartition(".")
    what = f"{key} is not a key of {section or 'the configuration'}"
    if section == "hydra.sweeper" and "hydra.sweeper.n_trials" not in known:
        return f"{what} without a sweep; add sweep=ppo, or list values for each key"
    meant = ("hydra.",) if key.startswith("hydra") else tuple(find_usual(name))  # Hydra has many keys
    known = [other for other in known if not other.startswith("hydra.") or other.startswith(meant)]
    if hint := suggest_key(key, known):
        return f"{what}; {hint}"
    here = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == section]
    if not here and section in known:
        return f"{what}; add it with +{key}=..."
    listed = sorted(other for other in here if not other.startswith("_")) or [k for k in known if "." not in k]
    return f"{what}; known: {', '.join(listed[:SHOWN])}" + (", ..." if listed[SHOWN:] else "")


def _known_keys(arguments: argparse.Namespace, loader: ConfigLoader) -> list[str]:
    mode = RunMode.MULTIRUN if getattr(arguments, "multirun", False) else RunMode.RUN
    choices = [word for word in arguments.overrides if loader.get_group_options(word.partition("=")[0])]
    composed = None
    for overrides in (choices, []):
        with contextlib.suppress(HydraException, OmegaConfBaseException):
            composed = composed or loader.load_configuration(arguments.config_name or "config", overrides, mode)
    return ["experiment", *_paths(OmegaConf.to_container(composed) if composed else {}, "")]


def _paths(node: Any, path: str) -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        yield f"{path}{key}"
        yield from _paths(value, f"{path}{key}.")


def one_line(error: BaseException) -> str:
    """Return the first paragraph of an error's message, or of its cause's, with the key."""
    key = error.full_key if isinstance(error, OmegaConfBaseException) else None
    text = str(error) if str(error).strip() else str(error.__cause__ or type(error).__name__)
    line = " ".join(text.strip().partition("\n\n")[0].partition("full_key:")[0].split())
    return f"{key}: {line}" if key else line
