"""The laws on structured observations and actions: the same numbers wherever environments step, and after a resume."""

import contextlib
from pathlib import Path
from typing import Any

import learned
import numpy as np
import onnxruntime
import pytest

import paddock
from paddock.envs.vector import EnvError
from paddock.runs.checkpoint import Checkpoints

WORKSHOP = [
    "env=gymnasium",
    "env.id=toy_envs:Workshop-v0",
    "+env.bounds.made=3",
    "env.metrics=[success,spent.steps]",
    "vec.num_envs=4",
]
SHORT = ["algo.hidden_sizes=[8]", "algo.eval_every_iterations=2", "algo.eval_episodes=3"]
STEPS = [*SHORT, "algo.num_steps=5"]
ALGORITHMS = {
    "ppo": ["algo=ppo", *STEPS, "algo.minibatch_size=10", "algo.normalize_observations=true"],
    "ppo, dense": ["algo=ppo", *STEPS, "algo.minibatch_size=10", "env.without=[bench]"],
    "ppo, memory": [
        "algo=ppo",
        *STEPS,
        "algo.minibatch_size=10",
        "algo.lstm=true",
        "algo.continuous_distribution=squashed_gaussian",
    ],
    "es": ["algo=es", *SHORT, "algo.population=4", "algo.normalize_observations=true", "env.without=[bench]"],
    "pbt": [
        "algo=pbt",
        "algo.members=2",
        "algo.interval=2",
        "algo.eval_episodes=2",
        "algo.member.num_steps=5",
        "algo.member.minibatch_size=10",
        "algo.member.hidden_sizes=[8]",
        "env.without=[bench]",
    ],
}


def build(name: str, *more: str) -> Any:
    return learned.algorithm(*ALGORITHMS[name], *WORKSHOP, *more)


def play(algorithm: Any, iterations: int) -> list[dict[str, float]]:
    with contextlib.closing(algorithm.plan()) as plan:
        found = [next(plan) for _ in range(iterations)]
    return [{key: value for key, value in row.items() if not key.startswith("system/")} for row in found]


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_what_is_no_number_is_named_and_not_learned_from(algo: str, tmp_path: Path) -> None:
    kwargs = ["+env.kwargs.observation=mixed", "+env.kwargs.action=number"]
    spoilt = "env.wrappers=[{_target_: toy_envs.Spoil, part: wheel}]"
    words = ["env=gymnasium", "env.id=toy_envs:Samples-v0", *kwargs, spoilt, "vec.num_envs=2"]
    made = learned.algorithm(f"algo={algo}", *words, "algo.num_steps=64", "algo.hidden_sizes=[8]", folder=tmp_path)
    said = r"environment \d returned an observation whose wheel has nan in step \d+ of a rollout; fix"
    with pytest.raises(EnvError, match=said), contextlib.closing(made.plan()) as plan:
        next(plan)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_numbers_are_the_same_on_workers_and_after_a_resume(name: str, tmp_path: Path) -> None:
    whole = build(name)
    expected = play(whole, 4)
    assert any("eval/return_mean" in row for row in expected)
    for group in ("train", "eval"):
        told = [row for row in expected if f"{group}/length_mean" in row or f"{group}/success_mean" in row]
        assert told and all(0 <= row[f"{group}/success_mean"] <= 1 for row in told)
        assert all(0 < row[f"{group}/spent.steps_mean"] <= 12 for row in told)
    half = build(name)
    assert play(half, 2) == expected[:2]
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(2, {"algorithm": half.state_dict()})
    state = checkpoints.load()
    assert state is not None
    resumed = build(name, "vec=multiprocess", "vec.workers=2", "vec.num_envs=4")  # in the midst of episodes, elsewhere
    resumed.load_state_dict(state["algorithm"])
    assert play(resumed, 2) == expected[2:]


def test_a_run_is_read_evaluated_and_asked_for_actions(tmp_path: Path) -> None:
    lines = [*ALGORITHMS["ppo"], *WORKSHOP, "compute=serial", "budget.iterations=2"]
    run = paddock.run(*lines, f"run.dir={tmp_path / 'run'}", progress=False)
    env, policy = run.make_env(), run.policy()
    observation, _ = env.reset(seed=3)
    for _ in range(5):
        action = policy.act(observation)
        assert env.action_space.contains(action)
        observation, *_ = env.step(action)
    batch = policy.act(
        {
            "action_mask": {"tool": np.ones((2, 4), np.int8)},
            "bench": np.stack([observation["bench"]] * 2),
            "made": (observation["made"],) * 2,
            "order": (observation["order"],) * 2,
            "state": (np.array([observation["state"][0]] * 2), np.stack([observation["state"][1]] * 2)),
        }
    )
    assert batch["force"].shape == (2, 2) and np.array_equal(batch["hold"][0], batch["hold"][1])
    run.export(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"])
    names = ["action.tool", "action.force", "action.hold"]
    tool, force, hold = session.run(names, policy.feed(observation))
    expected = policy.act(observation)
    assert tool[0] == expected["tool"] and np.array_equal(hold[0], expected["hold"])
    np.testing.assert_allclose(force[0], expected["force"], atol=1e-4)
    played = run.evaluate(episodes=4, workers=2)
    assert np.array_equal(played.returns, run.evaluate(episodes=4).returns)
    assert np.array_equal(played.metrics["spent.steps"], played.lengths)
