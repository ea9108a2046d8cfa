"""Sequences of turns of several agents: those of a list of each seat's turns, with the memory that it had there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learned import weights
from test_agent_transitions import GAMMA, config, part_of, play  # type: ignore[import-not-found]  # pytest adds this folder
from transitions import SETTINGS, assert_same

from paddock.algos.learning.offpolicy.exploration import EpsilonGreedy
from paddock.algos.learning.offpolicy.learners.learner import prepare_rows
from paddock.algos.learning.replay.batch import SequenceBatch
from paddock.algos.learning.replay.sequences import Sequences
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.collector import JointCollector as Collector
from paddock.algos.multiagent.replay.agent_replay import AgentReplay, AgentStreams
from paddock.algos.networks.actor_critic import ActorCritic
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.heads import make_head
from paddock.algos.networks.inputs import spaces_of

OF = Sequences(period=3, burn_in=2, length=6, state_width=2)
WORLDS = ["agents:Mortals", "agents:Turns", "toy_worlds:Bidding", "toy_worlds:Skirmish"]


def remembered(rollout: Rollout) -> Rollout:
    """Return a rollout with a memory of its own in every step and row."""
    T, N = rollout.reward.shape
    return replace(rollout, memory=np.arange(T * N * 2, dtype=np.float32).reshape(T, N, 2))


def make(
    rollout: Rollout, folder: Path, n_step: int, of: Sequences = OF, capacity: int = 10_000, **more: Any
) -> AgentReplay:
    obs, action = (np.dtype((one.dtype, one.shape[2:])) for one in (rollout.obs, rollout.action))
    kinds: dict[str, Any] = {"obs": obs, "action": action, "num_envs": rollout.reward.shape[1], "n_step": n_step}
    streams = AgentStreams(folder=folder, capacity=capacity, gamma=GAMMA, sequences=of, **kinds)
    return AgentReplay(streams, seed=1, **more)


def turns_of_seats(rollout: Rollout) -> list[list[dict[str, Any]]]:
    """The turns of each seat that came to their end, through all its lives, one step after another."""
    assert rollout.acts is not None and rollout.memory is not None
    finals = {tuple(at): obs for at, obs in zip(rollout.final_at.tolist(), rollout.final_obs, strict=True)}
    T, N = rollout.reward.shape
    seats: list[list[dict[str, Any]]] = []
    for n in range(N):
        seats.append([])
        turn: dict[str, Any] | None = None
        for t in range(T):
            if rollout.acts[t, n]:
                seen = {"obs": rollout.obs[t, n], "action": rollout.action[t, n], "memory": rollout.memory[t, n]}
                turn = {**seen, "reward": np.float32(0), "begin": t}
            if turn is None:
                continue
            turn["reward"] += rollout.reward[t, n]
            over = "terminated" if rollout.terminated[t, n] else "truncated" if rollout.truncated[t, n] else ""
            if over or rollout.acts[t + 1, n]:
                following = rollout.obs[t + 1, n] if t + 1 < T else rollout.last_obs[n]
                seats[-1].append({**turn, "end": over, "at": t, "next": finals.get((t, n), following)})
                turn = None
    return seats


def whole_sequences(seats: list[list[dict[str, Any]]], span: int, of: Sequences = OF) -> list[list[dict[str, Any]]]:
    """Those of a grid of each seat's turns, in the order in which their last turns ended."""
    found = [
        (turns[first + span - 1]["at"], n, turns[first : first + span])
        for n, turns in enumerate(seats)
        for first in range(0, len(turns) - span + 1, of.period)
    ]
    return [turns for _, _, turns in sorted(found, key=lambda one: one[:2])]


def check(batch: SequenceBatch, expected: list[list[dict[str, Any]]], n_step: int, of: Sequences = OF) -> None:
    finals = {tuple(at): obs for at, obs in zip(batch.final_at.tolist(), batch.final_obs, strict=True)}
    for b, id in enumerate(batch.ids[0].tolist()):
        turns = expected[id]
        assert len(batch.obs) == len(turns) + 1
        assert all(np.array_equal(batch.obs[k, b], turn["obs"]) for k, turn in enumerate(turns))
        assert turns[-1]["end"] or np.array_equal(batch.obs[-1, b], turns[-1]["next"])
        assert batch.start[1:, b].tolist() == [bool(turn["end"]) for turn in turns] and not batch.start[0, b]
        assert np.array_equal(batch.state[b], turns[0]["memory"][: of.state_width])
        for t in range(of.length):
            learned, total = turns[of.burn_in + t :][:n_step], np.float32(0)
            for m, turn in enumerate(learned):
                total += np.float32(GAMMA**m) * turn["reward"]
                if turn["end"]:
                    break
            rest = 0 if turn["end"] == "terminated" else np.float32(GAMMA ** (m + 1))
            assert np.array_equal(batch.action[t, b], learned[0]["action"])
            assert (batch.reward[t, b], batch.discount[t, b], batch.last[t, b]) == (total, rest, t + m)
            if turn["end"] == "truncated":
                assert np.array_equal(finals[t + m, b], turn["next"])


