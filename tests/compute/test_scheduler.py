"""Somebody else's scheduler and its workers: found by a file, stopped, joined late by odd ones; and elastic pools."""

import functools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import TINY, Command, call_main, rows, wait_until

from paddock.compute.dask.cluster import connect

MINUTES = ["algo=es", "env=pendulum", "algo.population=20000", "algo.pairs_per_task=100"]  # for one iteration


def test_a_scheduler_file_leads_to_workers_that_know_nothing_of_us(
    scheduler: str, worker: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        worker()  # without --preload paddock.algos.pool.worker
    file, run = tmp_path / "scheduler.json", tmp_path / "run"
    file.write_text(json.dumps({"address": scheduler}))
    keys = ["compute=dask", f"compute.scheduler_file={file}", "budget.iterations=1"]
    assert call_main(*TINY, *keys, f"run.dir={run}") == 0
    assert {row["iteration"] for row in rows(run)} == {1}
    assert f"workers: 3, the scheduler at {scheduler}" in capsys.readouterr().out


@pytest.mark.parametrize("text", [None, "{}"])
def test_a_scheduler_file_without_an_address_is_one_line(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scheduler.json"
    if text is not None:
        file.write_text(text)
    assert call_main(*TINY, "compute=dask", f"compute.scheduler_file={file}", f"run.dir={tmp_path}/run") == 2
    err = capsys.readouterr().err
    assert err.startswith(f"paddock: compute.scheduler_file={file} contains no address (")
    assert "`dask scheduler --scheduler-file FILE`" in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_workers_that_join_late_work_only_if_they_compute_the_same(
    scheduler: str, worker: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    worker()
    pool = connect(scheduler, retries=0, task_timeout_s=None)

    def warned(address: str, part: str) -> Any:
        return any(address in message and part in message for message in caplog.messages)

    def used() -> set[int]:
        return {done.value for done in pool.imap_unordered(os.getsid, [0] * 50)}  # each worker is in one of its own

    try:
        (usual,) = used()
        assert isinstance(usual, int)
        metadata = "Metadata-Version: 2.1\nName: numpy\nVersion: 0.0.1\n"
        odd = worker(**{"numpy-0.0.1.dist-info__METADATA": metadata})
        told = f"it has numpy 0.0.1, this process {numpy.__version__}"
        wait_until(functools.partial(warned, odd, told))
        assert used() == {usual} and pool.size == 1
        worker()
        wait_until(lambda: len(used()) == 2)
    finally:
        pool.close()


def test_a_killed_elastic_pool_leaves_no_process(tmp_path: Path, start: Callable[..., Command]) -> None:
    keys = ["compute=local", "compute.workers.min=1", "compute.workers.max=3", f"run.dir={tmp_path}/run"]
    command = start(*MINUTES, *keys)
    assert command.process.stdout is not None
    said = []
    for line in command.process.stdout:
        said.append(line)
        if "were 1" in line:
            break
    assert said[-1] in ("workers: 2, were 1\n", "workers: 3, were 1\n"), said
    os.kill(command.process.pid, signal.SIGKILL)
    wait_until(lambda: not command.processes(), 20)
