"""Whole episodes of many small networks in native code, for environments that have a native version.

What an episode gives depends on its network and its seed alone: not on the company it is played in, nor on threads, nor
on the width of the processor's registers. It is what `paddock.algos.learning.episodes.play` gives over environments of the same
numbers, bit for bit.
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
from paddock.envs.native.forward import FeaturesOfBytes, PackedWeights
from paddock.envs.native.networks import Network, Normalizer
from paddock.envs.native.settings import NativeTask

HEADS = ("discrete", "bounded", "clipped")  # HEAD_... of rollout.h
ACTIVATIONS = ("tanh", "relu")
MOST_OBSERVATION = 32  # MAX_OBSERVATION of native.h: longer ones are rows of bytes, which no network reads there
MOST_PARAMETERS = 500_000  # for each lane has its own: 64 MB at most


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
    """What E episodes gave, in the order they were asked for."""

    returns: NDArray[np.float64]  # [E]; NaN where the network gave an action that is not finite: it ended the episode
    lengths: NDArray[np.int64]  # [E], steps
    mean: NDArray[np.float64]  # [E, O], of as many observations as steps, where they were asked for
    m2: NDArray[np.float64]  # [E, O], sum of squared deviations from the mean


def supports(task: NativeTask, network: Network) -> bool:
    """Whether native code can play this network in this environment, which is no world of several agents."""
    if task.source.seats > 1:
        return False
    observation, action = task.observation_space, task.action_space
    if network.head == "discrete":
        fits = isinstance(action, Discrete) and action.start == 0 and action.n == network.sizes[-1]
    else:
        fits = isinstance(action, Box) and math.prod(action.shape) == network.sizes[-1] == len(network.low)
    if network.features is None:
        fits = fits and isinstance(observation, Box) and math.prod(observation.shape) == network.sizes[0]
        fits = fits and network.sizes[0] <= MOST_OBSERVATION and bool(library.describe(task.name).observations)
    else:
        layout = task.source.observations
        known = {*network.features.leaves} <= {*layout.leaves} and network.features.itemsize == layout.itemsize
        fits = fits and known and not layout.plain and network.head == "discrete"
    return (
        fits
        and network.head in HEADS
        and network.activation in ACTIVATIONS
        and network.num_parameters <= MOST_PARAMETERS
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
    """Play episode e with the network of row member[e] from seed seeds[e], without the interpreter lock.

    Args:
        task, network: that `supports` allows.
        parameters: [M, P].
        normalizer: of observations; None: as they are.
        cap: steps after which an episode is cut off; None for the environment's own limit.
        observe: [E], whether to give the moments of the observations seen; of rows of bytes those of their features.
        threads: that play, at least 1; they change no number.

    Raises:
        ConfigError: there is no compiled library, or no memory.
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
    features = None if network.features is None else FeaturesOfBytes.of(network.features, normalizer)
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
        task=library.find(task.name),
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
    require(not failed, f"no memory for {threads} threads with networks of {network.sizes}; take fewer threads")
    return PlayedEpisodes(arrays["returns"], arrays["lengths"], arrays["moment_mean"], arrays["moment_m2"])


def _packed(network: Network, parameters: NDArray[np.float32]) -> NDArray[np.float32]:
    """Parameters [M, P] as native code reads those of networks that see rows of bytes."""
    packed = PackedWeights(network.layout)
    made = np.empty((len(parameters), len(packed.array)), np.float32)
    for own, flat in zip(made, parameters, strict=True):
        packed.load(flat)
        own[:] = packed.array
    return made
