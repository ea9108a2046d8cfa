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
    cells: int | None = None

    @property
    def feature(self) -> int | None:
        """Index of the observed feature; None for other sources."""
        found = re.fullmatch(r"observation\.(\d+)", self.of)
        return None if found is None else int(found[1])

    def values(self, lengths: Floats, observations: Floats, metrics: Mapping[str, Floats]) -> Floats:
        """Return the descriptor [M] of members, from lengths [M, E], means of features [M, E, F] and metrics [M, E]."""
        if self.feature is not None:
            return observations[:, :, self.feature].mean(axis=1)
        return (lengths if self.of == "length" else metrics[self.of.removeprefix("metric.")]).mean(axis=1)


def read_descriptors(
    given: Sequence[Mapping[str, Any]], num_features: int, metrics: Sequence[str], grid: bool
) -> tuple[Descriptor, ...]:
    """Return the descriptors of a configuration, for observations of so many features and metrics of these names.

    Raises:
        ConfigError: a descriptor is unknown, or its range or number of cells is invalid; cells are for grids only.
    """
    require(len(given) >= 1, "descriptors=[] is empty; add one, such as {of: length, low: 0, high: 500, cells: 50}")
    known = ["length", *(f"metric.{name}" for name in metrics), *(f"observation.{k}" for k in range(num_features))]
    names = [str(section.get("of")) for section in given]
    require(len(set(names)) == len(names), f"descriptors: {', '.join(names)} repeats one; list each once")
    keys = {"of", "low", "high", "cells"} if grid else {"of", "low", "high"}
    for section in given:
        name = f"descriptors: {section.get('of')}"
        fits = {key for key, value in section.items() if value is not None} == keys
        require(fits, f"{name} must have the keys {', '.join(sorted(keys))}, for archive={'grid' if grid else 'cvt'}")
        of, low, high = str(section["of"]), section["low"], section["high"]
        metric = of.removeprefix("metric.")
        declare = f"add it: env.metrics=[{metric}]"
        require(of in known, f"{name} is unknown; {nearest(of, known) if metric == of else declare}")
        check_numbers(**{f"{name}: low": low, f"{name}: high": high})
        require(low < high, f"{name}: low={low} must be below high={high}")
        check_whole_numbers(**{f"{name}: cells": section["cells"]} if grid else {})
        require(not grid or section["cells"] >= 1, f"{name}: cells must be at least 1")
    return tuple(Descriptor(**section) for section in given)


def make_cells(descriptors: Sequence[Descriptor], cells: int | None, num_parameters: int, seed: int) -> Cells:
    """Return a grid, or a CVT of `cells`; raise ConfigError if an archive does not fit in memory."""
    low, high = (np.array([getattr(one, key) for one in descriptors], np.float64) for key in ("low", "high"))
    shape = tuple(one.cells or 0 for one in descriptors)
    count, setting = (math.prod(shape), "descriptors: a grid") if cells is None else (cells, "cells")
    check_memory(f"{setting} of {count:,}", count * num_parameters, "elites", "1024 cells")
    return Grid(low, high, shape) if cells is None else CVT(low, high, spread_centroids(cells, len(low), seed))
