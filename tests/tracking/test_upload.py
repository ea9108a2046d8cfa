"""A mirror is made again from a run's folder alone, with all that it would have had while the run went on."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, call_main
from mirrored import history, records, wandb_home_fixture  # noqa: F401

from paddock.upload import main, read_rows

RUN = [*TINY, "compute=serial", "seed=3"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four iterations in the folder of a sweep, with a video of an episode."""
    folder = tmp_path_factory.mktemp("finished") / "sweep"
    assert call_main(*RUN, "budget.iterations=4", f"run.dir={folder / '0'}") == 0
    (folder / "multirun.yaml").touch()
    (folder / "0" / "episode.mp4").write_bytes(b"film")
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return shutil.copytree(finished, tmp_path / "sweep") / "0"


def call_upload(*arguments: Any) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["upload", *map(str, arguments)])
        return main()


def offline(run: Path) -> list[list[Any]]:
    """The records of each offline session."""
    return [list(records(file)) for file in sorted((run / "wandb").glob("offline-run-*/*.wandb"))]


def of_kind(session: list[Any], kind: str) -> list[Any]:
    return [getattr(record, kind) for record in session if record.WhichOneof("record_type") == kind]


def test_wandb_gets_rows_policy_and_videos_of_a_run(
    run: Path,
    wandb_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(2):
        assert call_upload(run, "track=wandb", "mode=offline", "project=farm", "tags=[night]") == 0
        out = capsys.readouterr().out
        assert re.search(r"upload later: wandb sync \S+\nuploaded 4 rows of \S+ to W&B\n$", out)
    commit = json.loads((run / "provenance.json").read_text())["commit"]
    (record, rows), (again, _) = history(run)
    assert record.run_id == again.run_id == (run / "wandb" / "run_id").read_text()
    assert (record.project, record.run_group, record.job_type, list(record.tags)) == ("farm", "sweep", "es", ["night"])
    config = {item.key: json.loads(item.value_json) for item in record.config.update}
    assert config["algo"]["population"] == 16
    assert commit is None or record.git.commit == config["commit"] == commit
    expected = list(read_rows(run))
    assert [{key: got[key] for key in want} for got, want in zip(rows, expected, strict=True)] == expected

    session = offline(run)[0]
    summary = {
        item.key or item.nested_key[0]: json.loads(item.value_json)
        for update in of_kind(session, "summary")
        for item in update.update
    }
    evaluated = [want["eval/return_mean"] for want in expected if "eval/return_mean" in want]
    assert len(evaluated) == 2
    assert summary["eval/return_mean"] == {"last": evaluated[-1], "max": max(evaluated)}
    assert summary["train/return_mean"] == expected[-1]["train/return_mean"]
    (artifact,) = of_kind(session, "artifact")
    assert artifact.type == "model"
    assert [file.path for file in artifact.manifest.contents] == ["00000004.npz", "config.yaml"]
    copies = [Path(file.local_path).read_bytes() for file in artifact.manifest.contents]
    assert {Path(file.local_path).parent.name for file in artifact.manifest.contents} == {"policy"}
    assert not [path for path in (run / "wandb" / "data").rglob("*") if path.is_file()]
    assert copies == [(run / "checkpoints/00000004.npz").read_bytes(), (run / "config.yaml").read_bytes()]
    files = [file.path for each in of_kind(session, "files") for file in each.files]
    assert [path for path in files if path.startswith("media/videos/video/episode_40_")]
    (end,) = of_kind(session, "exit")
    assert end.exit_code == 0


def test_tensorboard_has_each_row_once(run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):
        assert call_upload(run, "track=tensorboard") == 0
    events = EventAccumulator(str(run / "tensorboard"), {"scalars": 0}).Reload()
    returns = [(e.step, e.value) for e in events.Scalars("train/return_mean")]
    assert returns == [(row["step"], pytest.approx(row["train/return_mean"])) for row in read_rows(run)]


def test_tracked_run_is_uploaded_with_its_settings(run: Path) -> None:
    config = run / "config.yaml"
    text = config.read_text()
    settings = "{_target_: paddock.tracking.tensorboard.TensorBoard, queue_rows: 9, close_timeout_s: 1}"
    config.write_text(text.replace("track: {}", f"track: {{tensorboard: {settings}}}"))
    assert call_upload(run) == 0
    assert len(list((run / "tensorboard").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "given; usage: python -m paddock.upload"),
        (["RUN"], "RUN has no tracker; choose track=wandb"),
        (["RUN", "track=wandbb"], "track=wandbb is not an option; did you mean 'wandb'?"),
        (["RUN/none", "track=wandb"], "no such run: RUN/none"),
    ],
)
def test_mistake_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("algo: {name: es}\nenv: {}\ntrack: {}\n")
    (run / "metrics.jsonl").write_text('{"iteration": 1, "step": 1}\n')
    assert call_upload(*(argument.replace("RUN", str(run)) for argument in arguments)) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and says.replace("RUN", str(run)) in err


def test_failing_tracker_and_empty_run_are_one_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "metrics.jsonl").read_bytes()
    (run / "tensorboard").write_text("not a folder")
    assert call_upload(run, "track=tensorboard") == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "TensorBoard failed (" in err
    assert (run / "metrics.jsonl").read_bytes() == before
    (run / "metrics.jsonl").write_bytes(b"")
    assert call_upload(run, "track=tensorboard") == 2
    assert "has no iterations yet" in capsys.readouterr().err
