"""The sum tree: exact, the same in C and in NumPy, and what prioritized replay makes of it."""

import bisect
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import native  # noqa: F401, a fixture
from transitions import SETTINGS, World, assert_same, make

from paddock.algos.learning.replay import library
from paddock.algos.learning.replay.priorities import ONE, leaves_of
from paddock.algos.learning.replay.random_integers import multiply_high, scale_words
from paddock.algos.learning.replay.sum_tree import LARGEST, SumTree

WORST = np.array([0, 1, 2**32 - 1, 2**32, 2**64 - 1], np.uint64)


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(library, "usable", lambda: None)
    else:
        library.load()


def words_of(generator: np.random.Generator, *shape: int) -> Any:
    return generator.integers(2**64, size=shape, dtype=np.uint64)


def draw_slowly(leaves: list[int], words: Any) -> list[list[int]]:
    """What a tree draws, by sums from the first leaf to each."""
    sums, batch = list(itertools.accumulate(leaves)), words.shape[1]
    bounds = [part * (sums[-1] // batch) + part * (sums[-1] % batch) // batch for part in range(batch + 1)]
    parts = list(itertools.pairwise(bounds))
    return [
        [
            bisect.bisect_right(sums, low + (word * (high - low) >> 64))
            for word, (low, high) in zip(row, parts, strict=True)
        ]
        for row in words.tolist()
    ]


def test_words_are_scaled_exactly() -> None:
    generator = np.random.default_rng(0)
    words = np.append(words_of(generator, 500), WORST)
    for count in (1, 2, 3, 1_000_003, 2**32 - 1, 2**40 + 7):
        assert scale_words(words, count, 5).tolist() == [5 + (word * count >> 64) for word in words.tolist()]
    counts = np.append(words_of(generator, 500), WORST[::-1])
    pairs = zip(words.tolist(), counts.tolist(), strict=True)
    assert multiply_high(words, counts).tolist() == [word * count >> 64 for word, count in pairs]


@pytest.mark.parametrize("capacities", [range(1, 36), range(36, 71)], ids=["to 35", "to 70"])
def test_draws_are_those_of_sums_added_one_by_one(capacities: range) -> None:
    for capacity in capacities:
        generator, tree, leaves = np.random.default_rng(capacity), SumTree(capacity), np.zeros(capacity, np.uint32)
        for _ in range(8):
            count = int(generator.integers(1, 2 * capacity + 1))
            at = generator.integers(capacity, size=count)
            values = generator.integers(2 ** int(generator.integers(1, 33)), size=count).astype(np.uint32)
            values[generator.random(count) < 0.3] = 0
            tree[at] = values
            for k, value in zip(at.tolist(), values.tolist(), strict=True):  # the last one of equal places counts
                leaves[k] = value
            assert tree.total == sum(leaves.tolist()) and np.array_equal(tree.leaves, leaves)
            assert np.array_equal(tree[at], leaves[at])
            if tree.total:
                words = words_of(generator, 2, int(generator.integers(1, 9)))
                words[0, 0] = generator.choice(WORST)
                drawn = tree.draw(words)
                assert drawn.tolist() == draw_slowly(leaves.tolist(), words)
                assert (leaves[drawn] > 0).all()


def test_a_tree_changed_often_is_the_one_built_of_its_leaves_and_of_shards() -> None:
    generator, capacity = np.random.default_rng(1), 1_000
    tree = SumTree(capacity)
    for _ in range(1_000):  # a million changes
        tree[generator.integers(capacity, size=1_000)] = generator.integers(LARGEST, size=1_000).astype(np.uint32)
    built = SumTree(capacity)
    built.load(tree.leaves)
    words = words_of(generator, 5, 64)
    assert np.array_equal(built.draw(words), tree.draw(words)) and built.total == tree.total
    shards = [SumTree(143) for _ in range(7)]
    for number, shard in enumerate(shards):
        shard.load(tree.leaves[143 * number : 143 * (number + 1)])
    assert sum(shard.total for shard in shards) == tree.total
    built.load(tree.leaves[:10])
    assert built.total == sum(tree.leaves[:10].tolist()) and built.draw(words).max() < 10


# Priorities


def test_leaves_worked_by_hand() -> None:
    errors = np.array([1, 0.25, 4, 0, np.nan, np.inf, 1e-9, -4], np.float32)
    expected = [ONE, ONE // 2, 2 * ONE, 1, 1, LARGEST, 33, 2 * ONE]
    got = leaves_of(errors, 0.5).tolist()
    assert np.allclose(got, expected, rtol=1e-6, atol=1)
    assert leaves_of(errors, 0.0).tolist() == [ONE] * 8


def test_what_is_not_offered_and_what_is_gone_is_never_drawn(tmp_path: Path) -> None:
    replay, world = make(tmp_path, num_envs=3, capacity=31, n_step=3, priorities=SETTINGS), World(3, 0)
    generator, update = np.random.default_rng(0), 0
    for _ in range(60):
        replay.append(world.play(int(generator.integers(1, 9))))
        if not replay.count:
            continue
        first = replay.steps - replay.size
        batch = replay.sample(update, 2, 16)
        assert batch.ids.min() >= first and batch.ids.max() < first + replay.count
        late = batch.ids - generator.integers(0, 12)  # some of them are gone
        replay.set_priorities(late, generator.exponential(size=late.shape).astype(np.float32))
        update += 2
    drawn = replay.sample(update, 400, 16).ids
    assert np.unique(drawn).tolist() == list(range(first, first + replay.count))


def test_resumed_draws_by_the_same_priorities(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"num_envs": 2, "capacity": 300, "n_step": 3, "priorities": SETTINGS}
    replay, world, generator = make(tmp_path, **settings), World(2, 0), np.random.default_rng(0)

    def learn(one: Any, update: int, rollout: Any, errors: Any) -> Any:
        one.append(rollout)
        batch = one.sample(update, 2, 16)
        one.set_priorities(batch.ids, errors)
        return batch

    plays = [(world.play(20), generator.exponential(size=(2, 16)).astype(np.float32)) for _ in range(20)]
    for k, (rollout, errors) in enumerate(plays[:12]):
        learn(replay, 2 * k, rollout, errors)
    state = replay.state_dict()
    assert state["priorities"]["leaves"].nbytes == 4 * 300
    kept = [learn(replay, 2 * k, *plays[k]) for k in range(12, 20)]
    resumed = make(tmp_path, **settings)
    resumed.load_state_dict(state)
    for k, batch in zip(range(12, 20), kept, strict=True):
        assert_same(learn(resumed, 2 * k, *plays[k]), batch)


@pytest.mark.parametrize("n_step", [1, 3])
def test_compiled_batches_are_those_of_numpy(n_step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"n_step": n_step, "priorities": SETTINGS}
    rollout = World(3, 4).play(130)
    monkeypatch.setattr(library, "usable", library.load)
    one = make(tmp_path / "one", **settings)
    one.append(rollout)
    monkeypatch.setattr(library, "usable", lambda: None)
    other = make(tmp_path / "other", **settings)
    other.append(rollout)
    for update in range(5):
        assert_same(one.sample(update, 3, 32), other.sample(update, 3, 32))
        for replay in (one, other):
            replay.set_priorities(np.arange(100, 300), np.linspace(0, update, 200, dtype=np.float32))
