"""What is wrong with a command line or with a file of configuration, in one line with the nearest valid name."""

import argparse
import contextlib
import re
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from paddock.envs.errors import ConfigError, nearest, require

from .. import CONF
from .compose import JobError, loading
from .help import config_folders, folders_of, searched
from .vocabulary import find_usual, suggest_command, suggest_function, suggest_key, suggest_package

SHOWN = 12  # names in a list of what there is
EXAMPLES = 3  # where even these are too many to read
PLUGGED = ("launcher", "sweeper")  # groups of Hydra's own


def check_arguments(arguments: argparse.Namespace) -> None:
    """Refuse what Hydra would take and Paddock ignore, and what Hydra answers in words of its own.

    Raises:
        ConfigError: such an argument.
    """
    remedy = "python -m paddock.rerun RUN repeats a run"
    require(not arguments.experimental_rerun, f"--experimental-rerun is not supported; {remedy}")
    path = arguments.config_path
    remedy = "--config-dir=FOLDER adds one of yours to Paddock's"
    require(path is None or Path(path).is_dir(), f"--config-path={path} is not a folder; {remedy}")
    for source in searched(arguments):
        _check_source(source)
    told = " ".join(arguments.overrides)
    for argument in arguments.overrides:
        key, equals, value = argument.partition("=")
        # A job of a sweep is given hydra.sweep.dir, which does count.
        require(key != "hydra.run.dir", f"{argument} would be ignored; a run is kept in run.dir={value}")
        kind = key.removeprefix("hydra.")
        require(kind not in PLUGGED or not value, f"{argument} sets no key; write hydra/{kind}={value} to choose one")
        elsewhere = arguments.multirun and key in ("run.root", "run.name") and f"${{{key}}}" not in told
        require(not elsewhere, f"{argument} would be ignored; the runs of a sweep are kept in hydra.sweep.dir=FOLDER")
        if not equals and re.fullmatch(r"[A-Za-z][\w.-]*", argument):
            raise ConfigError(f"cannot read the argument '{argument}'; {_suggest_argument(argument, arguments)}")


def _check_source(source: str) -> None:
    """Refuse a part of the search path that Hydra would pass over."""
    if "${" in source or source.startswith("structured://"):
        return
    said, folders = f"hydra.searchpath={source}", folders_of(source)
    if source.startswith("pkg://"):
        remedy = "pkg://my_package.conf is the folder conf of a package that Python can import from here"
        require(bool(folders), f"{said} is no package; {remedy}")
    else:
        require(folders[0].is_dir(), f"{said} is not a folder; file:///a/folder and pkg://my_package.conf are allowed")


