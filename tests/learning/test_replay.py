"""Replay: every batch is that of a plain list of transitions, and a killed run goes on with the same bits."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import native  # noqa: F401, a fixture
from transitions import GAMMA, World, assert_same, make

from paddock.algos.learning.replay.batch import Batch
from paddock.algos.learning.replay.disk_space import ReplayError, ReplayRefused
from paddock.algos.learning.rollouts.rollout import Rollout


class Listed:
    """What a replay holds, as a list of steps, each with the observation that it led to and how it ended."""

    def __init__(self, num_envs: int, capacity: int, n_step: int) -> None:
        self.num_envs, self.capacity, self.n_step = num_envs, capacity // num_envs * num_envs, n_step
        self.rows: list[dict[str, Any]] = []

    def append(self, rollout: Rollout) -> None:
        T, N = rollout.reward.shape
        finals = {(t, n): final for (t, n), final in zip(rollout.final_at.tolist(), rollout.final_obs, strict=True)}
        for n in range(N):
            if self.rows and rollout.start.length[n] == 0 and not self.rows[n - N]["end"]:
                self.rows[n - N]["end"] = "truncated"
        for t in range(T):
            following = rollout.obs[t + 1] if t + 1 < T else rollout.last_obs
            for n in range(N):
                end = "terminated" if rollout.terminated[t, n] else "truncated" if rollout.truncated[t, n] else ""
                self.rows.append(
                    {
                        "obs": rollout.obs[t, n],
                        "action": rollout.action[t, n],
                        "reward": rollout.reward[t, n],
                        "next": finals.get((t, n), following[n]),
                        "end": end,
                    }
                )

    @property
    def offered(self) -> range:
        """The rows that may be drawn."""
        first = max(0, len(self.rows) - self.capacity)
        return range(first, max(first, len(self.rows) - (self.n_step - 1) * self.num_envs))

    def check(self, batch: Batch) -> None:
        """Compare each transition of a batch with the list's."""
        for place in np.ndindex(batch.ids.shape):
            id = int(batch.ids[place])
            assert id in self.offered
            total, m = np.float32(0), 0
            for m in range(1, self.n_step + 1):
                row = self.rows[id + (m - 1) * self.num_envs]
                total += np.float32(GAMMA ** (m - 1)) * row["reward"]
                if row["end"]:
                    break
            assert np.array_equal(batch.obs[place], self.rows[id]["obs"])
            assert np.array_equal(batch.action[place], self.rows[id]["action"])
            assert row["end"] == "terminated" or np.array_equal(batch.next_obs[place], row["next"])
            assert batch.reward[place] == total
            assert batch.discount[place] == (0 if row["end"] == "terminated" else np.float32(GAMMA**m))


# Against a list


@pytest.mark.parametrize(("num_envs", "n_step", "capacity"), [(1, 3, 20), (3, 1, 20), (3, 3, 1_000)])
def test_every_batch_is_that_of_a_list_of_transitions(
    num_envs: int, n_step: int, capacity: int, tmp_path: Path
) -> None:
    replay, world, listed = (
        make(tmp_path, num_envs, capacity, n_step),
        World(num_envs, n_step),
        Listed(num_envs, capacity, n_step),
    )
    update = 0
    for k in range(80 if capacity == 20 else 20):
        rollout = world.play(1 + k % 6 if capacity == 20 else 120)
        replay.append(rollout)
        listed.append(rollout)
        assert (replay.steps, replay.count) == (len(listed.rows), len(listed.offered))
        if replay.count:
            listed.check(replay.sample(update, 2, 4))
            update += 2
        world.gives_up = k % 10 == 9  # as environments do that cannot enter an episode again
    assert len(listed.rows) > 2 * capacity


