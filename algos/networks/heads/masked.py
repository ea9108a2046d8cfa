"""Action masks: choices that may not be taken have probability 0."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads.head import Floats, Path
from paddock.envs.spaces.codecs import dotted
from paddock.envs.spaces.legal import MASK
from paddock.envs.vector.contract import EnvError

LOWEST = float(np.finfo(np.float32).min)  # the score of a choice that may not be taken: its probability is exactly 0


def mask(out: Floats, legal: NDArray[np.bool_], sizes: Sequence[int], path: Path) -> Floats:
    """Return scores [B, W] of choices, the lowest for those that are not legal [B, W].

    Args:
        out: scores.
        legal: which choices may be taken.
        sizes: choices of each component.
        path: of the leaf in the action space.

    Raises:
        EnvError: a component has nothing legal.
    """
    possible = np.logical_or.reduceat(legal, np.cumsum((0, *sizes[:-1])), axis=1)
    if not possible.all():
        row, k = np.argwhere(~possible)[0]
        which = f", component {k}," if len(sizes) > 1 else ""
        raise EnvError(
            f"{dotted((MASK, *path))}{which} allows none of {sizes[k]} choices in row {row}; an "
            "environment must leave at least one as long as its episode lasts"
        )
    return np.where(legal, out, np.float32(LOWEST))
