"""What a client keeps of running episodes, where they are longer than it may keep."""

from contextlib import closing
from typing import Any

import pytest
from remote_servers import COUNTING, play, remote, serve_fixture, undisturbed_fixture  # noqa: F401

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from envs.remote.client import place  # noqa: E402


@pytest.mark.parametrize("lost", ["replay", "fail"])
def test_a_session_that_cannot_be_reached_for_a_while_goes_on_also_where_it_could_not_be_replayed(
    serve: Any, monkeypatch: pytest.MonkeyPatch, lost: str, undisturbed: str
) -> None:
    def connect_later(self: place.Place, address: str) -> Any:
        tried.append(address)
        if len(tried) < 5:
            raise place.Lost("there is no way there")
        return connect(self, address)

    def cut(t: int, k: int) -> None:
        if (t, k) == (8, 1):
            assert venv._links[0].journal.full
            monkeypatch.setattr(place.Place, "connect", connect_later)
            venv._links[0]._wire.close()

    connect, tried = place.Place.connect, []
    with closing(remote(serve(COUNTING).address, journal_mb=0.001, lost=lost).make(COUNTING)) as venv:
        assert play(venv, cut) == undisturbed
        assert (venv._links[0].reconnects, venv.restarts) == (1, 0)
