"""What is said where numbers are no finite ones any more, and what may be done about it."""

from paddock.envs.errors import PaddockError

MEND = "mend it in the environment, or by a wrapper that env.wrappers names"
REMEDY = "learning has diverged; lower algo.learning_rate, or look at rewards with env.metrics and paddock.check"


class Diverged(PaddockError):
    """Parameters or losses are no finite numbers any more."""

    exit_code = 1
