"""Action heads, which map network outputs to actions. Each distribution is one class in one file.

Methods for acting use NumPy, so that workers start without torch; methods for training use torch.
"""

from paddock.algos.networks.heads.categorical import Categorical
from paddock.algos.networks.heads.composite import Composite, Head
from paddock.algos.networks.heads.deterministic import Binary, Tanh
from paddock.algos.networks.heads.gaussian import LOG_2PI, sum_columns
from paddock.algos.networks.heads.head import NO_LOG_STD, Floats, LeafHead
from paddock.algos.networks.heads.make import make_head
from paddock.algos.networks.heads.masked import LOWEST
from paddock.algos.networks.heads.numbers import Numbers
from paddock.algos.networks.heads.squashed_gaussian import LOG_2, LOG_STD, SoftGaussian

__all__ = [
    "LOG_2",
    "LOG_2PI",
    "LOG_STD",
    "LOWEST",
    "NO_LOG_STD",
    "Binary",
    "Categorical",
    "Composite",
    "Floats",
    "Head",
    "LeafHead",
    "Numbers",
    "SoftGaussian",
    "Tanh",
    "make_head",
    "sum_columns",
]
