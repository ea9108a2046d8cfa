"""Off-policy actor-critic learners with dense networks in C: shapes, objectives and the interface to `src/dense.h`.

Parameters stay in C between calls. Calls release the GIL.
"""

import copy
import ctypes
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense import library
from paddock.algos.networks.dense.compiled import limit_threads
from paddock.algos.networks.dense.shape import MOMENTUM_DECAY, VARIANCE_DECAY, Floats, adam_scales
from paddock.algos.networks.flat import Activation
from paddock.envs.errors import require

REPORTED = ("critic_loss", "q_mean", "actor_loss", "alpha", "entropy")  # the last two for soft policies only

_POINTER = ctypes.c_void_p
MAX_INTERVAL = 2**31 - 1  # updates between steps, an int in C
MIN_WORK = 10_000_000  # multiplications that justify starting another thread


@dataclass(frozen=True)
class SoftPolicy:
    """SAC's policy (Haarnoja et al. 2018, arXiv:1812.05905): squashed Gaussian or categorical."""

    alpha: float  # entropy coefficient; the initial one if learned
    learned: bool  # adapt alpha with the loss -log(alpha) (log pi + target_entropy)
    target_entropy: float  # nats; usually -A, or a fraction of log K for discrete actions


@dataclass(frozen=True)
class DeterministicPolicy:
    """Policy of TD3 (Fujimoto et al. 2018, arXiv:1802.09477) and DDPG: tanh of the outputs."""

    target_noise: float  # standard deviation of target policy smoothing, for actions in [-1, 1]
    target_noise_clip: float  # bound of that noise


@dataclass(frozen=True)
class ActorCriticObjective:
    """Training objective of an actor and its critics, with the losses of Stable-Baselines3.

    The critic loss is the sum over critics of mean squared errors, halved for soft policies.
    """

    policy: SoftPolicy | DeterministicPolicy
    num_critics: int  # 1 or 2 (in torch, any); targets use the minimum, deterministic actors the first
    tau: float  # Polyak coefficient of the targets; 1 copies
    target_every: int  # updates between target updates
    actor_every: int  # updates between steps of the actor and of alpha

    @property
    def soft(self) -> bool:
        """Return True for stochastic policies with entropy bonus."""
        return isinstance(self.policy, SoftPolicy)

    @property
    def draws(self) -> int:
        """Noise vectors per row: two for soft policies (next and current action), else one."""
        return 2 if self.soft else 1


@dataclass(frozen=True)
class ActorCriticShape:
    """Layer widths of the actor and of each critic. Flat vectors are in torch's order, critic by critic."""

    actor: tuple[int, ...]  # outputs: A actions; for soft policies A means and A log deviations, or K logits
    critic: tuple[int, ...]  # inputs: observation and action; outputs: 1, or K values of discrete actions
    activation: Activation
    masked: bool = False  # observations end with an action mask [K]

    @property
    def observed(self) -> int:
        """Number of features O."""
        return self.actor[0]

    @property
    def width(self) -> int:
        """Width of an observation row, including the action mask."""
        return self.observed + (self.choices if self.masked else 0)

    @property
    def actions(self) -> int:
        """Dimension A of continuous actions; 0 if discrete."""
        return self.critic[0] - self.actor[0]

    @property
    def choices(self) -> int:
        """Number K of discrete actions; 0 if continuous."""
        return 0 if self.actions else self.critic[-1]


@dataclass(frozen=True)
class Transitions:
    """Batches of U updates with B transitions each."""

    observation: Floats  # [U, B, width]
    action: Floats  # [U, B, A] in [-1, 1]; or [U, B, 1], indices of discrete actions
    reward: Floats  # [U, B]
    next_observation: Floats  # [U, B, width]
    discount: Floats  # [U, B]; 0 where the episode terminated
    weight: Floats  # [U, B], of each row's loss
    noise: Floats  # [U, draws, B, A], standard normal; empty for discrete actions


class _Settings(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("actor", "critic")),
        *((name, ctypes.c_int32) for name in ("actor_layers", "critic_layers", "critics", "relu", "soft", "learned")),
        *((name, ctypes.c_int32) for name in ("target_every", "actor_every", "threads", "masked")),
        *((name, ctypes.c_float) for name in ("alpha", "target_entropy", "target_noise", "target_noise_clip", "tau")),
        *((name, ctypes.c_float) for name in ("epsilon", "momentum_decay", "variance_decay")),
    )


class _Batches(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("observation", "action", "reward", "next_observation", "discount", "weight")),
        *((name, _POINTER) for name in ("noise", "rates", "deviations", "actor_rates", "actor_deviations")),
        *((name, _POINTER) for name in ("log_alpha", "actor_report", "report", "distance")),
        *((name, ctypes.c_int64) for name in ("updates", "rows", "before")),
        ("threads", ctypes.c_int32),
    )


