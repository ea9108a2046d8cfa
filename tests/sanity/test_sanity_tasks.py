"""The tasks of the sanity suite are worth what is said of them: by play of every case, by formula, and at random."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import env_section, env_spec
from gymnasium.utils import env_checker as checker

from paddock.envs.sanity import suite
from paddock.envs.sanity.task import SanityTask
from paddock.envs.spec import EnvSpec
from paddock.health.env_checks import check_env

TASKS = {task.name: task for task in suite.SUITE}
RANDOM_EPISODES = 1_000

Act = Callable[[Any, int], Any]  # of an observation and the number of the step
Space = gymnasium.Space[Any]


def make(task: SanityTask) -> gymnasium.Env[Any, Any]:
    return env_spec(task.id).make().unwrapped


def play(env: gymnasium.Env[Any, Any], act: Act, seed: int) -> tuple[float, int]:
    """Return and length of an episode."""
    obs, _ = env.reset(seed=seed)
    total, length, over = 0.0, 0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(act(obs, length))
        total, length, over = total + float(reward), length + 1, terminated or truncated
    return total, length


def score(task: SanityTask, act: Act, seeds: range | list[int]) -> float:
    env = make(task)
    return task.score(np.array([play(env, act, seed)[0] for seed in seeds]))


def legal(space: Space, obs: Any) -> Any:
    """A random action, of those that are legal."""
    masked = isinstance(obs, dict) and "action_mask" in obs
    return space.sample(obs["action_mask"]) if masked else space.sample()


# Each of them


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_an_episode_depends_on_its_seed_alone_and_keeps_to_its_spaces(task: SanityTask) -> None:
    section = env_section("sanity") | {"id": task.id}
    section.pop("_target_")
    findings = dict(check_env(EnvSpec(**section), 300))
    assert {name: str(finding) for name, finding in findings.items() if finding.level != "ok"} == {}


@pytest.mark.parametrize("id", [id for id in gymnasium.registry if id.startswith("paddock/") and "Masked" not in id])
def test_gymnasiums_checker_accepts_each_task(id: str) -> None:
    checker.check_env(gymnasium.make(id).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_a_random_policy_has_the_score_that_is_said(task: SanityTask) -> None:
    env = make(task)
    env.action_space.seed(1)
    played = [
        play(env, lambda obs, _: legal(env.action_space, obs), 1_000_000 + seed) for seed in range(RANDOM_EPISODES)
    ]
    singles = [task.score(np.array([total])) for total, _ in played]  # of which every score here is the mean
    error = np.std(singles) / np.sqrt(RANDOM_EPISODES)
    assert abs(np.mean(singles) - task.chance) <= 4 * error + 1e-9


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_what_passes_is_beyond_chance_and_beyond_who_lacks_the_faculty(task: SanityTask) -> None:
    bars = {kind: bar for kind in ("memoryless", "recurrent", "deterministic") if (bar := task.bar(kind)) is not None}
    without = (task.chance, task.blind)
    needs_memory = task.memoryless is not None and any(map(task.memoryless.passes, without))
    for kind, bar in bars.items():
        limit = kind == "deterministic" and bar.high < float("inf")  # where the best is out of reach of such policies
        assert bar.passes(task.best) is not (limit or (kind == "memoryless" and bar.high < task.best))
        if not limit and not (kind == "memoryless" and needs_memory):
            assert not bar.passes(task.chance) and not bar.passes(task.blind), kind


# One by one


def test_one_arm_of_the_bandit_pays() -> None:
    task = TASKS["bandit"]
    scores = [score(task, lambda *_, arm=arm: arm, range(500)) for arm in range(10)]
    noise = 0.5 / np.sqrt(500)
    others = task.best - 1
    assert np.allclose(scores, [others] * 6 + [task.best] + [others] * 3, atol=4 * noise)
    assert abs(task.chance - (task.best - 0.9)) < 1e-9


def seeds_of_targets(env: gymnasium.Env[Any, Any]) -> Iterator[int]:
    """A seed for each place of the target."""
    seen = set()
    for seed in range(400):
        target = tuple(np.argwhere(env.reset(seed=seed)[0] == 1)[0])
        if target not in seen:
            seen.add(target)
            yield seed


def test_squared_is_hit_by_104_of_all_its_ways_and_blindly_by_one_of_24() -> None:
    task = TASKS["squared"]
    env = make(task)
    seeds = list(seeds_of_targets(env))
    assert len(seeds) == 24
    ways = list(product(range(8), repeat=3))
    returns = np.array([[play(env, lambda _, k, way=way: way[k], seed)[0] for way in ways] for seed in seeds])  # type: ignore[misc]
    hit = returns > 2 - 1e-6
    assert hit.sum() == 104 and task.chance == hit.mean()
    assert returns.max() == pytest.approx(2.0) and hit.any(axis=1).all()
    assert hit.mean(axis=0).max() == task.blind
    # PufferLib's values: of random moves, and of those that are best without a look.
    assert returns.mean() == pytest.approx(-0.25) and returns.mean(axis=0).max() == pytest.approx(-1 / 18)


def test_one_password_of_32_pays() -> None:
    task = TASKS["password"]
    words = list(product((0, 1), repeat=5))
    scores = [score(task, lambda _, k, said=said: said[k], [0]) for said in words]  # type: ignore[misc]
    assert [said for said, paid in zip(words, scores, strict=True) if paid] == [(1, 0, 1, 1, 0)]
    assert np.mean(scores) == task.chance and max(scores) == task.best


def test_blend_pays_a_memoryless_policy_at_most_42_percent() -> None:
    task = TASKS["blend"]
    paid = {ways: score(task, lambda _, k, ways=ways: ways[k], [0]) for ways in product((0, 1), repeat=4)}  # type: ignore[misc]
    assert all(value == (ways.count(0) == 3) for ways, value in paid.items())
    assert np.mean(list(paid.values())) == task.chance and paid[0, 0, 0, 0] == paid[1, 1, 1, 1] == task.blind
    zeros = np.linspace(0, 1, 1001)
    expected = sum(value * zeros ** ways.count(0) * (1 - zeros) ** ways.count(1) for ways, value in paid.items())
    assert zeros[np.argmax(expected)] == 0.75 and np.max(expected) == pytest.approx(27 / 64)
    bar = task.memoryless
    assert bar is not None and bar.low < 27 / 64 < bar.high


def test_forget_is_certain_with_a_memory_that_is_emptied_and_not_without() -> None:
    task = TASKS["forget"]
    seen = [0]

    def recall(obs: Any, step: int) -> int:
        seen[0] = int(obs[0]) if step == 0 else seen[0]
        return seen[0]

    assert score(task, recall, range(300)) == 1.0
    # Without an end in sight all that can be known is how long ago the last signal was: k steps.
    longest, end = 20, 0.25
    lengths = np.zeros(4 * 400)
    lengths[2 : longest + 1] = end * (1 - end) ** np.arange(longest - 1)
    lengths[longest] += 1 - lengths.sum()
    env = make(task)
    counted = np.bincount([play(env, recall, seed)[1] for seed in range(4000)], minlength=longest + 1) / 4000
    assert np.abs(counted - lengths[: longest + 1]).max() < 0.03
    asked_with = lengths[1:]  # probability that the episode of the signal ends at k
    start, asked_without = lengths.copy(), np.zeros(len(lengths) - 1)
    for _ in range(200):  # and that an episode without one does, none having had one in between
        start = np.convolve(start, lengths)[: len(lengths)] / 2
        asked_without += start[1:]
    assert asked_with.sum() == pytest.approx(1) and asked_without.sum() == pytest.approx(1)
    assert np.maximum(asked_with, asked_without).sum() / 2 == pytest.approx(task.blind, abs=1e-3)


def test_staying_pays_only_with_the_value_of_the_final_observation() -> None:
    opening, stay, leave, steps, gamma = -5.0, 0.3, 2.0, 5, 0.9
    for name, ends in (("cutoff", (False, True)), ("cutoff_twin", (True, False))):
        env = make(TASKS[name])
        assert play(env, lambda _, k: int(k != 2), 0) == (2 * opening + leave, 4)
        assert play(env, lambda _, k: int(k == 2), 0) == (pytest.approx(2 * opening + steps * stay), 2 + steps)
        first, _ = env.reset(seed=0)
        seen = [first, *(env.step(1)[0] for _ in range(steps + 1))]
        assert [int(obs.argmax()) for obs in seen] == [0, 0, 1, *[2] * (steps - 1)]
        assert env.step(1)[2:4] == ends

    def reset_value(decision: float) -> float:  # of both opening steps, which look alike
        return float(np.mean([opening + gamma * decision, opening * (1 + gamma) + gamma**2 * decision]))

    cut_off = stay * (1 - gamma**steps) / (1 - gamma)
    goes_on = stay / (1 - gamma)
    assert cut_off == pytest.approx(1.22853) and cut_off < leave < goes_on
    assert reset_value(goes_on) < -4  # so that the value of the reset observation is no substitute for the final one's
    assert cut_off + gamma**steps * reset_value(goes_on) < leave
    # Where ends are bootstrapped by the observation after them, that of a reset, staying puts the loss off for longer.
    assert cut_off + gamma**steps * reset_value(leave) > leave + gamma**2 * reset_value(leave)
    assert steps * stay < leave  # so that an agent that does not discount leaves, too


def test_aim_is_a_third_at_random_and_two_thirds_in_the_middle() -> None:
    task = TASKS["aim"]
    assert score(task, lambda obs, _: obs, range(50)) == pytest.approx(1.0)
    targets = np.linspace(-3, 5, 100_001)
    means = [float((1 - (targets - constant) ** 2 / 16).mean()) for constant in (0.5, 1.0, 1.5)]
    assert max(means) == means[1] == pytest.approx(task.blind, abs=1e-4)
    env = make(task)
    env.reset(seed=0)
    for beyond in (-3.001, 5.001):
        with pytest.raises(ValueError, match="is out of bounds"):
            env.step(np.array([beyond], np.float32))


def test_delay_pays_in_its_last_step_for_the_first() -> None:
    task = TASKS["delay"]
    env = make(task)
    numbers = set()
    for seed in range(100):
        for first, then in product((0, 1), repeat=2):
            obs, _ = env.reset(seed=seed)
            number = int(obs[:8].argmax())
            numbers.add(number)
            rewards = [env.step(first if k == 0 else then)[1] for k in range(21)]
            assert rewards == [0.0] * 20 + [float(first == number % 2)]
    assert numbers == set(range(8))  # of which half are odd, for who always says the same
    assert task.chance == task.blind == 0.5


def test_discount_has_one_right_answer_at_a_discount_of_nine_tenths() -> None:
    task, gamma, delay = TASKS["discount"], 0.9, 10
    taken, waited = {}, {}
    for seed in range(20):
        first, _ = (env := make(task)).reset(seed=seed)
        kind = first[0]
        assert kind in (-1, 1) and not first[1:].any()
        taken[kind], one = play(env, lambda *_: 0, seed)
        waited[kind], many = play(env, lambda _, k: int(k == 0), seed)
        assert (one, many) == (1, delay + 1)
    assert taken == {-1: 0.85, 1: 2.5} and waited == {-1: 3, 1: 6}
    right = {kind: waited[kind] * gamma**delay > taken[kind] for kind in (-1, 1)}
    assert right == {-1: True, 1: False}
    assert task.score(np.array([waited[-1], taken[1]])) == 1
    assert task.score(np.array([taken[-1], waited[1]])) == 0
    # Values of three steps that are discounted by one too many or too few, three times on the way to the end.
    assert waited[-1] * gamma ** (delay + 3) < taken[-1] and waited[1] * gamma ** (delay - 3) > taken[1]


def test_spaces_gives_a_quarter_for_each_part_and_a_half_of_it_for_a_guess() -> None:
    task = TASKS["spaces"]

    def right(obs: Any) -> dict[str, Any]:
        bits = 0.5 if obs["inner"]["bits"].sum() >= 2 else -0.5
        signs = {name: int(obs[name].sum(dtype=np.float64) > 0) for name in ("image", "numbers")}
        return {**signs, "choice": obs["choice"], "bits": np.array([bits], np.float32)}

    def wrong(obs: Any) -> dict[str, Any]:
        answer = right(obs)
        return {
            "image": 1 - answer["image"],
            "numbers": 1 - answer["numbers"],
            "choice": -1 - answer["choice"],
            "bits": -answer["bits"],
        }

    assert score(task, lambda obs, _: right(obs), range(300)) == task.best
    for part, constant in {"image": 1, "numbers": 0, "choice": -1, "bits": np.ones(1, np.float32)}.items():
        others: Act = lambda obs, _, part=part: right(obs) | {part: wrong(obs)[part]}  # type: ignore[misc]  # noqa: E731
        assert score(task, others, range(50)) == pytest.approx(0.75)
        guess: Act = lambda obs, _, part=part, constant=constant: right(obs) | {part: constant}  # type: ignore[misc]  # noqa: E731
        error = 0.125 / np.sqrt(2000)
        assert abs(score(task, guess, range(2000)) - task.blind) <= 4 * error


def test_masked_allows_two_choices_of_which_the_cue_tells_one() -> None:
    task = TASKS["masked"]
    env = make(task)
    others = set()
    for seed in range(500):
        obs, _ = env.reset(seed=seed)
        allowed = np.flatnonzero(obs["action_mask"])
        right = 33 if obs["cue"][0] == 0 else 66
        assert len(allowed) == 2 and right in allowed
        others.add(int(allowed[allowed != right][0]))
        assert env.step(np.int64(right))[1] == 1
        assert env.step(np.int64(allowed[allowed != right][0]))[1] == 0
        with pytest.raises(ValueError, match=r"is not legal; allowed: \["):
            env.step(np.int64(next(k for k in range(100) if k not in allowed)))
    assert len(others) > 90
