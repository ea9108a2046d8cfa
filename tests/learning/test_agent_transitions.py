"""Transitions of several agents: which there are, by hand, and that nothing else changes them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learned import weights

from paddock.algos.learning.returns import gae
from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.collector import JointCollector as Collector
from paddock.algos.multiagent.replay.agent_replay import AgentReplay, AgentStreams
from paddock.algos.multiagent.replay.transitions import TransitionBuilder
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.heads import Head, make_head
from paddock.algos.networks.inputs import spaces_of
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Serial

GAMMA = 0.5
ANN, BOB, CY = 0, 1, 2


@dataclass(frozen=True)
class Chosen:
    """Noise by which a network without weights chooses what a test says, in each of its steps."""

    actions: tuple[int, ...]

    def sample_noise(self, head: Head, generator: Any, lead: tuple[int, int], step: int, first: int) -> np.ndarray:
        T, N = lead
        noise = np.zeros((T, N, 1 + head.width), np.float32)[..., 1:]
        noise[np.arange(T), :, list(self.actions[step : step + T])] = 1
        return noise


def config(id: str, T: int, actions: tuple[int, ...] | None = None, worlds: int = 1) -> RolloutConfig:
    env = EnvSpec(id=id, kwargs={}, wrappers=(), max_episode_steps=None, fresh=False)
    observations, space = spaces_of(env)
    sizes: dict[str, Any] = {"hidden_sizes": (4,), "activation": "tanh", "shared": False, "initial_log_std": 0.0}
    architecture = Architecture.for_spaces(observations, make_head(space), encoder="auto", lstm=False, **sizes)
    chosen = () if actions is None else (Chosen(actions),)
    return RolloutConfig(env, Serial(num_envs=worlds), architecture, 3, T, 1, "never", chosen)


def play(of: RolloutConfig, count: int) -> list[Rollout]:
    """Some rollouts from the beginning; of chosen actions those of the steps before each one follow."""
    collector, point = Collector(of), ResumePoint.first(of.vec.num_envs, of.policy_group)
    rollouts = []
    for k in range(count):
        given = weights(of)
        if of.exploration:
            given = replace(given, parameters=np.zeros_like(given.parameters))
        (rollout,), point = collector.collect([replace(given, version=k, steps=k * of.num_steps)], point, k)
        rollouts.append(rollout)
    collector.close()
    return rollouts


def turns_of(rollout: Rollout, n_step: int = 1) -> TransitionBuilder:
    obs = np.dtype((rollout.obs.dtype, rollout.obs.shape[2:]))
    action = np.dtype((np.int64, rollout.action.shape[2:]))
    return TransitionBuilder(obs, action, num_agents=rollout.reward.shape[1], n_step=n_step, gamma=GAMMA)


def told(rows: np.ndarray) -> list[Any]:
    names = ("obs", "action", "reward", "next_obs", "discount")
    return [tuple(np.round(row[name].astype(float), 6).tolist() for name in names) for row in rows]


def without_what_follows_an_end(rows: list[Any]) -> list[Any]:
    return [row if row[4] else (*row[:3], None, row[4]) for row in rows]


# Ann bids 3, bob 2, cy drops out, ann bids 1, bob 3, which ends the bidding by its limit; then ann and bob drop out at
# once, and cy, who had no turn, wins; ann bids 2 in a third episode. A bid pays each other agent a tenth of it, and who
# drops out loses 1. Agents see what was bid so far, and their seat.
BIDS = (3, 2, 0, 1, 3, 0, 0, 2)
ONE = [
    ([0, ANN], [3], 0.2, [5, ANN], 0.5),  # in step 2 cy drops out, and it is ann's turn again: bob had paid her 0.2
    ([5, CY], [0], -1.0, None, 0.0),  # what cy was paid before its first turn belongs to none
    ([3, BOB], [2], 0.1, [6, BOB], 0.5),  # in step 3: ann paid 0.1
    ([5, ANN], [1], 0.3, [9, ANN], 0.5),  # in step 4 both are cut off, by what they see at the end
    ([6, BOB], [3], 0.0, [9, BOB], 0.5),
    ([0, ANN], [0], -1.0, None, 0.0),
    ([0, BOB], [0], -1.0, None, 0.0),  # and cy wins without a turn, so there is no transition; ann's turn goes on
]
TWO = [
    ([5, CY], [0], -1.0, None, 0.0),
    ([0, ANN], [3], 0.35, [9, ANN], 0.25),  # 0.2 + 0.5 * 0.3
    ([5, ANN], [1], 0.3, [9, ANN], 0.5),
    ([3, BOB], [2], 0.1, [9, BOB], 0.25),  # 0.1 + 0.5 * 0
    ([6, BOB], [3], 0.0, [9, BOB], 0.5),
    ([0, ANN], [0], -1.0, None, 0.0),
    ([0, BOB], [0], -1.0, None, 0.0),
]


@pytest.mark.parametrize(("n_step", "expected"), [(1, ONE), (2, TWO), (3, TWO)])
@pytest.mark.parametrize("T", [1, 4])
def test_a_transition_spans_from_one_turn_to_the_next(n_step: int, expected: list[Any], T: int) -> None:
    rollouts = play(config("toy_worlds:Bidding", T, BIDS), len(BIDS) // T)
    turns = turns_of(rollouts[0], n_step)
    found = [row for rollout in rollouts for row in told(turns.finish(rollout))]
    assert without_what_follows_an_end(found) == expected


@pytest.mark.parametrize("id", ["agents:Mortals", "agents:Turns", "toy_worlds:Skirmish", "toy_worlds:Table"])
def test_turns_are_those_that_rollouts_are_learned_from(id: str) -> None:
    (rollout,) = play(config(id, 60, worlds=3), 1)
    finished, nothing = rollout.learned_mask(), np.zeros_like(rollout.reward)
    assert finished is not None and rollout.acts is not None and finished.sum() > 30
    ends = rollout.terminated, rollout.truncated
    summed = gae(rollout.reward, nothing, nothing, *ends, 0.0, 0.0, rollout.acts)
    rows = turns_of(rollout).finish(rollout)
    assert len(rows) == finished.sum()
    np.testing.assert_array_equal(np.sort(rows["reward"]), np.sort(summed[finished]))
    # Whoever acted last in a life that terminated is followed by nothing.
    died = gae(ends[0].astype(np.float32), nothing, nothing, *ends, 0.0, 0.0, rollout.acts)
    assert (rows["discount"] == 0).sum() == died.sum()


@pytest.mark.parametrize("id", ["agents:Mortals", "toy_worlds:Skirmish"])
def test_where_rollouts_are_cut_and_states_are_kept_changes_no_transition(id: str) -> None:
    (whole,) = play(config(id, 40, worlds=3), 1)
    for n_step in (1, 3):
        expected = turns_of(whole, n_step).finish(whole)
        assert len(expected) > 100
        turns, found = turns_of(whole, n_step), []
        for start, stop in ((0, 1), (1, 7), (7, 9), (9, 40)):
            found.append(turns.finish(part_of(whole, start, stop)).tobytes())
            state = turns.state_dict()
            turns.finish(part_of(whole, 0, 3))  # by a process that is killed
            turns = turns_of(whole, n_step)
            turns.load_state_dict(state)
        assert b"".join(found) == expected.tobytes()


def part_of(rollout: Rollout, start: int, stop: int) -> Rollout:
    """Return these steps of a rollout."""
    assert rollout.acts is not None
    names = ("obs", "action", "logprob", "reward", "terminated", "truncated")
    among = (rollout.final_at[:, 0] >= start) & (rollout.final_at[:, 0] < stop)
    last = rollout.last_obs if stop == len(rollout.reward) else rollout.obs[stop]
    length = rollout.start.length if start == 0 else np.ones_like(rollout.start.length)
    return replace(
        rollout,
        **{name: getattr(rollout, name)[start:stop] for name in names},
        acts=rollout.acts[start : stop + 1],
        last_obs=last,
        final_at=rollout.final_at[among] - np.array([start, 0]),
        final_obs=rollout.final_obs[among],
        start=replace(rollout.start, length=length),
    )


def test_of_a_world_that_was_given_up_turns_that_go_on_are_left_out() -> None:
    (rollout,) = play(config("toy_worlds:Bidding", 4, BIDS), 1)
    rest = replace(part_of(rollout, 0, 1), start=rollout.start)  # begins at an episode's first step
    one, two = turns_of(rollout), turns_of(rollout, 2)
    one.finish(rollout)
    assert not len(one.finish(rest))  # those of ann and bob went on
    two.finish(rollout)
    # Of two turns, ann's first one has been seen, up to where the second began; of bob's, which has ended, likewise.
    first = ([0, ANN], [3], 0.2, [5, ANN], 0.5)
    assert told(two.finish(rest)) == [first, ([3, BOB], [2], 0.1, [6, BOB], 0.5)]


def test_a_replay_keeps_the_newest_turns_and_draws_them_all_alike(tmp_path: Path) -> None:
    rollouts = play(config("agents:Mortals", 8, worlds=2), 12)
    turns = turns_of(rollouts[0])
    rows = np.frombuffer(b"".join(turns.finish(rollout).tobytes() for rollout in rollouts), turns.row)
    obs = np.dtype((np.float32, (2,)))
    action = np.dtype((np.int64, (1,)))
    kinds: dict[str, Any] = {"obs": obs, "action": action, "num_envs": 8, "n_step": 1, "gamma": GAMMA}
    replay = AgentReplay(AgentStreams(folder=tmp_path, capacity=100, **kinds), seed=1)
    for rollout in rollouts:
        replay.append(rollout)
    assert replay.steps == len(rows) > 300 and replay.count == replay.size == 100
    batch = replay.sample(0, 40, 20)
    assert set(np.unique(batch.ids)) == set(range(len(rows) - 100, len(rows)))
    drawn = rows[batch.ids]
    for name in ("obs", "action", "reward", "next_obs", "discount"):
        np.testing.assert_array_equal(getattr(batch, name), drawn[name], err_msg=name)
    assert len(list(tmp_path.glob("finals*"))) == 0
    replay.close()
