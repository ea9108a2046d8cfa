"""Stacks of frames in a replay: each frame is stored once, and what is drawn is what the environment gave."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import deterministic
from transitions import World, make

from paddock.algos.learning.replay import library
from paddock.algos.learning.replay.sequences import Sequences
from paddock.algos.learning.replay.stacks import check_stacks
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.pool.serial import SerialPool
from paddock.config.compose import compose_alone
from paddock.config.experiment import build_algorithm, read_plain
from paddock.envs import making
from paddock.envs.errors import ConfigError
from paddock.envs.stacks import Stack

STACKS = [Stack(3, zeros=False), Stack(4, zeros=True), Stack(2, zeros=False)]
FRAMES = "gymnasium.wrappers.FrameStackObservation"


def stacked(rollouts: Iterator[Rollout], stack: Stack) -> Iterator[Rollout]:
    """Rollouts as an environment would give them that stacks the frames of these."""
    older = np.zeros(0)

    def begin(frame: np.ndarray) -> np.ndarray:
        first = np.zeros((stack.frames, *frame.shape), frame.dtype) if stack.zeros else np.stack([frame] * stack.frames)
        first[-1] = frame
        return first

    def push(frames: np.ndarray, frame: np.ndarray) -> np.ndarray:
        return np.concatenate([frames[1:], frame[None]])

    for rollout in rollouts:
        T, N = rollout.reward.shape
        every = np.concatenate([rollout.obs, rollout.last_obs[None]])
        obs = np.zeros((T + 1, N, stack.frames, *every.shape[2:]), every.dtype)
        finals = dict(zip(map(tuple, rollout.final_at.tolist()), rollout.final_obs, strict=True))
        starts, ends = rollout.starts, rollout.terminated | rollout.truncated
        stacks = {}
        for n in range(N):
            obs[0, n] = begin(every[0, n]) if starts[0, n] else older[n]
            for t in range(T):
                if (t, n) in finals:
                    stacks[t, n] = push(obs[t, n], finals[t, n])
                obs[t + 1, n] = begin(every[t + 1, n]) if ends[t, n] else push(obs[t, n], every[t + 1, n])
        older = obs[T].copy()
        final_obs = np.array([stacks[at] for at in map(tuple, rollout.final_at.tolist())], every.dtype)
        shape = (len(rollout.final_at), *obs.shape[2:])
        yield replace(rollout, obs=obs[:T], last_obs=obs[T], final_obs=final_obs.reshape(shape))


def play(world: World, lengths: list[int]) -> Iterator[Rollout]:
    for k, T in enumerate(lengths):
        yield world.play(T)
        world.gives_up = k % 10 == 9  # as environments do that cannot enter an episode again


@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize("kind", ["compiled", "NumPy", "sequences"])
def test_what_is_drawn_is_what_the_environment_gave(
    stack: Stack, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "NumPy":
        monkeypatch.setattr(library, "usable", lambda: None)
    elif kind == "compiled" and library.usable() is None:
        pytest.skip("the library of replay was not built")
    given: dict[str, Any] = {"obs": np.dtype((np.float32, (stack.frames, 3))), "n_step": 3, "capacity": 60}
    if kind == "sequences":
        given["sequences"] = Sequences(period=4, burn_in=2, length=4, state_width=0)
    whole, single = make(tmp_path / "whole", **given), make(tmp_path / "single", **given, stack=stack)
    lengths = [4] * 40 if kind == "sequences" else [1 + k % 6 for k in range(60)]
    drawn = 0
    for k, rollout in enumerate(stacked(play(World(3, 5), lengths), stack)):
        whole.append(rollout)
        single.append(rollout)
        if whole.count:
            one, other = (replay.sample(drawn, 1, 40) for replay in (whole, single))
            drawn += 1
            for name, value in vars(one).items():
                assert value.tobytes() == getattr(other, name).tobytes(), (k, name)
        if k == 30:  # a resumed run
            state = single.state_dict()
            single.close()
            single = make(tmp_path / "single", **given, stack=stack)
            single.load_state_dict(state)
    assert drawn > 20 and single.steps > 2 * 60


@pytest.mark.parametrize("fault", ["older", "start", "final"])
def test_observations_that_are_no_stacks_are_one_line(fault: str) -> None:
    stack = STACKS[0]
    rollout = next(stacked(iter([World(3, 5).play(20)]), stack))
    check_stacks(rollout, stack)
    t, n = next((t, n) for t, n in np.argwhere(rollout.starts if fault == "start" else ~rollout.starts) if t > 0)
    (rollout.final_obs if fault == "final" else rollout.obs[t])[0 if fault == "final" else n, 0, 1] += 1
    with pytest.raises(ConfigError, match="put FrameStackObservation last"):
        check_stacks(rollout, stack)


def test_a_run_has_the_same_rows_as_one_that_stores_whole_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["algo=dqn", "env=cartpole", f"env.wrappers=[{{_target_: {FRAMES}, stack_size: 3}}]", "vec.num_envs=3"]
    words += [
        "env.max_episode_steps=15",
        "algo.learning_starts=96",
        "algo.buffer_size=240",
        "algo.batch_size=8",
        "algo.n_step=2",
    ]
    words += ["algo.hidden_sizes=[8]", "algo.log_every_steps=60", "algo.updates_per_step=0.2", "algo.num_steps=4"]
    found = []
    for name in ("single", "whole"):
        made = build_algorithm(read_plain(compose_alone(words)), SerialPool(), folder=tmp_path / name)
        assert ("in stacks of" in made.replay.describe()) == (name == "single")
        plan = made.plan()
        found.append([deterministic(next(plan)) for _ in range(9)])
        plan.close()
        monkeypatch.setattr(making, "find_stack", lambda env: None)
    assert found[0] == found[1] and found[0][-1]["train/updates"] > 20
