"""What is used of dependencies that they keep to themselves is still there, and does what it did."""

import importlib
import os
import pickle
import signal
import sys
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import composed
import optuna
import pytest
import torch
from hydra.types import RunMode
from omegaconf import OmegaConf

import paddock.slurm
from paddock.algos.learning.data_parallel import open_gloo
from paddock.algos.pool.main_guard import is_bootstrapping
from paddock.config.compose import compose_alone, open_loader, parse_arguments
from paddock.config.hydra_private import BASIC_LAUNCHER, BASIC_SWEEPER, write_element
from paddock.envs.native.minigrid import samples_positions
from paddock.sweep.study import open_trial


def test_dask_jobqueue_leaves_ctrl_c_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = importlib.import_module("paddock.slurm.workers")
    monkeypatch.setattr(paddock.slurm, "workers", slurm)  # and not what is imported below, after the test
    for name in [name for name in sys.modules if name.split(".")[0] == "dask_jobqueue" or name == slurm.__name__]:
        monkeypatch.delitem(sys.modules, name)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert importlib.import_module("paddock.slurm.workers") is not slurm
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        runner = importlib.import_module("dask_jobqueue.runner")
        importlib.reload(runner)
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler  # or it need not be set right
    finally:
        signal.signal(signal.SIGINT, before)


def test_hydra_writes_elements_and_names_its_own_launcher_and_sweeper() -> None:
    with composed.forgotten():
        defaults = open_loader(parse_arguments([])).load_configuration("config", [], RunMode.RUN).hydra
    assert (defaults.launcher._target_, defaults.sweeper._target_) == (BASIC_LAUNCHER, BASIC_SWEEPER)
    assert write_element([1, "a b"]) == r"[1,a\ b]"


@pytest.mark.parametrize(
    "words",
    [
        ["algo=ppo", "seed=3"],
        ["experiment=sac_cartpole", "~algo.gamma", "+env.kwargs.a=[1,{b: 2}]"],
        ["algo=es", "env=poles", "hydra/launcher=local", "seed=choice(1,2)"],
    ],
    ids=" ".join,
)
def test_what_tests_keep_is_what_hydra_composes(words: list[str]) -> None:
    def compose() -> Any:
        return open_loader(parse_arguments(["-m", *words])).load_configuration("config", words, RunMode.MULTIRUN)

    with composed.forgotten():
        plain = compose()
    for _ in range(2):  # as the first one is made, and of what it left
        config = compose()
        assert OmegaConf.to_container(config) == OmegaConf.to_container(plain)
        assert OmegaConf.is_struct(config) == OmegaConf.is_struct(plain)
        config.seed, config.hydra.job.name = 7, "another"


def test_tests_keep_nothing_of_a_folder_that_may_change(tmp_path: Path) -> None:
    file = tmp_path / "algo" / "mine.yaml"
    file.parent.mkdir()
    for value in (1, 2):
        file.write_text(f"a: {value}")
        assert compose_alone([f"hydra.searchpath=[{tmp_path}]", "algo=mine"]).algo.a == value


def test_optuna_reports_to_a_trial_that_another_process_began() -> None:
    study = optuna.create_study()
    began = study.ask()
    again = open_trial(study, study.get_trials()[began.number])
    again.report(0.5, step=1)
    assert study.get_trials()[began.number].intermediate_values == {1: 0.5}


def test_torch_opens_a_group_of_gloos(tmp_path: Path) -> None:
    obs = torch.zeros(4, 3)
    group = open_gloo(torch.distributed.FileStore(str(tmp_path / "meeting"), 1), 0, 1)
    group.allreduce([obs]).wait()
    assert not obs.any()


def test_numpy_exposes_its_seeding_to_c() -> None:
    atari = pytest.importorskip("paddock.envs.bindings.atari", exc_type=ImportError)
    generator = atari.seeded(5489)  # of std::mt19937 the standard says which number comes tenthousandth
    assert int(generator.random_raw(10_000)[-1]) == 4123659995


def test_minigrid_keeps_the_places_that_it_was_given() -> None:
    four_rooms = pytest.importorskip("minigrid.envs").FourRoomsEnv
    assert samples_positions(four_rooms()) and not samples_positions(four_rooms(goal_pos=(3, 3)))


class Looked:
    """Stands for a process that was spawned: looks when it is unpickled, and says what it saw where it would begin."""

    def __init__(self) -> None:
        self.beginning = is_bootstrapping()

    def __reduce__(self) -> Any:
        return Looked, ()

    def _bootstrap(self, parent: int) -> bool:
        return self.beginning


def test_multiprocessing_notes_that_a_process_is_beginning(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(pickle.dumps({}) + pickle.dumps(Looked()))
    assert spawn._main(os.open(sent, os.O_RDONLY), 0) is True
    assert not is_bootstrapping()
