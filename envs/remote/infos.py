"""The info of one row out of a vector's."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def read_info(infos: Mapping[str, Any], row: int) -> dict[str, Any]:
    """Return the info of one row from a vector's."""
    found: dict[str, Any] = {}
    for key, value in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        if f"_{key}" in infos and not infos[f"_{key}"][row]:
            continue
        if isinstance(value, dict):
            found[key] = read_info(value, row)
        else:
            one = value[row]
            found[key] = one.item() if isinstance(one, np.bool_ | np.int64 | np.float64) else one
    return found
