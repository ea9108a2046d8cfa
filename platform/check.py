"""Check an environment: play it, and say what is wrong with it for who needs repeatable results.

python -m paddock.check env=bipedal
"""

import sys
from collections.abc import Sequence
from typing import Any

from envs.errors import ConfigError, nearest, require
from envs.spec import EnvSpec

from .config.build import build
from .config.command import run_command
from .config.niche import settle_niche
from .config.overrides import compose_sections
from .health.env_checks import check_env
from .health.installed import print_findings

KEYS = ("env", "steps")

HELP = """\
Check an environment: it is played at random and compared with itself; a line for each thing, `ok`, `warn` or `FAIL`.

    python -m paddock.check env=NAME [key=value ...]

    env=NAME          an option of conf/env; env=gymnasium env.id=ID for any other
    env.KEY=VALUE     a key of it, such as env.fresh=false
    steps=1000        steps to play at first; the first episodes are then played again, in other places

Exit codes: 0 every episode depends on its seed alone, 1 something FAILs, 2 bad input.
"""


def main() -> int:
    """The command `paddock.check`; see `run_command` for the exit codes, and 1 where a check failed."""
    code = 0

    def command(arguments: Sequence[str]) -> None:
        nonlocal code
        code = print_findings(check_env(*read(arguments)))

    return run_command(HELP, command) or code


def read(arguments: Sequence[str]) -> tuple[EnvSpec, int]:
    """Return the environment that the arguments name, and how many steps to play it.

    Raises:
        ConfigError: an argument is unknown or out of range, or names a family of environments.
    """
    overrides, steps = [], 1000
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not (key in KEYS or key.startswith("env.")):
            raise ConfigError(f"{argument} is not an argument of check; {nearest(key, KEYS)} (see --help)")
        if key == "steps":
            require(value.isdecimal() and int(value) >= 1, f"{argument} must be a whole number, at least 1")
            steps = int(value)
        else:
            overrides.append(argument)
    require(any(override.startswith("env=") for override in overrides), "no environment is named; give env=NAME")
    recipe: Any = build("env", settle_niche(compose_sections(["env"], overrides)["env"]))
    what = f"env: {type(recipe).__name__} is a family of environments"
    require(isinstance(recipe, EnvSpec), f"{what}, and one is checked at a time; choose one, as env=terrain")
    return recipe, steps


if __name__ == "__main__":
    sys.exit(main())
