"""Choices weighed by their probabilities in NumPy, to the bits of weighed.h and choices.h in `src/offpolicy/`."""

import numpy as np

from paddock.algos.networks.dense.plain_chains import ONE, ZERO
from paddock.algos.networks.dense.shape import Floats
from paddock.algos.networks.heads import LOWEST
from paddock.envs.native.functions import quick_exp, quick_log


class Weighed:
    """Probabilities [B, K] of choices, by outputs [B, K] and what is legal [B, K]; None: all are."""

    def __init__(self, out: Floats, legal: Floats | None) -> None:
        B, K = out.shape
        many = np.full(B, K, np.float32)
        if legal is not None:
            out = np.where(legal != 0, out, np.float32(LOWEST))
            many = np.maximum((legal != 0).sum(1).astype(np.float32), ONE)
        top = out[:, 0]
        for j in range(1, K):
            top = np.where(out[:, j] > top, out[:, j], top)
        logs = out - top[:, None]
        shares = quick_exp(logs)
        total = _in_order(shares)[:, None]
        self._share: Floats = shares / total
        self._log: Floats = np.where(self._share > 0, logs - quick_log(total), ZERO)
        self.logprob = _in_order(self._share * self._log)  # [B], less the entropy
        self.most = quick_log(many)  # [B], that the entropy can be

    def expected(self, values: Floats, alpha: np.float32) -> Floats:
        """Return what is expected [B] of values [B, K], with the entropy's reward."""
        return _in_order(self._share * (values - self._log * alpha))

    def learn(self, values: Floats, alpha: np.float32, share: np.float32) -> tuple[Floats, Floats]:
        """Return the losses [B], and the gradients [B, K] of `share` of their sum by outputs."""
        pull = self._log * alpha - values
        loss = _in_order(self._share * pull)
        return loss, self._share * (pull - loss[:, None]) * share


def _in_order(terms: Floats) -> Floats:
    """Sums over the columns of [B, K], from the first to the last."""
    total = terms[:, 0]
    for j in range(1, terms.shape[1]):
        total = total + terms[:, j]
    return total
