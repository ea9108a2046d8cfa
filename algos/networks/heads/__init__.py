"""Action heads of all policies: how outputs become actions; NumPy's half.

`paddock.algos.networks.actor_critic` has what gradients need. Actors on workers need no more than this: they start without
torch.
"""

from paddock.algos.networks.heads.head import (
    LOG_2,
    LOG_2PI,
    LOG_STD,
    LOWEST,
    NO_LOG_STD,
    Floats,
    Gaussian,
    Head,
    LeafHead,
    sum_columns,
)
from paddock.algos.networks.heads.mixed import MixedHead, Section, make_head

__all__ = [
    "LOG_2",
    "LOG_2PI",
    "LOG_STD",
    "LOWEST",
    "NO_LOG_STD",
    "Floats",
    "Gaussian",
    "Head",
    "LeafHead",
    "MixedHead",
    "Section",
    "make_head",
    "sum_columns",
]
