"""Action masks, which give illegal actions probability 0."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads.head import Floats, Path
from paddock.envs.spaces.codecs import dotted
from paddock.envs.spaces.legal import MASK
from paddock.envs.vector.contract import EnvError

LOWEST = float(np.finfo(np.float32).min)  # logit of an illegal action, whose probability is exactly 0


def mask(out: Floats, legal: NDArray[np.bool_], sizes: Sequence[int], path: Path) -> Floats:
    """Return logits [B, W], lowest for actions that are not `legal`; raise EnvError if a component has no legal one."""
    possible = np.logical_or.reduceat(legal, np.cumsum((0, *sizes[:-1])), axis=1)
    if not possible.all():
        row, k = np.argwhere(~possible)[0]
        which = f", component {k}," if len(sizes) > 1 else ""
        raise EnvError(
            f"{dotted((MASK, *path))}{which} allows none of {sizes[k]} choices in row {row}; "
            "environments must allow at least one until the episode ends"
        )
    return np.where(legal, out, np.float32(LOWEST))
