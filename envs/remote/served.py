"""What a server has for one client: the offer, and the environment or world that the first order makes there."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from paddock.envs.vector.contract import VectorMisuse
from paddock.envs.vector.remote import make_place

if TYPE_CHECKING:
    from paddock.envs.remote.client.vector import RemoteVectorEnv


class Served:
    """One environment or world at a server; the arguments are those of `RemoteEnv`.

    Attributes:
        offer: what the server serves.
        claim: which seats of which joint world are asked for, as `RemoteVectorEnv` takes them; empty: a world of one's
            own.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        token_file: str | None = None,
        tls: Mapping[str, str | None] | None = None,
        wait_s: float = 120.0,
    ) -> None:
        self._place = make_place(address, token_file, tls or {}, wait_s)
        self.offer = self._place.offers()[0]
        self.claim: dict[str, Any] = {}
        self._venv: RemoteVectorEnv | None = None

    def open(self) -> "RemoteVectorEnv":
        """Return the rows at the server, which are made there by the first call."""
        from paddock.envs.remote.client.vector import RemoteVectorEnv

        if self._venv is None:
            own: dict[str, Any] = {"autoreset": AutoresetMode.DISABLED, "packed": True, **self.claim}
            self._venv = RemoteVectorEnv(None, 1, self._place, **own)
        return self._venv

    def begun(self) -> "RemoteVectorEnv":
        """Return the rows for a step; raises VectorMisuse before the first reset."""
        if self._venv is None:
            raise VectorMisuse("step: no episode has begun; call reset first")
        return self._venv

    def close(self) -> None:
        """Close the session."""
        if self._venv is not None:
            self._venv.close()
            self._venv = None
