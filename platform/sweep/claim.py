"""Folder of a grid of runs, claimed by one command."""

import argparse
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf, open_dict

from paddock.envs.errors import ConfigError, require

from .. import CONF
from ..config.command import display_path, format_main_command
from ..config.overrides import format_override
from ..runs.folder import check_writable, free_path, holds_run

KEY = "hydra.sweep.dir"
NOTE = "multirun.yaml"  # written by Hydra: configuration and arguments


@contextlib.contextmanager
def claim_folder(sweep: DictConfig, arguments: argparse.Namespace) -> Iterator[None]:
    """Create the time-stamped folder of a grid; set it in the sweep's configuration and the arguments.

    If a signal ends the grid, print the command that resumes it.
    """
    keys: Any = OmegaConf.to_container(sweep.hydra.sweep, resolve=False)
    path, made = Path(sweep.hydra.sweep.dir), list[Path]()
    if "${now:" in str(keys["dir"]):
        above = [folder for folder in path.parents if not folder.exists()]
        path = _make_new(path)
        made = [path, *above]
        with open_dict(sweep):
            sweep.hydra.sweep.dir = str(path)
        arguments.overrides.append(format_override(KEY, path))
    try:
        yield
    except SystemExit:
        print_resume_commands([path])
        raise
    finally:
        with contextlib.suppress(OSError):  # not empty
            if made and [entry.name for entry in path.iterdir()] == [NOTE]:
                (path / NOTE).unlink()
            for folder in made:
                folder.rmdir()


def check_folder(folder: str) -> None:
    """Raise ConfigError if the folder of a sweep cannot be created or written; create nothing."""
    require(folder != "", f"{KEY}= is empty, which would put runs in /; set a folder or remove it")
    path = Path(folder)
    for parent in path.absolute().parents:
        require(not holds_run(parent), f"{KEY}={display_path(path)} is inside a run folder; choose another")
    try:
        check_writable(path)
    except OSError as error:
        what = f"{KEY}={display_path(path)} cannot be written ({error.strerror})"
        raise ConfigError(f"{what}; choose another folder") from error


def print_resume_commands(folders: Iterable[Path]) -> None:
    """Print the command that resumes each of the grids in these folders."""
    for folder in dict.fromkeys(folders):
        line = _format_resume_command(folder)
        if line is not None:
            print(f"  {line}  # resumes the grid", flush=True)


def _format_resume_command(folder: Path) -> str | None:
    try:
        hydra = yaml.safe_load((folder / NOTE).read_text())["hydra"]
        hydra_items = [item for item in hydra["overrides"]["hydra"] if not item.startswith((f"{KEY}=", "hydra.mode="))]
        places = {source["provider"]: source["path"] for source in hydra["runtime"]["config_sources"]}
        name, task = hydra["job"]["config_name"], hydra["overrides"]["task"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return None
    flags = {"--config-dir": places.get("command-line"), "--config-path": places.get("main"), "--config-name": name}
    usual = {"--config-path": str(CONF), "--config-name": "config"}
    words = [word for flag, value in flags.items() if value not in (None, usual.get(flag)) for word in (flag, value)]
    place = folder.absolute() if folder.absolute() == Path.cwd() else Path(display_path(folder))
    return format_main_command([*words, *task, "--multirun", *hydra_items, format_override(KEY, place)])


def _make_new(path: Path) -> Path:
    while True:
        try:
            free = free_path(path)
            free.mkdir(parents=True)
            return free
        except FileExistsError:  # just made by another process
            continue
        except OSError as error:
            raise ConfigError(f"{KEY}={path} cannot be created ({error.strerror}); choose another folder") from error
