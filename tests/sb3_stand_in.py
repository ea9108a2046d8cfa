"""Peers of benchmarks that need Stable-Baselines3, imported where it is not installed."""

import importlib
import sys
from typing import Any
from unittest.mock import MagicMock

import pytest

MODULES = ("", ".common", *(f".common.{name}" for name in ("callbacks", "env_util", "evaluation", "noise", "vec_env")))


class VecEnv:
    """The library's base of vectors, as far as a subclass can tell."""

    def __init__(self, num_envs: int, observation_space: Any, action_space: Any) -> None:
        self.num_envs, self.observation_space, self.action_space = num_envs, observation_space, action_space

    def step(self, actions: Any) -> Any:
        self.step_async(actions)  # type: ignore[attr-defined]
        return self.step_wait()  # type: ignore[attr-defined]


class BaseCallback:
    """The library's base of callbacks, for a model that is made of nothing."""

    def __init__(self) -> None:
        self.model, self.num_timesteps, self.locals = MagicMock(), 0, dict[str, Any]()


def import_peer(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a file of scripts/bench/peers beside a stand-in of the library; threads are left as they are."""
    stand_in = MagicMock(__version__="2", VecEnv=VecEnv, BaseCallback=BaseCallback)
    for module in MODULES:
        monkeypatch.setitem(sys.modules, f"stable_baselines3{module}", stand_in)
    monkeypatch.delitem(sys.modules, f"scripts.bench.peers.{name}", raising=False)
    peer = importlib.import_module(f"scripts.bench.peers.{name}")
    monkeypatch.setattr(peer.torch, "set_num_threads", lambda count: None)
    return peer
