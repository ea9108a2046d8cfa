"""An environment at a server for one client: the offer, and the session that the first reset opens there."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode

from paddock.envs.vector.contract import VectorMisuse
from paddock.envs.vector.remote import make_endpoint

if TYPE_CHECKING:
    from paddock.envs.remote.client.vector import RemoteVectorEnv


class Served:
    """One environment at a server; the arguments are those of `RemoteEnv`.

    Attributes:
        offer: the served environment.
        claim: which agents of which joint environment are asked for, as `RemoteVectorEnv` takes them; empty: it is not
            joint.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        token_file: str | None = None,
        tls: Mapping[str, str | None] | None = None,
        wait_s: float = 120.0,
    ) -> None:
        self._endpoint = make_endpoint(address, token_file, tls or {}, wait_s)
        self.offer = self._endpoint.offers()[0]
        self.claim: dict[str, Any] = {}
        self._venv: RemoteVectorEnv | None = None

    def open(self) -> "RemoteVectorEnv":
        """Return the rows at the server; the first call opens a session."""
        from paddock.envs.remote.client.vector import RemoteVectorEnv

        if self._venv is None:
            own: dict[str, Any] = {"autoreset": AutoresetMode.DISABLED, "packed": True, **self.claim}
            self._venv = RemoteVectorEnv(None, 1, self._endpoint, **own)
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


def read_info(infos: Mapping[str, Any], row: int) -> dict[str, Any]:
    """Return the info of one row from a vector's."""
    found: dict[str, Any] = {}
    masks = {f"_{key}" for key in infos}
    for key, value in infos.items():
        if key in masks or (f"_{key}" in infos and not infos[f"_{key}"][row]):
            continue
        if isinstance(value, dict):
            found[key] = read_info(value, row)
        else:
            one = value[row]
            found[key] = one.item() if isinstance(one, np.bool_ | np.int64 | np.float64) else one
    return found
