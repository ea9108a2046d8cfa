"""What a client keeps of running episodes, where they are longer than it may keep."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from remote_servers import (  # noqa: F401
    COUNTING,
    N,
    play,
    remote,
    serve_fixture,
    undisturbed_fixture,
)
from vector_cases import assert_same

from paddock.envs.vector import Serial

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.client import endpoint  # noqa: E402


def test_an_unreachable_session_continues_without_a_replay(
    serve: Any, monkeypatch: pytest.MonkeyPatch, undisturbed: str
) -> None:
    def connect_later(self: endpoint.Endpoint, address: str) -> Any:
        tried.append(address)
        if len(tried) < 5:
            raise endpoint.ConnectionLost("there is no way there")
        return connect(self, address)

    def cut(t: int, k: int) -> None:
        if (t, k) == (8, 1):
            assert venv._connections[0].journal.full
            monkeypatch.setattr(endpoint.Endpoint, "connect", connect_later)
            venv._connections[0].channel.close()

    connect = endpoint.Endpoint.connect
    tried: list[str] = []
    with closing(remote(serve(COUNTING).address, journal_mb=0.001).make(COUNTING)) as venv:
        assert play(venv, cut) == undisturbed
        assert (venv._connections[0].reconnects, venv.restarts) == (1, 0)


def test_new_episodes_can_be_replayed_after_overlong_ones(serve: Any) -> None:
    def drive(venv: Any, kill: Callable[[], None] = lambda: None) -> list[Any]:
        venv.reset(seed=0)
        for _ in range(9):
            venv.step(np.zeros(N, np.int64))
        seen = [venv.reset(seed=7)[0], venv.step(np.zeros(N, np.int64))[0]]
        kill()
        return [*seen, venv.step(np.ones(N, np.int64))[0]]

    with closing(Serial(num_envs=N).make(COUNTING)) as here:
        expected = drive(here)
    server = serve(COUNTING)

    def kill() -> None:
        server.close()
        serve(COUNTING, address=server.address)

    with closing(remote(server.address, journal_mb=0.001).make(COUNTING)) as venv:
        assert_same(drive(venv, kill), expected)
        assert venv.restarts == 1
