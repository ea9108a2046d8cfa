"""Error and remedies for values that are not finite."""

from paddock.envs.errors import PaddockError

OBSERVATION_REMEDY = "fix the environment, or add a wrapper to env.wrappers"
REMEDY = "training diverged; reduce algo.learning_rate, or inspect the rewards with paddock.check"


class Diverged(PaddockError):
    """Parameters or losses are NaN or infinite."""

    exit_code = 1
