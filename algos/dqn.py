"""Deep Q-learning (Mnih et al. 2015): double, dueling, of n steps, prioritized, and Ape-X by its keys.

Double: van Hasselt et al. 2016 (arXiv:1509.06461); dueling: Wang et al. 2016 (arXiv:1511.06581); prioritized replay:
Schaul et al. 2016 (arXiv:1511.05952); Ape-X: Horgan et al. 2018 (arXiv:1803.00933); quantiles of returns, QR-DQN:
Dabney et al. 2018 (arXiv:1710.10044); their distribution over atoms, C51: Bellemare et al. 2017 (arXiv:1707.06887);
noisy networks: Fortunato et al. 2018 (arXiv:1706.10295); all but quantiles at once, Rainbow: Hessel et al. 2018
(arXiv:1710.02298).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from paddock.algos.learning.custom_loss import choose_loss, needs_of_loss
from paddock.algos.learning.learner import SingleLearner, is_dense
from paddock.algos.learning.offpolicy.learners.dense_q import DenseQLearner
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
    """Settings (conf/algo/dqn.yaml explains each), plan and state."""

    group = "dqn"

    quantiles: Annotated[int | None, POSITIVE_OR_NULL]
    atoms: Annotated[int | None, Range("must be at least 2, or null; 51 suits most", low=2)]
    v_min: float
    v_max: float
    noisy_sigma: Annotated[float | None, POSITIVE_OR_NULL]
    loss: str | None

    def __post_init__(self) -> None:
        self.assemble_with_replay(
            lambda actions: make_discrete_head(actions, self.group),
            self.exploration,
            self._team,
            priorities=self.priorities,
            learns_values=True,
            shared=self.dueling,
            support=self._support,
        )

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act, store, sample, learn: a row every `log_every_steps` steps; the state is complete at every yield."""
        policies = self.learning
        with self.playing() as rollouts:
            stored = store(rollouts, policies)
            updates = [train(sample(policy, self.batch_size), policy, self.rate) for policy in policies]
            updates = [reprioritize(each, policy) for each, policy in zip(updates, policies, strict=True)]
            yield from self.rows(interleave(stored, updates, policies, self.publish))

    def _team(self, architecture: Architecture, seed: int) -> Any:
        given = {"quantiles": self.quantiles, "atoms": self.atoms, "noisy_sigma": self.noisy_sigma}
        needs = [f"algo.{name}={value}" for name, value in given.items() if value] + self.needs
        needs += needs_of_loss(self.loss)
        if is_dense(architecture, self.backend, self.device, self.precision, compiled=False, needs=needs):
            how: dict[str, Any] = {"adam_epsilon": self.adam_epsilon, "threads": self.threads}
            dense = DenseQLearner(architecture, self.objective, seed, **how)
            return SingleLearner(dense, DenseQLearner.update, self.device)
        # Torch takes a second to import, and networks that learn in C never need it.
        from paddock.algos.learning.offpolicy.learners.torch_networks import QNetworks

        own = c51_loss if self.atoms else qr_dqn_loss if self.quantiles else dqn_loss
        networks = partial(QNetworks, architecture, seed, quantiles=self.quantiles, noisy_sigma=self.noisy_sigma)
        loss = choose_loss(self.loss, own)
        return learn_in_torch(self, networks, loss, self.objective, self.max_grad_norm, **self.sharing)

    @property
    def _support(self) -> Support | None:
        if not self.atoms:
            return None
        both = f"algo.atoms={self.atoms} and algo.quantiles={self.quantiles} are two ways to learn of returns"
        require(not self.quantiles, f"{both}; set one to null")
        low, high = float(self.v_min), float(self.v_max)
        require(low < high, f"algo.v_min={low:g} must be below algo.v_max={high:g}, the most that can be returned")
        return Support(self.atoms, low, high)


def dqn_loss(network: QNetworks, batch: TorchBatch, settings: QObjective) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss (Q(s, a) - y)^2 / 2 or Huber's, with y = r + gamma^n Q'(s', argmax_a' Q(s', a')).

    Q' is the target network, which without `double` also chooses a'. `batch.reward` is the discounted sum of n rewards
    and `batch.discount` gamma^n, or 0 where the episode terminated. Without `huber`, the loss is quadratic everywhere.

    Args:
        network: `network(obs)` [B, A, 1] is Q, `network.target(obs)` is Q'.
        batch: transitions.
        settings: of the loss.

    Returns:
        The loss and metrics; `td_error` [B] makes the priorities of prioritized replay.
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
    """Return the estimates of the actions taken, and by the target network those of the best next actions, [B, N]."""
    estimates = take(network(batch.obs), batch.action[:, 0].long())
    if not batch.bootstraps:
        return estimates, estimates.new_zeros(estimates.shape)
    with network.no_grad():
        target = network.target(batch.next_obs)
        online = network(batch.next_obs) if settings.double else target
        return estimates, take(target, network.greedy(online, batch.next_obs))


def take(estimates: Tensor, action: Tensor) -> Tensor:
    """Return the estimates [B, N] of actions [B], of those of all [B, A, N]."""
    return estimates.gather(1, action.view(-1, 1, 1).expand(-1, 1, estimates.shape[2])).squeeze(1)


def huber(error: Tensor, delta: float | None) -> Tensor:
    """Return half the squares of errors, linear beyond delta; None: nowhere."""
    if delta is None:
        return 0.5 * error * error
    size = error.abs()
    inside = size.clamp(max=delta)
    return inside * (size - 0.5 * inside)


def quantile_loss(theta: Tensor, target: Tensor, tau: Tensor, kappa: float | None) -> Tensor:
    """Return the losses [B] of quantiles [B, N] by targets [B, M]: summed over quantiles, averaged over targets.

    Args:
        theta: the quantiles.
        target: samples of the target distribution.
        tau: [N], levels of the quantiles.
        kappa: errors within it count by their squares; None: no error does.
    """
    u = target.unsqueeze(1) - theta.unsqueeze(2)  # [B, N, M]
    distance = u.abs() if kappa is None else huber(u, kappa) / kappa
    return ((tau.unsqueeze(1) - (u.detach() < 0).float()).abs() * distance).sum(1).mean(1)


def project(p: Tensor, reward: Tensor, discount: Tensor, support: Support, z: Tensor) -> Tensor:
    """Project probabilities [B, N] of atoms z that moved to r + gamma^n z back onto the atoms, [B, N].

    Each goes to its two neighbours, the more the nearer; one that meets an atom goes there whole, and one beyond the
    ends to the end.
    """
    moved = reward.unsqueeze(1) + discount.unsqueeze(1) * z
    b = ((moved - support.v_min) / support.spacing).clamp(0, support.atoms - 1)  # [B, N], in atoms
    index = z.new_tensor(range(support.atoms))
    # As a sum over all pairs, which has one order on every device; adding by index has none on some.
    nearness = (b.unsqueeze(1) - index.unsqueeze(1)).abs_().neg_().add_(1).clamp_(min=0)  # [B, N, N]
    return nearness.bmm(p.unsqueeze(2)).squeeze(2)
