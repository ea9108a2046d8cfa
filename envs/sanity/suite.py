"""Tasks of the sanity suite, from simple to complex: after a failure, later tasks may fail for the same reason."""

from paddock.envs.sanity.aim import AIM
from paddock.envs.sanity.bandit import BANDIT
from paddock.envs.sanity.cutoff import CUTOFF, CUTOFF_TWIN
from paddock.envs.sanity.delay import DELAY
from paddock.envs.sanity.discount import DISCOUNT
from paddock.envs.sanity.memory import COPY, FORGET, RECALL
from paddock.envs.sanity.mixing import BLEND
from paddock.envs.sanity.password import PASSWORD
from paddock.envs.sanity.relay import RELAY
from paddock.envs.sanity.roles import ROLES
from paddock.envs.sanity.squared import SQUARED
from paddock.envs.sanity.structured import MASKED, SPACES

SUITE = (
    *(BANDIT, FORGET, AIM, MASKED, SPACES, BLEND),  # steps depend on each other only through memory
    *(CUTOFF, CUTOFF_TWIN, DISCOUNT, DELAY),  # values of later steps
    *(PASSWORD, SQUARED),  # several decisions
    *(RECALL, COPY),  # memory of several steps
)
MULTIAGENT = (ROLES, RELAY)
