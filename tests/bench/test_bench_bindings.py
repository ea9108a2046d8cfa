"""scripts/bench/bindings.py: what it times, and that it says what it leaves out."""

import json
import sys
from pathlib import Path

import pytest
from bindings import MODULES
from conftest import env_spec

from paddock.envs.vector import Serial
from scripts.bench import bindings as bench


def test_it_times_every_binding() -> None:
    assert set(bench.OPTIONS) == set(MODULES)
    named = bench.sides(["atari_nature", "minigrid", "procgen"])
    assert list(named) == ["atari_nature", "atari_nature vec=atari", "minigrid", "procgen", "procgen vec=envpool"]
    venv = Serial(num_envs=2).make(env_spec("CartPole-v1"))
    venv.begin(0)
    assert bench.steps_per_s(venv, 0.2) > 100
    venv.close()


def test_what_is_not_installed_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "minatar", None)
    monkeypatch.delitem(sys.modules, "paddock.envs.bindings.minatar", raising=False)
    file = tmp_path / "report.json"
    monkeypatch.setattr(sys, "argv", ["bindings.py", "--quick", "--json", str(file), "minatar"])
    assert bench.main() == 0
    out = capsys.readouterr().out
    assert "minatar: env.id=paddock.envs.bindings.minatar:MinAtar/Breakout-v1 cannot be imported" in out
    assert json.loads(file.read_text())["steps_per_s"] == {}
