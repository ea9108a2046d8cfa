"""A real Slurm on this machine, for tests: Debian's munge, slurmctld and a few slurmd, in a folder of their own.

A test file that needs it says `from slurm_cluster import slurm`, or `at_slurm` too where this process itself is to ask
it; its tests are then skipped where Slurm is missing.
"""

import contextlib
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import wait_until

NODES, CPUS, MEMORY_MB = 3, 4, 4000  # what the nodes claim to have; Slurm believes them
DAEMONS = ("munged", "slurmctld", "slurmd")
STARTS = 4  # of a cluster whose daemons end meanwhile
SINFO_S = 5.0
TOLD = 1500  # characters of a log in an error
FIRST_PORT = 10_000
DAEMON_PATH = os.environ.get("PATH", "") + ":/usr/sbin"

# A requeued job waits until its old credentials have expired: cred_expire, which is two minutes where nobody says so.
CONFIG = """\
ClusterName=paddock
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=600
SlurmctldTimeout=30
SlurmdTimeout=30
MessageTimeout=20
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""


@dataclass(frozen=True)
class Slurm:
    """A cluster that is up; its commands need `environment`."""

    folder: Path  # with slurmctld.log and slurmd.node*.log
    environment: dict[str, str]

    def call(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        environment = os.environ | self.environment
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout

    def state(self, job: str) -> str:
        """The state of a job, such as PENDING."""
        return self.call("squeue", "-h", "-r", "-t", "all", "-o", "%T", "-j", job).strip()


class DaemonEnded(Exception):
    """A daemon has ended while its cluster started."""


@contextlib.contextmanager
def open_slurm(folder: Path, nodes: int = NODES, cpus: int = CPUS) -> Iterator[Slurm]:
    """Start a cluster in an empty folder and wait until its nodes are idle; afterwards its jobs and itself are gone.

    Where one of its daemons ends meanwhile, as it does when somebody else has taken its port, it is started anew.

    Raises:
        DaemonEnded: in every one of the starts.
    """
    with contextlib.ExitStack() as stack:
        for start in range(1, STARTS + 1):
            try:
                slurm = stack.enter_context(_started(folder / str(start), nodes, cpus))
                break
            except DaemonEnded:
                if start == STARTS:
                    raise
        try:
            yield slurm
        finally:
            slurm.call("scancel", "-u", "root")
            wait_until(lambda: not slurm.call("squeue", "-h").strip())


@contextlib.contextmanager
def _started(folder: Path, nodes: int, cpus: int) -> Iterator[Slurm]:
    host = socket.gethostname().partition(".")[0]
    port, *ports = free_ports(nodes + 1)
    names = [f"node{number}" for number in range(1, nodes + 1)]
    lines = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={its} CPUs={cpus} RealMemory={MEMORY_MB}"
        for name, its in zip(names, ports, strict=True)
    ]
    every = f"Nodes={','.join(names)} MaxTime=INFINITE State=UP"
    lines += [f"PartitionName=main Default=YES {every}"]
    # Jobs of the second of these push those of the first aside.
    lines += [f"PartitionName=low PriorityTier=1 GraceTime=10 {every}", f"PartitionName=high PriorityTier=9 {every}"]
    for name in ("state", *(f"spool.{name}" for name in names)):
        (folder / name).mkdir(parents=True)
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(folder=folder, host=host, port=port) + "\n".join(lines) + "\n")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    for parent in (folder, folder.parent):
        parent.chmod(0o755)  # munge wants its socket where everybody may look
    slurm = Slurm(folder, {"SLURM_CONF": str(config)})
    munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder / 'munge.socket'}"]
    munge += [f"--{name}-file={folder / 'munge'}.{name}" for name in ("pid", "seed", "log")]
    daemons: dict[str, subprocess.Popen[bytes]] = {}

    def wait_for(condition: Callable[[], bool]) -> None:
        def look() -> bool:
            ended = [f"{name} ({its.returncode})" for name, its in daemons.items() if its.poll() is not None]
            if ended:
                raise DaemonEnded(f"{', '.join(ended)} ended {_said(slurm, daemons)}")
            return condition()

        wait_until(look, say=lambda: f"sinfo: {_sinfo(slurm)} {_said(slurm, daemons)}")

    try:
        daemons["munged"] = _start(folder, "munged", munge, slurm)
        wait_for((folder / "munge.socket").exists)
        daemons["slurmctld"] = _start(folder, "slurmctld", ["slurmctld", "-D", "-i"], slurm)
        for name in names:
            daemons[f"slurmd.{name}"] = _start(folder, f"slurmd.{name}", ["slurmd", "-D", "-N", name], slurm)
        wait_for(lambda: sum(line.endswith(" idle") for line in _sinfo(slurm).splitlines()) == nodes)
        yield slurm
    except DaemonEnded:
        for daemon in daemons.values():
            daemon.kill()  # to be told to end they would answer whoever has the port, for a minute
        raise
    finally:
        for daemon in reversed(daemons.values()):
            daemon.terminate()
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """One cluster for all tests of a session."""
    skip_without_slurm()
    with open_slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


def skip_without_slurm() -> None:
    """Skip the test where no cluster can be started."""
    missing = [name for name in DAEMONS if not shutil.which(name, path=DAEMON_PATH)]
    if missing or os.geteuid() != 0:
        pytest.skip(f"there is no {', '.join(missing)}: apt-get install slurm-wlm munge" if missing else "not root")


@pytest.fixture
def at_slurm(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """The cluster, as the one that this process's own commands find."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    return slurm


def _start(folder: Path, name: str, command: Sequence[str], slurm: Slurm) -> subprocess.Popen[bytes]:
    with open(folder / f"{name}.log", "ab") as log:
        return subprocess.Popen(
            [shutil.which(command[0], path=DAEMON_PATH) or command[0], *command[1:]],
            env=os.environ | slurm.environment | {"PATH": DAEMON_PATH},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _sinfo(slurm: Slurm) -> str:
    """What sinfo says of the nodes in time, a line each; without its slurmctld it would try for more than a minute."""
    environment = os.environ | slurm.environment
    command = ["sinfo", "-h", "-N", "-p", "main", "-o", "%N %T"]
    try:
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SINFO_S)
    except subprocess.TimeoutExpired:
        return f"nothing within {SINFO_S} s"
    return answer.stdout + answer.stderr


def _said(slurm: Slurm, daemons: Iterable[str]) -> str:
    """The ends of the daemons' logs."""
    logs = [slurm.folder / f"{name}.log" for name in daemons]
    return "".join(f"\n{log}:\n{log.read_text(errors='replace')[-TOLD:]}" for log in logs)


def free_ports(count: int) -> list[int]:
    """Choose ports that are free, and that the kernel gives nobody's connection until they are bound."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    others = [*range(FIRST_PORT, first), *range(last + 1, 1 << 16)] or [*range(FIRST_PORT, 1 << 16)]
    chosen: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.SystemRandom().sample(others, len(others)):
            try:
                stack.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
            chosen.append(port)
            if len(chosen) == count:
                break
    return chosen


def stand_in_for_slurm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an sbatch of this shell script, and what else is asked for, first on the PATH."""
    folder.mkdir()
    for name in ("sbatch", "srun", "scontrol", "squeue"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
