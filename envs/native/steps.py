"""Rollouts of T steps in native environments with one stochastic dense policy, in one call of native code.

Results are bit-identical to stepping with `DenseForward`, the heads of `paddock.algos.networks.heads` and
`NativeVectorEnv`, for any number of threads. Each thread plays all T steps of its environments without waiting for others.
"""

import ctypes
import time
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from paddock.envs.native.forward import CFeatures, PackedWeights
from paddock.envs.native.functions import fast_exp
from paddock.envs.native.networks import DenseLayout, Normalizer
from paddock.envs.native.vector import NativeVectorEnv
from paddock.envs.spaces.sparse import SparseFeatures

Sampling = Literal["choices", "clipped", "squashed", "soft", "tanh"]
SAMPLINGS = get_args(Sampling)  # SAMPLE_... of steps.h

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class StochasticNetwork:
    """Dense network and the distribution from whose parameters, its outputs, actions are sampled."""

    layout: DenseLayout
    activation: str  # between layers: "tanh" or "relu"
    sampling: Sampling  # one of W choices, or A numbers from the head of this name
    low: Floats  # [A] bounds of continuous actions; [0] for choices, as the next three
    half: Floats  # half the distance between the bounds
    high: Floats
    log_half: Floats  # log(half)
    features: SparseFeatures | None = None  # inputs extracted from rows of bytes


@dataclass(frozen=True)
class Steps:
    """Transitions of T steps of N environments."""

    obs: NDArray[Any]  # [T + 1, N, *shape]
    action: NDArray[Any]  # [T, N, K], as sampled
    logprob: Floats  # [T, N]
    reward: Floats  # [T, N]
    terminated: NDArray[np.bool_]  # [T, N]
    truncated: NDArray[np.bool_]  # [T, N], and not terminated
    final_at: NDArray[np.int64]  # [F, 2], the (t, n) at which an episode was truncated
    final_obs: NDArray[Any]  # [F, *shape], final observations of these episodes
    returns: NDArray[np.float64]  # [E], of the episodes that ended, ordered by t, then n
    lengths: NDArray[np.int64]  # [E]
    env_metrics: NDArray[np.float64]  # [E, M], reported by environments in their infos
    env_s: float  # seconds spent stepping
    policy_s: float  # seconds spent choosing actions


class _CSteps(ctypes.Structure):
    """`struct steps` of steps.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weights", "sizes", "features", "mean", "std")),
        *((name, ctypes.c_void_p) for name in ("log_std", "deviation", "inverse", "low", "half", "high", "log_half")),
        *((name, ctypes.c_void_p) for name in ("noise", "observation", "action", "logprob", "reward")),
        *((name, ctypes.c_void_p) for name in ("terminated", "truncated", "final_return", "final_length", "final")),
        ("count", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("layers", "relu", "sampling", "numbers")),
        ("clip", ctypes.c_float),
        ("invalid", ctypes.c_int64),
        ("failed", ctypes.c_int32),
        *((name, ctypes.c_uint64) for name in ("policy_ticks", "env_ticks")),
    )


class StepPlayer:
    """Collector of rollouts from one vector of environments with policies of one shape."""

    def __init__(self, venv: NativeVectorEnv, network: StochasticNetwork) -> None:
        """Prepare rollouts of `network` in `venv`; call `load` before `play`."""
        self._venv, self._network = venv, network
        self._weights = PackedWeights(network.layout)
        self._steps = _CSteps(
            layers=len(network.layout.sizes) - 1,
            relu=network.activation == "relu",
            sampling=SAMPLINGS.index(network.sampling),
            numbers=len(network.low),
        )
        self._kept: dict[str, NDArray[Any]] = {}  # arrays that native code reads, by their names in steps.h
        bounds = {name: getattr(network, name) for name in ("low", "half", "high", "log_half")}
        self._pass(weights=self._weights.array, sizes=np.array(network.layout.sizes, np.int32), **bounds)

    def load(self, parameters: Floats, log_std: Floats, normalizer: Normalizer | None) -> None:
        """Load the parameters of the policy.

        Args:
            parameters: [P] of the policy's layers, or longer.
            log_std: [W] of a Gaussian, else [0].
            normalizer: normalizer of observations; None: no normalization.
        """
        self._weights.load(parameters)
        if log_std.size:
            self._pass(log_std=log_std.copy(), deviation=fast_exp(log_std), inverse=fast_exp(-log_std))
        self._steps.mean = self._steps.std = None
        if self._network.features is not None:
            self._features = CFeatures.of(self._network.features, normalizer)
            self._steps.features = ctypes.addressof(self._features)
        elif normalizer is not None:
            self._pass(mean=normalizer.mean, std=normalizer.std)
            self._steps.clip = normalizer.clip

    def play(self, noise: Floats) -> Steps:
        """Play T steps of every environment with the head's noise [T, N, W] or [T, N, A].

        Raises:
            VectorMisuse: an action is not finite; some environments may have stepped.
        """
        network, venv, steps = self._network, self._venv, self._steps
        T, N, W = noise.shape
        features = network.features
        row, kind = ((), f"V{features.itemsize}") if features else (network.layout.sizes[:1], "f4")
        choices = network.sampling == "choices"
        assert (len(network.low) or network.layout.sizes[-1]) == W and venv.num_envs == N, noise.shape
        # np.empty: pages that are never written take no memory.
        made = {
            "observation": np.empty((T + 1, N, *row), kind),
            "action": np.empty((T, N, 1 if choices else W), np.int64 if choices else np.float32),
            "logprob": np.empty((T, N), np.float32),
            "reward": np.empty((T, N), np.float32),
            "terminated": np.empty((T, N), np.bool_),
            "truncated": np.empty((T, N), np.bool_),
            "final_return": np.empty((T, N)),
            "final_length": np.empty((T, N), np.int64),
            "final": np.empty((T, N, *row), kind),
        }
        for name, array in made.items():
            setattr(steps, name, array.ctypes.data)
        noise = np.ascontiguousarray(noise)
        steps.noise, steps.count = noise.ctypes.data, T
        before = time.perf_counter()
        venv.play(steps)
        seconds = time.perf_counter() - before
        truncated, shape = made["truncated"], () if features else venv.single_observation_space.shape or ()
        ended = made["terminated"] | truncated
        ticks = steps.policy_ticks + steps.env_ticks
        share = steps.policy_ticks / ticks if ticks else 0.0
        return Steps(
            obs=made["observation"].reshape(T + 1, N, *shape),
            final_at=np.argwhere(truncated),
            final_obs=made["final"][truncated].reshape(-1, *shape),
            returns=made["final_return"][ended],
            lengths=made["final_length"][ended],
            env_metrics=np.zeros((int(ended.sum()), 0)),
            env_s=seconds * (1 - share),
            policy_s=seconds * share,
            **{name: made[name] for name in ("action", "logprob", "reward", "terminated", "truncated")},
        )

    def _pass(self, **arrays: Floats | NDArray[np.int32]) -> None:
        """Pass arrays to native code and keep them alive until they are replaced."""
        for name, array in arrays.items():
            self._kept[name] = np.ascontiguousarray(array)
            setattr(self._steps, name, self._kept[name].ctypes.data)
