"""Expected values of categorical return distributions (C51, Bellemare et al. 2017, arXiv:1707.06887), in NumPy."""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.envs.native.functions import fast_exp

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Support:
    """N equally spaced atoms of a return distribution."""

    atoms: int  # N, at least 2
    v_min: float  # first atom
    v_max: float  # last atom

    @property
    def spacing(self) -> float:
        """Distance between atoms."""
        return (self.v_max - self.v_min) / (self.atoms - 1)

    @functools.cached_property
    def values(self) -> Floats:
        """Atoms [N]."""
        return (self.v_min + self.spacing * np.arange(self.atoms)).astype(np.float32)

    def expect(self, logits: Floats) -> Floats:
        """Map logits [B, A * N] to expected returns [B, A], bit-identical for every batch size and CPU."""
        each = logits.reshape(len(logits), -1, self.atoms)
        shares = fast_exp(each - each.max(axis=2, keepdims=True))
        # Cumulative sums have a fixed order; that of NumPy's sum depends on the CPU.
        total, weighted = (
            np.cumsum(each, axis=2, dtype=np.float32)[..., -1] for each in (shares, shares * self.values)
        )
        mean: Floats = weighted / total
        return mean
