"""What torch learns of the returns of an action: their mean, their quantiles, or how likely each of many atoms is.

Quantiles, QR-DQN: Dabney et al. 2017 (arXiv:1710.10044); atoms, C51: Bellemare et al. 2017 (arXiv:1707.06887).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor, nn

from paddock.algos.networks.actor_critic import expect
from paddock.algos.networks.support import Support


class Losses(NamedTuple):
    """How far what was given of actions that were taken lies from its targets."""

    loss: Tensor  # [B]
    value: Tensor  # [B, ...], whose mean is that of the values
    target: Tensor  # [B, ...], likewise
    distance: Tensor  # [B], without a sign


class Returns(Protocol):
    """What a network gives of an action, N numbers, and how they are learned."""

    @property
    def count(self) -> int:
        """N."""
        ...

    def values(self, out: Tensor) -> Tensor:
        """Map what is given [B, A, N] to expected returns [B, A]."""
        ...

    def lose(self, out: Tensor, reward: Tensor, discount: Tensor, following: Tensor) -> Losses:
        """Compare what is given [B, N] with rewards [B] and, times discounts [B], what followed them [B, N]."""
        ...

    def acting(self, advantages: Tensor, value: Tensor | None) -> Tensor:
        """Map a last layer's parameters to those of an actor's [A * M, ...].

        Args:
            advantages: [A, N, ...], of actions.
            value: [N, ...], of what they have in common in a dueling network; None: it is none.
        """
        ...


@final
@dataclass(frozen=True)
class Quantiles:
    """Their quantiles, or where there is one alone their mean.

    An actor gets the mean of the quantiles, but for what all actions have in common: the mean of what a layer gives is
    what the mean layer gives.
    """

    levels: Tensor | None  # [N]; None: the mean
    huber: float | None

    @classmethod
    def of(cls, count: int | None, huber: float | None, device: torch.device) -> "Quantiles":
        """So many; None: the mean."""
        return cls(None if count is None else (torch.arange(count, device=device) + 0.5) / count, huber)

    @property
    def count(self) -> int:
        """See `Returns`."""
        return 1 if self.levels is None else len(self.levels)

    def values(self, out: Tensor) -> Tensor:
        """See `Returns.values`."""
        return out.mean(2)

    def lose(self, out: Tensor, reward: Tensor, discount: Tensor, following: Tensor) -> Losses:
        """See `Returns.lose`."""
        target = reward.unsqueeze(1) + discount.unsqueeze(1) * following
        if self.levels is None:
            loss = huber((out - target).squeeze(1), self.huber)
        else:
            loss = quantile_loss(out, target, self.levels, self.huber)
        told = out.detach()
        return Losses(loss, told, target, (told.mean(1) - target.mean(1)).abs())

    def acting(self, advantages: Tensor, value: Tensor | None) -> Tensor:
        """See `Returns.acting`."""
        return advantages.mean(1)


@final
@dataclass(frozen=True)
class Atoms:
    """How likely returns are to lie at each atom, by logits."""

    support: Support

    @property
    def count(self) -> int:
        """See `Returns`."""
        return self.support.atoms

    def values(self, out: Tensor) -> Tensor:
        """See `Returns.values`."""
        return expect(out, self.support)

    def lose(self, out: Tensor, reward: Tensor, discount: Tensor, following: Tensor) -> Losses:
        """See `Returns.lose`: by cross-entropy; the distance is the Kullback-Leibler divergence, as in Rainbow.

        Rainbow: Hessel et al. 2018 (arXiv:1710.02298).
        """
        target = project(torch.softmax(following, 1), reward, discount, self.support)
        logs = torch.log_softmax(out, 1)
        loss = -(target * logs).sum(1)
        atoms = torch.from_numpy(self.support.values).to(out.device)
        divergence = loss.detach() + torch.xlogy(target, target).sum(1)
        return Losses(loss, logs.detach().exp() @ atoms, target @ atoms, divergence.clamp(min=0))

    def acting(self, advantages: Tensor, value: Tensor | None) -> Tensor:
        """See `Returns.acting`: what actions have in common counts in a softmax."""
        whole = advantages if value is None else advantages - advantages.mean(0) + value
        return whole.flatten(0, 1)


def project(shares: Tensor, reward: Tensor, discount: Tensor, support: Support) -> Tensor:
    """Spread shares [B, N] of atoms that moved to reward + discount * atom over the atoms as they lie, [B, N].

    Each goes to its two neighbours, the more the nearer; one that meets an atom goes there whole, and one beyond the
    ends to the end.
    """
    atoms = torch.from_numpy(support.values).to(shares.device)
    moved = reward.unsqueeze(1) + discount.unsqueeze(1) * atoms
    at = ((moved - support.v_min) / support.spacing).clamp(0, support.atoms - 1)  # [B, N], in atoms
    places = torch.arange(support.atoms, device=shares.device)
    # As a sum over all pairs, which has one order on every device; adding by index has none on some.
    nearness = (at.unsqueeze(1) - places.unsqueeze(1)).abs_().neg_().add_(1).clamp_(min=0)  # [B, N, N]
    return torch.bmm(nearness, shares.unsqueeze(2)).squeeze(2)


def huber(error: Tensor, limit: float | None) -> Tensor:
    """Return half the squares of errors, linear beyond a limit."""
    if limit is None:
        return 0.5 * error * error
    return nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=limit)


def quantile_loss(value: Tensor, target: Tensor, levels: Tensor, limit: float | None) -> Tensor:
    """Return the losses [B] of quantiles [B, N] by targets [B, M]: summed over quantiles, averaged over targets.

    Args:
        levels: [N], of the quantiles.
        limit: errors within it count by their squares (equation 10 of Dabney et al. 2017); None: no error does.
    """
    error = target.unsqueeze(1) - value.unsqueeze(2)  # [B, N, M]
    distance = error.abs() if limit is None else huber(error, limit) / limit
    return ((levels.unsqueeze(1) - (error.detach() < 0).float()).abs() * distance).sum(1).mean(1)
