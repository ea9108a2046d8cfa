"""Sequences of replay: every one is that of a plain list of steps, and a killed run goes on with the same bits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transitions import GAMMA, SETTINGS, World, assert_same, make

from paddock.algos.learning.replay.batch import SequenceBatch
from paddock.algos.learning.replay.replay import Replay
from paddock.algos.learning.replay.sequences import Sequences
from paddock.algos.learning.rollouts.rollout import Rollout

STATE = 5  # numbers of a policy's memory


def sequences(period: int = 4, burn_in: int = 3, length: int = 8, state_width: int = STATE) -> Sequences:
    return Sequences(period=period, burn_in=burn_in, length=length, state_width=state_width)


def play(world: World, period: int) -> Rollout:
    """A rollout from a memory that is drawn, and empty where an episode begins."""
    rollout = world.play(period)
    state = world.generator.standard_normal((world.num_envs, STATE), np.float32)
    state[rollout.start.length == 0] = 0
    return replace(rollout, start=replace(rollout.start, state=state))


class Listed:
    """The steps of each environment, one after another."""

    def __init__(self, num_envs: int) -> None:
        self.steps: list[list[dict[str, Any]]] = [[] for _ in range(num_envs)]
        self.state: list[Any] = []  # [N, S] of each rollout's start

    def append(self, rollout: Rollout) -> None:
        T = len(rollout.reward)
        finals = {(t, n): final for (t, n), final in zip(rollout.final_at.tolist(), rollout.final_obs, strict=True)}
        self.state.append(rollout.start.state)
        for n, steps in enumerate(self.steps):
            if steps and rollout.start.length[n] == 0:
                steps[-1] |= {"end": steps[-1]["end"] or "truncated", "after": rollout.obs[0, n]}
            for t in range(T):
                following = rollout.obs[t + 1] if t + 1 < T else rollout.last_obs
                end = "terminated" if rollout.terminated[t, n] else "truncated" if rollout.truncated[t, n] else ""
                steps.append(
                    {
                        "obs": rollout.obs[t, n],
                        "action": rollout.action[t, n],
                        "reward": rollout.reward[t, n],
                        "next": finals.get((t, n), following[n]),
                        "after": following[n],
                        "end": end,
                    }
                )

    def check(self, batch: SequenceBatch, of: Sequences, n_step: int) -> None:
        """Compare each sequence, and what its steps are worth where an observation is worth its first number."""
        N = len(self.steps)
        following = batch.obs[of.burn_in + 1 :, :, 0].copy()
        following[tuple(batch.final_at.T)] = batch.final_obs[:, 0]
        worth = batch.reward + batch.discount * np.take_along_axis(following, batch.last, 0)
        for b, id in enumerate(batch.ids[0].tolist()):
            k, n = divmod(id, N)
            steps = self.steps[n][k * of.period :][: of.span(n_step)]
            assert len(steps) == of.span(n_step) == len(batch.obs) - 1
            assert np.array_equal(batch.state[b], self.state[k][n])
            assert np.array_equal(batch.obs[:, b], [*[step["obs"] for step in steps], steps[-1]["after"]])
            assert batch.start[1:, b].tolist() == [bool(step["end"]) for step in steps] and not batch.start[0, b]
            for t in range(of.length):
                learned, total = steps[of.burn_in + t :][:n_step], np.float32(0)
                for m, step in enumerate(learned):
                    total += np.float32(GAMMA**m) * step["reward"]
                    if step["end"]:
                        break
                rest = 0 if step["end"] == "terminated" else np.float32(GAMMA ** (m + 1))
                assert np.array_equal(batch.action[t, b], learned[0]["action"])
                assert (batch.reward[t, b], batch.discount[t, b]) == (total, rest)
                assert worth[t, b] == total + rest * step["next"][0]


@pytest.mark.parametrize(
    ("num_envs", "n_step", "burn_in", "length", "priorities"),
    [(1, 3, 0, 4, None), (3, 1, 3, 8, None), (3, 3, 3, 8, SETTINGS)],
)
def test_every_sequence_is_that_of_a_list_of_steps(
    num_envs: int, n_step: int, burn_in: int, length: int, priorities: Any, tmp_path: Path
) -> None:
    of = sequences(burn_in=burn_in, length=length)
    replay = make(
        tmp_path, num_envs, 22 * num_envs, n_step, sequences=of, priorities=priorities
    )  # of which 20 are used
    world, listed = World(num_envs, n_step), Listed(num_envs)
    whole = 0
    for k in range(40):
        rollout = play(world, of.period)
        replay.append(rollout)
        listed.append(rollout)
        whole = max(0, (min(4 * (k + 1), 20) - of.span(n_step)) // 4 + 1)
        first = max(0, k + 1 - 5)
        assert (replay.first, replay.count) == (first * num_envs, whole * num_envs)
        if whole:
            batch = replay.sample(k, 1, 6)
            assert batch.ids.min() >= replay.first and batch.ids.max() < replay.first + replay.count
            listed.check(batch, of, n_step)
            if priorities:
                replay.set_priorities(batch.ids, world.generator.random((1, 6)).astype(np.float32))
        world.gives_up = k % 10 == 9  # as environments do that cannot enter an episode again
    offered = np.arange(replay.first, replay.first + replay.count)
    if priorities:
        replay.set_priorities(offered, np.ones(len(offered), np.float32))
    assert {id for u in range(20) for id in replay.sample(u, 1, 16).ids[0].tolist()} == set(offered)


@pytest.mark.parametrize("at", [4, 60, 171])
def test_who_goes_on_from_an_older_state_draws_the_same(at: int, tmp_path: Path) -> None:
    world, of = World(3, 5), sequences()
    rollouts = [play(world, of.period) for _ in range(at + 60)]  # 256 memories a file
    kind: dict[str, Any] = {"sequences": of, "priorities": SETTINGS, "n_step": 2, "capacity": 900}
    undisturbed, killed = make(tmp_path / "one", **kind), make(tmp_path / "other", **kind)

    def advance(replay: Replay, rollout: Rollout, update: int) -> SequenceBatch:
        replay.append(rollout)
        batch: SequenceBatch = replay.sample(update, 1, 8)
        replay.set_priorities(batch.ids, batch.reward[:1] ** 2)
        return batch

    for replay in (undisturbed, killed):
        for rollout in rollouts[:4]:
            replay.append(rollout)
        for k in range(4, at):
            advance(replay, rollouts[k], k)
    state = killed.state_dict()
    for rollout in rollouts[at : at + 30]:  # which the checkpoint knows nothing of
        killed.append(rollout)
    resumed = make(tmp_path / "other", **kind)
    resumed.load_state_dict(state)
    for k in range(at, at + 60):
        assert_same(advance(resumed, rollouts[k], k), advance(undisturbed, rollouts[k], k))
    ours, theirs = resumed.state_dict(), undisturbed.state_dict()
    assert ours["attachments"] == theirs["attachments"]
    assert all(np.array_equal(ours[name]["sums"], theirs[name]["sums"]) for name in ("rows", "finals", "states"))
    assert all((tmp_path / "other" / name).exists() for name in ours["attachments"])
