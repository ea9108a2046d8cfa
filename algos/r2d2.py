"""Recurrent replay distributed DQN, R2D2 (Kapturowski et al. 2019, openreview.net/forum?id=r1lyTjAqYX)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from paddock.algos.dqn import huber
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.learners.objectives import RecurrentObjective
from paddock.algos.learning.offpolicy.off_policy import learn_in_torch
from paddock.algos.learning.offpolicy.operators import interleave, reprioritize, sample, store, train
from paddock.algos.learning.offpolicy.q_learning import QLearning, make_discrete_head
from paddock.algos.learning.replay.sequences import Sequences
from paddock.algos.networks.architecture import Architecture
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeInt, PositiveInt, Range

if TYPE_CHECKING:
    from torch import Tensor

    from paddock.algos.learning.offpolicy.learners.torch_batch import TorchSequences
    from paddock.algos.learning.offpolicy.learners.torch_networks import RecurrentQNetworks

NOT_NEGATIVE_OR_NULL = Range("must be at least 0, or null", low=0)
ETA = 0.9  # weight of the maximum error in a sequence's priority; the rest is the weight of the mean error


@dataclass(kw_only=True, eq=False)
class R2D2(QLearning):
    """Recurrent Q-learning from replayed sequences; conf/algo/r2d2.yaml explains each setting."""

    default_layers = ((64,), "relu")

    group = "r2d2"

    burn_in: NonNegativeInt
    sequence_length: PositiveInt
    rescale: Annotated[float | None, NOT_NEGATIVE_OR_NULL]
    lstm: bool

    def __post_init__(self) -> None:
        what = f"algo=r2d2 needs a single agent, but env.id={self.env.id} has several, or is shared with other clients"
        require(not self.waits, f"{what}; use algo=dqn, or algo=ppo with algo.lstm=true")
        self.assemble_with_replay(
            make_discrete_head,
            self.exploration,
            self._make_learner,
            priorities=self.priorities,
            sequences=self._sequences,
            learns_values=True,
            shared=True,  # value and advantage streams share the LSTM
            lstm=self.lstm,
        )

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act, store, sample, learn; yield metrics every `log_every_steps` steps, when the state is complete."""
        policies = self.learning
        with self.playing() as rollouts:
            stored = store(rollouts, policies)
            updates = [train(sample(policy, self.batch_size), policy, self.rate) for policy in policies]
            updates = [reprioritize(each, policy) for each, policy in zip(updates, policies, strict=True)]
            yield from self.rows(interleave(stored, updates, policies, self.publish))

    def _make_learner(self, architecture: Architecture, seed: int) -> OffPolicyLearner:
        require(self.backend != "dense", "algo=r2d2 learns in torch; use backend=auto")
        # Import torch only if needed: it takes a second.
        from paddock.algos.learning.offpolicy.learners.torch_networks import RecurrentQNetworks

        networks = partial(RecurrentQNetworks, architecture, seed, dueling=self.dueling)
        objective = RecurrentObjective(**vars(self.objective), burn_in=self.burn_in, rescale=self.rescale)
        return learn_in_torch(self, networks, r2d2_loss, objective, self.max_grad_norm)

    def _sequences(self, architecture: Architecture) -> Sequences:
        period, length = self.num_steps, self.sequence_length
        what = f"algo.sequence_length={length} must be a multiple of algo.num_steps={period}, the replay period"
        require(length % period == 0, f"{what}; try {length // period * period or period}")
        return Sequences(period=period, burn_in=self.burn_in, length=length, state_width=architecture.state_width)


def r2d2_loss(
    network: RecurrentQNetworks, batch: TorchSequences, settings: RecurrentObjective
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the squared or Huber loss of Q(s, a) - y, with y = h(r + gamma^n h^-1(Q'(s', argmax_a' Q(s', a')))).

    Both networks start from the stored recurrent state and process the burn-in without gradient. The priority of a
    sequence is eta max |error| + (1 - eta) mean |error|, with errors of rescaled values.

    Args:
        network: online and target network.
        batch: sequences; `reward` is the discounted sum of n rewards.
        settings: of the loss.

    Returns:
        The loss and metrics; `td_error` [B] sets the priorities of sequences.
    """
    q, memory = network.unroll(network.online, batch, settings.burn_in)  # [length + n, B, A]
    with network.no_grad():
        q_target, target_memory = network.unroll(network.target, batch, settings.burn_in)
        q_next = best(q[1:], q_target[1:], settings)
        if len(batch.final_at):  # final observations of truncated episodes are not part of a sequence
            t, b = batch.final_at.unbind(1)
            online = network.step(network.online, batch.final_obs, memory[t, b])
            q_next[t, b] = best(online, network.step(network.target, batch.final_obs, target_memory[t, b]), settings)
        q_next = q_next.gather(0, batch.last)
        if settings.rescale is None:
            y = batch.reward + batch.discount * q_next
        else:
            y = rescaled(batch.reward + batch.discount * original(q_next, settings.rescale), settings.rescale)
    q_taken = q[: len(batch.action)].gather(-1, batch.action[..., :1]).squeeze(-1)  # [length, B]
    loss = (batch.weight * huber(q_taken - y, settings.huber)).mean()
    error = (q_taken.detach() - y).abs()
    priority = ETA * error.amax(0) + (1 - ETA) * error.mean(0)
    return loss, {"loss": loss, "q_mean": q_taken.mean(), "target_mean": y.mean(), "td_error": priority}


def best(online: Tensor, target: Tensor, settings: RecurrentObjective) -> Tensor:
    """Return the target values [...] of the greedy actions of the online network, or of the target unless `double`."""
    scores = online if settings.double else target
    return target.gather(-1, scores.argmax(-1, keepdim=True)).squeeze(-1)


def rescaled(x: Tensor, epsilon: float) -> Tensor:
    """Return h(x) = sgn(x) (sqrt(|x| + 1) - 1) + epsilon x (Pohlen et al. 2018, arXiv:1805.11593)."""
    return x / ((x.abs() + 1).sqrt() + 1) + epsilon * x


def original(x: Tensor, epsilon: float) -> Tensor:
    """Return h^-1(x), in a form without the cancellation of the paper's.

    The paper's root is d + 1 with d = (sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon) - 1.
    """
    size = x.abs()
    d = 2 * size / ((1 + 4 * epsilon * (size + 1 + epsilon)).sqrt() + 1 + 2 * epsilon)
    return x.sign() * d * (d + 2)