def composition_error(error: BaseException, arguments: argparse.Namespace) -> ConfigError | None:
    """A composition error of Hydra or OmegaConf as one line with the nearest valid name; None for any other error."""
    if isinstance(error, JobError) and error.__cause__ is not None:
        of_job = vars(arguments) | {"overrides": error.overrides, "multirun": False}
        return composition_error(error.__cause__, argparse.Namespace(**of_job))
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        if group == "algo/sanity":  # which is the algorithm's, and nobody writes
            return _no_sanity(option, error.options, arguments)
        return ConfigError(f"{group}={option} is not an option of {group}; {_suggest_option(group, option, error)}")
    if isinstance(error, OverrideParseException):
        remedy = "write key=value, a list as [1,2], and text with brackets or signs in quotes"
        key, home, rest = str(error.override).partition("=~/")
        if home:  # which the shell puts in place of the sign at the beginning of a word alone
            remedy = f"write {key}=$HOME/{rest}"
        evaluated = re.search(r"while evaluating '(\w+).*': (.+)", str(error))
        if evaluated:
            function, why = evaluated.groups()
            remedy = suggest_function(function)
            return ConfigError(f"cannot read the argument '{error.override}' ({why}); {remedy}")
        return ConfigError(f"cannot read the argument '{error.override}'; {remedy}")
    if isinstance(error, yaml.YAMLError | UnicodeDecodeError):
        mark = getattr(error, "problem_mark", None)
        read = [f" {frame.f_locals['full_path']}" for frame in _frames_of(error) if "full_path" in frame.f_locals]
        where = f" {mark.name}, line {mark.line + 1}, column {mark.column + 1}" if mark else "".join(read[-1:])
        return ConfigError(f"cannot read the YAML{where}: {getattr(error, 'problem', None) or _one_line(error)}")
    if isinstance(error, RecursionError) and any(name.endswith(".defaults_list") for name in _modules_of(error)):
        return ConfigError("the defaults of a file of configuration lead back to that file; name another there")
    if "Config group override must be a string or a list" in str(error):
        return ConfigError(_explain_no_option(arguments) or _one_line(error))
    if "configure_log" in [frame.f_code.co_name for frame in _frames_of(error)]:
        why = f" ({_one_line(error.__cause__)})" if error.__cause__ else ""
        return ConfigError(f"hydra/job_logging and hydra/hydra_logging make no log: {_one_line(error)}{why}")
    if not isinstance(error, HydraException | OmegaConfBaseException):
        # Hydra answers some mistakes, such as flags that do not go together, with exceptions of Python's own.
        return ConfigError(_one_line(error)) if _modules_of(error)[-1].startswith(("hydra.", "omegaconf.")) else None
    text = f"{error} {error.__cause__ or ''}"
    several = re.search(r"Ambiguous value for argument '([^=]+)=(.*?)'\n", text)
    if several:
        key, values = several.groups()
        remedy = f"add --multirun for a run of each, or write a list as {key}=[{values}]"
        return ConfigError(f"{key}={values} is several values; {remedy}")
    listed = re.search(r"Error merging override ([^=\n]+)=(.*)\n? *Cannot merge DictConfig with ListConfig", text)
    if listed:
        key, value = listed.groups()
        return ConfigError(f"{key}={value.strip()} has the wrong type; allowed: a mapping, as {key}={{NAME: VALUE}}")
    twice = re.search(r"Multiple values for (\S+?)\.|^(\S+) appears more than once", text)
    if twice:
        return ConfigError(_explain_twice(twice.group(1) or twice.group(2), arguments))
    inside = re.search(r"In '([\w/]+)/(\w+)': Could not override '[^'@]+@\1\.", text)
    if inside:
        group, option = inside.groups()
        return ConfigError(f"{group}={option} sets what is below {group}; {suggest_package(group)}")
    unknown = re.search(r"Could not (?:override|append to config|delete from config)[^']*'([^'@=]+)", text)
    if unknown and "already at" in text:
        return ConfigError(f"{unknown.group(1)} has a value already; change it without the +")
    if unknown:
        key = unknown.group(1).lstrip("+~")
        if "delete from config" in text and key in _known_keys(key, arguments):
            return ConfigError(f"~{key} deletes no key that is null, or has another value than is said; leave it out")
        inner = re.search(r"Key '([^']+)' is not in struct", text)
        return ConfigError(
            _explain_unknown(key, inner and inner.group(1), "No match in the defaults" in text, arguments)
        )
    return ConfigError(_one_line(error))


def _explain_unknown(key: str, inner: str | None, group: bool, arguments: argparse.Namespace) -> str:
    """Say what a key that is not there may stand for."""
    known = _known_keys(key, arguments)
    if inner and key in known:
        return f"{key}.{inner} is not there yet; add it with a +: +{key}.{inner}=..."
    section, _, name = key.rpartition(".")
    what = f"{key} is not a {'group' if group else 'key'} of {_chosen(section, arguments) or 'the configuration'}"
    hint = suggest_key(key, known)
    if hint:
        return f"{what}; {hint}"
    here = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == section]
    if not here and section in known:
        return f"{what}; +{key}=... would add it"
    elsewhere = [having for other in (*find_usual(name), key) if (having := _options_with(other))][:1]
    listed = sorted(other for other in here if not other.startswith("_")) or [k for k in known if "." not in k]
    more = ", ..." if listed[SHOWN:] else ""
    return "; ".join((what, *elsewhere, f"known: {', '.join(listed[:SHOWN])}{more}"))


def _chosen(section: str, arguments: argparse.Namespace) -> str | None:
    """The option of a section that is chosen last, such as "algo=es"; of several that a sweep has, the first."""
    chosen = [
        re.match(rf"{section}=(?:choice\()?(\w+)(?:[,)]|$)", argument) for argument in reversed(arguments.overrides)
    ]
    return next((f"{section}={match[1]}" for match in chosen if section and match), None)


def _explain_twice(group: str, arguments: argparse.Namespace) -> str:
    """Say how a group came to be chosen twice."""
    added = next((argument for argument in arguments.overrides if argument.startswith(f"+{group}=")), None)
    if added:
        return f"{added} adds a group that is there already; leave out the +: {added[1:]}"
    return f"{group} is chosen twice; leave one out, or write `override /{group}` in the defaults of a file"


