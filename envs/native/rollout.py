"""Whole episodes of many small networks in native code.

An episode depends only on its network and its seed, not on other episodes, the number of threads or the SIMD width. It
is bit-identical to `paddock.algos.learning.episodes.play` on the same environments.
"""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.native import library
from paddock.envs.native.forward import CFeatures, PackedWeights
from paddock.envs.native.networks import Network, Normalizer
from paddock.envs.native.settings import NativeTask

HEADS = ("discrete", "bounded", "clipped")  # HEAD_... of rollout.h
ACTIVATIONS = ("tanh", "relu")
MAX_OBSERVATION = 32  # of native.h: longer observations are rows of bytes, which need sparse features
MAX_PARAMETERS = 500_000  # each SIMD lane has a copy: 64 MB at most


class NativeRollout(ctypes.Structure):
    """`struct rollout` of rollout.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("task", "settings", "parameters")),
        *((name, ctypes.c_int64) for name in ("members", "episodes", "num_parameters", "limit")),
        *((name, ctypes.c_void_p) for name in ("seeds", "member", "observe", "sizes", "low", "high", "mean", "std")),
        ("features", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("layers", "relu", "head", "threads")),
        ("clip", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("returns", "lengths", "moment_mean", "moment_m2")),
    )


@dataclass(frozen=True)
class PlayedEpisodes:
    """Results of E episodes, in the order requested."""

    returns: NDArray[np.float64]  # [E]; NaN if a non-finite action ended the episode
    lengths: NDArray[np.int64]  # [E], steps
    mean: NDArray[np.float64]  # [E, O] of the observations before each step, where requested
    m2: NDArray[np.float64]  # [E, O], sum of squared deviations from the mean


def supports(task: NativeTask, network: Network) -> bool:
    """Return whether native code can play this network in this (single-agent) environment."""
    if task.source.seats > 1:
        return False
    observation, action = task.observation_space, task.action_space
    if network.head == "discrete":
        fits = isinstance(action, Discrete) and action.start == 0 and action.n == network.sizes[-1]
    else:
        fits = isinstance(action, Box) and math.prod(action.shape) == network.sizes[-1] == len(network.low)
    if network.features is None:
        fits = fits and isinstance(observation, Box) and math.prod(observation.shape) == network.sizes[0]
        fits = fits and network.sizes[0] <= MAX_OBSERVATION and bool(library.describe(task.name).observations)
    else:
        layout = task.source.observations
        known = {*network.features.leaves} <= {*layout.leaves} and network.features.itemsize == layout.itemsize
        fits = fits and known and not layout.plain and network.head == "discrete"
    return (
        fits
        and network.head in HEADS
        and network.activation in ACTIVATIONS
        and network.num_parameters <= MAX_PARAMETERS
    )


def play_episodes(
    task: NativeTask,
    network: Network,
    parameters: NDArray[np.float32],
    member: Sequence[int],
    seeds: Sequence[int],
    *,
    normalizer: Normalizer | None,
    cap: int | None,
    observe: Sequence[bool],
    threads: int,
) -> PlayedEpisodes:
    """Play episode e with the parameters of row member[e] from seed seeds[e], without the GIL.

    Args:
        task: environment, one that `supports` accepts.
        network: shape of the networks, one that `supports` accepts.
        parameters: [M, P].
        member: [E] rows of parameters.
        seeds: [E], not negative.
        normalizer: normalizer of observations; None: no normalization.
        cap: steps after which an episode is truncated; None: only the environment's own limit.
        observe: [E], whether to return moments of the observations (of their features for rows of bytes).
        threads: number of threads, at least 1; does not affect results.

    Raises:
        ConfigError: there is no compiled library or not enough memory.
    """
    episodes, width = len(seeds), network.sizes[0]
    limits = [limit for limit in (task.time_limit, cap) if limit is not None]
    arrays: dict[str, NDArray[Any]] = {
        "parameters": np.ascontiguousarray(parameters, np.float32),
        "member": np.array(member, np.int32),
        "seeds": np.array(seeds, np.int64),
        "observe": np.array(observe, np.uint8),
        "sizes": np.array(network.sizes, np.int32),
        "low": np.array(network.low, np.float32),
        "high": np.array(network.high, np.float32),
        "returns": np.zeros(episodes),
        "lengths": np.zeros(episodes, np.int64),
        "moment_mean": np.zeros((episodes, width)),
        "moment_m2": np.zeros((episodes, width)),
    }
    features = None if network.features is None else CFeatures.of(network.features, normalizer)
    if features is not None:
        arrays["parameters"] = _packed(network, arrays["parameters"])
    elif normalizer is not None:
        arrays |= {name: np.ascontiguousarray(getattr(normalizer, name), np.float32) for name in ("mean", "std")}
        assert arrays["mean"].shape == arrays["std"].shape == (width,)
    rows, each = arrays["parameters"].shape
    assert supports(task, network) and parameters.shape == (rows, network.num_parameters)
    assert arrays["member"].shape == arrays["observe"].shape == (episodes,)
    assert threads >= 1 and all(0 <= row < rows for row in member) and all(seed >= 0 for seed in seeds)

    library_ = library.load()
    rollout = NativeRollout(
        task=library.find_task(task.name),
        settings=ctypes.addressof(task.settings),
        members=rows,
        episodes=episodes,
        num_parameters=each,
        features=None if features is None else ctypes.addressof(features),
        layers=len(network.sizes) - 1,
        relu=network.activation == "relu",
        head=HEADS.index(network.head),
        limit=min(limits, default=0),
        clip=0.0 if normalizer is None else normalizer.clip,
        threads=threads,
        **{name: array.ctypes.data for name, array in arrays.items()},
    )
    failed = library_.play_episodes(ctypes.byref(rollout))
    require(not failed, f"out of memory: {threads} threads with networks of {network.sizes}; use fewer threads")
    return PlayedEpisodes(arrays["returns"], arrays["lengths"], arrays["moment_mean"], arrays["moment_m2"])


def _packed(network: Network, parameters: NDArray[np.float32]) -> NDArray[np.float32]:
    """Pack parameters [M, P] for networks that read rows of bytes."""
    packed = PackedWeights(network.layout)
    made = np.empty((len(parameters), len(packed.array)), np.float32)
    for row, flat in zip(made, parameters, strict=True):
        packed.load(flat)
        row[:] = packed.array
    return made
