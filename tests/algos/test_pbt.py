"""Population based training: its rules worked by hand, and the laws that every algorithm keeps."""

import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import Command, assert_same_run, call_main, deterministic, last_of_each, refuse_write, rows
from learned import algorithm

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.common.recipe import AlgorithmRecipe
from paddock.algos.evolution.hyperparameters import ChoiceDimension, RangeDimension
from paddock.algos.evolution.pbt_tasks import LOST, play_round
from paddock.algos.networks.inputs import spaces_of
from paddock.algos.pbt import PBT, MembersLost, rank
from paddock.algos.pool.protocol import Done, WorkerLost
from paddock.algos.pool.serial import SerialPool
from paddock.envs.errors import DISK_FULL, ConfigError
from paddock.evaluation.fresh_episodes import evaluate
from paddock.runs.checkpoint import Checkpoints, read_attachments
from paddock.runs.results import read_events

ROUNDS = 4
TINY = [
    "algo=pbt",
    "env=cartpole",
    "vec.num_envs=2",
    "algo.members=4",
    "algo.interval=2",
    "algo.quantile=0.5",
    "algo.eval_episodes=3",
    "+algo.explore.epochs={low: 1, high: 6, log: true}",
    "+algo.explore.gamma={choices: [0.9, 0.95, 0.99]}",
    "algo.explore.learning_rate.high=0.1",
    "algo.member.num_steps=16",
    "algo.member.minibatch_size=16",
    "algo.member.hidden_sizes=[8]",
    "algo.member.normalize_rewards=true",
    "checkpoint.every_s=0",
]
A2C = [word for word in TINY if "epochs" not in word and "minibatch" not in word and "normalize" not in word]
ONE = ["algo=pbt", "algo.members=2", "vec.num_envs=2", "algo.interval=1", "algo.eval_episodes=2"]
DQN = [  # whose replay fills a file in three rounds, and keeps less than two
    *ONE,
    "algo@algo.member=dqn",
    "~algo.explore.entropy_coef",
    "+algo.explore.gamma={choices: [0.9, 0.95, 0.99]}",
    "algo.members=3",
    "algo.quantile=0.34",
    "vec.num_envs=4",
    "algo.member.num_steps=25",
    "algo.member.log_every_steps=100",
    "algo.member.buffer_size=300",
    "algo.member.learning_starts=50",
    "algo.member.batch_size=8",
    "algo.member.updates_per_step=0.1",
    "algo.member.n_step=2",
    "algo.member.hidden_sizes=[8]",
    "checkpoint.every_s=0",
]
POLICIES = ["env=relay", "vec=serial", "algo.member.policies={one: [runner_0, runner_2], other: runner_1}"]
SEATS = [*ONE, "env=tictactoe", "vec=serial", "algo.member.agent_id_feature=true", "algo.member.num_steps=8"]
SEATS += ["algo.member.minibatch_size=16"]
APART = [*TINY, "env=roles", "vec=serial", "algo.member.policies={one: player_0, two: player_1}"]
ES = [*ONE, "algo@algo.member=es", "~algo.explore.entropy_coef", "algo.member.population=4"]


def generator(index: int = 0) -> np.random.Generator:
    return keyed_generator(0, Stream.MEMBER, 0, index)


def advance(algo: Any, rounds: int) -> tuple[list[dict[str, float]], list[Any]]:
    """The rows of some rounds, and the events that led to them."""
    plan, metrics, events = algo.plan(), [], []
    for _ in range(rounds):
        row = next(plan)
        metrics.append(deterministic(row))
        events += algo.drain_events()
    plan.close()
    return metrics, events


def scored(algo: Any, *scores: float) -> list[Any]:
    """Give the members scores, and states that tell them apart; returns them."""
    for k, score in enumerate(scores):
        member = algo.population[k]
        learner = {**member.state["learner"], "parameters": member.state["learner"]["parameters"] + np.float32(k)}
        algo.population[k] = replace(member, score=score, state={**member.state, "learner": learner})
    return list(algo.population)


