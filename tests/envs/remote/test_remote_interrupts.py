"""Ctrl-C at a client closes its environments, and at a server ends it after what is under way."""

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

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock.serve import _wait as serve_until_told  # noqa: E402


class Interrupting(Counting):
    """Sends Ctrl-C to this process in a step, and waits until it has been seen."""

    seen = threading.Event()

    def step(self, action: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        assert self.seen.wait(20)
        return super().step(action)


gymnasium.register("Interrupting-v0", f"{__name__}:Interrupting", disable_env_checker=True)


def test_ctrl_c_while_an_answer_is_waited_for_closes_the_environments(serve: Any) -> None:
    spec = env_spec("Interrupting-v0")
    server = serve(spec)
    with closing(remote(server.address, num_envs=1).make(spec)) as venv:
        venv.begin(3)
        threading.Timer(1.0, Interrupting.seen.set).start()  # the server ends the session after the step
        with pytest.raises(KeyboardInterrupt):
            venv.step(np.ones(1, np.int64))
        assert venv.closed
    wait_until(lambda: server.sessions.rows == 0)


def test_a_server_says_what_it_does_about_ctrl_c(serve: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(COUNTING)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert serve_until_told(server) == 0
    assert "Ctrl-C again quits now" in capsys.readouterr().err
