"""Run folders and sweeps of few rows, written by hand, for tests of what reads them."""

import errno
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from paddock.sweep.study import open_storage
from paddock.sweep.trial import Note

CONFIG: dict[str, Any] = {
    "algo": {"name": "es", "rate": 0.5, "hidden_sizes": [8]},
    "env": {"id": "CartPole-v1"},
    "seed": 0,
}


def write(run: Path, rows: Sequence[dict[str, Any]] = (), config: dict[str, Any] = CONFIG, ended: bool = True) -> Path:
    """A run folder; row k is of iteration k + 1 and step 10 (k + 1), and there is a second for each."""
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    places = [{"iteration": k + 1, "step": 10 * (k + 1)} for k in range(len(rows))]
    (run / "metrics.jsonl").write_text("".join(json.dumps(p | r) + "\n" for p, r in zip(places, rows, strict=True)))
    (run / "system.jsonl").write_text(
        "".join(json.dumps(p | {"system/seconds": k + 0.5}) + "\n" for k, p in enumerate(places))
    )
    if ended:
        (run / "done.json").write_text(json.dumps({"reason": "budget.iterations=2"}))
    return run


def write_sweep(folder: Path, trials: int = 3) -> Path:
    """A sweep of which trial k has rate k / 10 and value 100 k, and whose last trial is pruned at 40 %."""
    folder.mkdir(parents=True)
    objectives = {"eval/return_mean": "maximize"}
    command = "python -m paddock algo=es --multirun algo.rate=0,1"
    sweep: dict[str, Any] = {"study": "s", "objectives": objectives}
    sweep |= {"pruner": "median", "pruner_options": {}, "fixed": ["algo=es"], "command": command}
    sweep |= {"sources": [], "num_envs": None, "parameters": ["algo.kind=a,b", "algo.rate=float"]}
    sweep |= {"n_trials": trials, "finals": 0, "held_out": 0}
    (folder / "sweep.json").write_text(json.dumps(sweep))
    study = optuna.create_study(study_name="s", storage=open_storage(folder), direction="maximize")
    for k in range(trials):
        study.enqueue_trial({"algo.rate": k / 10, "algo.kind": "a"})
        trial = study.ask()
        trial.suggest_float("algo.rate", 0, 1)
        trial.suggest_categorical("algo.kind", ["a", "b"])
        trial.report(50.0 * k, 40)
        trial.set_user_attr("steps", 1000 * k)
        trial.set_user_attr("seconds", 2.5)
        trial.set_user_attr("run", write(folder / str(k), [{"eval/return_mean": 100.0 * k}]).name)
        Note(k, "me", [f"algo.rate={k / 10}", "algo.kind=a"], 1).write(folder / str(k))
        last = k == trials - 1
        study.tell(trial, None if last else 100.0 * k, optuna.trial.TrialState.PRUNED if last else None)
    return folder


def close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close a folder to this process as to a user who may not enter it: permissions alone do not bind root."""

    def refusing(call: Callable[..., Any], answer: Any) -> Callable[..., Any]:
        def asked(path: Any = ".", *given: Any, **named: Any) -> Any:
            place = None if isinstance(path, int) else Path(os.path.abspath(os.fsdecode(path)))
            if place is None or folder not in (place.parents if call is stat else (place,)):
                return call(path, *given, **named)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return asked

    stat, denied = os.stat, PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    for name, answer in (("stat", denied), ("scandir", denied), ("access", False)):
        monkeypatch.setattr(os, name, refusing(getattr(os, name), answer))
