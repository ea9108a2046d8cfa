"""The sanity suite finds what is broken: a fault is planted in the learner, fails its own task, and is named.

The faults are those that PPO's own tests would not all see: each leaves it running, and learning something else.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import Main
from numpy.typing import NDArray

from paddock.algos import ppo
from paddock.algos.learning.replay.windows import Windows
from paddock.algos.networks import actor_critic, inputs
from paddock.algos.networks.heads import Categorical, gaussian
from paddock.algos.networks.heads.deterministic import Bounded
from paddock.algos.networks.heads.gaussian import Gaussian
from paddock.algos.pool.serial import SerialPool
from paddock.envs.native.series import carry_back
from paddock.health.sanity import SanityResult, prepare_tasks, run_tasks

Patch = pytest.MonkeyPatch
gae: Callable[..., Any] = ppo.gae


def learn(task: str, *overrides: str, algo: str = "ppo") -> SanityResult:
    """What an algorithm, as it is now, makes of a task."""
    [verdict] = run_tasks(prepare_tasks([f"algo={algo}", *overrides], [task], [1]), SerialPool())
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
    visible = inputs.visible_leaves
    patch.setattr(inputs, "visible_leaves", lambda layout: list(visible(layout))[:-1])


def ignore_masks(patch: Patch) -> None:
    """Choose among all actions, whichever are legal."""
    patch.setattr(Categorical, "masked", lambda head, out, legal: out)


def bootstrap_every_end(patch: Patch) -> None:
    """Add what follows to what ended, too."""

    def faulty(reward: Any, value: Any, following: Any, terminated: Any, truncated: Any, *rest: Any) -> Any:
        return gae(reward, value, following, np.zeros_like(terminated), terminated | truncated, *rest)

    patch.setattr(ppo, "gae", faulty)


def bootstrap_from_the_reset(patch: Patch) -> None:
    """Add the value of the next episode's first observation where one was cut off."""

    def faulty(reward: Any, value: Any, following: Any, terminated: Any, truncated: Any, *rest: Any) -> Any:
        reset = np.concatenate([value[1:], following[-1:]])
        return gae(reward, value, np.where(truncated, reset, following), terminated, truncated, *rest)

    patch.setattr(ppo, "gae", faulty)


def carry_advantages_over_cuts(patch: Patch) -> None:
    """Add the advantages of the next episode where one was cut off."""

    def faulty(
        reward: Any, value: Any, following: Any, terminated: Any, truncated: Any, gamma: float, factor: float, *_: Any
    ) -> Any:
        delta = reward + np.float32(gamma) * np.where(terminated, np.float32(0), following) - value
        return carry_back(delta, np.where(terminated, np.float32(0), np.float32(gamma * factor)))

    patch.setattr(ppo, "gae", faulty)


def ignore_lambda(patch: Patch) -> None:
    """Compute advantages of one step."""
    patch.setattr(ppo, "gae", lambda *arguments: gae(*arguments[:6], 0.0, *arguments[7:]))


def leave_advantages_as_they_are(patch: Patch) -> None:
    """Do not normalize advantages."""
    loss = ppo.ppo_loss
    changes = {"normalize_advantages": False}
    patch.setattr(ppo, "ppo_loss", lambda network, batch, settings: loss(network, batch, replace(settings, **changes)))


def learn_advantages_as_values(patch: Patch) -> None:
    """Leave values out of their targets."""
    loss = ppo.ppo_loss

    def faulty(network: Any, batch: Any, settings: Any) -> Any:
        return loss(network, replace(batch, target=batch.advantage), settings)

    patch.setattr(ppo, "ppo_loss", faulty)


def drop_the_gradient_of_deviations(patch: Patch) -> None:
    """Learn the means of actions alone."""
    own = gaussian.logprob_and_entropy
    patch.setattr(gaussian, "logprob_and_entropy", lambda mean, log_std, action: own(mean, log_std.detach(), action))


def ignore_masks_in_learning(patch: Patch) -> None:
    """Act by masks, and learn without them."""
    patch.setattr(actor_critic, "masked", lambda out, legal: out)


def gather(patch: Patch, discount: Callable[[Windows, NDArray[np.int64], Any], Any]) -> None:
    """Give the windows of a replay another discount, by their starts and their own."""
    make: Callable[..., None] = Windows.__init__
    own = Windows._gather_plain

    def in_numpy(windows: Windows, *arguments: Any) -> None:
        make(windows, *arguments)
        windows._compiled = None

    def faulty(windows: Windows, ids: NDArray[np.int64]) -> Any:
        *batch, given = own(windows, ids)
        return *batch, discount(windows, ids, given).astype(np.float32)

    patch.setattr(Windows, "__init__", in_numpy)
    patch.setattr(Windows, "_gather_plain", faulty)