def test_truncated_windows_worked_by_hand(tmp_path: Path) -> None:
    replay, world = make(tmp_path, num_envs=1, capacity=10, n_step=3), World(1, 0)
    reward = np.array([[1], [2], [4], [8], [16], [32]], np.float32)
    terminated, truncated = np.zeros((6, 1), np.bool_), np.zeros((6, 1), np.bool_)
    truncated[1], terminated[3] = True, True
    final = np.full((1, 3), 7, np.float32)
    ends: dict[str, Any] = {
        "terminated": terminated,
        "truncated": truncated,
        "final_at": np.array([[1, 0]]),
        "final_obs": final,
    }
    rollout = replace(world.play(6), reward=reward, **ends)
    replay.append(rollout)
    assert replay.count == 4  # of six, two steps may still be followed by others
    batch = replay.sample(0, 1, 64)
    by_id = {int(id): k for k, id in enumerate(batch.ids[0])}
    expected = {0: (1 + 0.9 * 2, 0.9**2), 1: (2, 0.9), 2: (4 + 0.9 * 8, 0), 3: (8, 0)}
    assert by_id.keys() == expected.keys()
    for id, (total, discount) in expected.items():
        assert batch.reward[0, by_id[id]] == pytest.approx(total)
        assert batch.discount[0, by_id[id]] == pytest.approx(discount)
    assert (batch.next_obs[0, by_id[0]] == 7).all() and (batch.next_obs[0, by_id[1]] == 7).all()


# Draws


def test_each_transition_is_drawn_alike(tmp_path: Path) -> None:
    replay, world = make(tmp_path, num_envs=3, capacity=60, n_step=3), World(3, 0)
    replay.append(world.play(15))
    replay.append(world.play(12))
    ids = replay.sample(0, 100, 1_000).ids.ravel()
    counts = np.bincount(ids - ids.min(), minlength=replay.count)
    assert len(counts) == replay.count == 54
    expected = len(ids) / len(counts)
    statistic = ((counts - expected) ** 2 / expected).sum()
    # Of 53 degrees of freedom: 99.9 % lie below 90.6, and a draw that leaves one out would come to thousands.
    assert statistic < 90.6


def test_a_batch_depends_on_its_number_alone(tmp_path: Path) -> None:
    replay = make(tmp_path)
    replay.append(World(3, 0).play(100))
    together = replay.sample(60, 10, 8)
    for k in range(10):
        alone = replay.sample(60 + k, 1, 8)
        assert np.array_equal(alone.ids[0], together.ids[k])
        assert np.array_equal(alone.obs[0], together.obs[k])
    assert not np.array_equal(together.ids[0], together.ids[1])


# Killed and resumed


@pytest.mark.parametrize(("at", "n_step"), [(0, 1), (1, 3), (20, 3)])
def test_who_goes_on_from_an_older_state_draws_the_same(at: int, n_step: int, tmp_path: Path) -> None:
    world = World(3, 5)
    rollouts = [world.play(30) for _ in range(40)]  # 3,600 rows, in files of 256
    undisturbed, killed = make(tmp_path / "one", n_step=n_step), make(tmp_path / "other", n_step=n_step)
    for rollout in rollouts[:at]:
        undisturbed.append(rollout)
        killed.append(rollout)
    state = killed.state_dict()
    for rollout in rollouts[at : at + 6]:  # which the checkpoint knows nothing of
        killed.append(rollout)
    del killed
    resumed = make(tmp_path / "other", n_step=n_step)
    resumed.load_state_dict(state)
    assert not at or (resumed.steps, resumed.count) == (undisturbed.steps, undisturbed.count)
    for k, rollout in enumerate(rollouts[at:]):
        if at or k:
            assert_same(resumed.sample(k, 2, 16), undisturbed.sample(k, 2, 16))
        undisturbed.append(rollout)
        resumed.append(rollout)
    ours, theirs = resumed.state_dict(), undisturbed.state_dict()
    assert ours["attachments"] == theirs["attachments"] and ours["newest"].tobytes() == theirs["newest"].tobytes()
    assert all(np.array_equal(ours[name]["sums"], theirs[name]["sums"]) for name in ("rows", "finals"))


