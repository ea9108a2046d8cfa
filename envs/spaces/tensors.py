"""Views of rows of bytes as tensors, and trees of leaves by their paths."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paddock.envs.errors import ConfigError
from paddock.envs.spaces.codecs import Leaf, Path


class LeafView:
    """Position of a leaf in rows of bytes, as plain numbers that `torch.compile` handles."""

    def __init__(self, leaf: Leaf, start: int) -> None:
        """Take a leaf whose first byte is at `start`; raise ConfigError if torch has no such dtype."""
        dtype, self.start, self.size, self.shape = np.dtype(leaf.dtype), start, leaf.nbytes, tuple(leaf.shape)
        if dtype.kind == "U":  # code points, padded with zeros
            self.shape, dtype = (*self.shape, dtype.itemsize // 4), np.dtype(np.int32)
        try:
            self.dtype = torch.from_numpy(np.zeros(0, dtype)).dtype
        except TypeError as error:
            raise ConfigError(f"env: torch does not support {dtype}; exclude the leaf with env.without=") from error

    def view(self, obs: Tensor) -> Tensor:
        """View rows of bytes [B, N] as the leaf [B, *shape]."""
        return obs.narrow(1, self.start, self.size).view(self.dtype).view(len(obs), *self.shape)


def tree_of(leaves: Iterable[tuple[Path, Any]]) -> Any:
    """Return leaves as nested dicts and tuples by their paths; the only leaf of the root as it is."""
    tree: dict[Any, Any] = {}
    for path, leaf in leaves:
        if not path:
            return leaf
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = leaf
    return _tuples(tree)


def _tuples(tree: Any) -> Any:
    """Convert mappings with keys 0, 1, ... to tuples."""
    if not isinstance(tree, Mapping):
        return tree
    items = {key: _tuples(item) for key, item in tree.items()}
    indexed = all(isinstance(key, int) for key in items) and sorted(items) == list(range(len(items)))
    return tuple(items[key] for key in range(len(items))) if indexed else items
