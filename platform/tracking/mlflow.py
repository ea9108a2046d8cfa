"""MLflow: the mirror in the run, and the code of its child process."""

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
from ..runs.lazy_imports import mlflow  # used by the child process only
from .child import Inbox, MirrorProcess, first_line
from .mirrors import ProcessMirror, find_policy, find_videos, require_package

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

BATCH_ROWS = 200
BATCH_METRICS, BATCH_PARAMS = 1000, 100  # MLflow's limits per request
PARAM_LENGTH = 500  # limit of all servers
NAMES = ("iteration", EVALUATION_OF)  # metrics that identify rows
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


@dataclass(kw_only=True, eq=False)
class Mlflow(ProcessMirror):
    """Mirror to an MLflow run over environment steps, written by a child process.

    Without a tracking URI, runs are stored in a database next to their folders. A resumed run continues the MLflow run
    recorded in RUN/mlflow/run_id. An unreachable server turns the mirror off; `paddock.upload` uploads the run later.
    """

    name = "MLflow"

    tracking_uri: str | None
    experiment: str
    tags: Mapping[str, Any]

    def __post_init__(self) -> None:
        uri = self.tracking_uri
        allowed = "http://HOST:PORT, sqlite:////FILE, databricks, null"
        fits = uri is None or re.match(r"databricks\b|[\w+.-]+:/", uri)
        require(bool(fits), f"tracking_uri={uri!r} is not an MLflow tracking URI; allowed: {allowed}")
        super().__post_init__()
        require_package("mlflow", install("mlflow"))

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        """Start the child process."""
        settings = self._describe() | {
            "tracking_uri": self.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI"),
            "tags": {str(key): str(value) for key, value in self.tags.items()},
            "algorithm": algorithm_name(self.config),
            "module": "mlflow",
        }
        environment = {"MLFLOW_DISABLE_TELEMETRY": "true", **os.environ}
        self._process = MirrorProcess(self.run_dir / "mlflow", settings, environment, say)


def mirror(inbox: Inbox) -> None:
    """Write the rows to an MLflow run and, at the end, the policy and the videos."""
    settings = inbox.settings
    folder = Path(settings["run_dir"])
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(round(max(1, settings["init_timeout_s"]))))
    retries = {RETRIES: os.environ[RETRIES]} if RETRIES in os.environ else {}
    os.environ[RETRIES] = "0"  # while connecting, since MLflow's retries take minutes
    database = folder.parent / "mlflow.db"
    uri = settings["tracking_uri"] or f"sqlite:///{database}"
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        run = open_run(client, settings, folder)
    except Exception as error:
        raise RuntimeError(f"cannot open a run at {uri}: {first_line(_first_cause(error))}") from error
    inbox.say(f"MLflow: run {run} of experiment {settings['experiment']} at {uri}")
    del os.environ[RETRIES]
    os.environ |= retries

    # A resumed run repeats rows, which MLflow would show twice.
    known = {name: {metric.value for metric in client.get_metric_history(run, name)} for name in NAMES}
    for rows in inbox.batches(BATCH_ROWS):
        for metrics in _requests(row for row in rows if row[_named_by(row)] not in known[_named_by(row)]):
            client.log_batch(run, metrics=metrics)
    try:
        for kind, files in (("policy", find_policy(folder)), ("video", find_videos(folder))):
            for file in files:
                client.log_artifact(run, str(file), kind)
    except Exception as error:  # the rows are kept
        inbox.say(f"MLflow did not store the run's files ({first_line(error)})")
    client.set_terminated(run, "KILLED" if inbox.killed else "FINISHED")


def open_run(client: MlflowClient, settings: Mapping[str, Any], folder: Path) -> str:
    """Return the id of the run recorded in the folder, or of a new one, with its params and tags."""
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
    # A param cannot be changed; an increased budget keeps its first value.
    leaves = flatten(settings["config"]).items()
    params = [
        mlflow.entities.Param(key, str(value)[:PARAM_LENGTH]) for key, value in leaves if key not in run.data.params
    ]
    for start in range(0, len(params), BATCH_PARAMS):
        client.log_batch(run.info.run_id, params=params[start : start + BATCH_PARAMS])
    return run.info.run_id


def find_run(client: MlflowClient, experiment: str, id: str) -> Run | None:
    """Return a run; None if it is not part of the experiment."""
    try:
        run = client.get_run(id)
    except mlflow.exceptions.MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    ours = run.info.experiment_id == experiment and run.info.lifecycle_stage == "active"
    return run if ours else None


def find_experiment(client: MlflowClient, settings: Mapping[str, Any], folder: Path) -> str:
    """Return the id of the experiment, creating it if necessary."""
    name = settings["experiment"]
    # `find_runs` skips hidden folders.
    files = None if settings["tracking_uri"] else (folder.parent / ".mlflow").as_uri()
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return client.create_experiment(name, files)
        except mlflow.exceptions.MlflowException:
            experiment = client.get_experiment_by_name(name)  # created by another run
            if experiment is None:
                raise
    return experiment.experiment_id


def _named_by(row: Mapping[str, float]) -> str:
    return EVALUATION_OF if is_final_evaluation(row) else "iteration"


def _requests(rows: Iterable[Mapping[str, float]]) -> Iterator[list[Metric]]:
    """Group rows into requests, with the identifying metric of a row last, so that it marks a complete row."""
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
