"""Action values of returns that are spread over atoms (Bellemare et al. 2017, arXiv:1707.06887), without torch."""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.envs.native.functions import fast_exp

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Support:
    """The returns that a distribution lies on: N atoms, as far from one to the next."""

    atoms: int  # N, at least 2
    v_min: float  # the first
    v_max: float  # the last

    @property
    def spacing(self) -> float:
        """From one atom to the next."""
        return (self.v_max - self.v_min) / (self.atoms - 1)

    @functools.cached_property
    def values(self) -> Floats:
        """The atoms [N]."""
        return (self.v_min + self.spacing * np.arange(self.atoms)).astype(np.float32)

    def expect(self, logits: Floats) -> Floats:
        """Map logits [B, A * N] to expected returns [B, A], to the same bits on every processor and in any company."""
        each = logits.reshape(len(logits), -1, self.atoms)
        shares = fast_exp(each - each.max(axis=2, keepdims=True))
        # Running sums add from the first to the last; in which order NumPy's sums do depends on the processor.
        total, weighted = (
            np.cumsum(each, axis=2, dtype=np.float32)[..., -1] for each in (shares, shares * self.values)
        )
        mean: Floats = weighted / total
        return mean
