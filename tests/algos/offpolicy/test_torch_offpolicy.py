"""Learners from replay in torch: by the numbers of the dense ones, and for what those do not take."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from paddock.algos.common.divergence import Diverged
from paddock.algos.dqn import c51_loss, dqn_loss, qr_dqn_loss, quantile_loss
from paddock.algos.learning.offpolicy.learners.dense_actor_critic import DenseActorCritic
from paddock.algos.learning.offpolicy.learners.dense_q import DenseQLearner
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.offpolicy.learners.torch_learner import TorchOffPolicyLearner
from paddock.algos.learning.offpolicy.learners.torch_networks import ActorCriticNetworks, QNetworks
from paddock.algos.learning.replay.batch import Batch
from paddock.algos.networks.actor import DenseActor, make_actor
from paddock.algos.networks.actor_critic import TorchActor, as_tensor
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective, DeterministicPolicy, SoftPolicy
from paddock.algos.networks.heads import SoftGaussian, Tanh, make_head
from paddock.algos.networks.training import computing_with
from paddock.algos.sac import discrete_sac_losses, sac_losses, tqc_losses
from paddock.algos.td3 import td3_losses
from paddock.envs.spaces.layout import Layout

VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float32)
IMAGE = spaces.Box(0, 255, (12, 10, 3), np.uint8)
MASKED = spaces.Dict(action_mask=spaces.MultiBinary(3), numbers=VECTOR)
MIXED = spaces.Dict(camera=IMAGE, speed=spaces.Box(-9, 9, (2,), np.float32))
USUAL = QObjective(double=False, huber=1.0, tau=1.0, target_every=2, max_grad_norm=10.0)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with computing_with(1, torch.device("cpu")):
        yield


def architecture(
    observation: spaces.Space = VECTOR, hidden_sizes: tuple[int, ...] = (16, 8), **changes: Any
) -> Architecture:
    layout = Layout.of(observation, {}, ())
    given: dict[str, Any] = {"encoder": "auto", "activation": "relu", "shared": False, "head": None} | changes
    head = given.pop("head") or make_head(spaces.Discrete(3))
    return Architecture.for_spaces(layout, head, hidden_sizes=hidden_sizes, lstm=False, initial_log_std=0.0, **given)


def learner(of: Architecture, objective: QObjective = USUAL, **changes: Any) -> TorchOffPolicyLearner:
    given: dict[str, Any] = {"precision": "float32", "adam_epsilon": 1e-8} | changes
    networks = partial(QNetworks, of, 3, **given)
    loss = c51_loss if of.support else qr_dqn_loss if changes.get("quantiles") else dqn_loss
    return in_torch(networks, loss, objective, objective.max_grad_norm)


def in_torch(networks: Any, loss: Any, objective: Any, max_grad_norm: float | None = None) -> TorchOffPolicyLearner:
    return TorchOffPolicyLearner(networks, loss, objective, max_grad_norm=max_grad_norm, threads=1, device="cpu")


def table(metrics: dict[str, np.ndarray]) -> np.ndarray:
    return np.column_stack([*metrics.values()])


def make_batch(of: Architecture, U: int = 4, B: int = 40, seed: int = 0) -> Batch:
    """Transitions of three choices; where there is a mask, the first is never legal."""
    generator = np.random.default_rng(seed)
    layout = of.inputs.layout

    def observations() -> np.ndarray:
        if layout.plain and layout.row.base == np.uint8:
            return generator.integers(0, 256, (U, B, *layout.row.shape), np.uint8)
        if layout.plain:
            return generator.standard_normal((U, B, *layout.row.shape)).astype(np.float32)
        rows = layout.zeros(U * B)
        fields = layout.fields(rows)
        for name, field in fields.items():
            drawn = generator.integers(0, 256, field.shape) if field.dtype == np.uint8 else None
            field[...] = generator.standard_normal(field.shape) if drawn is None else drawn
            if name == "action_mask":
                field[...] = (0, 1, 1)
                field[::2, 2] = 0
        return rows.reshape(U, B, *rows.shape[1:])

    return Batch(
        np.zeros((U, B), np.int64),
        observations(),
        generator.integers(0, 3, (U, B, 1)),
        generator.standard_normal((U, B)).astype(np.float32),
        observations(),
        np.where(generator.random((U, B)) < 0.2, 0, 0.97).astype(np.float32),
        generator.uniform(0.2, 1, (U, B)).astype(np.float32),
    )


def part(batch: Batch, updates: slice) -> Batch:
    return Batch(**{name: array[updates] for name, array in vars(batch).items()})


def values_of(of: Architecture, weights: Weights, obs: np.ndarray) -> np.ndarray:
    """What an actor makes of observations [B, ...], [B, A]."""
    actor = make_actor(of)
    actor.load(weights)
    return actor.act(obs, np.zeros((len(obs), 0), np.float32))[0]


OBSERVATIONS: dict[str, spaces.Space] = {
    "numbers": VECTOR,
    "image": IMAGE,
    "mask": MASKED,
    "image beside numbers": MIXED,
}


@pytest.mark.parametrize("observation", [VECTOR, MASKED], ids=["numbers", "mask"])
def test_updates_in_torch_are_those_in_c(observation: spaces.Space) -> None:
    of = architecture(observation, shared=True)
    objective = QObjective(double=True, huber=1.0, tau=0.25, target_every=2, max_grad_norm=0.5)
    dense, torchs = DenseQLearner(of, objective, 3, adam_epsilon=1e-8, threads=1), learner(of, objective)
    batches = [make_batch(of, U=3, seed=seed) for seed in range(2)]
    assert_learned_alike(dense, torchs, batches)
    acting = torchs.weights(6).parameters
    np.testing.assert_allclose(acting, dense.weights(6).parameters[: len(acting)], rtol=1e-6)
    played, expected = (values_of(of, one.weights(6), batches[-1].obs[0]) for one in (torchs, dense))
    np.testing.assert_array_equal(played, expected)


@pytest.mark.parametrize(
    ("observation", "shared", "quantiles"), [(VECTOR, True, None), (VECTOR, False, 5), (IMAGE, True, 5)]
)
def test_actors_play_the_values_in_place_of_their_distribution(
    observation: spaces.Space, shared: bool, quantiles: int | None
) -> None:
    of = architecture(observation, shared=shared)
    own, batch = learner(of, quantiles=quantiles), make_batch(of)
    own.update(batch, 0.01)
    assert isinstance(make_actor(of), DenseActor if observation is VECTOR else TorchActor)
    with torch.no_grad():
        networks: Any = own.networks
        values = networks(torch.from_numpy(batch.obs[0])).mean(2).numpy()
    played = values_of(of, own.weights(1), batch.obs[0])
    common = (played - values).mean(1, keepdims=True)
    np.testing.assert_allclose(played - common, values, atol=1e-5)
    assert shared or np.abs(common).max() < 1e-5  # advantages lack what all actions have in common


def test_quantile_loss_by_hand() -> None:
    value, target = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 3.0]])
    levels = torch.tensor([0.25, 0.75])
    # Errors are 0.5 and 3 of the first quantile, -0.5 and 2 of the second: all of weight tau but -0.5, of 1 - 0.75.
    # Within 1: 0.25 (0.125 + 2.5) + 0.25 0.125 + 0.75 1.5, by two targets.
    assert quantile_loss(value, target, levels, 1.0).tolist() == pytest.approx([0.90625])
    # Within 2, halved: 0.25 (0.0625 + 2) + 0.25 0.0625 + 0.75 1.
    assert quantile_loss(value, target, levels, 2.0).tolist() == pytest.approx([0.640625])
    # By distances alone: 0.25 (0.5 + 3) + 0.25 0.5 + 0.75 2.
    assert quantile_loss(value, target, levels, None).tolist() == pytest.approx([1.25])


@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["numbers", "image"])
def test_batched_updates_equal_single_ones_also_after_a_restore(
    observation: spaces.Space,
) -> None:
    of = architecture(observation, shared=True)
    assert_goes_on(lambda: learner(of, quantiles=3), make_batch(of), 0.01)


def assert_goes_on(make: Callable[[], Any], batch: Batch, rate: float) -> Any:
    """Four updates at once are four one by one, and a restored learner goes on to the same bits; returns one."""
    whole, apart, restored = (make() for _ in range(3))
    own: OffPolicyLearner = whole
    report, errors = own.update(batch, rate)
    parts = [apart.update(part(batch, slice(u, u + 1)), rate) for u in range(3)]
    restored.load_state_dict(apart.state_dict())
    parts.append(restored.update(part(batch, slice(3, 4)), rate))
    for name, values in report.items():
        assert values.tobytes() == np.concatenate([each[name] for each, _ in parts if name in each]).tobytes(), name
    assert errors.tobytes() == np.concatenate([each for _, each in parts]).tobytes()
    assert_equal_states(whole.state_dict(), restored.state_dict())
    assert errors.shape == batch.reward.shape
    return whole


def assert_learned_alike(dense: Any, torchs: Any, batches: Sequence[Batch]) -> None:
    """Two learners begin alike, learn the same but for rounding, and either goes on from what the other keeps."""
    assert_equal_states(dense.state_dict(), torchs.state_dict(), either=True)
    for batch in batches:
        (report, errors), (own_report, own_errors) = (one.update(batch, 0.003) for one in (dense, torchs))
        for name, values in own_report.items():  # of an actor that is late, only of updates in which it moved
            expected = report[name] if len(values) == len(report[name]) else report[name][-len(values) * 2 + 1 :: 2]
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(own_errors, errors, rtol=1e-4, atol=1e-5)
    theirs, own = dense.state_dict(), torchs.state_dict()
    for name in theirs.keys() & own.keys():
        np.testing.assert_allclose(own[name], theirs[name], rtol=1e-4, atol=2e-5, err_msg=name)
    torchs.load_state_dict(own | theirs)
    assert_equal_states(torchs.state_dict(), theirs, either=True)


def assert_equal_states(one: dict[str, Any], other: dict[str, Any], either: bool = False) -> None:
    """Compare all they have, or all that both have."""
    assert either or one.keys() == other.keys()
    for name, value in ((name, value) for name, value in one.items() if name in other):
        assert np.asarray(value).tobytes() == np.asarray(other[name]).tobytes(), name


def test_encoders_in_mixed_precision_come_near_full_precision() -> None:
    of = architecture(IMAGE)
    full, mixed = (
        table(learner(of, precision=each).update(make_batch(of), 0.001)[0]) for each in ("float32", "bfloat16")
    )
    assert not np.array_equal(full, mixed)
    np.testing.assert_allclose(mixed, full, rtol=0.05, atol=0.02)


# Actors and critics

SOFT = ActorCriticObjective(SoftPolicy(0.3, learned=True, target_entropy=-2.0), 2, 0.25, target_every=1, actor_every=1)
OBJECTIVES = {
    "SAC": SOFT,
    "SAC, fixed alpha, one critic": replace(
        SOFT, policy=SoftPolicy(0.125, learned=False, target_entropy=0), num_critics=1
    ),
    "TD3": ActorCriticObjective(DeterministicPolicy(0.2, 0.25), 2, 0.25, target_every=2, actor_every=2),
    "DDPG": ActorCriticObjective(DeterministicPolicy(0.0, 0.0), 1, 0.25, target_every=1, actor_every=1),
}
POLICIES: dict[str, SoftPolicy | DeterministicPolicy] = {
    "SAC": SoftPolicy(0.02, learned=False, target_entropy=0),
    "TD3": DeterministicPolicy(0.2, 0.25),
}
ACTIONS = 2


def actor_of(objective: ActorCriticObjective, observation: spaces.Space = VECTOR, **changes: Any) -> Architecture:
    box = spaces.Box(-2, 2, (ACTIONS,), np.float32)
    head = SoftGaussian.for_replay(box) if objective.soft else Tanh.for_replay(box)
    return architecture(observation, head=head, **changes)


def actor_critic(of: Architecture, objective: ActorCriticObjective, drop: int = 0, **changes: Any) -> Any:
    given: dict[str, Any] = {"precision": "float32", "adam_epsilon": 1e-5, "objective": objective} | changes
    loss: Any = sac_losses if objective.soft else td3_losses
    if of.head.columns:
        loss = discrete_sac_losses
    elif changes.get("quantiles"):
        loss = partial(tqc_losses, drop=drop)
    return in_torch(partial(ActorCriticNetworks, of, 3, **given), loss, objective)


def moves(of: Architecture, U: int = 4, B: int = 40) -> Batch:
    """Transitions of numbers."""
    action = np.random.default_rng(9).uniform(-1, 1, (U, B, ACTIONS)).astype(np.float32)
    return replace(make_batch(of, U, B), action=action)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_actors_and_critics_learn_what_dense_ones_do(objective: ActorCriticObjective) -> None:
    of = actor_of(objective)
    dense = DenseActorCritic(of, 3, critic_hidden=of.hidden_sizes, objective=objective, adam_epsilon=1e-5, threads=1)
    torchs = actor_critic(of, objective)
    assert_learned_alike(dense, torchs, [moves(of, U=3) for _ in range(2)])
    np.testing.assert_array_equal(torchs.weights(6).parameters, dense.weights(6).parameters)


@pytest.mark.parametrize(("observation", "name"), [(IMAGE, "SAC"), (MIXED, "TD3")])
def test_actors_and_critics_of_images_go_on_from_what_was_kept(observation: spaces.Space, name: str) -> None:
    objective = OBJECTIVES[name]
    of = actor_of(objective, observation)
    batch = moves(of)
    whole = assert_goes_on(lambda: actor_critic(of, objective), batch, 0.003)

    seen = np.ascontiguousarray(batch.obs[0])
    with torch.no_grad():
        expected = whole.networks.actor.policy(as_tensor(of.prepare(seen, whole.weights(4)), torch.device("cpu")))
    np.testing.assert_allclose(values_of(of, whole.weights(4), seen), expected, rtol=1e-5, atol=1e-6)
    encoders = {
        id(each)
        for each in (whole.networks.actor.policy_encoder, *(one.observation_encoder for one in whole.networks._critics))
    }
    assert len(encoders) == 1 + objective.num_critics  # each has its own


class HalfFrozen(nn.Sequential):
    """An encoder of which the first layer is not to learn."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
        self[0].requires_grad_(False)


@pytest.mark.parametrize("name", ["SAC", "TD3"])
def test_what_an_encoder_has_frozen_stays_and_the_rest_learns(name: str) -> None:
    objective = OBJECTIVES[name]
    own = actor_critic(actor_of(objective, custom_encoder={"_target_": f"{__name__}.HalfFrozen"}), objective)
    each: list[Any] = [own.networks.actor.policy_encoder, *(one.observation_encoder for one in own.networks._critics)]
    before = [[part.detach().clone() for part in encoder.parameters()] for encoder in each]
    own.update(moves(own.architecture), 0.01)
    for encoder, was in zip(each, before, strict=True):
        same = [torch.equal(part, old) for part, old in zip(encoder.parameters(), was, strict=True)]
        assert same[:2] == [True, True] and not any(same[2:4])


def test_values_that_are_not_finite_are_named_in_one_line() -> None:
    of = architecture()
    batch = make_batch(of)
    batch.reward[1, 5] = np.nan
    with pytest.raises(Diverged, match=r"^in update 2 the loss is nan: training diverged; reduce .*$"):
        learner(of).update(batch, 0.003)
