"""MLflow: the mirror in the run, and below it what its process does."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.envs.errors import install, require

from ..runs.checkpoint import write_atomically
from ..runs.identity import algorithm_name, flatten
from ..runs.journal import EVALUATION_OF, is_final_evaluation
from ..runs.lazy_imports import mlflow  # by the process alone
from .child import Inbox, MirrorProcess, first_line
from .mirrors import ProcessMirror, find_policy, find_videos, require_package

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

BATCH_ROWS = 200  # of the rows that wait, in one request or a few
BATCH_METRICS, BATCH_PARAMS = 1000, 100  # that MLflow takes in one request
PARAM_LENGTH = 500  # that every server takes; config.yaml has it all
NAMES = ("iteration", EVALUATION_OF)  # of rows
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


@dataclass(kw_only=True, eq=False)
class Mlflow(ProcessMirror):
    """An MLflow run, over environment steps, fed row by row to a child process.

    Without a tracking URI, here or in the environment, runs are kept in a database beside their folders. A resumed run
    folder continues the same MLflow run: its id is kept in RUN/mlflow/run_id, beside `mirror.log`. A server that cannot
    be reached turns the mirror off; `paddock.upload` makes up for it.
    """

    name = "MLflow"

    tracking_uri: str | None
    experiment: str
    tags: Mapping[str, Any]

    def __post_init__(self) -> None:
        uri = self.tracking_uri
        allowed = "http://HOST:PORT, sqlite:////FILE, databricks, null"
        fits = uri is None or re.match(r"databricks\b|[\w+.-]+:/", uri)
        require(bool(fits), f"tracking_uri={uri!r} is no address of MLflow; allowed: {allowed}")
        super().__post_init__()
        require_package("mlflow", install("mlflow"))

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        settings = self._describe() | {
            "tracking_uri": self.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI"),
            "tags": {str(key): str(value) for key, value in self.tags.items()},
            "algorithm": algorithm_name(self.config),
            "module": "mlflow",
        }
        environment = {"MLFLOW_DISABLE_TELEMETRY": "true", **os.environ}
        self._process = MirrorProcess(self.run_dir / "mlflow", settings, environment, say)


def mirror(inbox: Inbox) -> None:
    """Feed an MLflow run with the rows, and, at the end, the policy and the videos."""
    settings = inbox.settings
    folder = Path(settings["run_dir"])
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(round(max(1, settings["init_timeout_s"]))))
    retries = {RETRIES: os.environ[RETRIES]} if RETRIES in os.environ else {}
    os.environ[RETRIES] = "0"  # at first: MLflow's own retries take minutes
    database = folder.parent / "mlflow.db"
    uri = settings["tracking_uri"] or f"sqlite:///{database}"
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        run = open_run(client, settings, folder)
    except Exception as error:
        raise RuntimeError(f"no run at {uri}: {first_line(_first_cause(error))}") from error
    inbox.say(f"MLflow: run {run} of experiment {settings['experiment']} at {uri}")
    del os.environ[RETRIES]
    os.environ |= retries

    # A resumed run writes rows again, and MLflow would show them twice.
    known = {name: {metric.value for metric in client.get_metric_history(run, name)} for name in NAMES}
    for rows in inbox.batches(BATCH_ROWS):
        for metrics in _requests(row for row in rows if row[_named_by(row)] not in known[_named_by(row)]):
            client.log_batch(run, metrics=metrics)
    try:
        for kind, files in (("policy", find_policy(folder)), ("video", find_videos(folder))):
            for file in files:
                client.log_artifact(run, str(file), kind)
    except Exception as error:  # of any storage; the rows are kept
        inbox.say(f"MLflow goes without the run's files ({first_line(error)})")
    client.set_terminated(run, "KILLED" if inbox.killed else "FINISHED")


def open_run(client: MlflowClient, settings: Mapping[str, Any], folder: Path) -> str:
    """Return the id of the run that the folder names, or of a new one, with its params and tags."""
    experiment = find_experiment(client, settings, folder)
    note = folder / "mlflow" / "run_id"
    run = find_run(client, experiment, note.read_text()) if note.exists() else None
    if run is None:
        tags = {
            "algorithm": settings["algorithm"],
            "sweep": settings["sweep"],
            "mlflow.source.git.commit": settings["commit"],
            "mlflow.source.type": "LOCAL",
            "mlflow.source.name": settings["argv"][0],
            **settings["tags"],
        }
        known = {key: value for key, value in tags.items() if value is not None}
        run = client.create_run(experiment, tags=known, run_name=settings["run_name"])
        write_atomically(note, run.info.run_id.encode())
    else:
        client.update_run(run.info.run_id, "RUNNING")
    # A param can be set once; if a budget was raised, the first one stays.
    leaves = flatten(settings["config"]).items()
    params = [
        mlflow.entities.Param(key, str(value)[:PARAM_LENGTH]) for key, value in leaves if key not in run.data.params
    ]
    for start in range(0, len(params), BATCH_PARAMS):
        client.log_batch(run.info.run_id, params=params[start : start + BATCH_PARAMS])
    return run.info.run_id


def find_run(client: MlflowClient, experiment: str, id: str) -> Run | None:
    """Return a run; None if it is not in the experiment."""
    try:
        run = client.get_run(id)
    except mlflow.exceptions.MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    ours = run.info.experiment_id == experiment and run.info.lifecycle_stage == "active"
    return run if ours else None


def find_experiment(client: MlflowClient, settings: Mapping[str, Any], folder: Path) -> str:
    """Return the id of the experiment, which is made if it is missing."""
    name = settings["experiment"]
    # A hidden folder, in which `find_runs` does not look.
    files = None if settings["tracking_uri"] else (folder.parent / ".mlflow").as_uri()
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return client.create_experiment(name, files)
        except mlflow.exceptions.MlflowException:
            experiment = client.get_experiment_by_name(name)  # another run was faster
            if experiment is None:
                raise
    return experiment.experiment_id


def _named_by(row: Mapping[str, float]) -> str:
    """Return the metric that identifies a row."""
    return EVALUATION_OF if is_final_evaluation(row) else "iteration"


def _requests(rows: Iterable[Mapping[str, float]]) -> Iterator[list[Metric]]:
    """Yield rows in requests, the identifying metric of each last: if that has arrived, all of the row has."""
    request: list[Metric] = []
    for row in rows:
        metrics = _metrics(row)
        if request and len(request) + len(metrics) > BATCH_METRICS:
            yield request
            request = []
        request += metrics
    if request:
        yield request


def _metrics(row: Mapping[str, float]) -> list[Metric]:
    now, last = round(1000 * time.time()), _named_by(row)
    keys = [*(key for key in row if key not in ("step", last)), last]
    return [mlflow.entities.Metric(key, row[key], now, int(row["step"])) for key in keys]


def _first_cause(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error
