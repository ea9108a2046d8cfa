"""The cluster that tests start comes up although somebody else has one of its ports, and says what is wrong if not."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_cluster
from slurm_cluster import DaemonEnded, free_ports, open_slurm, skip_without_slurm

pytestmark = pytest.mark.slurm
SLURMD = 1  # its port among those that are chosen


@contextlib.contextmanager
def _stolen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Take the port of a slurmd as soon as ports were chosen for the first time; the list gets it."""
    taken: list[int] = []
    with contextlib.ExitStack() as stack:

        def choose(count: int) -> list[int]:
            ports = free_ports(count)
            if not taken:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", ports[SLURMD]))
                taken.append(ports[SLURMD])
            return ports

        monkeypatch.setattr(slurm_cluster, "free_ports", choose)
        yield taken


def test_cluster_starts_anew_where_a_port_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_slurm()
    with _stolen(monkeypatch) as taken, open_slurm(tmp_path, nodes=1) as cluster:
        assert len(taken) == 1
        assert f"Port={taken[0]}" not in (cluster.folder / "slurm.conf").read_text()
        assert cluster.call("srun", "-N1", "echo", "here").strip() == "here"


def test_cluster_that_does_not_start_says_which_daemon_ended_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_slurm()
    monkeypatch.setattr(slurm_cluster, "STARTS", 1)
    with (
        _stolen(monkeypatch) as taken,
        pytest.raises(DaemonEnded, match=r"slurmd.node1 \(1\) ended(?s:.*)Unable to bind listen port"),
        open_slurm(tmp_path, nodes=1),
    ):
        pass
    assert len(taken) == 1
