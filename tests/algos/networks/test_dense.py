"""Dense networks learn without torch: by torch's gradients in double precision, and to the same bits everywhere."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from compiled import missing, native, places  # noqa: F401, a fixture
from gymnasium import spaces
from torch import nn

from paddock.algos.a2c import a2c_loss
from paddock.algos.learning.dense_learner import DenseLearner
from paddock.algos.learning.learner import MAX_DENSE_WIDTH, Batch, is_dense
from paddock.algos.learning.onpolicy.minibatch import Minibatch
from paddock.algos.learning.torch_learner import TorchLearner
from paddock.algos.networks.actor_critic import ActorCritic
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense import library as dense_library
from paddock.algos.networks.dense.init import init_orthogonal, init_parameters
from paddock.algos.networks.dense.shape import REPORTED, DenseShape, LossSettings
from paddock.algos.networks.heads import Categorical, make_head
from paddock.algos.ppo import ppo_loss
from paddock.envs.errors import ConfigError
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.sparse import SparseRows

BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 5], np.float32))
ACTIONS: dict[str, tuple[spaces.Space, Any]] = {
    "choice": (spaces.Discrete(3), "gaussian"),
    "choices": (spaces.MultiDiscrete([2, 3, 4]), "gaussian"),
    "box": (BOX, "gaussian"),
    "squashed": (BOX, "squashed_gaussian"),
    "mixed": (spaces.Dict(move=spaces.Discrete(3, start=1), aim=BOX, keys=spaces.MultiBinary(3)), "squashed_gaussian"),
}
OBJECTIVES = {
    "usual": LossSettings(0.2, None, 0.5, 0.01, normalize_advantages=True),
    "clipped values": LossSettings(0.02, 0.3, 0.25, 0.3, normalize_advantages=True),
    "plain": LossSettings(np.inf, None, 0.5, 0.0, normalize_advantages=False),
}
ROWS = 150


def architecture(action: str, masked: bool = False, sparse: bool = False, **changes: Any) -> Architecture:
    given: dict[str, Any] = {"hidden_sizes": (8, 7), "activation": "tanh", "shared": False} | changes
    space, gaussian = ACTIONS[action]
    head = make_head(space, distribution=gaussian)
    numbers: spaces.Space = spaces.Box(-9, 9, (5,), np.float32)
    if sparse:
        numbers = spaces.Tuple([spaces.MultiDiscrete([11, 7, 3] * 3), numbers, spaces.Discrete(9, start=-3)])
    seen = numbers
    if masked:
        [[path, part]] = [(path, part) for path, part in head.columns.items()][:1]
        mask: spaces.Space = spaces.MultiBinary(part.stop - part.start)
        seen = spaces.Dict(action_mask=spaces.Dict({str(path[0]): mask}) if path else mask, numbers=numbers)
    return Architecture.for_spaces(
        Layout.of(seen, {}, ()), head, encoder="mlp", lstm=False, initial_log_std=-0.2, **given
    )


def make_batch(arch: Architecture, rows: int = ROWS) -> tuple[np.ndarray, SimpleNamespace]:
    """Parameters some way from the first, and something to learn; where masks are, some outputs are not legal."""
    shape, generator = DenseShape.of(arch), np.random.default_rng(3)
    theta = init_parameters(shape, -0.2, seed=1)
    theta += generator.normal(0, 0.2, len(theta)).astype(np.float32)
    obs = generator.standard_normal((rows, shape.width)).astype(np.float32)
    if arch.inputs.sparse:
        obs[generator.random(obs.shape) < 0.8] = 0
    legal = np.ones((rows, shape.outputs), np.bool_)
    if shape.masked:
        first = next(iter(arch.head.columns.values()))
        legal[:, first] = generator.random((rows, first.stop - first.start)) < 0.5
        sizes = next(leaf.sizes for leaf in arch.head.leaves if leaf.sizes)
        legal[:, first.start + np.cumsum(sizes) - 1] = True  # of each component the last choice
        legal[:, first.start] = False  # never
        obs[:, shape.numbers :] = legal
    out = np.where(legal, generator.standard_normal(legal.shape), -1e30).astype(np.float32)
    log_std = np.full(shape.log_stds, -0.2, np.float32)
    action = arch.head.sample(out, log_std, arch.head.sample_noise(generator, (rows,)))
    noise, advantage, target, value = generator.standard_normal((4, rows)).astype(np.float32)
    old = -np.float32(shape.outputs) * np.float32(0.4) + noise
    action = action.astype(np.float32)
    learned = {"logprob": old, "advantage": advantage, "target": target, "value": value}
    slope = arch.head.log_slope(action)
    return theta, SimpleNamespace(observation=obs, action=action, slope=slope, sparse=None, **learned)


def learner_of(arch: Architecture, theta: np.ndarray, threads: int = 1) -> DenseLearner:
    """A learner with these parameters."""
    learner = DenseLearner(arch, 0, adam_epsilon=1e-5, threads=threads)
    learner.load_state_dict({**learner.state_dict(), "parameters": theta})
    return learner


def step(learner: DenseLearner, sample: SimpleNamespace, rows: Any, settings: LossSettings, *rest: Any) -> np.ndarray:
    """Take a step for each of these minibatches; return what is reported."""
    return learner.optimizer_step(learner_values(learner, sample), batch_of(sample), rows, settings, *rest).values


def batch_of(sample: SimpleNamespace) -> Batch:
    return Batch(*(getattr(sample, name)[:, None] for name in ("logprob", "advantage", "target", "value")))


CHANGES: list[dict[str, Any]] = [
    {},
    {"shared": True, "activation": "relu"},
    {"hidden_sizes": ()},
    {"masked": True},
    {"masked": True, "shared": True},
]
PAIRS = itertools.product(CHANGES, ACTIONS)


@pytest.mark.parametrize(
    ("changes", "action", "objective"),
    [(*pair, objective) for pair, objective in zip(PAIRS, itertools.cycle(OBJECTIVES), strict=False)],
)
def test_gradients_and_reports_are_those_of_torch_in_double_precision(
    changes: dict[str, Any], action: str, objective: str
) -> None:
    if changes.get("masked") and action in ("box", "squashed"):
        changes = {**changes, "masked": False}  # nothing is chosen
    arch, settings = architecture(action, **changes), OBJECTIVES[objective]
    shape = DenseShape.of(arch)
    theta, sample = make_batch(arch)
    rows = np.random.default_rng(1).permutation(ROWS)[:100]
    network = ActorCritic(arch, 0).double()
    nn.utils.vector_to_parameters(torch.from_numpy(theta).double(), network.parameters())
    loss, metrics = ppo_loss(network, minibatch(arch, sample, rows), settings)
    loss.backward()
    theirs = np.concatenate([np.asarray(p.grad).ravel() for p in network.parameters() if p.grad is not None])

    learner = learner_of(arch, theta)
    report = step(learner, sample, [rows], settings, 0.001, None)[0]
    gradient = learner.state_dict()["momentum"] / np.float32(1 - np.float32(0.9))
    np.testing.assert_allclose(gradient, theirs, rtol=2e-4, atol=2e-5)
    expected = [float(metrics[name].detach()) for name in REPORTED[:-1]]
    np.testing.assert_allclose(report, [*expected, float(np.linalg.norm(theirs))], rtol=2e-4, atol=2e-5)
    if shape.masked:
        never = next(iter(arch.head.columns.values())).start
        layers = DenseShape.of(arch).policy
        at = shape.log_stds + sum((a + 1) * b for c in (shape.trunk, layers) for a, b in itertools.pairwise(c))
        assert gradient[at - shape.outputs + never] == 0  # of a bias that no action may depend on


def minibatch(arch: Architecture, sample: SimpleNamespace, rows: np.ndarray) -> Minibatch:
    """Rows of a sample in double precision."""
    given: dict[str, Any] = {
        name: torch.from_numpy(getattr(sample, name)[rows]).double()
        for name in ("action", "logprob", "advantage", "target", "value")
    }
    if isinstance(arch.head, Categorical):
        given["action"] = given["action"].long()
    obs = torch.from_numpy(sample.observation[rows]).double()
    return Minibatch(obs=obs, **given, all_advantages=given["advantage"])


def test_the_gradient_of_a2c_is_that_of_the_surrogate_at_ratio_one() -> None:
    arch, settings = architecture("box"), OBJECTIVES["plain"]
    theta, sample = make_batch(arch)
    learner = learner_of(arch, theta)
    rows, network = np.arange(ROWS), ActorCritic(arch, 0).double()
    nn.utils.vector_to_parameters(torch.from_numpy(theta).double(), network.parameters())
    _, now = learner.evaluate(sample.observation, sample.action)
    sample.logprob = now - sample.slope
    loss, _ = a2c_loss(network, minibatch(arch, sample, rows), settings)
    loss.backward()
    theirs = np.concatenate([np.asarray(p.grad).ravel() for p in network.parameters() if p.grad is not None])
    step(learner, sample, [rows], settings, 0.001, None)
    momentum = learner.state_dict()["momentum"]
    np.testing.assert_allclose(momentum / np.float32(1 - np.float32(0.9)), theirs, rtol=2e-4, atol=2e-5)


CASES: dict[str, dict[str, Any]] = {
    "plain": {"action": "box"},
    "shared": {"action": "choices", "shared": True, "hidden_sizes": (33, 20)},
    "masked": {"action": "mixed", "masked": True, "activation": "relu", "hidden_sizes": (17,)},
    "linear": {"action": "squashed", "hidden_sizes": ()},
    "wide": {"action": "choice", "hidden_sizes": (64, 64)},
    "sparse": {"action": "choices", "sparse": True, "hidden_sizes": (20,)},
    "sparse, masked": {"action": "mixed", "masked": True, "sparse": True, "shared": True, "hidden_sizes": (9,)},
}


@pytest.mark.parametrize("case", CASES)
def test_instruction_sets_and_thread_counts_give_the_same_bits(
    case: str,
    native: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arch = architecture(**CASES[case])
    shape = DenseShape.of(arch)
    for size, objective in zip((7, 64, 150), OBJECTIVES.values(), strict=True):
        found: dict[str, bytes] = {}
        for sparse in (False, True) if arch.inputs.sparse else (False,):
            for name, threads in places(monkeypatch):
                theta, sample = make_batch(arch)
                sample, learner = without_zeros(sample, shape) if sparse else sample, learner_of(arch, theta, threads)
                order = np.random.default_rng(2).permutation(ROWS)
                rows = [order[first : first + size] for first in range(0, ROWS, size)]
                told = [step(learner, sample, part, objective, 0.003, 0.5) for part in (rows[:1], rows[1:] + rows)]
                told += learner.evaluate(sample.observation, sample.action, sample.sparse)
                one = None if sample.sparse is None else sample.sparse.head(1)
                told += learner.evaluate(sample.observation[:1], None, one)
                state = learner.state_dict()
                found[f"{name} {sparse}"] = b"".join(
                    np.ascontiguousarray(x).tobytes() for x in (*told, *state.values())
                )
                assert state["descents"] == 2 * len(rows) and np.isfinite(state["parameters"]).all()
        assert len(found) > 1 and len(set(found.values())) == 1, (size, sorted(found))


def without_zeros(sample: SimpleNamespace, shape: DenseShape) -> SimpleNamespace:
    numbers, legal = np.split(sample.observation, [shape.numbers], axis=1)
    return SimpleNamespace(**vars(sample) | {"observation": legal, "sparse": SparseRows.of(numbers)})


def test_numbers_that_are_not_finite_have_the_same_fate_everywhere(
    native: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arch = architecture("choice")
    for wrong, value in (("advantage", np.nan), ("observation", np.inf)):
        found = []
        for _, threads in places(monkeypatch):
            theta, sample = make_batch(arch)
            getattr(sample, wrong)[3] = value
            learner = learner_of(arch, theta, threads)
            report = step(learner, sample, [np.arange(ROWS)], OBJECTIVES["usual"], 0.003, 0.5)
            found.append((np.isfinite(report), np.isfinite(learner.parameters())))
        assert not found[0][0].all()
        assert all(a.tobytes() == b.tobytes() for other in found[1:] for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("words", [{}, {"action": "mixed", "masked": True, "shared": True}], ids=["plain", "masked"])
def test_both_learners_begin_alike_and_learn_the_same(words: dict[str, Any]) -> None:
    arch = architecture(**({"action": "box"} | words))
    _, sample = make_batch(arch)
    ours: Any = DenseLearner(arch, 5, adam_epsilon=1e-5, threads=2)
    theirs: Any = TorchLearner(arch, 5, ppo_loss, device="cpu", precision="float32", adam_epsilon=1e-5)
    assert ours.parameters().tobytes() == theirs.parameters().tobytes()
    batch = batch_of(sample)
    order = np.random.default_rng(2).permutation(ROWS)
    rows = [order[first : first + 64] for first in range(0, ROWS, 64)]
    told = []
    for learner in (ours, theirs):
        values = learner_values(learner, sample)
        for _ in range(5):
            report = learner.optimizer_step(values, batch, rows, OBJECTIVES["clipped values"], 0.003, 0.5)
            assert report.names == REPORTED
            told.append(report.values)
    np.testing.assert_allclose(told[:5], told[5:], rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(ours.parameters(), theirs.parameters(), atol=2e-4)
    state = ours.state_dict()
    theirs.load_state_dict(state)
    assert state["descents"] == 15 and theirs.state_dict().keys() == state.keys()
    again = DenseLearner(arch, 6, adam_epsilon=1e-5, threads=1)
    again.load_state_dict(theirs.state_dict())
    for learner in (again, ours):
        learner.optimizer_step(learner_values(learner, sample), batch, rows, OBJECTIVES["usual"], 0.003, None)
    assert again.parameters().tobytes() == ours.parameters().tobytes()


def learner_values(learner: Any, sample: SimpleNamespace) -> Any:
    """What `evaluate_batch` keeps of a rollout, made of a sample."""
    if isinstance(learner, DenseLearner):
        return SimpleNamespace(inputs=(sample.observation, sample.action, sample.slope, sample.sparse))
    obs, action = torch.from_numpy(sample.observation), torch.from_numpy(sample.action)[:, None]
    return SimpleNamespace(inputs=SimpleNamespace(obs=obs, action=action))


def test_a_machine_without_the_library_learns_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    arch = architecture("box")
    assert is_dense(arch, "auto", "cpu", "float32")
    assert not is_dense(architecture("box", hidden_sizes=(MAX_DENSE_WIDTH + 1,)), "auto", "cpu", "float32")
    monkeypatch.setattr(dense_library, "load", missing)
    assert not is_dense(arch, "auto", "cpu", "float32")
    with pytest.raises(ConfigError, match="backend=dense: there is no library, or use backend=torch"):
        is_dense(arch, "dense", "cpu", "float32")


@pytest.mark.parametrize(("rows", "columns"), [(64, 24), (4, 64), (1, 64), (40, 40)])
def test_drawn_matrices_are_orthogonal(rows: int, columns: int) -> None:
    drawn = init_orthogonal(rows, columns, np.random.default_rng(0))
    product = drawn @ drawn.T if rows <= columns else drawn.T @ drawn
    assert drawn.shape == (rows, columns)
    np.testing.assert_allclose(product, np.eye(min(rows, columns)), atol=1e-14)
    other = init_orthogonal(rows, columns, np.random.default_rng(1))
    assert abs((drawn * other).sum()) < 0.5 * min(rows, columns)


def test_first_parameters_have_the_gains_that_ppo_wants() -> None:
    arch = architecture("box", hidden_sizes=(64, 32))
    theta, shape = init_parameters(DenseShape.of(arch), -0.2, seed=2**70), DenseShape.of(arch)
    network = ActorCritic(arch, 2**70)
    assert nn.utils.parameters_to_vector(network.parameters()).detach().numpy().tobytes() == theta.tobytes()
    assert (theta[: shape.log_stds] == np.float32(-0.2)).all()
    for layer, gain in ((network.policy_head, 0.01), (network.value_head, 1.0)):
        assert float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) == pytest.approx(gain, rel=1e-6)
        assert not layer.bias.detach().any()
