"""`vec=auto`: it times what gives the same numbers, takes the fastest, and writes down what it took."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import Command, call_main, env_spec

import paddock.envs.vector.auto as auto_module
from paddock.config.build import build
from paddock.envs.vector import Auto, Multiprocess, Native, Serial
from paddock.envs.vector.auto import as_section, fastest, time_layouts

SERIAL = Serial(num_envs=4)


def shared(workers: int) -> Multiprocess:
    return Multiprocess(num_envs=4, workers=workers, batch_size=None, restart=False, timeout_s=60.0)


def auto(num_envs: int = 4) -> Auto:
    return Auto(num_envs=num_envs, restart=False, timeout_s=60.0)


def test_candidates_are_this_process_and_every_even_split() -> None:
    layouts = auto(12).layouts()
    assert layouts[0] == Serial(num_envs=12)
    counts = [layout.processes for layout in layouts[1:] if isinstance(layout, Multiprocess)]
    assert counts == [count for count in (1, 2, 3, 4, 6, 12) if count <= max(counts)] and counts


@pytest.mark.parametrize(
    ("rates", "taken"),
    [
        ({SERIAL: 100.0, shared(1): 90.0, shared(2): 180.0}, shared(2)),
        # About as fast: no processes are started for two per cent.
        ({SERIAL: 100.0, shared(2): 102.0}, SERIAL),
    ],
)
def test_the_fastest_is_taken_and_never_one_more_than_5_percent_slower(
    rates: dict[Serial | Multiprocess, float], taken: Serial | Multiprocess
) -> None:
    assert fastest(list(rates), list(rates.values())) == taken
    assert rates[taken] >= 0.95 * max(rates.values())


def test_every_layout_is_timed_and_comes_back_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_module, "ROUND_S", 0.01)
    layouts: list[Serial | Multiprocess | Native] = [SERIAL, shared(1)]
    assert all(rate > 0 for rate in time_layouts(env_spec("toy_envs:Shut-v0"), layouts))  # it fails by any other
    assert [build("vec", as_section(layout)) for layout in layouts] == layouts


def test_what_was_taken_is_printed_written_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(auto_module, "ROUND_S", 0.01)
    run = tmp_path / "run"
    words = ["algo=ppo", "env=cartpole", "vec=auto", "vec.num_envs=2", "algo.num_steps=8", "compute=serial"]
    words += ["algo.minibatch_size=16"]
    assert call_main(*words, "budget.iterations=2", f"run.dir={run}") == 0
    out = capsys.readouterr().out
    assert "vec=auto: timing" in out and out.count("<- chosen") == 1
    taken = yaml.safe_load((run / "config.yaml").read_text())["vec"]
    assert taken["_target_"] in ("paddock.envs.vector.Serial", "paddock.envs.vector.Multiprocess")
    assert call_main(*words, "budget.iterations=3", f"run.dir={run}") == 0
    assert "timing" not in capsys.readouterr().out
    assert yaml.safe_load((run / "config.yaml").read_text())["vec"] == taken


def test_where_the_pool_has_the_cores_environments_stay_in_its_workers(
    tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    words = ["algo=es", "env=cartpole", "algo.population=8", "vec=auto", "budget.iterations=1", f"run.dir={run}"]
    code, out, err = start(*words, "compute=local", "compute.workers=1").wait()
    assert code == 0 and "vec=auto: serial" in out, err
    assert yaml.safe_load((run / "config.yaml").read_text())["vec"]["_target_"] == "paddock.envs.vector.Serial"
