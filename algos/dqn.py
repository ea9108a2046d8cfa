"""Deep Q-learning (DQN, Mnih et al. 2015) with optional extensions.

Double DQN: van Hasselt et al. 2016 (arXiv:1509.06461). Dueling networks: Wang et al. 2016 (arXiv:1511.06581).
Prioritized replay: Schaul et al. 2016 (arXiv:1511.05952). Ape-X: Horgan et al. 2018 (arXiv:1803.00933). QR-DQN: Dabney
et al. 2018 (arXiv:1710.10044). C51: Bellemare et al. 2017 (arXiv:1707.06887). Noisy networks: Fortunato et al. 2018
(arXiv:1706.10295). Rainbow combines all except Ape-X and QR-DQN: Hessel et al. 2018 (arXiv:1710.02298).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from paddock.algos.learning.custom_loss import choose_loss, needs_of_loss
from paddock.algos.learning.learner import is_dense
from paddock.algos.learning.offpolicy.learners.dense_q import DenseQLearner
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.offpolicy.off_policy import POSITIVE_OR_NULL, learn_in_torch
from paddock.algos.learning.offpolicy.operators import interleave, reprioritize, sample, store, train
from paddock.algos.learning.offpolicy.q_learning import QLearning, make_discrete_head
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.support import Support
from paddock.envs.errors import require
from paddock.envs.ranges import Range

if TYPE_CHECKING:
    from torch import Tensor

    from paddock.algos.learning.offpolicy.learners.torch_batch import TorchBatch
    from paddock.algos.learning.offpolicy.learners.torch_networks import QNetworks


@dataclass(kw_only=True, eq=False)
class DQN(QLearning):
    """Deep Q-learning; conf/algo/dqn.yaml explains each setting."""

    default_layers = ((64, 64), "relu")

    group = "dqn"

    quantiles: Annotated[int | None, POSITIVE_OR_NULL]
    atoms: Annotated[int | None, Range("must be at least 2, or null; 51 suits most", low=2)]
    v_min: float
    v_max: float
    noisy_sigma: Annotated[float | None, POSITIVE_OR_NULL]
    loss: str | None

    def __post_init__(self) -> None:
        self.assemble_with_replay(
            make_discrete_head,
            self.exploration,
            self._make_learner,
            priorities=self.priorities,
            learns_values=True,
            shared=self.dueling,
            support=self._support,
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
        given = {"quantiles": self.quantiles, "atoms": self.atoms, "noisy_sigma": self.noisy_sigma}
        needs = [f"algo.{name}={value}" for name, value in given.items() if value] + needs_of_loss(self.loss)
        if is_dense(architecture, self.backend, self.device, self.precision, needs):
            options: dict[str, Any] = {"adam_epsilon": self.adam_epsilon, "threads": self.threads}
            return DenseQLearner(architecture, self.objective, seed, **options)
        # Import torch only if needed: it takes a second, and dense networks learn in C.
        from paddock.algos.learning.offpolicy.learners.torch_networks import QNetworks

        default = c51_loss if self.atoms else qr_dqn_loss if self.quantiles else dqn_loss
        networks = partial(QNetworks, architecture, seed, quantiles=self.quantiles, noisy_sigma=self.noisy_sigma)
        loss = choose_loss(self.loss, default)
        return learn_in_torch(self, networks, loss, self.objective, self.max_grad_norm)

    @property
    def _support(self) -> Support | None:
        if not self.atoms:
            return None
        both = f"algo.atoms={self.atoms} (C51) and algo.quantiles={self.quantiles} (QR-DQN) are mutually exclusive"
        require(not self.quantiles, f"{both}; set one to null")
        low, high = float(self.v_min), float(self.v_max)
        require(low < high, f"algo.v_min={low:g} must be below algo.v_max={high:g}; they bound the returns")
        return Support(self.atoms, low, high)


def dqn_loss(network: QNetworks, batch: TorchBatch, settings: QObjective) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the squared or Huber loss of Q(s, a) - y, with y = r + gamma^n Q'(s', argmax_a' Q(s', a')).

    Q' is the target network, which also chooses a' unless `double` is set.

    Args:
        network: `network(obs)` [B, A, 1] is Q, `network.target(obs)` is Q'.
        batch: transitions; `reward` is the discounted sum of n rewards, `discount` is gamma^n, or 0 after termination.
        settings: whether to use double Q-learning, and the Huber threshold or None.

    Returns:
        The loss and metrics; `td_error` [B] sets the priorities of prioritized replay.
    """
    q, q_next = (estimates.squeeze(1) for estimates in current_and_next(network, batch, settings))
    y = batch.reward + batch.discount * q_next
    loss = (batch.weight * huber(q - y, settings.huber)).mean()
    return loss, {"loss": loss, "q_mean": q.mean(), "target_mean": y.mean(), "td_error": (q - y).abs()}


