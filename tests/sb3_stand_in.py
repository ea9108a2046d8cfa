"""Peers of benchmarks that need Stable-Baselines3, imported where it is not installed."""

import importlib
import sys
from typing import Any
from unittest.mock import MagicMock

import pytest

MODULES = ("", ".common", *(f".common.{name}" for name in ("callbacks", "env_util", "evaluation", "noise", "vec_env")))


def import_peer(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a file of scripts/bench/peers beside a stand-in of the library; threads are left as they are."""
    for module in MODULES:
        monkeypatch.setitem(sys.modules, f"stable_baselines3{module}", MagicMock(__version__="2"))
    monkeypatch.delitem(sys.modules, f"scripts.bench.peers.{name}", raising=False)
    peer = importlib.import_module(f"scripts.bench.peers.{name}")
    monkeypatch.setattr(peer.torch, "set_num_threads", lambda count: None)
    return peer
