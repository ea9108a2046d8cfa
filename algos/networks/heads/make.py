"""Selection of the head for an action space."""

from collections.abc import Collection, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from paddock.algos.networks.heads.categorical import Categorical
from paddock.algos.networks.heads.composite import Composite, Head
from paddock.algos.networks.heads.deterministic import Binary, Bounded, Unbounded
from paddock.algos.networks.heads.head import LeafHead, Path
from paddock.algos.networks.heads.numbers import Numbers, has_width
from paddock.envs.errors import ConfigError, nearest, require, resolve
from paddock.envs.spaces.codecs import dotted
from paddock.envs.spaces.layout import Layout

ALLOWED = "Dict, Tuple, Discrete, MultiDiscrete, MultiBinary or a Box of floats"
HEADS = "paddock.algos.networks.heads"
DISTRIBUTIONS = {
    "gaussian": f"{HEADS}.gaussian.Gaussian",
    "squashed_gaussian": f"{HEADS}.squashed_gaussian.SquashedGaussian",
}


def make_head(
    space: gymnasium.Space,
    *,
    stochastic: bool = True,
    distribution: str = "gaussian",
    masked: Collection[Path] = (),
) -> Head:
    """Return the head for an action space.

    Args:
        space: action space.
        stochastic: sample actions from a distribution; otherwise bounded actions are a scaled tanh of the outputs, and
            bits are signs.
        distribution: of continuous actions: a name in `DISTRIBUTIONS`, or the dotted path of a class.
        masked: paths of masked leaves, whose bits have two outputs each, as in stochastic heads.

    Raises:
        ConfigError: the space is not supported, lacks required bounds, or the distribution is unknown.
    """
    numbers = find_distribution(distribution) if stochastic else None
    leaves = tuple(_leaf(leaf, path, numbers, chosen=stochastic or path in masked) for path, leaf in _walk(space, ()))
    require(bool(leaves), f"env: action space {space} is empty; allowed: {ALLOWED}; wrap the environment")
    return leaves[0] if not leaves[0].path else Composite(leaves, Layout.of(space, {}, ()))


def find_distribution(name: str) -> type[Numbers]:
    """Return the class of a continuous distribution by name or dotted path; raise ConfigError if unknown."""
    key = "algo.continuous_distribution"
    known = f"{key}={name} is not an option; {nearest(name, list(DISTRIBUTIONS))}, or the dotted path of a class"
    require(name in DISTRIBUTIONS or "." in name, known)
    found: Any = resolve(DISTRIBUTIONS.get(name, name), key)
    require(isinstance(found, type) and issubclass(found, Numbers), f"{key}={name} must be a subclass of heads.Numbers")
    return found


def _leaf(space: gymnasium.Space, path: Path, numbers: type[Numbers] | None, *, chosen: bool) -> LeafHead:
    """Return the head of one leaf; `numbers` is the distribution of a Box, `chosen` makes bits categorical."""
    dtype = str(space.dtype)
    if isinstance(space, spaces.Discrete):
        return Categorical((), (float(space.start),), (), dtype, path, (int(space.n),))
    if isinstance(space, spaces.MultiDiscrete):
        sizes, start = tuple(map(int, space.nvec.ravel())), tuple(map(float, space.start.ravel()))
        return Categorical(space.shape, start, (), dtype, path, sizes)
    if isinstance(space, spaces.MultiBinary):
        zeros = (0.0,) * int(np.prod(space.shape))
        if not chosen:
            return Binary(space.shape, zeros, (), dtype, path)
        return Categorical(space.shape, zeros, (), dtype, path, (2,) * len(zeros))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return (numbers or (Bounded if has_width(space) else Unbounded)).of(space, path)
    at = f" at {dotted(path)}" if path else ""
    raise ConfigError(f"env: the action space{at} {space} is not supported; allowed: {ALLOWED}; wrap the environment")


def _walk(space: gymnasium.Space, path: Path) -> Iterator[tuple[Path, gymnasium.Space]]:
    """Yield the leaves of a space with their paths, in the order of `Layout`."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, item in items:
            yield from _walk(item, (*path, key))
    else:
        yield path, space
