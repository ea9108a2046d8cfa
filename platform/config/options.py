"""The section `compute` as a command or a program asks for it, outside a run."""

from collections.abc import Sequence
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .compose import compose_alone, hydra_parser
from .mistakes import composition_error


def compose_sections(names: Sequence[str], overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Sections of the configuration as plain data, such as `compute`, composed with some overrides.

    Raises:
        ConfigError: an override names no option or key.
    """
    hydra = GlobalHydra.instance()
    callers = hydra.hydra  # of a program that uses Hydra itself
    try:
        composed = compose_alone([*overrides])
        sections: Any = {name: OmegaConf.to_container(composed[name], resolve=True) for name in names}
        return sections
    except (HydraException, OmegaConfBaseException) as error:
        raise composition_error(error, hydra_parser().parse_args([*overrides])) or error from error
    finally:
        hydra.hydra = callers
