"""The laws of the tests' own fork server: whoever starts a process by it sees what a start by the system would show."""

import os
import subprocess
import sys

import forkserver

STARTS = """
import os, signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
import forkserver
hung_up = []
signal.signal(signal.SIGHUP, lambda *_: hung_up.append(True))
stopped = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
stopped.send_signal(signal.SIGSTOP)
assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
with forkserver.installed():  # nothing to do if this process was forked itself
    for _ in range(20):
        subprocess.run([sys.executable, "-c", ""], check=True)
continued = os.waitpid(stopped.pid, os.WCONTINUED | os.WNOHANG) != (0, 0)
stopped.kill()
print(len(hung_up), continued)
"""


def test_a_start_leaves_the_stopped_processes_of_its_group_alone() -> None:
    """Linux hangs up and continues the stopped ones of a group that is orphaned, as that of a session's leader is."""
    command = [sys.executable, "-c", STARTS, os.path.dirname(forkserver.__file__)]
    done = subprocess.run(command, start_new_session=True, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0 False\n", "")
