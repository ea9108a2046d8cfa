"""Dense policies and values that are evaluated and learn without torch: in C, or in NumPy to the same bits."""

import functools
import logging

from paddock.algos.networks.dense.actor_critic import (
    ActorCriticBackend,
    ActorCriticObjective,
    ActorCriticShape,
    ActorCriticState,
)
from paddock.algos.networks.dense.compiled import CompiledDense
from paddock.algos.networks.dense.compiled_actor_critic import CompiledActorCritic
from paddock.algos.networks.dense.compiled_q import CompiledQ
from paddock.algos.networks.dense.plain import PlainDense
from paddock.algos.networks.dense.plain_actor_critic import PlainActorCritic
from paddock.algos.networks.dense.plain_q import PlainQ
from paddock.algos.networks.dense.q import QBackend
from paddock.algos.networks.dense.shape import DenseBackend, DenseShape
from paddock.envs.errors import ConfigError

log = logging.getLogger(__name__)


def make_backend(shape: DenseShape, threads: int) -> DenseBackend:
    """Return what computes networks of a shape: C where it was built, else NumPy."""
    try:
        return CompiledDense(shape, threads)
    except ConfigError as error:
        _tell(str(error))
        return PlainDense(shape)


def make_q_backend(shape: DenseShape, threads: int, sparse: bool) -> QBackend:
    """Return what learns action values, of sparse rows or of others: C where it was built, else NumPy."""
    try:
        return CompiledQ(shape, threads, sparse)
    except ConfigError as error:
        _tell(str(error))
        return PlainQ(shape)


def make_actor_critic(
    shape: ActorCriticShape, objective: ActorCriticObjective, state: ActorCriticState, threads: int
) -> ActorCriticBackend:
    """Return what lets an actor and its critics learn, from a state on."""
    try:
        return CompiledActorCritic(shape, objective, state, threads)
    except ConfigError as error:
        _tell(str(error))
        return PlainActorCritic(shape, objective, state)


@functools.cache
def _tell(why: str) -> None:
    """Say it once a process."""
    log.warning("dense networks learn in NumPy, to the same bits and much more slowly: %s", why)
