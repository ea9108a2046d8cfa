"""The sanity suite finds what is broken: a fault is planted in the learner, fails its own task, and is named.

The faults are those that PPO's own tests would not all see: each leaves it running, and learning something else.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Main

from paddock.algos import ppo
from paddock.algos.networks import actor_critic, inputs
from paddock.algos.networks.heads import Categorical
from paddock.algos.networks.heads.deterministic import Bounded
from paddock.algos.networks.heads.gaussian import Gaussian
from paddock.algos.pool.serial import SerialPool
from paddock.health.sanity import SanityVerdict, judge, prepare_exams

Patch = pytest.MonkeyPatch
gae = ppo.gae


def learn(task: str, *overrides: str, algo: str = "ppo") -> SanityVerdict:
    """What an algorithm, as it is now, makes of a task."""
    [verdict] = judge(prepare_exams([f"algo={algo}", *overrides], [task], [1]), SerialPool())
    return verdict


def forget_truncation(patch: Patch) -> None:
    """Take what was cut off for what ended."""

    def faulty(reward: Any, value: Any, next_value: Any, terminated: Any, truncated: Any, *rest: Any) -> Any:
        return gae(reward, value, next_value, terminated | truncated, truncated, *rest)

    patch.setattr(ppo, "gae", faulty)


def turn_the_sign(patch: Patch) -> None:
    """Descend where it should climb."""
    patch.setattr(ppo, "gae", lambda *arguments: -gae(*arguments))


def reward_the_step_after(patch: Patch) -> None:
    """Give each step the reward of the one before."""
    patch.setattr(ppo, "gae", lambda reward, *rest: gae(np.roll(reward, 1, axis=0), *rest))


def leave_numbers_as_they_are(patch: Patch) -> None:
    """Give the environment numbers between -1 and 1, whatever its bounds are."""
    for numbers in (Gaussian, Bounded):
        to_env: Callable[..., Any] = numbers.to_env
        patch.setattr(numbers, "to_env", lambda head, action, to_env=to_env: to_env(head, np.clip(action, -1, 1)))


def swap_the_rows(patch: Patch) -> None:
    """Give each environment the action of another one."""
    for kind in (Categorical, Gaussian, Bounded):
        to_env: Callable[..., Any] = kind.to_env
        patch.setattr(kind, "to_env", lambda head, action, to_env=to_env: to_env(head, action[::-1]))


def keep_the_memory(patch: Patch) -> None:
    """Go on with the memory of the episode before, where a new one begins."""
    act: Callable[..., Any] = actor_critic.TorchActor.act

    def faulty(actor: Any, obs: Any, state: Any) -> Any:
        kept = getattr(actor, "kept", None)
        if kept is not None and kept.shape == state.shape:
            state = np.where(state.any(axis=1, keepdims=True), state, kept)
        out, after = act(actor, obs, state)
        actor.kept = after
        return out, after

    patch.setattr(actor_critic.TorchActor, "act", faulty)


def lose_a_leaf(patch: Patch) -> None:
    """Leave the last part of what is seen out of what the network is given."""
    seen = inputs.seen
    patch.setattr(inputs, "seen", lambda layout: list(seen(layout))[:-1])


def ignore_masks(patch: Patch) -> None:
    """Choose among all actions, whichever are legal."""
    patch.setattr(Categorical, "masked", lambda head, out, legal: out)


FAULTS: dict[str, tuple[Callable[[Patch], None], str, list[str]]] = {
    "the sign of advantages": (turn_the_sign, "bandit", []),
    "no bootstrap where an episode was cut off": (forget_truncation, "cutoff", []),
    "rewards a step late": (reward_the_step_after, "squared", []),
    "numbers not brought to their bounds": (leave_numbers_as_they_are, "aim", []),
    "rows swapped": (swap_the_rows, "squared", []),
    "agents swapped": (swap_the_rows, "roles", []),
    "a leaf of the observation lost": (lose_a_leaf, "spaces", []),
    "masks ignored": (ignore_masks, "masked", []),
    "memory kept from episode to episode": (keep_the_memory, "forget", ["algo.lstm=true"]),
}
SUSPECTS = {
    "bandit": "the sign of the gradient, or advantages",
    "cutoff": "truncation is taken for an end",
    "aim": "their bounds, their scale",
    "squared": "are not of one environment and one step",
    "roles": "the order of rows",
    "spaces": "a leaf is lost",
    "masked": "action masks: not applied",
    "forget": "the state is not reset where an episode begins",
}
QUICK = ("the sign of advantages", "no bootstrap where an episode was cut off", "masks ignored")
# What tests of rollouts see in any run too, and what is planted beside in another task.
NIGHTLY = ("rows swapped", "memory kept from episode to episode", "agents swapped")


def mark(fault: str) -> Any:
    """A fault, and when it is planted."""
    marks = [] if fault in QUICK else [pytest.mark.slow]
    return pytest.param(fault, marks=[*marks, *([pytest.mark.nightly] if fault in NIGHTLY else [])])


@pytest.mark.parametrize("fault", [mark(fault) for fault in FAULTS])
def test_a_planted_fault_fails_its_task_and_is_named(fault: str) -> None:
    plant, task, overrides = FAULTS[fault]
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        verdict = learn(task, *overrides)
    print(f"{fault}: {task} {verdict.scores[0]:.3f}, passes {verdict.bar}")
    assert verdict.level == "FAIL"
    assert SUSPECTS[task] in verdict.task.suspect


@pytest.mark.parametrize(("algo", "task"), [("ppo", "bandit"), ("ppo", "cutoff"), ("dqn", "cutoff")])
def test_without_a_fault_a_task_passes(algo: str, task: str) -> None:
    assert learn(task, algo=algo).level == "ok"


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "words",
    [
        ["algo=ppo", "seeds=1", "compute=serial"],  # one after the other: workers are none of its business
        *(
            pytest.param(words, marks=pytest.mark.nightly)
            for words in (
                ["algo=ppo", "compute=local"],
                ["algo=ppo", "algo.lstm=true", "compute=local"],
                *([f"algo={algo}", "compute=local"] for algo in ("a2c", "es", "dqn", "pqn", "td3", "ddpg")),
                *([f"algo={algo}", "seeds=1", "compute=local"] for algo in ("sac", "r2d2")),  # which learn in torch
            )
        ),
    ],
    ids=" ".join,
)
def test_what_is_sound_passes_every_task(words: list[str], call_command: Main) -> None:
    code, out, err = call_command("sanity", *words)
    print(out)
    assert (code, err) == (0, "")
