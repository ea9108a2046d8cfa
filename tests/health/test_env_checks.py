"""The check of environments names what is wrong: each fault is planted, and found with the remedy that mends it."""

import random
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import toy_worlds
from conftest import Main, env_spec
from gymnasium import spaces

from paddock.envs.spec import EnvSpec
from paddock.health.env_checks import check_env
from paddock.health.episodes import play


class Walk(gymnasium.Env[Any, Any]):
    """A number that wanders for at most ten steps; faults are planted by name."""

    calls = 0  # of all instances, as of a module that counts

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.observation_space = spaces.Dict(at=spaces.Box(-100, 100, (1,), np.float32), gear=spaces.Discrete(2))
        self.action_space = spaces.Discrete(3)
        self._at = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if self.fault == "seeds NumPy's":
            np.random.seed(seed)
        self._at = self._at if self.fault == "forgets nothing" else 0.0
        self._steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        draws: dict[str, Any] = {
            "Python's": random.random,
            "NumPy's": np.random.random,
            "seeds NumPy's": np.random.random,
        }
        self._at += float(draws.get(self.fault, self.np_random.random)()) + int(action)
        if self.fault == "counts calls":
            type(self).calls += 1
            self._at += type(self).calls
        self._steps += 1
        if self.fault == "raises" and self._steps == 3:
            raise ValueError("no road")
        odd: dict[str, Any] = {"no number": float("nan"), "pays nothing": None, "pays an array": np.ones(1)}
        reward = odd.get(self.fault, self._at)
        return self._observe(), reward, self._steps == 10 and self.fault != "never ends", False, {}

    def _observe(self) -> Any:
        at = np.array([self._at], np.float64 if self.fault == "doubles" else np.float32)
        if self.fault == "out of bounds" and self._at > 5:
            at[0] = 1000
        seen = {"at": at, "gear": 0} if self.fault != "lacks a part" else {"at": at}
        return seen


gymnasium.register(id="paddock-test/Walk-v0", entry_point=f"{__name__}:Walk")


def found(fault: str, *wrappers: str, fresh: bool = False) -> dict[str, str]:
    """What the check says, by name, each with its level."""
    spec = EnvSpec(
        "paddock-test/Walk-v0", {"fault": fault}, tuple({"_target_": each} for each in wrappers), None, fresh
    )
    return {name: f"{finding.level} {finding}" for name, finding in check_env(spec, 50)}


def test_an_environment_without_a_fault_is_well() -> None:
    lines = found("")
    assert all(line.startswith("ok ") for line in lines.values()), lines
    assert lines["steps"] == "ok 50 steps in 5 episodes, all within the spaces"
    assert lines["ends"] == "ok 5 terminated, 0 truncated, 10 to 10 steps"
    assert lines["spaces"].startswith(
        "ok observation Dict(at: Box(1,) float32, gear: Discrete(2)) (16 bytes per row, 3 "
    )


FAULTS = {  # a fault: the line that fails, and a part of its message
    "doubles": (
        "steps",
        "reset on seed 0, agent: the observation at ['at'] is float64 (1,) from 0.0 to 0.0, which is not in Box(",
    ),
    "out of bounds": (
        "steps",
        "the observation at ['at'] is float32 (1,) from 1000.0 to 1000.0, which is not in Box(-100.0, 100.0, (1,), float32)",
    ),
    "lacks a part": ("steps", "which is not in Dict('at': Box(-100.0, 100.0, (1,), float32), 'gear': Discrete(2))"),
    "raises": ("steps", "step 3 on seed 0 raised ValueError: no road"),
    "no number": ("steps", "step 1 on seed 0, agent: the reward is nan"),
    "pays nothing": ("steps", "step 1 on seed 0, agent: the reward is None, which is not a number"),
    "forgets nothing": ("history", "the episode on seed 0 differs from its reset on; set env.fresh=true"),
    "Python's": ("seed", "it uses a global generator; add the wrapper"),
    "NumPy's": ("seed", "the episode on seed 0 differs from step 1 on; it uses a global generator; add the"),
    "seeds NumPy's": ("others", "differs from step 2 on; add the wrapper"),
    "counts calls": ("seed", "its randomness is not controlled by reset's seed"),
}


