"""Trees of arrays: views of a space's components in rows of bytes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from paddock.envs.spaces.codecs import Array, Views


def flatten(tree: Any) -> Iterator[Array]:
    """Yield the arrays of a tree in order."""
    if isinstance(tree, Mapping):
        for part in tree.values():
            yield from flatten(part)
    elif isinstance(tree, tuple):
        for part in tree:
            yield from flatten(part)
    else:
        yield tree


def first(tree: Views) -> Array:
    """Return the first array of a tree."""
    return next(flatten(tree))


def select(views: Views, index: Any) -> Views:
    """Index every array of a tree."""
    return _each_array(views, lambda view: view[index])


def copied(views: Views) -> Views:
    """Return a tree with copies of its arrays."""
    return _each_array(views, np.copy)


def _each_array(views: Views, change: Callable[[Array], Array]) -> Views:
    if isinstance(views, dict):
        return {key: _each_array(view, change) for key, view in views.items()}
    return tuple([_each_array(view, change) for view in views]) if isinstance(views, tuple) else change(views)