# The rules


def test_of_equal_members_the_first_is_better() -> None:
    assert rank([3.0, 9.0, LOST, 3.0, 9.0]) == [1, 4, 0, 3, 2]


def test_the_worst_copy_the_best_and_keep_their_own_episodes() -> None:
    algo = algorithm(*TINY, "algo.members=6", "algo.quantile=0.4")  # 2.4 of 6: two
    before = scored(algo, 10.0, 60.0, 20.0, 50.0, 40.0, 30.0)
    assert algo._exploit([member.score for member in before]) == 2
    events = {event["member"]: event for event in algo.drain_events()}
    assert set(events) == {0, 2} and {event["source"] for event in events.values()} <= {1, 3}
    for number, member in enumerate(algo.population):
        if number not in events:
            assert member is before[number]
            continue
        source = before[events[number]["source"]]
        np.testing.assert_equal(member.state["learner"], source.state["learner"])
        assert member.score == source.score and member.seed == before[number].seed
        assert member.state["actors"]["start"] is before[number].state["actors"]["start"]
        assert member.state["normalization"]["running"] is before[number].state["normalization"]["running"]
        assert member.state["normalization"]["returned"] is source.state["normalization"]["returned"]
        assert member.settings == events[number]["hyperparameters"] != source.settings
        assert events[number]["before"] == before[number].settings


def test_ranks_of_scores_alone_decide_who_takes_over_from_whom() -> None:
    taken = []
    for scores in ([10.0, 60, 20, 50, 40, 30], [-9.0, 1e9, -8, 3, 2, 1], [0.1, 0.6, 0.2, 0.5, 0.4, 0.3]):
        algo = algorithm(*TINY, "algo.members=6", "algo.quantile=0.4")
        scored(algo, *scores)
        assert algo._exploit(scores) == 2
        taken.append([(event["member"], event["source"]) for event in algo.drain_events()])
    assert taken[0] == taken[1] == taken[2]
    assert {member for member, _ in taken[0]} == {0, 2} and {source for _, source in taken[0]} <= {1, 3}


@pytest.mark.parametrize(("words", "scores"), [([], [7.0] * 4), (["algo.quantile=0"], [1.0, 2.0, 3.0, 4.0])])
def test_nobody_takes_over_from_an_equal_or_where_none_shall(words: list[str], scores: list[float]) -> None:
    algo = algorithm(*TINY, *words)
    before = scored(algo, *scores)
    assert algo._exploit(scores) == 0
    assert all(member is other for member, other in zip(algo.population, before, strict=True))


def test_a_perturbation_is_one_of_the_factors_and_ends_at_the_bounds() -> None:
    wide, narrow = RangeDimension(0.0, 100.0, log=False, whole=False), RangeDimension(0.9, 1.1, log=False, whole=False)
    assert {wide.perturb(1.0, (0.8, 1.25), generator(k)) for k in range(20)} == {0.8, 1.25}
    assert {narrow.perturb(1.0, (0.8, 1.25), generator(k)) for k in range(20)} == {0.9, 1.1}


def test_a_whole_number_moves_by_one_at_least() -> None:
    epochs = RangeDimension(1, 20, log=True, whole=True)
    assert {epochs.perturb(2, (0.8, 1.25), generator(k)) for k in range(20)} == {1, 3}  # 1.6 and 2.5 round to 2
    assert {epochs.perturb(10, (0.8, 1.25), generator(k)) for k in range(20)} == {8, 12}
    assert {epochs.perturb(1, (0.8, 1.25), generator(k)) for k in range(20)} == {1, 2}
    assert {epochs.perturb(2, (0.8, 1.0, 1.25), generator(k)) for k in range(20)} == {1, 2, 3}


