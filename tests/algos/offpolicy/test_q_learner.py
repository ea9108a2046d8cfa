"""Action values learn without torch: by torch's gradients in double precision, and to the same bits everywhere."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import missing, native, places  # noqa: F401, a fixture
from gymnasium import spaces

from paddock.algos.learning.offpolicy.learners.dense_q import VECTORS, DenseQLearner
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.replay.batch import Batch
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense.shape import DenseShape
from paddock.algos.networks.heads import make_head
from paddock.envs.spaces.layout import Layout

CHOICES, NUMBERS = 4, 5
USUAL = QObjective(double=False, huber=1.0, tau=1.0, target_every=3, max_grad_norm=10.0)


def architecture(masked: bool = False, alone: bool = False, **changes: Any) -> Architecture:
    given: dict[str, Any] = {"hidden_sizes": (8, 7), "activation": "tanh", "shared": False} | changes
    numbers = spaces.Box(-9, 9, (NUMBERS,), np.float32)
    mask = spaces.Dict(action_mask=spaces.MultiBinary(CHOICES), numbers=numbers)
    space, without = mask if masked else numbers, ["numbers"] if alone else []
    layout, head = Layout.of(space, {}, without), make_head(spaces.Discrete(CHOICES))
    return Architecture.for_spaces(layout, head, encoder="mlp", lstm=False, initial_log_std=0.0, **given)


def draw(arch: Architecture, updates: int = 4, rows: int = 20) -> Batch:
    """Rows as a network sees them. Every fifth is the end of its episode; with masks, the first action is not legal."""
    generator, numbers = np.random.default_rng(3), arch.inputs.width
    obs, next_obs = generator.standard_normal((2, updates, rows, DenseShape.of(arch).width)).astype(np.float32)
    for seen in (obs, next_obs) if DenseShape.of(arch).masked else ():
        seen[..., numbers:] = generator.random((updates, rows, CHOICES)) < 0.5
        seen[..., numbers], seen[..., -1] = 0, 1
    reward, weight = generator.standard_normal((2, updates, rows)).astype(np.float32)
    discount = np.where(np.arange(rows) % 5 == 0, 0, 0.9) + np.zeros((updates, 1))
    action = generator.integers(1, CHOICES, (updates, rows, 1))
    ids = np.zeros((updates, rows), np.int64)
    return Batch(ids, obs, action, reward, next_obs, discount.astype(np.float32), np.abs(weight) + np.float32(0.1))


def make(arch: Architecture, objective: QObjective = USUAL, threads: int = 1, seed: int = 1) -> DenseQLearner:
    """A learner that takes rows as its network sees them, some way from where it began."""
    learner = DenseQLearner(arch, objective, seed, adam_epsilon=1e-5, threads=threads)
    shaken = learner.state_dict()
    generator = np.random.default_rng(5)
    for name in ("parameters", "targets"):
        shaken[name] = shaken[name] + generator.normal(0, 0.2, len(shaken[name])).astype(np.float32)
    learner._see = lambda obs: (obs.reshape(-1, obs.shape[-1]), None)  # type: ignore[method-assign]
    learner.load_state_dict(shaken)
    return learner


def every_bit(learner: DenseQLearner, *told: Any) -> bytes:
    state = learner.state_dict()
    told = tuple(np.column_stack([*each.values()]) if isinstance(each, dict) else each for each in told)
    return b"".join(np.ascontiguousarray(x).tobytes() for x in (*told, *(state[name] for name in VECTORS)))


def test_a_target_by_hand() -> None:
    arch = architecture(hidden_sizes=())
    learner = make(arch, QObjective(True, None, 0.25, 2, None))
    theta, targets = np.zeros((2, NUMBERS * CHOICES + CHOICES), np.float32)
    theta[-CHOICES:], targets[-CHOICES:] = [1, 2, 8, 4], [1, 16, 32, 64]  # biases: what actions are worth anywhere
    learner.load_state_dict({**learner.state_dict(), "parameters": theta, "targets": targets})
    zero = np.zeros((1, 2, NUMBERS), np.float32)
    ones = np.ones((1, 2), np.float32)
    discount = np.array([[0.5, 0]], np.float32)  # the second row's episode terminated
    batch = Batch(np.zeros((1, 2), np.int64), zero, np.array([[[0], [3]]]), ones, zero, discount, ones)
    report, distance = learner.update(batch, 0.0)
    # The parameters choose action 2, which the targets say is worth 32: 1 + 0.5 * 32 = 17, and 1 alone at the end.
    assert distance.tolist() == [[16, 3]] and [report[name][0] for name in ("loss", "q_mean", "target_mean")] == [
        (128 + 4.5) / 2,
        2.5,
        9,
    ]
    assert learner.state_dict()["targets"][-CHOICES:].tolist() == [1, 16, 32, 64]
    learner.update(batch, 0.0)
    assert learner.state_dict()["targets"][-CHOICES:].tolist() == [1, 12.5, 26, 49]


# Bits


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "masked dueling": {"masked": True, "shared": True},
    "a mask alone": {"masked": True, "alone": True},
    "linear dueling": {"hidden_sizes": (), "shared": True},
    "wide": {"hidden_sizes": (64, 64), "activation": "relu"},
}


@pytest.mark.parametrize("case", CASES)
def test_instruction_sets_and_thread_counts_give_the_same_bits(
    case: str,
    native: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arch = architecture(**CASES[case])
    objectives = [
        USUAL,
        QObjective(double=True, huber=None, tau=0.3, target_every=1, max_grad_norm=None),
        QObjective(double=True, huber=0.1, tau=0.005, target_every=2, max_grad_norm=0.01),
    ]
    for rows, objective in zip((7, 64, 150), objectives, strict=True):
        found: dict[str, bytes] = {}
        batch = draw(arch, updates=5, rows=rows)
        for name, threads in places(monkeypatch):
            learner = make(arch, objective, threads)
            told: list[Any] = [*learner.update(batch, 0.003), *learner.update(batch, 0.001)]
            found[name] = every_bit(learner, *told)
            assert np.isfinite(learner.state_dict()["parameters"]).all()
        assert len(found) > 1 and len(set(found.values())) == 1, (rows, sorted(found))


@pytest.mark.parametrize("grouped", [[1] * 9, [4, 5], [2, 1, 6]], ids=str)
def test_no_bit_depends_on_how_updates_are_grouped(grouped: list[int]) -> None:
    arch = architecture(shared=True)
    batch = draw(arch, updates=9, rows=40)
    whole, parted = make(arch), make(arch)
    parted.updates = whole.updates = 60  # Adam's powers begin anew at 64
    expected = every_bit(whole, *whole.update(batch, 0.003))
    told: list[Any] = []
    first = 0
    for count in grouped:
        part = Batch(*(each[first : first + count] for each in vars(batch).values()))
        metrics, errors = parted.update(part, 0.003)
        told.append((np.column_stack([*metrics.values()]), errors))
        first += count
    assert every_bit(parted, *map(np.concatenate, zip(*told, strict=True))) == expected
    assert parted.updates == whole.updates == 69


BOARDS: dict[str, dict[str, spaces.Space]] = {
    "choices": {"board": spaces.MultiDiscrete([11] * 9)},
    "choices and a mask": {"action_mask": spaces.MultiBinary(CHOICES), "board": spaces.MultiDiscrete([11] * 9)},
    "choices and numbers": {"board": spaces.MultiDiscrete([11] * 9), "speed": spaces.Box(-9, 9, (2,), np.float32)},
}


@pytest.mark.parametrize("name", BOARDS)
def test_rows_without_their_zeros_give_the_bits_of_whole_ones(
    name: str,
    native: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout, head = Layout.of(spaces.Dict(BOARDS[name]), {}, ()), make_head(spaces.Discrete(CHOICES))
    given: dict[str, Any] = {"hidden_sizes": (20, 7), "activation": "relu", "shared": True, "encoder": "mlp"}
    arch = Architecture.for_spaces(layout, head, lstm=False, initial_log_std=0.0, **given)
    assert arch.inputs.sparse is not None
    generator, (U, B) = np.random.default_rng(4), (3, 150)
    seen = []
    for _ in range(2):
        rows = layout.zeros(U * B)
        fields = layout.fields(rows)
        fields["board"][...] = generator.integers(0, 11, (U * B, 9))
        if "speed" in fields:
            fields["speed"][...] = generator.standard_normal((U * B, 2))
        if "action_mask" in fields:
            fields["action_mask"][...] = (1, 0, 1, 1)
        seen.append(rows.reshape(U, B, *rows.shape[1:]))
    batch = replace(draw(architecture(), updates=U, rows=B), obs=seen[0], next_obs=seen[1])

    objective = QObjective(double=True, huber=0.5, tau=0.3, target_every=1, max_grad_norm=1.0)
    found: dict[str, bytes] = {}
    without = replace(arch, inputs=replace(arch.inputs))
    without.inputs.__dict__["sparse"] = None
    for seen_as, of in (("whole", without), ("sparse", arch)):
        for kind, threads in places(monkeypatch):
            learner = make(of, objective, threads)
            del learner._see
            # Twice: the second time, weights are not touched that the first one touched.
            told: list[Any] = [*learner.update(batch, 0.003), *learner.update(part_of(batch, slice(1, 2)), 0.001)]
            found[f"{kind}, {seen_as}"] = every_bit(learner, *told)
    first = next(iter(found.values()))
    assert len(found) > 2 and [kind for kind, bits in found.items() if bits != first] == []


def part_of(batch: Batch, updates: slice) -> Batch:
    """Some updates of a batch, by their first seven transitions."""
    return Batch(*(each[updates, :7] for each in vars(batch).values()))


# Targets


@pytest.mark.parametrize(("tau", "every"), [(1.0, 3), (0.25, 1)])
def test_targets_follow_after_exactly_the_updates_that_they_should(tau: float, every: int) -> None:
    arch = architecture()
    learner = make(arch, replace(USUAL, tau=tau, target_every=every))
    batch = draw(arch, updates=7)
    for u in range(7):
        before = learner.state_dict()["targets"]
        learner.update(Batch(*(each[u : u + 1] for each in vars(batch).values())), 0.003)
        state = learner.state_dict()
        moved = state["parameters"] if tau == 1 else before + (state["parameters"] - before) * np.float32(tau)
        assert (state["targets"] == (moved if (u + 1) % every == 0 else before)).all()
        assert (state["parameters"] != before).any()
