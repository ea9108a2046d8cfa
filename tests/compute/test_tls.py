"""Encrypted clusters: started here, joined, and refused in one line where certificates are missing or do not fit."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import CERTIFICATES as KEYS
from conftest import ROOT, TINY, assert_refuses_strangers, call_main, job_recipe, launch, launch_scheduler, rows, stop

from paddock.compute.dask.pool import DaskPool
from paddock.compute.keys import read_security
from paddock.compute.recipes import Dask
from paddock.slurm.workers import _cluster


@pytest.fixture
def tls(certificates: Path) -> list[str]:
    return [f"compute.tls.{name}={certificates / file}" for name, file in KEYS.items()]


@pytest.fixture(scope="module")
def encrypted(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler that speaks TLS alone, with a worker; its address."""
    options = [f"--tls-{'ca-file' if name == 'ca' else name}={certificates / file}" for name, file in KEYS.items()]
    process, address = launch_scheduler(tmp_path_factory.mktemp("scheduler"), *options, host="tls://127.0.0.1")
    joining = ["worker", address, "--nthreads", "1", "--no-dashboard", *options]
    worker = launch(*joining, cwd=certificates, PYTHONPATH=str(ROOT))
    yield address
    for one in (process, worker):
        stop(one)


@pytest.mark.parametrize("named", [False, True], ids=["its own certificates", "compute.tls"])
def test_a_cluster_started_here_refuses_strangers(named: bool, certificates: Path) -> None:
    paths = {name: str(certificates / file) for name, file in KEYS.items()} if named else None
    recipe = Dask(address=None, scheduler_file=None, workers=1, retries=3, task_timeout_s=None, tls=paths)
    pool = recipe.open(())
    assert isinstance(pool, DaskPool)
    try:
        assert [done.value for done in pool.imap_unordered(abs, [-1])] == [1]
        cluster: Any = pool._client.cluster
        nannies = [nanny.address for nanny in cluster.workers.values()]
        for address in (cluster.scheduler_address, *pool._dispatcher.workers, *nannies):
            assert_refuses_strangers(address)
    finally:
        pool.close()


def test_a_scheduler_without_certificates_is_joined_with_a_warning(
    worker: Callable[..., str], scheduler: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker()
    recipe = Dask(address=scheduler, scheduler_file=None, workers=1, retries=3, task_timeout_s=None, tls=None)
    recipe.open(()).close()
    assert [record.getMessage() for record in caplog.records if "is not encrypted" in record.getMessage()]


def test_an_encrypted_scheduler_is_joined_with_its_certificates(encrypted: str, tls: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert (
        call_main(*TINY, "compute=dask", f"compute.address={encrypted}", *tls, "budget.iterations=1", f"run.dir={run}")
        == 0
    )
    assert {row["iteration"] for row in rows(run)} == {1}


def test_an_encrypted_scheduler_is_out_of_reach_without(
    encrypted: str, tls: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.compute.dask.cluster.CONNECT_S", 2.0)
    plain = encrypted.replace("tls", "tcp")
    lines = {
        (f"compute.address={encrypted}",): "is encrypted; set compute.tls.ca, .cert and .key",
        (f"compute.address={plain}", *tls): f"is not encrypted, but compute.tls is set; use {encrypted}",
        (f"compute.address={plain}",): "does not respond",
    }
    for keys, part in lines.items():
        assert call_main(*TINY, "compute=dask", *keys, f"run.dir={tmp_path}/run") == 2
        err = capsys.readouterr().err
        assert err.startswith(f"paddock: {keys[0]} ") and part in err and err.count("\n") == 1, err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"key": None}, ["compute.tls: key missing", "ca, cert and key"]),
        ({"key": "ca-key.pem"}, ["compute.tls: cert=", "ca-key.pem cannot be used", "KEY_VALUES_MISMATCH"]),
    ],
    ids=str,
)
def test_certificates_that_cannot_work_are_named_at_once(
    change: dict[str, str | None],
    parts: list[str],
    certificates: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {name: str(certificates / file) for name, file in (KEYS | change).items() if file is not None}
    keys = [f"compute.tls.{name}={path}" for name, path in given.items()]
    assert call_main("compute=slurm", *keys, "dry_run=true") == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and all(part in err for part in parts), err


def test_jobs_are_given_the_certificates(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(certificates)
    cluster = _cluster(job_recipe(KEYS), None, read_security(KEYS))
    try:
        script = cluster.job_script()
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
    finally:
        cluster.close()
    for option in ("--protocol tls://", f"--tls-ca-file {os.getcwd()}/ca.pem", f"--tls-cert {os.getcwd()}/cert.pem"):
        assert option in script
    assert f"--tls-key {os.getcwd()}/key.pem" in script