def test_a_choice_moves_to_a_neighbour() -> None:
    choices = ChoiceDimension((0.9, 0.99, 0.999))
    assert {choices.perturb(0.99, (0.8, 1.25), generator(k)) for k in range(20)} == {0.9, 0.999}
    assert {choices.perturb(0.9, (0.8, 1.25), generator(k)) for k in range(20)} == {0.99}


def test_draws_fill_their_range() -> None:
    decades = [RangeDimension(1e-5, 1e-1, log=True, whole=False).sample(generator(k)) for k in range(400)]
    assert min(decades) >= 1e-5 and max(decades) <= 1e-1
    assert 150 < sum(value < 1e-3 for value in decades) < 250  # half of the decades
    even = [RangeDimension(0.0, 4.0, log=False, whole=False).sample(generator(k)) for k in range(400)]
    assert min(even) >= 0 and max(even) <= 4 and 150 < sum(value < 2 for value in even) < 250
    assert {RangeDimension(1, 4, log=False, whole=True).sample(generator(k)) for k in range(100)} == {1, 2, 3, 4}
    assert {ChoiceDimension((1, 5)).sample(generator(k)) for k in range(50)} == {1, 5}


def test_what_is_resampled_has_nothing_to_do_with_the_source() -> None:
    settings = {"learning_rate": 1e-3, "entropy_coef": 1e-2, "epochs": 4, "gamma": 0.95}
    always, never = algorithm(*TINY, "algo.resample=1"), algorithm(*TINY, "algo.resample=0")
    drawn = [always._perturb(settings, generator(k))["learning_rate"] for k in range(50)]
    moved = [never._perturb(settings, generator(k))["learning_rate"] for k in range(50)]
    assert len(set(drawn)) == 50 and 1e-5 <= min(drawn) < 1e-4 and 1e-2 < max(drawn) <= 0.1
    assert set(moved) == {0.8e-3, 1.25e-3}


# The laws


@pytest.fixture(scope="module")
def expected() -> tuple[list[dict[str, float]], list[Any], Any]:
    algo = algorithm(*TINY)
    return *advance(algo, ROUNDS), algo.state_dict()


def test_the_rows_and_events_tell_the_whole_schedule(expected: tuple[list[dict[str, float]], list[Any], Any]) -> None:
    metrics, events, state = expected
    births = [event for event in events if event["event"] == "birth"]
    settings = {event["member"]: event["hyperparameters"] for event in births}
    assert sorted(settings) == [0, 1, 2, 3] and len({event["seed"] for event in births}) == 4
    assert any(event["event"] == "exploit" for event in events)
    for row in metrics:
        assert row["step"] == row["iteration"] * 4 * 2 * 16 * 2  # members, iterations, T, N
        told = {name: row[f"pbt/{name}"] for name in ("learning_rate", "entropy_coef", "epochs", "gamma")}
        assert told == settings[int(row["pbt/leader"])]
        assert row["pbt/worst"] <= row["pbt/median"] <= row["pbt/best"] == row["eval/return_mean"]
        exploits = [e for e in events if e["event"] == "exploit" and e["iteration"] == row["iteration"]]
        assert len(exploits) == row["pbt/exploited"]
        for event in exploits:
            assert event["source_score"] > event["score"] and event["before"] == settings[event["member"]]
        settings |= {event["member"]: event["hyperparameters"] for event in exploits}
    assert {number: member["settings"] for number, member in enumerate(state["members"].values())} == settings
    assert metrics[-1]["eval/return_best"] == max(row["eval/return_mean"] for row in metrics) == state["best"]["score"]


class Shuffled(SerialPool):
    """Gives the ends of tasks in random order, as workers do."""

    def imap_unordered(self, fn: Callable[[Any], Any], tasks: Any, **settings: Any) -> Iterator[Done]:
        numbered = list(enumerate(tasks))
        random.shuffle(numbered)
        for index, task in numbered:
            (done,) = super().imap_unordered(fn, [task])
            yield replace(done, index=index)


