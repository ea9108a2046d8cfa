"""The tasks of the sanity suite, the simplest first: where one fails, those after it may fail of the same."""

from paddock.envs.sanity.aim import AIM
from paddock.envs.sanity.bandit import BANDIT
from paddock.envs.sanity.cutoff import CUTOFF, CUTOFF_TWIN
from paddock.envs.sanity.delay import DELAY
from paddock.envs.sanity.memory import COPY, FORGET, RECALL
from paddock.envs.sanity.mixing import BLEND
from paddock.envs.sanity.password import PASSWORD
from paddock.envs.sanity.relay import RELAY
from paddock.envs.sanity.roles import ROLES
from paddock.envs.sanity.squared import SQUARED
from paddock.envs.sanity.structured import MASKED, SPACES

SUITE = (BANDIT, PASSWORD, SQUARED, AIM, BLEND, DELAY, CUTOFF, CUTOFF_TWIN, MASKED, SPACES, RECALL, FORGET, COPY)
WORLDS = (ROLES, RELAY)  # of several agents
