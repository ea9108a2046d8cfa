"""Trees of arrays: views of the parts of a space in rows of bytes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from paddock.envs.spaces.parts import Array, Views


def flatten(tree: Any) -> Iterator[Array]:
    """Return the arrays of views, in order."""
    if isinstance(tree, Mapping):
        for part in tree.values():
            yield from flatten(part)
    elif isinstance(tree, tuple):
        for part in tree:
            yield from flatten(part)
    else:
        yield tree


def first(tree: Views) -> Array:
    """Return the first array of views."""
    return next(flatten(tree))


def select(views: Views, index: Any) -> Views:
    """Return views at an index into each array."""
    return _each_array(views, lambda view: view[index])


def copied(views: Views) -> Views:
    """Return the same tree with arrays of its own."""
    return _each_array(views, np.copy)


def _each_array(views: Views, change: Callable[[Array], Array]) -> Views:
    if isinstance(views, dict):
        return {key: _each_array(view, change) for key, view in views.items()}
    return tuple([_each_array(view, change) for view in views]) if isinstance(views, tuple) else change(views)
