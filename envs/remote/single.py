"""Environment at a server as a Gymnasium environment, registered as REMOTE_ID."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from paddock.envs.errors import require
from paddock.envs.multiagent.adapter import SingleAgentEnv
from paddock.envs.remote.offer import REMOTE_ID
from paddock.envs.remote.parallel import RemoteParallelEnv


class RemoteEnv(SingleAgentEnv):
    """Environment of a server; a step takes one message in each direction."""

    def __init__(
        self,
        address: str | Sequence[str],
        token_file: str | None = None,
        tls: Mapping[str, str | None] | None = None,
        wait_s: float = 120.0,
        render_mode: str | None = None,
        *,
        remote: RemoteParallelEnv | None = None,
    ) -> None:
        """Ask a server for its offer, unless `remote` has it; the other arguments are those of `RemoteParallelEnv`.

        Raises:
            ConfigError: gRPC is not installed, or the server refuses.
            EnvError: it cannot be reached.
        """
        require(render_mode is None, f"render_mode={render_mode}: servers do not render; remove it")
        self._remote = remote or RemoteParallelEnv(address, token_file, tls, wait_s)
        seats, id = self._remote.offer.seats, self._remote.offer.environment["id"]
        several = f"vec.address={address} serves {id} with {seats} agents; use RemoteParallelEnv"
        require(seats == 1, several)
        super().__init__(self._remote)


def make(
    address: str | Sequence[str],
    world: str | None = None,
    agents: Sequence[str] | None = None,
    render_mode: str | None = None,
    **connection: Any,
) -> RemoteEnv | RemoteParallelEnv:
    """Return a server's environment: a RemoteEnv for one agent, a RemoteParallelEnv for several."""
    remote = RemoteParallelEnv(address, world=world, agents=agents, **connection)
    return remote if remote.offer.seats > 1 else RemoteEnv(address, render_mode=render_mode, remote=remote)


# Without a time limit: the server applies its own.
gymnasium.register(REMOTE_ID.partition(":")[2], "paddock.envs.remote.single:RemoteEnv", disable_env_checker=True)