def test_the_order_of_tasks_changes_nothing(expected: tuple[list[dict[str, float]], list[Any], Any]) -> None:
    algo = algorithm(*TINY, pool=Shuffled())
    assert advance(algo, ROUNDS) == expected[:2]
    np.testing.assert_equal(algo.state_dict(), expected[2])


@pytest.mark.parametrize("at", [1, ROUNDS - 1])
def test_interrupted_after_any_round_it_goes_on_the_same(
    at: int, expected: tuple[list[dict[str, float]], list[Any], Any]
) -> None:
    first, second = algorithm(*TINY), algorithm(*TINY)
    begun = advance(first, at)
    second.load_state_dict(first.state_dict())
    rest = advance(second, ROUNDS - at)
    assert (begun[0] + rest[0], begun[1] + rest[1]) == expected[:2]
    np.testing.assert_equal(second.state_dict(), expected[2])


@pytest.mark.parametrize("words", [TINY, [*A2C, "algo@algo.member=a2c"]])
def test_a_member_that_takes_over_nothing_learns_as_it_would_alone(words: list[str]) -> None:
    population = algorithm(*words, "algo.quantile=0")
    member = population.population[1]
    alone = population.rounds.make(member.settings, member.seed)
    advance(population, 3)
    plan = alone.plan()
    for _ in range(3 * population.interval):
        next(plan)
    np.testing.assert_equal(population.population[1].state, alone.state_dict())
    plan.close()


@pytest.mark.parametrize(
    "words",
    [
        [*A2C, "algo@algo.member=a2c"],
        [*ES, "~algo.explore.learning_rate", "+algo.explore.observation_clip={low: 4, high: 6, log: false}"],
        SEATS,
        APART,
    ],
)
def test_members_may_learn_by_any_algorithm(words: list[str]) -> None:
    metrics, _ = advance(algorithm(*words), 2)
    assert np.isfinite(metrics[-1]["eval/return_mean"])


def test_settings_of_a_strategy_are_explored_and_used() -> None:
    word = "+algo.explore.strategy.learning_rate={low: 0.01, high: 0.3, log: true}"
    algo = algorithm(*ES, "~algo.explore.learning_rate", word, "algo.members=2", "algo.quantile=0.5")
    for _ in range(2):
        rates = [member.settings["strategy.learning_rate"] for member in algo.population]
        assert len(set(rates)) == 2 and all(0.01 <= rate <= 0.3 for rate in rates)
        row = advance(algo, 1)[0][0]
        assert row["pbt/strategy.learning_rate"] == rates[algo.leader]
        for member, rate in zip(algo.population, rates, strict=True):
            played = play_round(algo.rounds, (replace(member, settings={"strategy.learning_rate": rate}), 1))
            assert played.metrics["es/learning_rate"] == rate


def test_its_environment_is_what_its_members_see() -> None:
    algo = algorithm(*SEATS)
    member = algo.rounds.make({}, 0)
    assert spaces_of(algo.env) == spaces_of(member.env) != spaces_of(replace(member.env, agent_id_feature=False))


def test_the_policies_are_those_of_the_leader_and_of_the_best_ever() -> None:
    algo = algorithm(*TINY)
    with pytest.raises(ConfigError, match="which=best is unknown before the first round; use which=last"):
        algo.policy("best")
    advance(algo, 3)
    last, best = algo.policy("last").parameters, algo.policy("best").parameters
    np.testing.assert_array_equal(last, algo.population[algo.leader].state["learner"]["parameters"])
    np.testing.assert_array_equal(best, algo.best.state["learner"]["parameters"])


# Losses


class Losing(SerialPool):
    """Loses the tasks of these members."""

    def __init__(self, *members: int) -> None:
        self._members = members

    def imap_unordered(self, fn: Callable[[Any], Any], tasks: Any, **settings: Any) -> Iterator[Done]:
        for done in super().imap_unordered(fn, tasks):
            yield Done(done.index, error=WorkerLost("its worker died")) if done.index in self._members else done


