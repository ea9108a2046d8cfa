"""Both sides of a peer whose messages are timed: its file plays with a server of itself in another process."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any


def run_sides(
    file: str, serve: Callable[[int], object], play: Callable[[str, int, Any], float], of: type = int
) -> None:
    """Serve, where the command line has a number of environments alone; else print what playing with a server gives.

    Args:
        file: the script, of which a server is started.
        serve: prints a port and answers for so many environments, until standard input ends.
        play: at a port with so many environments; what it gives is printed.
        of: what the second argument is, of which `play` is for as much.
    """
    num_envs, *rest = int(sys.argv[1]), *sys.argv[2:]
    if not rest:
        serve(num_envs)
        return
    command = [sys.executable, file, str(num_envs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        print(play(server.stdout.readline().strip(), num_envs, of(rest[0])))
        server.stdin.close()
