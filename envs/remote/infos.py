"""Infos of a vector as a server says them, and the info of one row out of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from paddock.envs.remote.values import Garbled, decode
from paddock.envs.vector.contract import EnvError


def take_infos(said: bytes, id: str) -> dict[str, Any]:
    """Return the infos that a server said of an environment.

    Raises:
        EnvError: they are more than a message may have.
    """
    try:
        infos: dict[str, Any] = decode(said)
    except Garbled as error:
        raise EnvError(f"the infos of {id} cannot be read ({error}); start the server with serve.infos=none") from None
    return infos


def read_info(infos: Mapping[str, Any], row: int) -> dict[str, Any]:
    """Return the info of one row from a vector's."""
    found: dict[str, Any] = {}
    masks = {f"_{key}" for key in infos}
    for key, value in infos.items():
        if key in masks:
            continue
        if f"_{key}" in infos and not infos[f"_{key}"][row]:
            continue
        if isinstance(value, dict):
            found[key] = read_info(value, row)
        else:
            one = value[row]
            found[key] = one.item() if isinstance(one, np.bool_ | np.int64 | np.float64) else one
    return found