def test_a_lost_member_keeps_what_it_has_learned_and_is_counted() -> None:
    algo = algorithm(*TINY, "algo.quantile=0", pool=Losing(2))
    before = algo.population[2]
    metrics, events = advance(algo, 2)
    assert algo.population[2] == before and algo.population[2].state is before.state
    assert [row["pbt/lost"] for row in metrics] == [1, 1] and metrics[1]["step"] == 2 * 3 * 2 * 16 * 2
    lost = [event for event in events if event["event"] == "lost"]
    assert [(event["iteration"], event["member"]) for event in lost] == [(1, 2), (2, 2)]
    assert lost[0]["reason"] == "WorkerLost: its worker died"


def test_a_member_that_was_lost_takes_over_from_another() -> None:
    algo = algorithm(*TINY, pool=Losing(2))
    _, events = advance(algo, 1)
    assert 2 in [event["member"] for event in events if event["event"] == "exploit"]
    assert algo.population[2].score > LOST


def test_a_lost_member_leads_nobody_by_the_score_of_another() -> None:
    algo = algorithm(*TINY)
    _, events = advance(algo, 1)
    member, source = next((e["member"], e["source"]) for e in events if e["event"] == "exploit")
    assert algo.population[member].score == algo.population[source].score > LOST
    for lost in (member, source):
        algo.pool = Losing(lost)
        _, events = advance(algo, 1)
        taken = [event for event in events if event["event"] == "exploit"]
        assert lost in [event["member"] for event in taken] and lost not in [event["source"] for event in taken]
        assert algo.leader != lost


def test_without_any_member_left_the_run_ends() -> None:
    with pytest.raises(MembersLost, match="all members were lost; first error: WorkerLost: its worker died"):
        advance(algorithm(*TINY, pool=Losing(0, 1, 2, 3)), 1)


# Bad input


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("algo.members=1", "algo.members=1 must be at least 2"),
        ("algo.quantile=0.6", r"algo.quantile=0.6 must be in \[0, 0.5\]"),
        ("algo.factors=[1.25]", r"algo.factors=\[1.25\] must be positive, some below and some above 1"),
        ("+algo.explore.clip_cof={choices: [1, 2]}", "algo.explore: clip_cof is not .* mean 'clip_coef'"),
        (
            "+algo.explore.num_steps={low: 1, high: 9, log: true}",
            "algo.explore: num_steps is not .* allowed: epochs, .*, clip_coef",
        ),
        (
            "+algo.explore.clip_coef={low: 2, high: 1, log: true}",
            "algo.explore: clip_coef.low=2.0 must be below clip_coef.high=1.0",
        ),
        (
            "+algo.explore.clip_coef={choices: [0.1]}",
            r"algo.explore: clip_coef.choices=\[0.1\] must list at least two",
        ),
        (
            "+algo.member.learning_rat=1",
            "algo.member.learning_rat is not a key of algo.member; did you mean 'learning_",
        ),
        ("env=terrains", "env: Obstacles is a family of environments"),
    ],
)
def test_what_cannot_be_explored_is_refused(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}") as refused:
        algorithm("algo=pbt", "algo.members=2", word)
    assert "\n" not in str(refused.value)


class Growing:
    """A member whose state is as wide as a setting says."""

    def __init__(self, width: float) -> None:
        self.width = width

    def state_dict(self) -> dict[str, Any]:
        return {"deep": {"array": np.zeros(int(self.width))}}


