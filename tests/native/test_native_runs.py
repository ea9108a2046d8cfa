"""A run's numbers do not depend on where its walkers step: natively, on Box2D, or where nothing was compiled."""

from pathlib import Path

import pytest
import yaml
from compiled import missing, native  # noqa: F401, a fixture
from conftest import call_main, env_spec, final_state

from paddock.envs.native import library
from paddock.envs.vector import Auto, auto

ES = [
    "algo=es",
    "env=bipedal",
    "algo.population=6",
    "algo.hidden_sizes=[5,7]",
    "algo.episode_cap=40",
    "algo.eval_every_iterations=2",
]
ES += ["algo.eval_episodes=2", "env.max_episode_steps=60", "algo.observation_sampling=1.0"]
POET = ["algo=poet", "env=terrains", "algo.population=4", "algo.hidden_sizes=[5]", "algo.episode_cap=30"]
POET += ["algo.eval_episodes=1", "env.max_episode_steps=40", "algo.reproduce_every=2", "algo.reproduce_score=-1000"]
POET += ["algo.transfer_every=2", "algo.criterion_low=-1000", "algo.criterion_high=1000", "algo.max_children=2"]
PPO = [
    "algo=ppo",
    "env=bipedal",
    "algo.num_steps=32",
    "vec.num_envs=3",
    "algo.minibatch_size=48",
    "algo.eval_episodes=2",
]
PPO += ["env.max_episode_steps=25", "algo.eval_every_iterations=1"]


WALKER = env_spec("paddock.envs.bipedal:paddock/BipedalWalker-v3")
AUTO = Auto(num_envs=4, restart=False, timeout_s=60.0)


def found_state(run: Path) -> dict[str, bytes]:
    """The arrays of the last checkpoint, but for what environments saved of themselves."""
    return {path: array for path, array in final_state(run).items() if ".saved." not in path}


@pytest.mark.parametrize("words", [ES, [*ES, "algo/strategy=ga"], POET, PPO], ids=["es", "ga", "poet", "ppo"])
def test_a_run_gives_the_same_bits_wherever_its_walkers_step(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, *more: str) -> Path:
        path = tmp_path / name
        assert call_main(*words, "compute=serial", "budget.iterations=2", f"run.dir={path}", *more) == 0
        return path

    monkeypatch.setattr(auto, "ROUND_S", 0.001)  # whatever is fastest
    here, chosen, box2d = run("native", "vec=native"), run("auto"), run("serial", "vec=serial")
    monkeypatch.setattr(library, "load", missing)
    fallen_back = run("without")
    numbers = (here / "metrics.jsonl").read_bytes()
    assert numbers.count(b"\n") == (3 if words is PPO else 2)  # the last is the evaluation at its end
    for other in (chosen, box2d):
        assert (other / "metrics.jsonl").read_bytes() == numbers, other.name
        assert found_state(other) == found_state(here), other.name
    layouts = [yaml.safe_load((path / "config.yaml").read_text())["vec"]["_target_"] for path in (chosen, fallen_back)]
    assert layouts[0] == "paddock.envs.vector.Native" != layouts[1]


@pytest.mark.parametrize(("first", "then"), [("native", "serial"), ("serial", "native")])
def test_a_run_goes_on_with_the_same_bits_wherever_its_walkers_step(first: str, then: str, tmp_path: Path) -> None:
    def run(name: str, vec: str, iterations: int) -> Path:
        path = tmp_path / name
        words = [*PPO, "compute=serial", f"vec={vec}", f"budget.iterations={iterations}", f"run.dir={path}"]
        assert call_main(*words) == 0
        return path

    whole = run("whole", "serial", 2)
    run("halves", first, 1)
    assert found_state(run("halves", then, 2)) == found_state(whole)
    assert (tmp_path / "halves" / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_auto_says_what_is_missing_where_walkers_do_not_step_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "load", missing)
    said: list[str] = []
    assert AUTO.choose(WALKER, True, said.append)["_target_"] == "paddock.envs.vector.Serial"
    assert said[0] == "vec=auto: no native version: there is no library"
    assert said[1:] == ["vec=auto: serial (worker processes already use all cores)"]
