"""`vec=auto`: it times what gives the same numbers, takes the fastest, and writes down what it took."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import Command, call_main, env_spec

from paddock.config.build import build
from paddock.envs.errors import ConfigError
from paddock.envs.vector import Auto, Multiprocess, Serial
from paddock.envs.vector.auto import Timing, as_section, fastest, in_the_running, time_layouts

CARTPOLE = env_spec("CartPole-v1")
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
        ({SERIAL: 100.0, shared(1): 90.0, shared(2): 80.0}, SERIAL),
        # About as fast: no processes are started for two per cent.
        ({SERIAL: 100.0, shared(2): 102.0}, SERIAL),
        ({SERIAL: 100.0, shared(2): 106.0}, shared(2)),
    ],
)
def test_the_fastest_is_taken_and_never_one_more_than_5_percent_slower(
    rates: dict[Serial | Multiprocess, float], taken: Serial | Multiprocess
) -> None:
    assert fastest([Timing(layout, rate, rate, rate) for layout, rate in rates.items()]) == taken
    assert rates[taken] >= 0.95 * max(rates.values())


@pytest.mark.parametrize(
    ("rates", "left"),
    [
        ([[100.0], [10.0]], [0, 1]),  # one round may have been disturbed
        ([[100.0, 90.0], [80.0, 89.0]], [0, 1]),  # 89 is within three per cent of the leader's worst
        ([[100.0, 90.0], [80.0, 85.0]], [0]),
        ([[100.0, 20.0], [80.0, 85.0]], [0, 1]),  # who leads was disturbed once, and behind nobody for that
        ([[100.0, 90.0, 95.0], [10.0, 12.0], [99.0, 90.0, 80.0]], [0, 2]),  # the second was out after two rounds
    ],
)
def test_a_layout_is_timed_no_further_once_its_best_is_behind_the_leaders_worst(
    rates: list[list[float]], left: list[int]
) -> None:
    among = [number for number, found in enumerate(rates) if len(found) == max(map(len, rates))]
    assert in_the_running(rates, among) == left


def test_every_layout_is_timed_and_comes_back_from_the_configuration() -> None:
    timings = time_layouts(CARTPOLE, [SERIAL, shared(2)])
    assert [timing.layout for timing in timings] == [SERIAL, shared(2)]
    for timing in timings:
        assert 0 < timing.slowest <= timing.steps_per_s <= timing.fastest
        assert build("vec", as_section(timing.layout)) == timing.layout


def test_layouts_are_timed_with_actions_that_are_legal() -> None:
    timings = time_layouts(env_spec("toy_envs:Shut-v0"), [SERIAL, shared(1)])  # it fails by any other
    assert all(timing.slowest > 0 for timing in timings)


def test_what_was_taken_is_printed_written_and_kept(tmp_path: Path, start: Callable[..., Command]) -> None:
    run = tmp_path / "run"
    words = ["algo=ppo", "env=cartpole", "vec=auto", "vec.num_envs=2", "algo.num_steps=8", "compute=serial"]
    code, out, err = start(*words, "budget.iterations=2", f"run.dir={run}").wait()
    assert code == 0, err
    assert "vec=auto: timing" in out and out.count("<- taken") == 1
    taken = yaml.safe_load((run / "config.yaml").read_text())["vec"]
    assert taken["_target_"] in ("paddock.envs.vector.Serial", "paddock.envs.vector.Multiprocess")
    code, out, err = start(*words, "budget.iterations=3", f"run.dir={run}").wait()
    assert code == 0 and "timing" not in out, err
    assert yaml.safe_load((run / "config.yaml").read_text())["vec"] == taken


def test_where_the_pool_has_the_cores_environments_stay_in_its_workers(
    tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    words = ["algo=es", "env=cartpole", "algo.population=8", "vec=auto", "budget.iterations=1", f"run.dir={run}"]
    code, out, err = start(*words, "compute=local", "compute.workers=1").wait()
    assert code == 0 and "vec=auto: serial" in out, err
    assert yaml.safe_load((run / "config.yaml").read_text())["vec"]["_target_"] == "paddock.envs.vector.Serial"


def test_what_has_no_known_size_stays_in_this_process() -> None:
    said: list[str] = []
    piles = env_spec("toy_envs:Samples-v0", kwargs={"observation": "pile", "action": "start"})
    section = auto().settle(piles, False, said.append)
    assert section["_target_"] == "paddock.envs.vector.Serial" and said[1:] == ["vec=auto: serial"]
    assert said[0].startswith(
        "vec=auto: not in worker processes, for observations have no fixed size: the space at pile"
    )


def test_a_dry_run_times_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert call_main("algo=ppo", "vec=auto", "dry_run=true") == 0
    assert "timing" not in capsys.readouterr().out


def test_its_bounds_are_those_of_what_it_chooses_from() -> None:
    with pytest.raises(ConfigError, match="num_envs=0"):
        auto(0)
    with pytest.raises(ConfigError, match="timeout_s=-1"):
        Auto(num_envs=4, restart=False, timeout_s=-1.0)