def discount_a_step_too_often(patch: Patch) -> None:
    """Discount what follows n steps by gamma^(n + 1)."""
    gather(patch, lambda windows, ids, given: given * windows._powers[1])


def discount_a_step_too_seldom(patch: Patch) -> None:
    """Discount what follows n steps by gamma^(n - 1)."""
    gather(patch, lambda windows, ids, given: given / windows._powers[1])


def bootstrap_every_end_of_replay(patch: Patch) -> None:
    """Add what follows to what ended, too, in a replay of single steps."""
    gather(patch, lambda windows, ids, given: np.full_like(given, windows._powers[1]))


TORCH = "algo=ppo algo.backend=torch"
FAULTS: dict[str, tuple[Callable[[Patch], None], str, str]] = {  # how, in what, and the task that names it
    "the sign of advantages": (turn_the_sign, "algo=ppo", "bandit"),
    "rewards a step late": (reward_the_step_after, "algo=ppo", "bandit"),
    "rows swapped": (swap_the_rows, "algo=ppo", "bandit"),
    "agents swapped": (swap_the_rows, "algo=ppo", "roles"),
    "advantages not normalized": (leave_advantages_as_they_are, TORCH, "bandit"),
    "numbers not brought to their bounds": (leave_numbers_as_they_are, "algo=ppo", "aim"),
    "the gradient of deviations dropped": (drop_the_gradient_of_deviations, TORCH, "aim"),
    "masks ignored": (ignore_masks, "algo=ppo", "masked"),
    "masks ignored in learning": (ignore_masks_in_learning, TORCH, "masked"),
    "a leaf of the observation lost": (lose_a_leaf, "algo=ppo", "spaces"),
    "n-step discount of n + 1": (discount_a_step_too_often, "algo=dqn", "discount"),
    "n-step discount of n - 1": (discount_a_step_too_seldom, "algo=dqn", "discount"),
    "lambda ignored": (ignore_lambda, "algo=ppo", "delay"),
    "no bootstrap where an episode was cut off": (forget_truncation, "algo=ppo", "cutoff"),
    "the reset observation valued for the final one": (bootstrap_from_the_reset, "algo=ppo", "cutoff"),
    "advantages carried over cuts": (carry_advantages_over_cuts, "algo=ppo", "cutoff"),
    "values left out of their targets": (learn_advantages_as_values, TORCH, "cutoff"),
    "every end bootstrapped": (bootstrap_every_end, "algo=ppo", "cutoff_twin"),
    "every end bootstrapped in replay": (bootstrap_every_end_of_replay, "algo=sac", "cutoff_twin"),
    "memory kept from episode to episode": (keep_the_memory, "algo=ppo algo.lstm=true", "forget"),
}
SUSPECTS = {
    "bandit": "advantages (sign or scale)",
    "aim": "bounds, scale, or standard deviation",
    "masked": "action masks: not applied",
    "spaces": "a missing leaf",
    "discount": "its power in sums of several rewards",
    "delay": "lambda",
    "cutoff": "truncation is treated as termination",
    "cutoff_twin": "termination is treated as truncation",
    "forget": "the state is not reset at the start",
    "roles": "multi-agent rows: their order",
}
QUICK = ("masks ignored", "advantages not normalized", "no bootstrap where an episode was cut off")


def first_failure(words: str, tasks: list[str]) -> SanityResult:
    """The verdict that `paddock.sanity` names first; tasks after it are not learned."""
    return next(v for v in run_tasks(prepare_tasks(words.split(), tasks, [1]), SerialPool()) if v.level == "FAIL")


@pytest.mark.parametrize(
    "fault",
    [name if name in QUICK else pytest.param(name, marks=[pytest.mark.slow, pytest.mark.nightly]) for name in FAULTS],
)
def test_a_planted_fault_fails_sanity_and_is_named(fault: str) -> None:
    plant, words, task = FAULTS[fault]
    whole = fault not in QUICK and task != "roles"  # which is not of the suite
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        verdict = first_failure(words, [] if whole else [task])
    print(f"{fault}: {verdict.task.name} {verdict.scores[0]:.3f}, passes {verdict.bar}")
    assert verdict.task.name == task and SUSPECTS[task] in verdict.task.suspect


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
