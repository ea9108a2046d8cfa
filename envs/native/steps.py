"""T steps of native environments by one dense policy whose actions are drawn, in one call of native code.

What they give is, bit for bit, what `DenseForward`, the heads of `paddock.algos.networks.heads` and `NativeVectorEnv` give one
step after another. Threads own environments: each plays all T steps of some, and waits for no other. No number depends
on how many there are.
"""

import ctypes
import time
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from paddock.envs.native.forward import FeaturesOfBytes, PackedWeights
from paddock.envs.native.functions import quick_exp
from paddock.envs.native.networks import DenseLayout, Normalizer
from paddock.envs.native.vector import NativeVectorEnv
from paddock.envs.spaces.sparse import SparseFeatures

Drawn = Literal["choices", "clipped", "squashed", "soft", "tanh"]
DRAWN = get_args(Drawn)  # DRAWN_... of steps.h

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class DrawingNetwork:
    """A dense network, and how actions are drawn from its outputs."""

    layout: DenseLayout
    activation: str  # between layers: "tanh" or "relu"
    drawn: Drawn  # one of W choices; or A numbers, as the heads of these names have them
    low: Floats  # [A] bounds of numbers; [0] of choices, as are the next three
    half: Floats  # half the width between them
    high: Floats
    log_half: Floats  # its logarithm
    features: SparseFeatures | None = None  # of observations that are rows of bytes


@dataclass(frozen=True)
class Steps:
    """What T steps of N environments gave."""

    obs: NDArray[Any]  # [T + 1, N, *shape]
    action: NDArray[Any]  # [T, N, K], as drawn
    logprob: Floats  # [T, N]
    reward: Floats  # [T, N]
    terminated: NDArray[np.bool_]  # [T, N]
    truncated: NDArray[np.bool_]  # [T, N], and not terminated
    final_at: NDArray[np.int64]  # [F, 2], the steps (t, n) that truncated an episode
    final_obs: NDArray[Any]  # [F, *shape], and the observations that they led to
    returns: NDArray[np.float64]  # [E], of the episodes that ended, by t, then n
    lengths: NDArray[np.int64]  # [E]
    env_metrics: NDArray[np.float64]  # [E, M], reported by environments in their infos
    env_s: float  # seconds in environments
    policy_s: float  # seconds choosing actions


class _CSteps(ctypes.Structure):
    """`struct steps` of steps.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weights", "sizes", "features", "mean", "std")),
        *((name, ctypes.c_void_p) for name in ("log_std", "deviation", "inverse", "low", "half", "high", "log_half")),
        *((name, ctypes.c_void_p) for name in ("noise", "observation", "action", "logprob", "reward")),
        *((name, ctypes.c_void_p) for name in ("terminated", "truncated", "final_return", "final_length", "final")),
        ("count", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("layers", "relu", "drawn", "numbers")),
        ("clip", ctypes.c_float),
        ("refused", ctypes.c_int64),
        ("failed", ctypes.c_int32),
        *((name, ctypes.c_uint64) for name in ("policy_ticks", "env_ticks")),
    )


class StepPlayer:
    """Plays one vector of environments by policies of one shape."""

    def __init__(self, venv: NativeVectorEnv, drawing: DrawingNetwork) -> None:
        self._venv, self._drawing = venv, drawing
        self._weights = PackedWeights(drawing.layout)
        self._steps = _CSteps(
            layers=len(drawing.layout.sizes) - 1,
            relu=drawing.activation == "relu",
            drawn=DRAWN.index(drawing.drawn),
            numbers=len(drawing.low),
        )
        self._kept: dict[str, NDArray[Any]] = {}  # what native code reads, by their names in steps.h
        bounds = {name: getattr(drawing, name) for name in ("low", "half", "high", "log_half")}
        self._show(weights=self._weights.array, sizes=np.array(drawing.layout.sizes, np.int32), **bounds)

    def load(self, parameters: Floats, log_std: Floats, normalizer: Normalizer | None) -> None:
        """Play by these parameters from now on.

        Args:
            parameters: [P] of the policy's layers, or longer.
            log_std: [W] of a Gaussian, or [0].
            normalizer: of observations; None: as they are.
        """
        self._weights.load(parameters)
        if log_std.size:
            self._show(log_std=log_std.copy(), deviation=quick_exp(log_std), inverse=quick_exp(-log_std))
        self._steps.mean = self._steps.std = None
        if self._drawing.features is not None:
            self._features = FeaturesOfBytes.of(self._drawing.features, normalizer)
            self._steps.features = ctypes.addressof(self._features)
        elif normalizer is not None:
            self._show(mean=normalizer.mean, std=normalizer.std)
            self._steps.clip = normalizer.clip

    def play(self, noise: Floats) -> Steps:
        """Play T steps of every environment from where it is, with noise [T, N, W] or [T, N, A] as the head draws it.

        Raises:
            VectorMisuse: an action is not finite; some environments have stepped then.
        """
        drawing, venv, steps = self._drawing, self._venv, self._steps
        T, N, W = noise.shape
        features = drawing.features
        row, kind = ((), f"V{features.itemsize}") if features else (drawing.layout.sizes[:1], "f4")
        choices = drawing.drawn == "choices"
        assert (len(drawing.low) or drawing.layout.sizes[-1]) == W and venv.num_envs == N, noise.shape
        # Where nothing is written, no memory is taken.
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

    def _show(self, **arrays: Floats | NDArray[np.int32]) -> None:
        """Let native code read these arrays, which are kept until others have their names."""
        for name, array in arrays.items():
            self._kept[name] = np.ascontiguousarray(array)
            setattr(self._steps, name, self._kept[name].ctypes.data)
