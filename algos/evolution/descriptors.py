"""Descriptors of a member's behaviour, from the results of its episodes."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paddock.algos.evolution.archive import CVT, Cells, Floats, Grid
from paddock.algos.evolution.centroids import spread_centroids
from paddock.algos.networks.flat import check_memory
from paddock.envs.errors import nearest, require
from paddock.envs.ranges import check_numbers, check_whole_numbers

KEYS = {"of", "low", "high"}
MAX_DIMENSIONS = 32


@dataclass(frozen=True)
class Descriptor:
    """One dimension of an archive.

    Attributes:
        of: `length`, the steps of an episode; `observation.N`, the mean of a feature over an episode; or `metric.NAME`,
            a metric of the environment. Several episodes count by their mean.
        cells: cells of a grid along this dimension; None for a CVT archive.
    """

    of: str
    low: float
    high: float
    cells: int | None

    @property
    def feature(self) -> int | None:
        """Index of the observed feature; None for other sources."""
        found = re.fullmatch(r"observation\.(\d+)", self.of)
        return None if found is None else int(found[1])

    def values(self, lengths: Floats, observations: Floats, metrics: Mapping[str, Floats]) -> Floats:
        """Return the descriptor [M] of members.

        Args:
            lengths: [M, E], steps of the episodes.
            observations: [M, E, F], mean of each feature; F may be 0 if no descriptor is a feature.
            metrics: [M, E] by name.
        """
        if self.feature is not None:
            return observations[:, :, self.feature].mean(axis=1)
        return (lengths if self.of == "length" else metrics[self.of.removeprefix("metric.")]).mean(axis=1)


def read_descriptors(
    given: Sequence[Mapping[str, Any]], num_features: int, metrics: Sequence[str], grid: bool
) -> tuple[Descriptor, ...]:
    """Check and return the descriptors of a configuration.

    Args:
        given: mappings with the fields of `Descriptor`.
        num_features: number of features of an observation.
        metrics: names of the environment's metrics.
        grid: each descriptor states its cells.

    Raises:
        ConfigError: a descriptor is unknown, or its range or number of cells is invalid.
    """
    require(len(given) >= 1, "descriptors=[] is empty; add one, such as {of: length, low: 0, high: 500, cells: 50}")
    require(len(given) <= MAX_DIMENSIONS, f"descriptors: {len(given)} dimensions; use at most {MAX_DIMENSIONS}")
    descriptors = []
    for section in given:
        name = f"descriptors: {section.get('of')}"
        keys = sorted(KEYS | {"cells"} if grid else KEYS)
        set_keys = {key for key, value in section.items() if value is not None}
        why = "as each dimension of a grid has its own" if grid else "as `cells` of a CVT archive is one number"
        require(set_keys == set(keys), f"{name} must have the keys {', '.join(keys)}, {why}")
        descriptor = Descriptor(str(section["of"]), section["low"], section["high"], section.get("cells"))
        check_numbers(**{f"{name}: {key}": section[key] for key in ("low", "high")})
        require(descriptor.low < descriptor.high, f"{name}: low={descriptor.low} must be below high={descriptor.high}")
        if grid:
            check_whole_numbers(**{f"{name}: cells": descriptor.cells})
            require((descriptor.cells or 0) >= 1, f"{name}: cells={descriptor.cells} must be at least 1")
        _check_source(name, descriptor, num_features, metrics)
        descriptors.append(descriptor)
    return tuple(descriptors)


def _check_source(name: str, descriptor: Descriptor, num_features: int, metrics: Sequence[str]) -> None:
    if descriptor.feature is not None:
        last = num_features - 1
        require(descriptor.feature <= last, f"{name} does not exist; use observation.0 to observation.{last}")
        return
    metric = descriptor.of.removeprefix("metric.")
    if metric != descriptor.of:
        require(metric in metrics, f"{name} is not a metric of the environment; add it: env.metrics=[{metric}]")
        return
    known = ["length", "observation.0", *(f"metric.{metric}" for metric in metrics)]
    require(descriptor.of == "length", f"{name} is unknown; {nearest(descriptor.of, known)}")


def make_cells(descriptors: Sequence[Descriptor], cells: int | None, num_parameters: int, seed: int) -> Cells:
    """Return a grid, or a CVT of `cells`; raise ConfigError if an archive does not fit in memory."""
    low, high = (np.array([getattr(one, key) for one in descriptors], np.float64) for key in ("low", "high"))
    shape = tuple(one.cells or 0 for one in descriptors)
    count = math.prod(shape) if cells is None else cells
    check_memory(
        f"descriptors: {count:,} cells" if cells is None else f"cells={cells}", count * num_parameters, "elites", "1024"
    )
    return Grid(low, high, shape) if cells is None else CVT(low, high, spread_centroids(cells, len(low), seed))