def test_what_changes_the_shape_of_a_state_is_refused() -> None:
    settings: dict[str, Any] = {"members": 2, "interval": 1, "quantile": 0.5, "factors": (0.8, 1.25), "resample": 0.0}
    parts = {name: getattr(algorithm(*ONE), name) for name in ("env", "vec", "pool", "seed", "folder")}
    explore = {"width": {"low": 1.0, "high": 2.0, "log": False}}
    with pytest.raises(ConfigError, match=r"explore: width=2.0 changes the shapes .*: algo.member.width="):
        PBT(
            **parts,
            **settings,
            member=AlgorithmRecipe(Growing, {"width": 1.0}, frozenset()),
            explore=explore,
            eval_episodes=1,
            eval_max_steps=9,
        )


# Members that keep files


def test_of_several_policies_each_stays_in_its_members_episodes() -> None:
    algo = algorithm(*APART[:-1], "algo.member.policies={running: player_0, two: player_1}")
    advance(algo, 1)
    scores = 10.0, 60.0, 20.0, 30.0
    algo.population = [replace(member, score=score) for member, score in zip(algo.population, scores, strict=True)]
    before = list(algo.population)
    algo._exploit(list(scores))
    event = algo.drain_events()[-1]
    taken, own, source = algo.population[event["member"]], before[event["member"]], before[event["source"]]
    assert taken.state["actors"]["start"] is own.state["actors"]["start"]
    for name in ("running", "two"):
        found, mine, theirs = (member.state["normalization"][name] for member in (taken, own, source))
        assert found["running"] is mine["running"] and found["open"] is mine["open"]
        assert found["returned"] is theirs["returned"]
    np.testing.assert_equal(taken.state["learner"], source.state["learner"])


def test_members_share_a_replay_by_hard_links_until_they_play_on(tmp_path: Path) -> None:
    algo = algorithm(*DQN, folder=tmp_path)
    advance(algo, 4)
    before = scored(algo, 10.0, 60.0, 20.0)
    assert algo._exploit([member.score for member in before]) == 1
    taken, source = algo.population[0], before[1]
    assert taken.files == "member-0-from-5" != before[0].files
    names = taken.state["replay"]["attachments"]
    assert names == source.state["replay"]["attachments"] and len(names) == 3  # two of rows, and one of what was cut
    for name in names:
        ours, theirs = tmp_path / taken.files / name, tmp_path / source.files / name
        assert ours.stat().st_ino == theirs.stat().st_ino
    kept = {name: (tmp_path / source.files / name).read_bytes() for name in names}
    own = {file: file.read_bytes() for file in (tmp_path / before[0].files).iterdir()}
    settled = source.state["replay"]["rows"]["settled"]
    assert np.ascontiguousarray(taken.state["replay"]["newest"]).view(np.int64)[:, 2].tolist() == [0] * 4  # all go on
    first = play_round(algo.rounds, (taken, 5))
    for name in names:  # not a byte of the source's has changed, nor of those that older checkpoints name
        assert (tmp_path / source.files / name).read_bytes() == kept[name]
    assert own == {file: file.read_bytes() for file in own}
    rows = np.load(tmp_path / first.files / names[0 if settled < 256 else 1])
    ends = rows["end"][settled % 256 : settled % 256 + 4]
    assert (ends > 0).all()  # its episodes were cut there, and the member's own began
    assert first.state["actors"]["start"]["episode"].min() > 0
    play_round(algo.rounds, (source, 5))
    again = play_round(algo.rounds, (taken, 5))
    np.testing.assert_equal(again.state, first.state)


def test_a_late_copy_of_a_round_changes_nothing(tmp_path: Path) -> None:
    # As of a worker that was silent, or whose driver was killed, and that plays on.
    algo = algorithm(*DQN, folder=tmp_path)
    advance(algo, 1)
    begun = algo.population[0]

    def play(member: Any, number: int) -> Any:
        result = play_round(algo.rounds, (member, number))
        return replace(member, state=result.state, files=result.files)

    after = play(play(begun, 1), 2)
    late = play(begun, 1)
    assert len({begun.files, after.files, late.files}) == 3
    np.testing.assert_equal(play(after, 3).state, play(play(late, 2), 3).state)


