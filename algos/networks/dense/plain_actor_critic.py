"""Actors and critics of dense layers in NumPy, to the bits of C: its operations one by one, every sum in its order."""

import copy
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense.actor_critic import (
    REPORTED,
    ActorCriticObjective,
    ActorCriticShape,
    ActorCriticState,
    DeterministicPolicy,
    SoftPolicy,
    Transitions,
)
from paddock.algos.networks.dense.plain import HALF_LOG_2PI
from paddock.algos.networks.dense.plain_chains import (
    ONE,
    ZERO,
    Layers,
    apply_gradient,
    approach,
    cut,
    go_back,
    go_forward,
    in_order,
    split,
)
from paddock.algos.networks.dense.plain_choices import Weighed
from paddock.algos.networks.dense.shape import Floats
from paddock.algos.networks.heads import LOG_STD, sum_columns
from paddock.envs.native.functions import log_tangent_slope, quick_exp, quick_log, quick_tangent
from paddock.envs.native.networks import DenseLayout

LEAST_LOG_STD, MOST_LOG_STD = map(np.float32, LOG_STD)


class PlainActorCritic:
    """`ActorCriticBackend` in NumPy."""

    def __init__(self, shape: ActorCriticShape, objective: ActorCriticObjective, state: ActorCriticState) -> None:
        self._shape, self._objective = shape, objective
        self.write(state)

    def read(self) -> ActorCriticState:
        """See `ActorCriticBackend.read`."""
        return copy.deepcopy(self._state)

    def write(self, state: ActorCriticState) -> None:
        """See `ActorCriticBackend.write`."""
        self._state = copy.deepcopy(state)

    def actor(self) -> Floats:
        """See `ActorCriticBackend.actor`."""
        return self._state.actor.parameters.copy()

    def update(self, given: Transitions, rate: float) -> tuple[NDArray[np.float64], Floats]:
        """See `ActorCriticBackend.update`."""
        objective, state = self._objective, self._state
        U, B = given.reward.shape
        report, apart = np.zeros((U, len(REPORTED))), np.empty((U, B), np.float32)
        moved = [number % objective.actor_every == 0 for number in range(state.updates + 1, state.updates + 1 + U)]
        critic_scales = list(zip(*state.critics.scales(rate, U), strict=True))
        actor_scales = iter(list(zip(*state.actor.scales(rate, sum(moved)), strict=True)))
        with np.errstate(all="ignore"):  # as in C
            for k, told in enumerate(report):
                rows = Transitions(*(array[k] for array in vars(given).values()))  # of this update alone
                told[3] = alpha = self._alpha()
                told[:2], apart[k] = self._learn_critics(rows, alpha, critic_scales[k])
                if moved[k]:
                    state.told[:] = self._learn_actor(rows, alpha, next(actor_scales))
                told[[2, 4]] = state.told
                state.updates += 1
                if state.updates % objective.target_every == 0:
                    self._follow()
        return report, apart

    def _alpha(self) -> np.float32:
        policy = self._objective.policy
        if not isinstance(policy, SoftPolicy):
            return ZERO
        return np.float32(quick_exp(self._state.log_alpha.parameters)[0] if policy.learned else policy.alpha)

    def _targets(self, rows: Transitions, alpha: np.float32) -> Floats:
        """What values are to become [B]."""
        shape, policy, state = self._shape, self._objective.policy, self._state
        if shape.choices:
            following = self._weigh(rows.next_observation).expected(
                self._values(state.target_critics, rows.next_observation), alpha
            )
            return rows.reward + rows.discount * following
        if isinstance(policy, DeterministicPolicy):
            out = self._chain(shape.actor, state.target_actor, rows.next_observation)[-1]
            noise = rows.noise[0] * np.float32(policy.target_noise)
            noise = _within(noise, np.float32(-policy.target_noise_clip), np.float32(policy.target_noise_clip))
            action = _within(quick_tangent(out) + noise, -ONE, ONE)
        else:
            drawn = _Drawn(self._chain(shape.actor, state.actor.parameters, rows.next_observation)[-1], rows.noise[0])
            action = drawn.action
        values = self._judge(state.target_critics, rows.next_observation, action)
        following = _smaller([each[-1][:, 0] for each in values])
        if isinstance(policy, SoftPolicy):
            following = following - alpha * drawn.logprob
        return rows.reward + rows.discount * following

    def _learn_critics(
        self, rows: Transitions, alpha: np.float32, scales: tuple[np.float32, np.float32]
    ) -> tuple[list[float], Floats]:
        """Let the critics take a step; returns the loss, the mean value, and the distances from targets [B]."""
        shape, state, B, target = self._shape, self._state, len(rows.reward), self._targets(rows, alpha)
        values = self._judge(state.critics.parameters, rows.observation, rows.action)
        chosen = rows.action[:, :1].astype(np.int64) if shape.choices else np.zeros((B, 1), np.int64)
        q = [np.take_along_axis(each[-1], chosen, 1)[:, 0] for each in values]
        errors = [each - target for each in q]
        share = ONE / np.float32(B)
        factor = rows.weight * (share if self._objective.soft else share + share)
        numbers = np.arange(shape.critic[-1])
        by = [np.where(numbers == chosen, (error * factor)[:, None], ZERO) for error in errors]
        apply_gradient(state.critics, self._gradient(shape.critic, state.critics.parameters, values, by), *scales)
        state.critics.steps += 1

        squares, distance = errors[0] * errors[0], np.abs(errors[0])
        told_q = q[0].astype(np.float64)
        for error, each in zip(errors[1:], q[1:], strict=True):
            squares, distance = squares + error * error, (distance + np.abs(error)) * np.float32(0.5)
            told_q = told_q + each
        loss, mean = _sums(rows.weight * squares, told_q)
        return [loss * (0.5 if self._objective.soft else 1) / B, mean / (B * len(q))], distance

    def _learn_actor(
        self, rows: Transitions, alpha: np.float32, scales: tuple[np.float32, np.float32]
    ) -> tuple[float, float]:
        """Let the actor take a step, and alpha; returns the actor's loss and the entropy."""
        shape, policy, state, B = self._shape, self._objective.policy, self._state, len(rows.reward)
        share = ONE / np.float32(B)
        if shape.choices:
            return self._learn_choices(rows, alpha, scales)
        values = self._chain(shape.actor, state.actor.parameters, rows.observation)
        drawn = _Drawn(values[-1], rows.noise[1]) if self._objective.soft else None
        action = quick_tangent(values[-1]) if drawn is None else drawn.action
        q, by_action = self._climb(rows.observation, action, -share)
        if drawn is None:
            by_out, loss, logprob = by_action * (ONE - action * action), -q, np.zeros(B, np.float32)
        else:
            by_out, loss, logprob = drawn.gradient(by_action, alpha * share), alpha * drawn.logprob - q, drawn.logprob
        apply_gradient(state.actor, self._gradient(shape.actor, state.actor.parameters, [values], [by_out]), *scales)
        state.actor.steps += 1
        lost, logs = _sums(loss, logprob)
        if isinstance(policy, SoftPolicy):
            self._learn_alpha(policy, np.float32(logs / B), np.float32(policy.target_entropy), scales)
        return lost / B, -logs / B

    def _learn_choices(
        self, rows: Transitions, alpha: np.float32, scales: tuple[np.float32, np.float32]
    ) -> tuple[float, float]:
        """The same of an actor that chooses, which learns what it expects of its own probabilities."""
        shape, policy, state, B = self._shape, self._objective.policy, self._state, len(rows.reward)
        values = self._chain(shape.actor, state.actor.parameters, rows.observation[:, : shape.observed])
        weighed = Weighed(values[-1], self._legal(rows.observation))
        loss, by_out = weighed.learn(
            self._values(state.critics.parameters, rows.observation), alpha, ONE / np.float32(B)
        )
        apply_gradient(state.actor, self._gradient(shape.actor, state.actor.parameters, [values], [by_out]), *scales)
        state.actor.steps += 1
        lost, logs, most = _sums(loss, weighed.logprob, weighed.most)
        assert isinstance(policy, SoftPolicy)
        wanted = np.float32(policy.target_entropy)
        if shape.masked:
            wanted = wanted * np.float32(most / B) / quick_log(np.array([max(shape.choices, 2)], np.float32))[0]
        self._learn_alpha(policy, np.float32(logs / B), wanted, scales)
        return lost / B, -logs / B

    def _learn_alpha(
        self, policy: SoftPolicy, logprob: np.float32, wanted: np.float32, scales: tuple[np.float32, np.float32]
    ) -> None:
        """Let a learned alpha take a step towards an entropy."""
        if policy.learned:
            apply_gradient(self._state.log_alpha, np.array([-(logprob + wanted)], np.float32), *scales)
            self._state.log_alpha.steps += 1

    def _legal(self, observation: Floats) -> Floats | None:
        """Which choices may be taken [B, K]; None: all."""
        return observation[:, self._shape.observed :] if self._shape.masked else None

    def _weigh(self, observation: Floats) -> Weighed:
        """Probabilities of choices, by the actor."""
        shape = self._shape
        numbers = observation[:, : shape.observed]
        return Weighed(self._chain(shape.actor, self._state.actor.parameters, numbers)[-1], self._legal(observation))

    def _values(self, flat: Floats, observation: Floats) -> Floats:
        """What choices are worth [B, K], by the smallest of the critics."""
        return _smaller([own[-1] for own in self._judge(flat, observation, observation[:, :0])])

    def _gradient(self, sizes: tuple[int, ...], flat: Floats, values: list[list[Floats]], by: list[Floats]) -> Floats:
        """The gradient by networks in a vector, given those by what each gave [B, out]: parts are summed in order."""
        parts = []
        for among in cut(len(by[0])):
            parts.append(np.zeros_like(flat))
            each = zip(self._split(sizes, flat), values, by, self._split(sizes, parts[-1]), strict=True)
            for layers, own, by_own, slots in each:
                self._back(layers, [x[among] for x in own], by_own[among], slots)
        return functools.reduce(np.add, parts)

    def _climb(self, observation: Floats, action: Floats, by_q: np.float32) -> tuple[Floats, Floats]:
        """Return the values [B] that the actor learns from, and gradients by actions [B, A], through the critics."""
        flat, shape = self._state.critics.parameters, self._shape
        values = self._judge(flat, observation, action)
        by = [
            self._back(layers, own, np.full((len(action), 1), by_q), None)[:, shape.observed :]
            for layers, own in zip(self._split(shape.critic, flat), values, strict=True)
        ]
        q = [own[-1][:, 0] for own in values]
        if not self._objective.soft or len(q) == 1:
            return q[0], by[0]
        return _smaller(q), np.where((q[1] < q[0])[:, None], by[1], by[0])

    def _follow(self) -> None:
        """Move the targets."""
        state, tau = self._state, self._objective.tau
        approach(state.target_critics, state.critics.parameters, tau)
        if not self._objective.soft:
            approach(state.target_actor, state.actor.parameters, tau)

    def _split(self, sizes: tuple[int, ...], flat: Floats) -> list[Layers]:
        """Of each network in a vector of them."""
        return split(flat, [sizes] * (len(flat) // DenseLayout(sizes).num_parameters))

    def _chain(self, sizes: tuple[int, ...], flat: Floats, x: Floats) -> list[Floats]:
        return go_forward(self._split(sizes, flat)[0], x, self._shape.activation)

    def _judge(self, flat: Floats, observation: Floats, action: Floats) -> list[list[Floats]]:
        """What each layer of each critic makes of rows."""
        numbers = observation[:, : self._shape.observed]
        x = numbers if self._shape.choices else np.concatenate([numbers, action], axis=1)
        return [go_forward(layers, x, self._shape.activation) for layers in self._split(self._shape.critic, flat)]

    def _back(self, layers: Layers, values: list[Floats], by: Floats, slots: Layers | None) -> Floats:
        """Fill a chain's gradients, or where there is no room for them return those by what the chain took."""
        return go_back(layers, values, by, self._shape.activation, slots, further=slots is None)


class _Drawn:
    """Actions [B, A] drawn by noise [B, A] from a Gaussian's means and log deviations [B, 2A], then squashed."""

    def __init__(self, out: Floats, noise: Floats) -> None:
        A = noise.shape[1]
        self._raw = out[:, A:]
        self._log_std = _within(self._raw, LEAST_LOG_STD, MOST_LOG_STD)
        self._spread = quick_exp(self._log_std) * noise
        u = out[:, :A] + self._spread
        self.action = quick_tangent(u)
        density = ((noise * noise) * np.float32(-0.5) - self._log_std) - HALF_LOG_2PI
        self.logprob = sum_columns(density - log_tangent_slope(u))

    def gradient(self, by_action: Floats, by_logprob: np.float32) -> Floats:
        """Map gradients by actions [B, A] and by every log-probability to those by outputs [B, 2A], at this noise."""
        by_u = by_action * (ONE - self.action * self.action) + (by_logprob + by_logprob) * self.action
        by_log_std = np.where(self._raw == self._log_std, by_u * self._spread - by_logprob, ZERO)
        return np.concatenate([by_u, by_log_std], axis=1)


def _sums(*terms: NDArray[Any]) -> NDArray[np.float64]:
    """Of terms [B], each in double precision from the first row to the last of a part, and parts in order."""
    every = np.array(terms, np.float64)
    return np.sum([in_order(every[:, among]) for among in cut(every.shape[1])], axis=0)


def _smaller(values: list[Floats]) -> Floats:
    """The smallest of one or two."""
    return values[0] if len(values) == 1 else np.where(values[1] < values[0], values[1], values[0])


def _within(x: Floats, low: np.float32, high: np.float32) -> Floats:
    x = np.where(x < low, low, x)
    return np.where(x > high, high, x)
