"""Categorical distributions, one per component: Discrete, MultiDiscrete and MultiBinary."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads.head import Floats, Graph, LeafHead, Path, sum_terms
from paddock.algos.networks.heads.masked import mask
from paddock.envs.native.functions import fast_exp, fast_log

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True)
class Categorical(LeafHead):
    """Independent categorical distributions; outputs are the logits of each component, actions count from 0."""

    kind = "choices"

    def describe(self) -> str:
        """Return a short name of the action space, for `dry_run=true`."""
        return "discrete"

    @property
    def width(self) -> int:
        """Number of network outputs W."""
        return sum(self.sizes)

    @property
    def noise_width(self) -> int:
        """Number of noise values per action."""
        return self.width

    @property
    def inner_dtype(self) -> np.dtype[Any]:
        """Dtype of unscaled actions."""
        return np.dtype(np.int64)

    @property
    def compact_dtype(self) -> np.dtype[Any]:
        """Smallest dtype that holds every unscaled action."""
        return np.min_scalar_type(max(self.sizes) - 1)

    @property
    def columns(self) -> Mapping[Path, slice]:
        """Output columns of each discrete leaf, by path."""
        return {self.path: slice(0, self.width)}

    def sample_noise(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        """Return Gumbel noise [*lead, W]; the argmax of logits plus noise is a sample of the softmax."""
        exponential = generator.standard_exponential((*lead, self.width), dtype=np.float32)
        noise = fast_log(np.maximum(exponential, np.finfo(np.float32).tiny, out=exponential))
        return np.negative(noise, out=noise)

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return actions [B, K] for outputs [B, W]; the most likely ones without noise."""
        scores = out if noise is None else out + noise
        if len(self.sizes) == 1:
            return scores.argmax(axis=1)[:, None]
        blocks = np.split(scores, np.cumsum(self.sizes)[:-1], axis=1)
        return np.stack([block.argmax(axis=1) for block in blocks], axis=1)

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Return log-probabilities [B] of actions [B, K]."""
        total = np.zeros(len(out), np.float32)
        for k, block in enumerate(np.split(out, np.cumsum(self.sizes)[:-1], axis=1)):
            top = block.max(axis=1)
            shares = fast_exp(block - top[:, None])
            normalizer = shares[:, 0].copy()
            for share in shares.T[1:]:
                normalizer += share
            total += (block[np.arange(len(block)), action[:, k]] - top) - fast_log(normalizer)
        return total

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        """Return log-probabilities and entropies [B], in torch."""
        logprobs, entropies = [], []
        for k, block in enumerate(out.split(self.sizes, 1)):
            logs = block.log_softmax(1)
            logprobs.append(logs.gather(1, action[:, k : k + 1]).squeeze(1))
            entropies.append(-(logs.exp() * logs).sum(1))
        return sum_terms(logprobs), sum_terms(entropies)

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Shift actions to the first discrete action, and reshape them."""
        if any(self.low):
            action = action + np.array(self.low, np.int64)
        return action.reshape(-1, *self.shape).astype(self.dtype, copy=False)

    def masked(self, out: Floats, legal: NDArray[np.bool_]) -> Floats:
        """Give illegal actions probability 0."""
        return mask(out, legal, self.sizes, self.path)

    def to_onnx(self, graph: Graph, out: str) -> str:
        """Add the most likely actions to the graph; return their name."""
        blocks = graph.split(out, self.sizes) if len(self.sizes) > 1 else [out]
        best = [graph.add("ArgMax", block, axis=1, keepdims=1, select_last_index=0) for block in blocks]
        chosen = graph.add("Concat", *best, axis=1) if len(best) > 1 else best[0]
        if not any(self.low):
            return chosen
        return graph.add("Add", chosen, graph.constant([int(low) for low in self.low]))
