"""Files beside checkpoints exist as long as a checkpoint lists them."""

import random
import shutil
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from paddock.algos.learning.replay.disk_space import ReplayError
from paddock.algos.learning.replay.replay import Replay
from paddock.algos.learning.replay.streams import Streams
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.config.compose import compose_alone
from paddock.config.experiment import assemble, read_plain
from paddock.evaluation.load import load
from paddock.health.algo_checks import first_difference
from paddock.rerun import rerun
from paddock.runs.checkpoint import Checkpoints, read, read_attachments
from paddock.runs.loop import RunFailed
from paddock.session import run_session

# Swept


def save(checkpoints: Checkpoints, files: Path, iteration: int, names: list[str]) -> None:
    for name in names:
        (files / name).touch()
    checkpoints.save(iteration, {"deep": [{"attachments": names}]})


def test_attachments_are_found_anywhere_in_a_state(tmp_path: Path) -> None:
    state = {
        "one": {"attachments": ["a", "b"], "array": np.arange(3)},
        "members": {3: ({"attachments": ("c",)},), None: [{"attachments": []}]},
        "scalar": np.float32(1),
    }
    path = Checkpoints(tmp_path, keep=1).save(1, state)
    assert read_attachments(path) == ["a", "b", "c"]
    assert not first_difference(read(path), state)


def test_file_is_deleted_once_no_checkpoint_lists_it(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2, files=files)
    (files / "of-a-killed-process").touch()
    for k, expected in enumerate(["a0 a1", "a0 a1 a2", "a1 a2 a3"]):
        save(checkpoints, files, k, [f"a{k}", f"a{k + 1}"])
        assert sorted(file.name for file in files.iterdir()) == expected.split()


def test_no_file_is_deleted_while_a_checkpoint_is_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = tmp_path / "files"
    files.mkdir()
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2, files=files)
    save(checkpoints, files, 0, ["a0"])
    checkpoints.paths()[0].write_bytes(b"no archive")
    (files / "unknown").touch()
    save(checkpoints, files, 1, ["a1"])
    assert (files / "a0").exists() and (files / "unknown").exists()
    assert "are kept until" in caplog.text
    save(checkpoints, files, 2, ["a2"])
    assert sorted(file.name for file in files.iterdir()) == ["a1", "a2"]


class Killed(BaseException):
    """Stands for SIGKILL."""


def test_kill_at_any_moment_leaves_the_files_of_all_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, chance = tmp_path / "files", random.Random(1)
    files.mkdir()
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2, files=files)
    unlink, left, kills = Path.unlink, 0, 0

    def die(path: Path, missing_ok: bool = False) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", die)
    for iteration in range(30):
        left = chance.randrange(12)
        try:
            save(checkpoints, files, iteration, [f"f{iteration * 2 + k}" for k in range(6)])
        except Killed:
            kills += 1
        for path in checkpoints.paths():
            assert all((files / name).exists() for name in read_attachments(path))
    assert 5 < kills < 30
    left = 1_000
    save(checkpoints, files, 30, ["last"])
    named = {name for path in checkpoints.paths() for name in read_attachments(path)}
    assert {file.name for file in files.iterdir()} == named


# Of a run


