"""Actors that choose, and critics that value each choice, learn without torch: to the same bits everywhere.

That the numbers are right is for tests/algos/offpolicy/test_soft.py to say, by torch's gradients in double precision.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from compiled import missing, native  # noqa: F401, a fixture
from test_actor_critic import (  # type: ignore[import-not-found]  # pytest puts this folder on the path
    OBSERVED,
    backends,
    bits,
    first_state,
    some,
)

from paddock.algos.networks.dense.actor_critic import (
    ActorCriticObjective,
    ActorCriticShape,
    CompiledActorCritic,
    SoftPolicy,
    Transitions,
)
from paddock.algos.networks.flat import Activation

LEARNED = SoftPolicy(0.3, learned=True, target_entropy=0.9)
OBJECTIVES = {
    "learned alpha": ActorCriticObjective(LEARNED, 2, 0.25, target_every=1, actor_every=1),
    "late actor and copies": ActorCriticObjective(LEARNED, 2, 1.0, target_every=3, actor_every=2),
    "fixed alpha, one critic": ActorCriticObjective(SoftPolicy(0.125, False, 0.0), 1, 0.25, 1, 1),
}


def shape_of(
    hidden_sizes: tuple[int, ...], choices: int, masked: bool, activation: Activation = "relu"
) -> ActorCriticShape:
    sizes = (OBSERVED, *hidden_sizes, choices)
    return ActorCriticShape(sizes, sizes, activation, masked)


def experience(shape: ActorCriticShape, updates: int, rows: int) -> Transitions:
    generator, lead = np.random.default_rng(9), (updates, rows)

    def observations() -> np.ndarray:
        seen = generator.standard_normal((*lead, shape.width), np.float32)
        seen[..., OBSERVED:] = generator.random((*lead, shape.width - OBSERVED)) < 0.5  # in some rows nothing is legal
        return seen

    return Transitions(
        observations(),
        generator.integers(0, shape.choices, (*lead, 1)).astype(np.float32),
        generator.standard_normal(lead, np.float32),
        observations(),
        np.where(generator.random(lead) < 0.3, 0, 0.9).astype(np.float32),
        generator.uniform(0.3, 1, lead).astype(np.float32),
        np.zeros((updates, 2, rows, 0), np.float32),
    )


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        (shape_of((33, 20), 3, masked=True), 100),
        (shape_of((16, 16), 18, masked=False, activation="tanh"), 45),
        (shape_of((), 2, masked=True), 7),
        (shape_of((17,), 1, masked=False), 130),
    ],
    ids=["masked", "tanh", "no layers", "one choice"],
)
def test_instruction_sets_and_thread_counts_give_the_same_bits(
    shape: ActorCriticShape,
    rows: int,
    objective: ActorCriticObjective,
    native: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, found = experience(shape, 4, rows), {}
    for name, backend in backends(shape, objective, monkeypatch, 2):
        told = [backend.update(some(given, *part), 0.003) for part in ((0, 1), (1, 4))]
        state = backend.read()
        found[name] = bits(*itertools.chain(*told), state, backend.actor())
        assert state["updates"] == 4 and all(np.isfinite(report).all() for report, _ in told)
        assert (state["log_alpha_steps"] > 0) == (objective.policy is LEARNED)
    assert len(found) > 1 and len(set(found.values())) == 1, sorted(found)


def test_alpha_of_a_mask_holds_the_same_share_of_what_can_be() -> None:
    """Two of three choices are legal in every row, so that it wants log 2 / log 3 of what it wants of all."""
    shape, objective = shape_of((8,), 3, masked=True), replace(OBJECTIVES["learned alpha"])
    given = experience(shape, 1, 40)
    for name in ("observation", "next_observation"):
        getattr(given, name)[..., OBSERVED:] = (1, 0, 1)
    backend = CompiledActorCritic(shape, objective, first_state(shape, objective), adam_epsilon=1e-5, threads=1)
    report, _ = backend.update(given, 0.01)
    gradient = float(report[0, 4]) - LEARNED.target_entropy * math.log(2) / math.log(3)
    assert float(backend.read()["log_alpha_momentum"][0]) == pytest.approx(0.1 * gradient, rel=1e-5)