def qr_dqn_loss(network: QNetworks, batch: TorchBatch, settings: QObjective) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the quantile regression loss of QR-DQN (Dabney et al. 2018, equation 10); see `dqn_loss`."""
    theta, theta_next = current_and_next(network, batch, settings)  # [B, N]
    target = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * theta_next
    loss = (batch.weight * quantile_loss(theta, target, network.levels, settings.huber)).mean()
    td_error = (theta.mean(1) - target.mean(1)).abs()
    return loss, {"loss": loss, "q_mean": theta.mean(), "target_mean": target.mean(), "td_error": td_error}


def c51_loss(network: QNetworks, batch: TorchBatch, settings: QObjective) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the cross-entropy of C51 (Bellemare et al. 2017, algorithm 1); see `dqn_loss`.

    `td_error` is the Kullback-Leibler divergence, as in Rainbow.
    """
    logits, logits_next = current_and_next(network, batch, settings)  # [B, N]
    support, z, log_p = network.support, network.atoms, logits.log_softmax(1)
    assert support is not None and z is not None
    m = project(logits_next.softmax(1), batch.reward, batch.discount, support, z)
    cross_entropy = -(m * log_p).sum(1)
    loss = (batch.weight * cross_entropy).mean()
    divergence = (cross_entropy + m.xlogy(m).sum(1)).clamp(min=0)
    q, y = log_p.exp() @ z, m @ z
    return loss, {"loss": loss, "q_mean": q.mean(), "target_mean": y.mean(), "td_error": divergence}


def current_and_next(network: QNetworks, batch: TorchBatch, settings: QObjective) -> tuple[Tensor, Tensor]:
    """Return the estimates [B, N] of the actions taken, and the target network's of the best next actions."""
    estimates = take(network(batch.obs), batch.action[:, 0].long())
    if not batch.bootstraps:
        return estimates, estimates.new_zeros(estimates.shape)
    with network.no_grad():
        target = network.target(batch.next_obs)
        online = network(batch.next_obs) if settings.double else target
        return estimates, take(target, network.greedy(online, batch.next_obs))


def take(estimates: Tensor, action: Tensor) -> Tensor:
    """Select the estimates [B, N] of actions [B] from those of all actions [B, A, N]."""
    return estimates.gather(1, action.view(-1, 1, 1).expand(-1, 1, estimates.shape[2])).squeeze(1)


def huber(error: Tensor, delta: float | None) -> Tensor:
    """Return the Huber loss of errors, linear beyond delta; None: half the squared error."""
    if delta is None:
        return 0.5 * error * error
    size = error.abs()
    inside = size.clamp(max=delta)
    return inside * (size - 0.5 * inside)


def quantile_loss(theta: Tensor, target: Tensor, tau: Tensor, kappa: float | None) -> Tensor:
    """Return the quantile regression losses [B], summed over quantiles and averaged over targets.

    Args:
        theta: [B, N], estimated quantiles.
        target: [B, M], samples of the target distribution.
        tau: [N], levels of the quantiles.
        kappa: Huber threshold; None: absolute errors.
    """
    u = target.unsqueeze(1) - theta.unsqueeze(2)  # [B, N, M]
    distance = u.abs() if kappa is None else huber(u, kappa) / kappa
    return ((tau.unsqueeze(1) - (u.detach() < 0).float()).abs() * distance).sum(1).mean(1)


def project(p: Tensor, reward: Tensor, discount: Tensor, support: Support, z: Tensor) -> Tensor:
    """Project the distribution p [B, N] over shifted atoms r + gamma^n z back onto the atoms z, [B, N].

    The probability of a shifted atom is divided between its two neighbours in proportion to proximity; shifted atoms
    are clipped to [v_min, v_max].
    """
    moved = reward.unsqueeze(1) + discount.unsqueeze(1) * z
    b = ((moved - support.v_min) / support.spacing).clamp(0, support.atoms - 1)  # [B, N], in atoms
    index = z.new_tensor(range(support.atoms))
    # Sum over all pairs: deterministic on every device, unlike index_add on GPUs.
    nearness = (b.unsqueeze(1) - index.unsqueeze(1)).abs_().neg_().add_(1).clamp_(min=0)  # [B, N, N]
    return nearness.bmm(p.unsqueeze(2)).squeeze(2)
