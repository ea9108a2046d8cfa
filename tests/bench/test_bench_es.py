"""The ES benchmark measures what it says: the same members on both sides; how fast they are is for its own runs."""

import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest

from paddock.algos.evolution.population import play_members
from paddock.algos.pool.serial import SerialPool
from scripts.bench import es as bench
from scripts.bench.contenders.generation import members, play_envpool, play_member, walker
from scripts.bench.es import AnsweringPool, build_es, measure_driver

ROOT = Path(__file__).resolve().parents[2]


def test_the_peer_plays_the_members_of_the_next_iteration() -> None:
    recording = AnsweringPool()
    es = build_es(recording, members=4, cap=30, overrides=["algo.pairs_per_task=1"])
    before = es.state_dict()
    next(es.plan())
    es.load_state_dict(before)
    _, tasks = recording.asked
    scale = (np.zeros(24, np.float32), np.ones(24, np.float32), 5.0)
    peer = []
    for member in members(es):
        walker.cache_clear()  # a new world for each member, as on Paddock's side
        peer.append(play_member(es.problem.mlp.sizes, scale, 30, member))
    played = [play_members(task) for task in tasks]
    assert [index for index, *_ in peer] == [0, 1, 2, 3]
    lengths = np.concatenate([length.ravel() for _, length, *_ in played])
    returns = np.concatenate([member_returns.ravel() for member_returns, *_ in played])
    assert [length for _, _, length, _ in peer] == lengths.tolist()
    # Actions are rounded otherwise in the last bit, and contacts amplify that.
    assert [member_return for _, member_return, _, _ in peer] == pytest.approx(returns.tolist(), abs=0.001)


def test_the_driver_is_measured_on_512_members() -> None:
    driver = measure_driver(SerialPool(), repeats=1, overrides=[])
    assert driver["members"] == 512
    assert driver["tasks"] == 512 // (2 * 4)
    assert driver["update_ms"] > 0
    assert driver["dispatch_ms"] > 0


def test_report_has_both_sides_and_their_ratio(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    tiny = ["--quick", "--repeats", "1", "--members", "8", "--cap", "50", "--json", str(path)]
    command = [sys.executable, "scripts/bench/es.py", *tiny, "algo.pairs_per_task=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(path.read_text())
    sections = {"machine", "versions", "settings", "ours", "peer", "best", "ratios", "ratio", "target", "driver"}
    assert set(report) == sections
    assert done.returncode == (0 if report["ratio"] >= report["target"] else 1)
    assert (report["best"], report["target"]) == ("peer", 1.0)
    assert report["settings"]["members"] == 8
    assert report["settings"]["cap"] == 50
    for side in ("ours", "peer"):
        assert report[side]["evaluations_per_s"] == pytest.approx(8 / report[side]["seconds"])
        assert report[side]["steps_per_s"] == pytest.approx(report[side]["steps"] / report[side]["seconds"])
        assert 0 < report[side]["busy"] <= 1.05
    assert report["ratio"] == pytest.approx(report["ours"]["steps_per_s"] / report["peer"]["steps_per_s"])
    assert report["ours"]["steps"] == pytest.approx(report["peer"]["steps"], rel=0.05)
    assert report["ours"]["return_mean"] == pytest.approx(report["peer"]["return_mean"], abs=5.0)
    for line in ("steps/s, paddock / multiprocessing + NumPy: median", "driver, a generation of 512 members"):
        assert line in done.stdout


@pytest.mark.parametrize(("num_envs", "batch_size"), [(4, 4), (8, 2), (16, 4)])
def test_envpool_plays_every_member_to_its_end_whatever_the_batch(num_envs: int, batch_size: int) -> None:
    pytest.importorskip("envpool")
    es = build_es(SerialPool(), members=12, cap=40, overrides=["vec=native", "algo.pairs_per_task=6"])
    next(es.plan())
    played = play_envpool(es, num_envs, batch_size, threads=2)
    # Upright for at least half a second, and then cut off: the members' number is in the steps.
    assert 12 * 20 < played["steps"] <= 12 * 40
    assert played["steps_per_s"] == pytest.approx(played["steps"] / played["seconds"])
    assert -120 < played["return_mean"] < 20


def test_native_report_has_the_best_of_both_peers(tmp_path: Path) -> None:
    pytest.importorskip("envpool")
    path = tmp_path / "bench.json"
    tiny = ["--native", "--quick", "--repeats", "1", "--members", "8", "--cap", "30", "--json", str(path)]
    command = [sys.executable, "scripts/bench/es.py", *tiny]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(path.read_text())
    assert report["target"] == 10.0 and report["driver"] is None
    assert report["settings"]["layout"] in ("processes", "threads")
    assert report["best"] == max(("peer", "envpool"), key=lambda name: report[name]["steps_per_s"])
    assert report["ratio"] == pytest.approx(report["ours"]["steps_per_s"] / report[report["best"]]["steps_per_s"])
    assert done.returncode == (0 if report["ratio"] >= 10.0 else 1)
    assert report["ours"]["steps"] == pytest.approx(report["peer"]["steps"], rel=0.05)


def test_a_peer_that_is_not_installed_is_said_to_be_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = {"seconds": 1.0, "steps": 10, "steps_per_s": 10.0, "evaluations_per_s": 4.0, "return_mean": 0.0, "busy": 1}
    monkeypatch.setitem(sys.modules, "envpool", None)
    monkeypatch.setattr(bench, "choose_layout", lambda *_: ("threads", build_es(SerialPool(), 4, 10, [])))
    monkeypatch.setattr(bench, "start_processes", lambda *_: None)
    monkeypatch.setattr(multiprocessing, "get_context", MagicMock())
    for side in ("play_ours", "play_processes"):
        monkeypatch.setattr(bench, side, lambda *_: played)
    assert bench.main(["--native", "--quick"]) == 1
    assert "EnvPool is left out: pip install envpool" in capsys.readouterr().out