def test_files_of_expired_rows_are_dropped_and_never_reused(tmp_path: Path) -> None:
    replay, world = make(tmp_path, capacity=400), World(3, 0)
    seen: dict[str, bytes] = {}
    for _ in range(40):
        replay.append(world.play(30))
        names = replay.state_dict()["attachments"]
        assert len(names) <= 8 and all((tmp_path / name).exists() for name in names)
        for name, content in seen.items():
            assert (tmp_path / name).read_bytes() == content
        full = [name for name in names if name.startswith("rows") and name != max(n for n in names if n[0] == "r")]
        seen |= {name: (tmp_path / name).read_bytes() for name in full[:1]}
    assert len(seen) >= 8 and "rows-000000.npy" not in names


def test_numpy_reads_a_file(tmp_path: Path) -> None:
    replay = make(tmp_path)
    rollout = World(3, 0).play(50)
    replay.append(rollout)
    [name] = [name for name in replay.state_dict()["attachments"] if name.startswith("rows")]
    rows = np.load(tmp_path / name)[:150]
    assert np.array_equal(rows["obs"], rollout.obs.reshape(150, 3))
    assert np.array_equal(rows["reward"], rollout.reward.ravel())
    assert np.array_equal(rows["end"] == -1, rollout.terminated.ravel())
    assert np.array_equal(rows["end"] > 0, rollout.truncated.ravel())


# Damage


@pytest.mark.parametrize(
    ("damage", "kind"), [("cut", "rows"), ("flipped", "finals"), ("missing", "rows"), ("header", "finals")]
)
def test_a_damaged_file_is_named_in_one_line(damage: str, kind: str, tmp_path: Path) -> None:
    replay, world = make(tmp_path), World(3, 0)
    for _ in range(4):
        replay.append(world.play(50))
    state = replay.state_dict()
    path = tmp_path / f"{kind}-000000.npy" if kind == "finals" else tmp_path / "rows-000001.npy"
    assert path.name in state["attachments"]
    content = bytearray(path.read_bytes())
    content[{"flipped": 4_096 + 16 * 5, "header": 40}.get(damage, 0)] ^= 1 if damage in ("flipped", "header") else 0
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[:-1] if damage == "cut" else content)
    resumed = make(tmp_path)
    resumed.load_state_dict(state)
    with pytest.raises(ReplayError, match=f"{path.name} (is damaged: |cannot be opened)") as caught:
        resumed.sample(0, 1, 4)
    assert "\n" not in str(caught.value)


def test_a_full_disk_ends_in_one_line_and_leaves_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay, world = make(tmp_path), World(3, 0)
    rollouts = [world.play(50) for _ in range(3)]
    replay.append(rollouts[0])
    state = replay.state_dict()
    with monkeypatch.context() as patch:

        def refuse(*_: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "pwrite", refuse)
        with pytest.raises(
            ReplayRefused, match=r"finals-000000.npy cannot be written \(No space left on device\); free disk space"
        ):
            replay.append(rollouts[1])
    resumed, undisturbed = make(tmp_path), make(tmp_path / "other")
    resumed.load_state_dict(state)
    undisturbed.append(rollouts[0])
    for rollout in rollouts[1:]:
        resumed.append(rollout)
        undisturbed.append(rollout)
    assert_same(resumed.sample(0, 4, 16), undisturbed.sample(0, 4, 16))


def test_an_unusable_folder_or_a_small_disk_ends_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReplayError, match="cannot be written"):
        make(tmp_path / "file").append(World(3, 0).play(5))
    capacity = 10**13
    with pytest.raises(ReplayError, match=r"buffer_size=\d+ needs [\d.]+ GB in .* use at most \d+"):
        make(tmp_path, capacity=capacity).append(World(3, 0).play(5))