class Counts:
    """Stores numbered steps, and tells what it draws of them."""

    keeps_files = True
    dies = 0  # in this iteration, with rows on the disk that no checkpoint knows of

    def __init__(self, *, pool: Any, seed: int, folder: Path | None) -> None:
        kinds: dict[str, Any] = {"obs": np.dtype((np.float32, (1,))), "action": np.dtype((np.uint8, (1,)))}
        streams = Streams(folder=folder, **kinds, num_envs=2, capacity=400, n_step=3, gamma=0.5)
        self.replay = Replay(streams, seed=seed)
        self.folder, self.iteration = folder, 0

    def plan(self) -> Generator[dict[str, float], None, None]:
        while True:
            for k in range(3):
                self.replay.append(numbered(3 * self.iteration + k))
            if self.iteration + 1 == self.dies:
                raise ReplayError("killed")
            batch = self.replay.sample(self.iteration, 1, 32)
            self.iteration += 1
            told = float((batch.obs * batch.reward[..., None] + batch.next_obs * batch.discount[..., None]).sum())
            yield {"iteration": self.iteration, "step": 120 * self.iteration, "train/return_mean": told}

    def state_dict(self) -> dict[str, Any]:
        return {"iteration": self.iteration, "replay": self.replay.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.iteration = state["iteration"]
        self.replay.load_state_dict(state["replay"])

    def policy(self) -> Any:
        return self.folder


def numbered(k: int) -> Rollout:
    """Steps 20 k .. 20 k + 19 in two environments; each seventh truncates an episode."""
    steps = 20 * k + np.arange(21)
    obs = np.repeat(steps.astype(np.float32), 2).reshape(21, 2, 1)
    cut = np.repeat(steps[:20] % 7 == 6, 2).reshape(20, 2)
    final_at = np.argwhere(cut)
    return Rollout(
        version=0,
        obs=obs[:20],
        action=np.zeros((20, 2, 1), np.uint8),
        logprob=np.zeros((20, 2), np.float32),
        reward=obs[:20, :, 0],
        terminated=np.zeros((20, 2), np.bool_),
        truncated=cut,
        last_obs=obs[20],
        final_at=final_at,
        final_obs=-obs[final_at[:, 0] + 1, 0],
        start=ResumePoint(np.zeros(2, np.int64), np.array([steps[0] % 7] * 2), np.zeros((2, 0), np.float32)),
        returns=np.zeros(0),
        lengths=np.zeros(0, np.int64),
        env_metrics=np.zeros((0, 0)),
        env_s=0.0,
        policy_s=0.0,
        restarts=0,
    )


def configure(run: Path, iterations: int) -> dict[str, Any]:
    given = [f"run.dir={run}", f"budget.iterations={iterations}", "checkpoint.every_s=0", "checkpoint.keep=2"]
    config = read_plain(compose_alone(["algo=es", "env=cartpole", "compute=serial", "track=none", *given]))
    return {**config, "algo": {"_target_": f"{__name__}.Counts", "name": "counts"}}


def train(run: Path, iterations: int) -> None:
    run_session(assemble(OmegaConf.create(configure(run, iterations))), progress=False)


def test_resumed_run_equals_undisturbed_and_keeps_only_listed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "whole", 12)
    for at in (1, 4, 9):
        with monkeypatch.context() as patch, pytest.raises(RunFailed, match="killed"):
            patch.setattr(Counts, "dies", at)
            train(tmp_path / "killed", 12)
    train(tmp_path / "killed", 12)
    rows, others = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "killed"))
    assert rows == others
    kept = Checkpoints(tmp_path / "killed" / "checkpoints", keep=2).paths()
    named = {name for path in kept for name in read_attachments(path)}
    assert {file.name for file in (tmp_path / "killed" / "replay").iterdir()} == named
    assert "rows-000000.npy" not in named and len(named) <= 8
    one, other = (Checkpoints(tmp_path / name / "checkpoints", 2).load() for name in ("whole", "killed"))
    assert one and other and not first_difference(one["algorithm"], other["algorithm"])


def test_policies_and_reruns_need_no_attached_files(tmp_path: Path) -> None:
    train(tmp_path / "run", 4)
    files = sorted((tmp_path / "run" / "replay").iterdir())
    before = [(file.name, file.stat().st_mtime_ns, file.read_bytes()) for file in files]
    assert rerun(tmp_path / "run", tmp_path / "again", 3) is None
    assert before == [(file.name, file.stat().st_mtime_ns, file.read_bytes()) for file in files]
    shutil.rmtree(tmp_path / "run" / "replay")
    algorithm, progress = load(tmp_path / "run")
    assert algorithm.policy() is None and progress.metrics["iteration"] == 4
    assert not (tmp_path / "run" / "replay").exists()
    with pytest.raises(RunFailed, match=r"replay .*rows-000000.npy cannot be opened \(No such file"):
        train(tmp_path / "run", 5)
