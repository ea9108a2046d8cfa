"""The tasks of the sanity suite, the simplest first: where one fails, those after it may fail of the same."""

import envs.tasks.recall  # noqa: F401, registers it
from envs.sanity.aim import AIM
from envs.sanity.bandit import BANDIT, PUFFER_BANDIT
from envs.sanity.cutoff import CUTOFF, CUTOFF_TWIN
from envs.sanity.delay import DELAY
from envs.sanity.memory import COPY, FORGET, PUFFER_MEMORY, RECALL
from envs.sanity.mixing import BLEND, PUFFER_STOCHASTIC
from envs.sanity.password import PASSWORD, PUFFER_PASSWORD
from envs.sanity.relay import RELAY
from envs.sanity.roles import ROLES
from envs.sanity.squared import SQUARED
from envs.sanity.structured import MASKED, PUFFER_SPACES, SPACES

SUITE = (BANDIT, PASSWORD, SQUARED, AIM, BLEND, DELAY, CUTOFF, CUTOFF_TWIN, MASKED, SPACES, RECALL, FORGET, COPY)
PUFFER = (PUFFER_BANDIT, PUFFER_PASSWORD, PUFFER_STOCHASTIC, PUFFER_MEMORY, PUFFER_SPACES)  # squared is the same
WORLDS = (ROLES, RELAY)  # of several agents
