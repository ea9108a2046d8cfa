"""Environment server over gRPC for clients with vec=remote.

python -m paddock.serve env=bipedal vec=multiprocess vec.num_envs=256
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from paddock.envs.errors import ConfigError, install, require
from paddock.envs.family import Family

from .config.build import build, call_checked
from .config.command import run_command
from .config.compose import compose_sections
from .runs.loop import Signals

if TYPE_CHECKING:
    from paddock.envs.remote.server.service import EnvironmentServer


POLL_S = 0.2


def main() -> int:
    """Run the command `paddock.serve`."""
    return run_command("serve", _command)


def _command(arguments: Sequence[str]) -> int:
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    with closing(start(arguments)) as server:
        return _wait(server)


def start(arguments: Sequence[str]) -> "EnvironmentServer":
    """Start the server that the arguments describe; raise ConfigError for bad input."""
    # Imported late, since gRPC is optional.
    try:
        from paddock.envs.remote.server.service import EnvironmentServer
        from paddock.envs.remote.server.settings import ServerSettings
    except ImportError as error:
        raise ConfigError(f"serving needs {error.name}: {install('remote')}") from error
    from paddock.algos.learning.rollouts.config import MAX_EPISODE_STEPS
    from paddock.envs.vector import Auto, Remote

    sections = compose_sections(["env", "vec", "serve"], ["--config-name=serve", *arguments])
    spec: Any = build("env", sections["env"])
    single = "env: a family of environments; choose a single one, such as env=terrain"
    require(not isinstance(spec, Family), single)
    vec: Any = build("vec", sections["vec"])
    require(not isinstance(vec, Remote), "vec=remote is for clients; choose multiprocess, serial, native or auto")
    if isinstance(vec, Auto):
        vec = build("vec", vec.choose(spec, False, print))
    address = sections["serve"]["address"]
    require(isinstance(address, str), f"serve.address={address} is not an address; use HOST:PORT or unix:PATH")
    settings = call_checked("serve", ServerSettings, sections["serve"])
    spec = spec.limited(MAX_EPISODE_STEPS)  # the limit of rollouts
    vec.check(spec)
    server = EnvironmentServer(spec, vec, settings)
    print(f"serving {spec.id} at {server.address}, {vec.num_envs} environments, vec={type(vec).__name__.lower()}")
    print(f"  python -m paddock algo=ppo env=remote vec=remote vec.address={server.address}", flush=True)
    return server


def _wait(server: "EnvironmentServer") -> int:
    """Serve until a signal; exit immediately on a second one."""
    with Signals(lambda number: None) as signals:
        while signals.caught is None:
            time.sleep(POLL_S)
        count = len(server.sessions.list())
        message = f"stopping: waiting for the running requests of {count} sessions; Ctrl-C again quits now"
        print(message, file=sys.stderr, flush=True)
        if server.drain():
            print("stopped", file=sys.stderr)
            return 0
        print("stopped with requests still running", file=sys.stderr, flush=True)
        os._exit(128 + signal.SIGTERM)  # a normal exit would wait for busy environment threads


if __name__ == "__main__":
    sys.exit(main())
