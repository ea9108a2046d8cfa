"""Runs in which several policies learned: each acts, is told of, is written down and begun from by itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Main

import paddock
from paddock.envs.errors import ConfigError
from paddock.evaluation.description import describe_lives

WORDS = ["algo=ppo", "env=gymnasium", "env.fresh=false", "env.id=toy_worlds:Skirmish", "+env.kwargs.kinds=2"]
WORDS += [
    "compute=serial",
    "vec.num_envs=2",
    "algo.num_steps=8",
    "algo.minibatch_size=32",
    "algo.hidden_sizes=[8]",
    "algo.eval_episodes=2",
    "budget.iterations=3",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("several") / "run"
    return paddock.run(*WORDS, "algo.normalize_observations=true", f"run.dir={folder}", progress=False)


def test_policy_is_named_by_itself_or_an_agent(run: Any) -> None:
    env = run.make_env()
    seen, _ = env.reset(seed=1)
    for agent in env.agents:
        policy = run.policy(of=agent)
        assert policy.action_space == env.action_space(agent)
        action = policy.act(seen[agent])
        assert policy.action_space.contains(np.asarray(action, policy.action_space.dtype))
    one = run.policy(of="one")
    assert one.policy.parameters.tobytes() == run.policy(of="one_2").policy.parameters.tobytes()
    for of, said in ((None, "choose one with of= .policies: other, one; "), ("x", "of=x is neither a policy nor")):
        with pytest.raises(ConfigError, match=said):
            run.policy(of=of)


def test_evaluation_reports_each_role(run: Any) -> None:
    found = run.evaluate(episodes=5)
    each, whose = np.concatenate(found.lives), np.concatenate(found.seats)
    assert found.returns[0] == pytest.approx(found.lives[0].sum() / 4)
    told = describe_lives(found)
    assert told["of one"].startswith(f"{np.isin(whose, (1, 2)).sum():,}, mean return")
    assert f"{each[np.isin(whose, (0, 3))].mean():.2f}" in told["of other"]


@pytest.mark.parametrize(("of", "shape"), [("other", "[B, 13]"), ("one_1", "[B, 3]")])
def test_each_policy_is_exported_by_itself(run: Any, tmp_path: Path, of: str, shape: str) -> None:
    pytest.importorskip("onnx")
    made = run.export(tmp_path / "policy.onnx", of=of)
    assert made.inputs["observation"].endswith(shape)
    with pytest.raises(ConfigError, match="choose one with of="):
        run.export(tmp_path / "other.onnx")


def test_run_begins_with_all_policies_of_another(run: Any, tmp_path: Path) -> None:
    again = paddock.run(
        *WORDS,
        "algo.normalize_observations=true",
        f"run.dir={tmp_path / 'run'}",
        f"init_from={run.path}",
        progress=False,
    )
    assert again.policy(of="one").iteration == 3
    with pytest.raises(ConfigError, match=r"init_from=.*it has policies other, one, but this run has a single"):
        paddock.run("algo=es", f"run.dir={tmp_path / 'es'}", f"init_from={run.path}", progress=False)


class Mute:
    """Acts for nobody in particular."""

    def act(self, obs: Any, state: Any = None) -> Any:
        raise AssertionError


def test_runs_of_several_roles_play_matches(run: Any, call_command: Main, tmp_path: Path) -> None:
    out = tmp_path / "matches.json"
    code, said, _ = call_command("evaluate", run.path, f"matrix={out}", f"players=random,{run.path}", "episodes=6")
    told = json.loads(out.read_text())
    games = np.array(told["wins"]) + np.transpose(told["wins"]) + told["draws"]
    assert code == 0 and (games == 3 * (1 - np.eye(3))).all() and "in pairs on exchanged sides, won together" in said
    assert [player["name"] for player in told["players"]] == ["@3", "random", str(run.path)]
    code, _, said = call_command("evaluate", run.path, "players=test_several_policies.Mute")
    assert code == 2 and "Mute is a single policy, but env.id=toy_worlds:Skirmish has agents with 2 roles" in said
