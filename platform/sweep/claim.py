"""The folder of a grid of runs: one of its own, though another command may begin in the same second."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from envs.errors import ConfigError

from ..config.overrides import spell_override

KEY = "hydra.sweep.dir"


@contextlib.contextmanager
def claim_folder(sweep: DictConfig, arguments: argparse.Namespace) -> Iterator[None]:
    """Make the folder of a grid that is named by the time, and have Hydra use it; any other stays as it is.

    Args:
        sweep: its configuration, Hydra's part included, which is told of the folder.
        arguments: of the command line, which Hydra will read.

    Raises:
        ConfigError: it cannot be made.
    """
    keys: Any = OmegaConf.to_container(sweep.hydra.sweep, resolve=False)
    if "${now:" not in str(keys["dir"]):
        yield
        return
    wanted = Path(sweep.hydra.sweep.dir)
    above = [folder for folder in wanted.parents if not folder.exists()]
    path = _make_new(wanted)
    with open_dict(sweep):
        sweep.hydra.sweep.dir = str(path)
    arguments.overrides.append(spell_override(KEY, path))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # something is in it
            for folder in (path, *above):
                folder.rmdir()


def _make_new(path: Path) -> Path:
    """Make a folder that there was not, of this name or of the first one behind it that is free."""
    free, n = path, 2
    while True:
        try:
            free.mkdir(parents=True)
            return free
        except FileExistsError:
            free, n = path.with_name(f"{path.name}-{n}"), n + 1
        except OSError as error:
            raise ConfigError(f"{KEY}={path} cannot be made ({error.strerror}); choose another with {KEY}=") from error