def _explain_no_option(arguments: argparse.Namespace) -> str | None:
    """Say which argument chooses something of a group that is no name."""
    for argument in arguments.overrides:
        key, _, value = argument.partition("=")
        options = {path.stem for folder in config_folders(arguments) for path in (folder / key).glob("*.yaml")}
        if options and not isinstance(yaml.safe_load(value), str | list):
            return f"{argument} is not an option of {key}; {nearest(value, options)}"
    return None


def _no_sanity(algo: str, having: Sequence[str], arguments: argparse.Namespace) -> ConfigError:
    """Say of an algorithm that there is none of this name, or that nothing tells how it takes the sanity suite."""
    known = {path.stem for folder in config_folders(arguments) for path in (folder / "algo").glob("*.yaml")}
    if algo not in known:
        return ConfigError(f"algo={algo} is not an option of algo; {nearest(algo, having)}")
    remedy = f"choose {', '.join(sorted(having))}, or write it (docs/sanity.md)"
    return ConfigError(f"algo={algo} has no option in conf/algo/sanity, which says how it takes the tasks; {remedy}")


def _suggest_option(group: str, option: str, error: MissingConfigException) -> str:
    """Say which option of a group is meant."""
    hint = nearest(option, error.options or ())
    if group == "env" and re.search(r"-v\d+$", option):  # a Gymnasium id
        hint += f" (any id of Gymnasium's is chosen by env=gymnasium env.id={option})"
    return hint


def _suggest_argument(word: str, arguments: argparse.Namespace) -> str:
    """Say what an argument without a value may stand for: a group, one of its options, or another command."""
    options = [path for folder in config_folders(arguments) for path in folder.glob("*/*.yaml")]
    if word in {path.parent.name for path in options}:
        return f"write {word}=NAME"
    chosen = list(dict.fromkeys(f"{path.parent.name}={path.stem}" for path in options if path.stem == word.lower()))
    if chosen:
        return f"write key=value, such as {' or '.join(chosen)}"
    hint = suggest_command(word)
    return hint if "paddock." in hint and hint.startswith("did") else "write key=value, such as algo=es env=cartpole"


def _options_with(key: str) -> str:
    """Say which options of its group have a key; nothing where none has."""
    section, _, name = key.partition(".")
    line = re.compile(rf"^{re.escape(name.partition('.')[0])}:", re.M)
    having = sorted(path.stem for path in (CONF / section).glob("*.yaml") if name and line.search(path.read_text()))
    said = [f"{section}={option}" for option in having]
    if said[SHOWN:]:
        said[EXAMPLES:] = [f"{len(said) - EXAMPLES} others"]
    if not said:
        return ""
    return f"{said[0]} has {key}" if not said[1:] else f"{', '.join(said[:-1])} and {said[-1]} have {key}"


def _known_keys(key: str, arguments: argparse.Namespace) -> list[str]:
    """The paths of all keys, for the groups that were chosen."""
    choices = [choice for choice in arguments.overrides if re.match(r"[\w/]+=", choice)]
    mode = RunMode.MULTIRUN if arguments.multirun else RunMode.RUN
    with loading(arguments) as loader:
        for overrides in ([choice for choice in choices if not choice.startswith(f"{key}=")], []):
            with contextlib.suppress(HydraException, OmegaConfBaseException):
                composed = loader.load_configuration(arguments.config_name or "config", overrides, mode)
                break
    known = ["experiment", *_paths(OmegaConf.to_container(composed), "")]
    # Hydra's own are many, and seldom what is meant.
    meant = ("hydra.",) if key.startswith("hydra") else tuple(find_usual(key.rpartition(".")[2]))
    return [other for other in known if not other.startswith("hydra.") or other.startswith(meant)]


def _paths(node: Any, path: str) -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        yield f"{path}{key}"
        yield from _paths(value, f"{path}{key}.")


def _modules_of(error: BaseException) -> list[str]:
    """The modules that an error passed through, the one that raised it last."""
    return [frame.f_globals["__name__"] for frame in _frames_of(error)]


def _frames_of(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _one_line(error: BaseException) -> str:
    """The first paragraph of a message, or of its cause's where it has none, and its key; search paths are left out."""
    key = error.full_key if isinstance(error, OmegaConfBaseException) else None
    text = str(error) if str(error).strip() else str(error.__cause__ or type(error).__name__)
    line = " ".join(text.strip().partition("\n\n")[0].partition("full_key:")[0].split())
    return f"{key}: {line}" if key else line