def test_what_all_updates_are_counted_by_is_not_explored() -> None:
    with pytest.raises(ConfigError, match="explore: updates_per_step is not a number that may change during"):
        algorithm(*DQN, "+algo.explore.updates_per_step={choices: [0.1, 0.2]}")


@pytest.mark.parametrize(("more", "least"), [([], 5), (POLICIES, 4)], ids=["one policy", "several"])
def test_members_with_files_resume_to_the_same_bits(more: list[str], least: int, tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    words = [*last_of_each([*DQN, *more]), "checkpoint.keep=2"]
    assert call_main(*words, "compute=serial", "budget.iterations=7", f"run.dir={whole}") == 0
    for last in (3, 5):
        assert call_main(*words, "compute=serial", f"budget.iterations={last}", f"run.dir={run}") == 0
        newest, _ = Checkpoints(run / "checkpoints", 2).paths()
        newest.unlink()  # as if it had been killed before: files are ahead of the checkpoint
    assert call_main(*words, "compute=local", "compute.workers=2", "budget.iterations=7", f"run.dir={run}") == 0
    assert_same_run(run, whole)
    exploits = [event for event in read_events(run) if event["event"] == "exploit"]
    assert len(exploits) >= least
    for folder in (run, whole):  # no file is kept that no checkpoint names, and no folder without a file
        named = {name for path in Checkpoints(folder / "checkpoints", 2).paths() for name in read_attachments(path)}
        there = [path for path in (folder / "replay").rglob("*") if path.is_file()]
        assert {path.relative_to(folder / "replay").as_posix() for path in there} == named
        assert {path.name for path in (folder / "replay").iterdir()} == {name.split("/")[0] for name in named}
    shutil.rmtree(run / "replay")
    for which in ("last", "best"):
        assert len(evaluate(run, episodes=2, which=which).returns) == 2


def test_a_full_disk_ends_the_run_and_costs_no_member_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    words = [*DQN, "compute=serial", "budget.iterations=3"]
    assert call_main(*words, f"run.dir={whole}") == 0
    capfd.readouterr()
    refuse_write(monkeypatch, 14)
    assert call_main(*words, f"run.dir={run}") == DISK_FULL
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and "cannot be written (No space left on device); free disk space" in err
    assert 0 < len(rows(run)) < 3
    assert call_main(*words, f"run.dir={run}") == 0
    assert_same_run(run, whole)


def test_a_disk_too_small_for_all_replays_is_refused_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=8_000_000))
    run = tmp_path / "run"
    words = [*DQN, "compute=serial", "budget.iterations=1", f"run.dir={run}"]
    assert call_main(*words, "algo.member.buffer_size=100000") == 2  # 3.2 MB each
    (line,) = capfd.readouterr().err.splitlines()
    assert "for each of 3 members" in line and not run.exists()
    fits = re.search(r"use at most (\d+), or", line)
    assert fits is not None and 60_000 < int(fits[1]) < 83_333  # 8 MB by 3 and by 32 bytes, less a file each
    assert call_main(*words, f"algo.member.buffer_size={fits[1]}", "dry_run=true") == 0
    assert "replay each" in capfd.readouterr().out


# Whole runs


def test_killed_and_resumed_elsewhere_it_is_the_same_run(tmp_path: Path, start: Callable[..., Command]) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    words = [*TINY, "budget.iterations=5"]
    assert call_main(*words, "compute=serial", f"run.dir={undisturbed}") == 0
    begun = start(*words, "compute=local", "compute.workers=2", f"run.dir={run}")
    begun.wait_for(run, random.randint(1, 4), timeout_s=200)
    begun.kill()
    assert call_main(*words, "compute=serial", f"run.dir={run}") == 0
    assert_same_run(run, undisturbed)
    for which in ("last", "best"):
        assert evaluate(run, episodes=2, which=which).returns.tolist() == (
            evaluate(undisturbed, episodes=2, which=which).returns.tolist()
        )
