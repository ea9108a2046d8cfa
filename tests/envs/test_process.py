"""Child processes end with their parent, and their end is told in one way."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from conftest import ROOT

from paddock.envs.process import describe_end

PARENT = """
import os, signal
from paddock.envs.process import start_python
child = start_python("import time; time.sleep(600)")
other = os.fork()
if other == 0:
    signal.pause()
print(child.pid, other, flush=True)
signal.pause()
"""


@pytest.mark.real_start
def test_a_child_of_a_killed_process_ends_although_a_fork_of_that_lives_on() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child, other = (psutil.Process(int(pid)) for pid in parent.stdout.readline().split())
    parent.kill()
    parent.wait()
    try:
        child.wait(60)
        assert other.is_running()
    finally:
        os.kill(other.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exited with status 0"),
        (3, "exited with status 3"),
        (-9, "was killed by SIGKILL"),
        (-35, "was killed by signal 35"),
    ],
)
def test_the_end_of_a_process_is_told_by_its_exit_code(code: int, said: str) -> None:
    assert describe_end(code) == said
