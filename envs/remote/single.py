"""One environment at a server as a Gymnasium environment, for anyone's code; registered as REMOTE_ID.

`make` gives one of worlds too: see `paddock.envs.remote.parallel`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from paddock.envs.errors import ConfigError
from paddock.envs.remote.offer import REMOTE_ID
from paddock.envs.remote.parallel import RemoteParallelEnv
from paddock.envs.remote.served import Served, read_info
from paddock.envs.spaces.parts import Misfit
from paddock.envs.vector.contract import VectorMisuse


class RemoteEnv(gymnasium.Env[Any, Any]):
    """The environment that a server offers; each step is a message there and one back."""

    def __init__(
        self,
        address: str | Sequence[str],
        token_file: str | None = None,
        tls: Mapping[str, str | None] | None = None,
        wait_s: float = 120.0,
        render_mode: str | None = None,
        *,
        served: Served | None = None,
    ) -> None:
        """Ask a server for its offer; the first reset opens a session.

        Args:
            address: of the server, HOST:PORT or unix:PATH; of several, others stand in for one that goes later.
            token_file: with the server's token; None: PADDOCK_TOKEN, if that is set.
            tls: PEM files `ca`, `cert` and `key`; None: no encryption.
            wait_s: seconds for which a server that is away is tried again.
            served: the offer, if it is known already.

        Raises:
            ConfigError: gRPC is not installed, or the server refuses.
            EnvError: it cannot be reached.
        """
        if render_mode is not None:
            raise ConfigError(f"render_mode={render_mode}: a server shows no pictures; leave it out")
        self.metadata = {"render_modes": []}
        self._served = served or Served(address, token_file, tls, wait_s)
        self.offer = self._served.offer
        seats, id = self.offer.seats, self.offer.environment["id"]
        if seats > 1:
            raise ConfigError(f"vec.address={address} serves {id}, a world of {seats} agents; take a RemoteParallelEnv")
        (role,) = self.offer.roles
        self.observation_space, self.action_space = role.observation_space, role.action_space
        self._observations, self._actions = role.observations, role.actions
        self._action = self._actions.zeros(1)
        self._write = self._actions.writer(self._action)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        rows, infos = self._served.open().reset(seed=[seed], options=options)
        return self._read(rows), read_info(infos, 0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step; raises VectorMisuse for an action that is not of the space, or before the first reset."""
        venv = self._served.begun()
        try:
            self._write(0, action)
        except Misfit as misfit:
            raise VectorMisuse(f"step: the action has {misfit}; take one of {self.action_space}") from None
        rows, reward, terminated, truncated, infos = venv.step(self._action)
        return self._read(rows), float(reward[0]), bool(terminated[0]), bool(truncated[0]), read_info(infos, 0)

    def signal(self, key: str, value: Any) -> None:
        """Have the environment's `receive_signal(key, value)` called before its next reset or step.

        Raises:
            VectorMisuse: it has none, or the value is no plain data of at most 64 kB.
        """
        self._served.open().signal(key, value)

    def close(self) -> None:
        """Close the session."""
        self._served.close()

    def _read(self, rows: Any) -> Any:
        return self._observations.reader(rows)(0)


def make(
    address: str | Sequence[str],
    world: str | None = None,
    agents: Sequence[str] | None = None,
    render_mode: str | None = None,
    **connection: Any,
) -> "RemoteEnv | RemoteParallelEnv":
    """Return a server's environment, a RemoteEnv or a RemoteParallelEnv; arguments are those of either."""
    served = Served(address, **connection)
    if served.offer.seats == 1 and world is None and agents is None:
        return RemoteEnv(address, render_mode=render_mode, served=served)
    return RemoteParallelEnv(address, world=world, agents=agents, served=served)


# The server's own limit is at work there.
gymnasium.register(REMOTE_ID.partition(":")[2], "paddock.envs.remote.single:RemoteEnv", disable_env_checker=True)