@pytest.mark.parametrize("id", WORLDS)
@pytest.mark.parametrize("n_step", [1, 3])
def test_every_sequence_is_that_of_a_list_of_its_seats_turns(id: str, n_step: int, tmp_path: Path) -> None:
    rollout = remembered(play(config(id, 90, worlds=3), 1)[0])
    replay = make(rollout, tmp_path, n_step)
    replay.append(rollout)
    expected = whole_sequences(turns_of_seats(rollout), OF.span(n_step))
    assert replay.steps == replay.count == len(expected) > 15
    batch = replay.sample(0, 1, 2000)
    assert set(batch.ids[0].tolist()) == set(range(len(expected)))
    check(batch, expected, n_step)
    assert np.isfinite(batch.obs.astype(float)).all() if batch.obs.dtype.kind == "f" else True


@pytest.mark.parametrize("id", ["agents:Mortals", "toy_worlds:Skirmish"])
def test_where_rollouts_are_cut_and_states_are_kept_changes_no_sequence(id: str, tmp_path: Path) -> None:
    whole = remembered(play(config(id, 60, worlds=3), 1)[0])
    expected = make(whole, tmp_path / "whole", 2, priorities=SETTINGS)
    expected.append(whole)
    killed = make(whole, tmp_path / "cut", 2, priorities=SETTINGS)
    for start, stop in ((0, 1), (1, 7), (7, 30), (30, 60)):
        part = part_of(whole, start, stop)
        killed.append(replace(part, memory=whole.memory[start:stop]))  # type: ignore[index]
        state = killed.state_dict()
        killed.append(replace(part_of(whole, 0, 20), memory=whole.memory[:20]))  # type: ignore[index]
        killed = make(whole, tmp_path / "cut", 2, priorities=SETTINGS)
        killed.load_state_dict(state)
    assert killed.steps == expected.steps > 20
    for update in range(5):
        assert_same(killed.sample(update, 1, 16), expected.sample(update, 1, 16))
    ours, theirs = killed.state_dict(), expected.state_dict()
    assert all(np.array_equal(ours[name]["sums"], theirs[name]["sums"]) for name in ("rows", "finals"))
    assert all(np.array_equal(ours["open"][name], theirs["open"][name]) for name in theirs["open"])


def test_a_replay_keeps_the_newest_sequences_and_what_they_led_to(tmp_path: Path) -> None:
    rollouts = [remembered(rollout) for rollout in play(config("agents:Mortals", 12, worlds=6), 60)]
    replay = make(rollouts[0], tmp_path, 1, capacity=900)
    joined = joined_rollout(rollouts)
    expected = whole_sequences(turns_of_seats(joined), OF.span(1))
    for k, rollout in enumerate(rollouts):
        replay.append(rollout)
        if k > 20:
            check(replay.sample(k, 1, 8), expected, 1)
    assert replay.steps > 900 and replay.count == replay.size == 300
    state = replay.state_dict()
    assert state["finals"]["begin"] > 0 and state["rows"]["begin"] > 0
    assert sorted(state["attachments"]) == sorted(
        path.name for path in tmp_path.iterdir() if path.name in state["attachments"]
    )


def joined_rollout(rollouts: list[Rollout]) -> Rollout:
    """Return one rollout of several, each of which goes on where the last one ended."""
    T = len(rollouts[0].reward)
    names = ("obs", "action", "reward", "terminated", "truncated", "final_obs", "memory")
    at = np.concatenate([rollout.final_at + np.array([k * T, 0]) for k, rollout in enumerate(rollouts)])
    acts = [rollout.acts[:-1] for rollout in rollouts if rollout.acts is not None]
    last = rollouts[-1]
    assert last.acts is not None
    values: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in rollouts]) for name in names}
    return replace(last, **values, final_at=at, acts=np.concatenate([*acts, last.acts[-1:]]))


@pytest.mark.parametrize("id", ["agents:Mortals", "agents:Turns"])
def test_memory_in_every_step_is_that_of_the_seats_own_turns_alone(id: str) -> None:
    """It is empty where a life begins; who waits, and what happens meanwhile, changes nothing."""
    of = config(id, 12, worlds=2)
    observations, actions = spaces_of(of.env)
    sizes: dict[str, Any] = {"hidden_sizes": (6,), "activation": "tanh", "shared": True, "initial_log_std": 0.0}
    architecture = Architecture.for_spaces(observations, make_head(actions), encoder="auto", lstm=True, **sizes)
    of = replace(of, architecture=architecture, exploration=(EpsilonGreedy(0, 1.0, 1.0, 0, ladder=0),))
    collector, point = Collector(of), ResumePoint.first(2, of.policy_group)
    rollouts = []
    for k in range(4):
        (rollout,), point = collector.collect([replace(weights(of), version=k)], point, k)
        rollouts.append(rollout)
    collector.close()
    network, begun = ActorCritic(architecture, seed=0), 0
    for turns in turns_of_seats(joined_rollout(rollouts)):
        state, born = torch.zeros(1, architecture.state_width), True
        for turn in turns:
            assert not born or not turn["memory"].any()
            state = torch.zeros_like(state) if born else state
            np.testing.assert_allclose(turn["memory"], state[0], rtol=1e-4, atol=1e-5)
            seen = torch.from_numpy(prepare_rows(architecture, turn["obs"][None]))
            with torch.no_grad():
                state = network.step(seen, state)[2]
            assert state.abs().max() > 1e-3
            begun += born
            born = bool(turn["end"])
    assert begun > 12