def test_each_fault_is_named() -> None:
    for fault, (line, message) in FAULTS.items():
        lines = found(fault)
        assert lines[line].startswith("FAIL ") and message in lines[line], lines
        assert not any(line.startswith("ok ") and "nan" in line for line in lines.values())


def test_composite_actions_are_sampled_under_each_part_s_mask() -> None:
    lines = {name: str(finding) for name, finding in check_env(env_spec("toy_envs:Workshop-v0"), 50)}
    assert lines["steps"].startswith("50 steps in ")  # it fails by what is not legal


def test_a_world_that_pays_nobody_is_played() -> None:
    world = toy_worlds.Scripted("ab", [{"agents": "ab"}, {"terminated": "ab"}])
    step = world.step
    world.step = lambda actions: ((told := step(actions))[0], {}, *told[2:])
    playing = play(world, seed=0, most=5)
    with pytest.raises(StopIteration) as ended:
        while True:
            next(playing)
    assert (ended.value.value.ended, ended.value.value.rewards) == ("terminated", (0.0, 0.0))


def test_a_world_that_pays_what_is_no_number_is_told_so() -> None:
    world = toy_worlds.Scripted("ab", [{"agents": "ab"}, {"terminated": "ab"}])
    step = world.step
    world.step = lambda actions: ((told := step(actions))[0], {"a": 1.0, "b": None}, *told[2:])
    with pytest.raises(StopIteration) as ended:
        next(play(world, seed=0, most=5))
    assert ended.value.value.wrong == "step 1 on seed 0, b: the reward is None, which is not a number"


def test_no_limit_is_said() -> None:
    assert found("never ends")["ends"].startswith(
        "warn no episode ended in 50 steps, and there is no step limit; set env.max"
    )


@pytest.mark.parametrize("fault", ["Python's", "NumPy's", "seeds NumPy's"])
def test_the_proposed_wrapper_fixes_it_and_no_global_generator(fault: str) -> None:
    lines = found(fault, "paddock.envs.seeding.OwnGenerators")
    assert all(line.startswith("ok ") for line in lines.values()), lines
    spec = EnvSpec(
        "paddock-test/Walk-v0", {"fault": fault}, ({"_target_": "paddock.envs.seeding.OwnGenerators"},), None, False
    )
    env = spec.make()
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    env.reset(seed=1)
    env.step(0)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[index]


def test_fresh_mends_an_environment_that_forgets_nothing() -> None:
    lines = found("forgets nothing", fresh=True)
    assert lines["history"] == "ok reset keeps some state; env.fresh=true creates a new environment for each episode"


def test_box2d_is_found_to_leak_and_ours_is_not(call_command: Main) -> None:
    words = ("env=gymnasium", "env.id=BipedalWalker-v3", "env.fresh=false", "steps=300")
    code, out, _ = call_command("check", *words)
    assert code == 1 and "FAIL history: same seed after other episodes" in out and "set env.fresh=true" in out
    code, out, _ = call_command("check", "env=bipedal", "steps=300")
    assert code == 0 and "ok   history" in out


def test_options_of_another_folder_are_checked(call_command: Main, tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/mine.yaml").write_text("# Mine\ndefaults: [cartpole]\n")
    assert call_command("check", "--config-dir", str(tmp_path), "env=mine", "steps=20")[0] == 0


def test_a_mistake_is_one_line(call_command: Main) -> None:
    for argument, message in {
        "env=terrains": "is a family of environments; choose a single one",
        "step=3": "step=3 is not an argument of check; did you mean 'steps'? (see --help)",
        "steps=3": "no environment or algorithm given",
    }.items():
        code, out, err = call_command("check", argument)
        assert (code, out) == (2, "") and len(err.splitlines()) == 1 and message in err