class CompiledActorCritic:
    """Actor and critics trained in C; results do not depend on the number of threads."""

    def __init__(
        self,
        shape: ActorCriticShape,
        objective: ActorCriticObjective,
        state: Mapping[str, Any],
        *,
        adam_epsilon: float,
        threads: int,
    ) -> None:
        self._functions = library.functions()
        self._shape, self._objective = shape, objective
        self._threads = limit_threads(threads)
        policy = objective.policy
        soft = isinstance(policy, SoftPolicy)
        self._sizes = [np.array(each, np.int32) for each in (shape.actor, shape.critic)]
        settings = _Settings(
            *(each.ctypes.data for each in self._sizes),
            *(len(each) - 1 for each in self._sizes),
            objective.num_critics,
            shape.activation == "relu",
            soft,
            isinstance(policy, SoftPolicy) and policy.learned,
            min(objective.target_every, MAX_INTERVAL),
            min(objective.actor_every, MAX_INTERVAL),
            self._threads,
            shape.masked,
            *((policy.alpha, policy.target_entropy) if isinstance(policy, SoftPolicy) else (0, 0)),
            *((0, 0) if isinstance(policy, SoftPolicy) else (policy.target_noise, policy.target_noise_clip)),
            objective.tau,
            adam_epsilon,
            MOMENTUM_DECAY,
            VARIANCE_DECAY,
        )
        self._learner = self._functions.actor_critic_open(ctypes.byref(settings))
        require(bool(self._learner), f"out of memory for networks of {shape.actor} and {shape.critic}")
        weakref.finalize(self, self._functions.actor_critic_close, self._learner)
        self.write(state)

    def read(self) -> dict[str, Any]:
        """Return a copy of the state.

        It has `parameters`, `momentum`, `variance` and `steps` of `actor`, `critics` and `log_alpha`, with keys such as
        `actor_parameters`; `target_critics` and `target_actor`, empty for soft policies; `told`, the loss and entropy
        of the last actor update; and the number of `updates`.
        """
        self._functions.actor_critic_save(self._learner, *self._vectors())
        return copy.deepcopy(self._state)

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the state by a copy."""
        self._state = copy.deepcopy(dict(state))  # large vectors may be older than those in C
        self._functions.actor_critic_load(self._learner, *self._vectors())

    def actor(self) -> Floats:
        """Return a copy of the actor's parameters [Pa]."""
        found = np.empty_like(self._state["actor_parameters"])
        vectors = library.Vectors(found.ctypes.data, None, None, None)
        self._functions.actor_critic_save(self._learner, ctypes.byref(vectors), None)
        return found

    def _vectors(self) -> list[Any]:
        views = []
        for name in ("actor", "critics"):
            names = f"{name}_parameters", f"target_{name}", f"{name}_momentum", f"{name}_variance"
            arrays = [self._state[each] for each in names]
            assert all(array.dtype == np.float32 and array.flags.c_contiguous for array in arrays)
            assert all(array.shape == arrays[0].shape or not array.size for array in arrays)
            views.append(library.Vectors(*(array.ctypes.data if array.size else None for array in arrays)))
        return [*map(ctypes.byref, views)]

    def _count_threads(self, rows: int) -> int:
        """Return the number of threads for some rows; each row uses each weight about five times."""
        weights = self._state["actor_parameters"].size + self._state["critics_parameters"].size
        return max(min(self._threads, 5 * weights * rows // MIN_WORK), 1)

    def update(self, transitions: Transitions, rate: float) -> tuple[NDArray[np.float64], Floats]:
        """Make U updates; return the REPORTED metrics [U, 5] and mean absolute TD errors [U, B]."""
        state, objective, (U, B) = self._state, self._objective, transitions.reward.shape
        O, A, K = self._shape.width, self._shape.actions, self._shape.choices
        report, distance = np.zeros((U, len(REPORTED))), np.empty((U, B), np.float32)
        lead = (U, B)
        shapes = ((*lead, O), (*lead, A or 1), lead, (*lead, O), lead, lead, (U, objective.draws, B, A))
        arrays = [np.ascontiguousarray(array, np.float32) for array in vars(transitions).values()]
        assert tuple(array.shape for array in arrays) == shapes, [array.shape for array in arrays]
        chosen = arrays[1]
        assert not K or ((chosen >= 0) & (chosen < K)).all(), "discrete actions are indices"
        before, every = state["updates"], objective.actor_every
        moves = (before + U) // every - before // every
        scales = [*adam_scales(rate, state["critics_steps"], U), *adam_scales(rate, state["actor_steps"], moves)]
        alpha = [state[f"log_alpha_{name}"] for name in ("parameters", "momentum", "variance")]
        log_alpha = np.concatenate(alpha)
        kept = [*arrays, *scales, log_alpha, state["told"], report, distance]
        batches = _Batches(*(array.ctypes.data for array in kept), U, B, before, self._count_threads(U * B))
        failed = self._functions.actor_critic_update(self._learner, ctypes.byref(batches))
        require(not failed, f"out of memory for networks of {self._shape.actor} and {self._shape.critic}")
        state["updates"] += U
        state["critics_steps"] += U
        state["actor_steps"] += moves
        if isinstance(objective.policy, SoftPolicy) and objective.policy.learned:
            for array, value in zip(alpha, log_alpha, strict=True):
                array[:] = value
            state["log_alpha_steps"] += moves
        return report, distance
