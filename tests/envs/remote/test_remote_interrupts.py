"""Ctrl-C at a client of servers: the client goes on to the same numbers, or can be closed."""

import os
import signal
import threading
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import env_spec, wait_until
from remote_servers import COUNTING, Counting, remote, serve_fixture  # noqa: F401

from paddock.envs.vector import Serial

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.envs.remote.client.connection import Connection  # noqa: E402
from paddock.serve import _wait as serve_until_told  # noqa: E402


class Interrupting(Counting):
    """Sends Ctrl-C to this process in a step, and waits until it has been seen."""

    steps = 0
    seen = threading.Event()

    def step(self, action: Any) -> Any:
        Interrupting.steps += 1
        if Interrupting.steps == 3:
            os.kill(os.getpid(), signal.SIGINT)
            assert self.seen.wait(20)
        return super().step(action)


gymnasium.register("Interrupting-v0", f"{__name__}:Interrupting", disable_env_checker=True)


def step(venv: Any) -> bytes:
    return bytes(venv.step(np.ones(1, np.int64))[0].tobytes())


def test_ctrl_c_while_an_answer_is_waited_for_costs_nothing(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interrupting, "steps", 0)
    spec = env_spec("Interrupting-v0")
    with closing(remote(serve(spec).address, num_envs=1).make(spec)) as venv:
        venv.begin(3)
        told = [step(venv) for _ in range(2)]
        venv.send(np.ones(1, np.int64))
        with pytest.raises(KeyboardInterrupt):
            venv.recv()
        Interrupting.seen.set()
        told += [venv.recv()[0].tobytes(), step(venv)]
        assert venv._connections[0].reconnects == 1
    with closing(Serial(num_envs=1).make(COUNTING)) as venv:
        venv.begin(3)
        assert told == [step(venv) for _ in range(4)]


@pytest.mark.parametrize("nth", [1, 3, 5], ids=["begin", "a step", "the state"])
def test_ctrl_c_during_a_replay_leaves_it_to_the_next_call(
    serve: Any, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    def interrupt(*given: Any) -> None:
        nonlocal nth
        number(*given)
        nth -= 1
        if not nth:
            signal.raise_signal(signal.SIGINT)

    number, server = Connection._number, serve(COUNTING)
    with closing(remote(server.address, num_envs=1).make(COUNTING)) as venv:
        venv.begin(10)  # whose episode goes on
        for _ in range(3):
            step(venv)
        server.close()
        serve(COUNTING, address=server.address)
        venv.send(np.ones(1, np.int64))
        monkeypatch.setattr(Connection, "_number", interrupt)
        with pytest.raises(KeyboardInterrupt):
            venv.recv()
        told = venv.recv()[0].tobytes()
    with closing(Serial(num_envs=1).make(COUNTING)) as venv:
        venv.begin(10)
        assert [step(venv) for _ in range(4)][-1] == told


def test_a_server_says_what_it_does_about_ctrl_c(serve: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(COUNTING)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert serve_until_told(server) == 0
    wait_until(lambda: server.sessions.rows == 0)
    assert "finish what is under way; Ctrl-C again ends at once" in capsys.readouterr().err
