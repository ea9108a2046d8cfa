"""Heads of every kind of action, alone and together: NumPy's half and torch's say the same."""

from typing import Any

import numpy as np
import pytest
import torch
from compiled import native  # noqa: F401, a fixture
from gymnasium import spaces
from torch import distributions

from paddock.algos.networks.actor_critic import masked
from paddock.algos.networks.flat import MLP, Population
from paddock.algos.networks.heads import NO_LOG_STD, Composite, Head, make_head
from paddock.envs.errors import ConfigError
from paddock.envs.spaces.layout import Layout
from paddock.envs.vector import EnvError

BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 5], np.float32))
SPACES: dict[str, spaces.Space] = {
    "choice": spaces.Discrete(4, start=-2),
    "choices": spaces.MultiDiscrete(np.array([[2, 3], [4, 1]]), start=np.array([[5, 0], [-1, 7]])),
    "bits": spaces.MultiBinary((2, 2)),
    "box": BOX,
    "mixed": spaces.Dict({"move": spaces.Discrete(3, start=1), "aim": BOX, "keys": spaces.MultiBinary(3)}),
    "nested": spaces.Tuple(
        [
            spaces.Dict({"b": spaces.Box(-2, 3, (2, 1), np.float64), "a": spaces.MultiDiscrete([3, 2], start=[1, 0])}),
            spaces.Discrete(2),
            spaces.Box(-1, 1, (), np.float32),
        ]
    ),
    "all choices": spaces.Dict({"a": spaces.Discrete(300), "b": spaces.Tuple([spaces.MultiBinary(2)])}),
    "one": spaces.Dict({"only": spaces.Discrete(3)}),
}
KINDS = [(name, gaussian) for name in SPACES for gaussian in ("gaussian", "squashed_gaussian")]
DRAWS = 40_000


def as_batch(head: Head, actions: Any) -> Any:
    """What `to_env` gave, in Gymnasium's batch form."""
    return head.layout.batch(actions) if isinstance(head, Composite) else actions


def head_of(name: str, gaussian: str = "gaussian") -> Head:
    return make_head(SPACES[name], distribution=gaussian)


def drawn(head: Head, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs, log standard deviations, and actions drawn of them."""
    generator = np.random.default_rng(seed)
    out = generator.standard_normal((rows, head.width)).astype(np.float32)
    log_std = generator.uniform(-0.8, 0.3, head.num_log_std).astype(np.float32)
    return out, log_std, head.sample(out, log_std, head.sample_noise(generator, (rows,)))


def elements(head: Head, actions: np.ndarray) -> list[Any]:
    """Actions as single environments take them."""
    if not isinstance(head, Composite):
        return list(actions)
    assert isinstance(head, Composite)
    return [head.layout.reader(actions)(row) for row in range(len(actions))]


@pytest.mark.parametrize(("name", "gaussian"), KINDS)
def test_the_environment_gets_actions_of_its_space(name: str, gaussian: str) -> None:
    head, undrawn = head_of(name, gaussian), make_head(SPACES[name], stochastic=False)
    out, log_std, drawn_inside = drawn(head, 200)
    for inside in (drawn_inside, head.sample(5 * out, log_std, None)):
        assert inside.shape == (200, head.components)
        assert all(SPACES[name].contains(action) for action in elements(head, head.to_env(inside)))
    out = 10 * np.random.default_rng(0).standard_normal((200, undrawn.width)).astype(np.float32)
    assert all(SPACES[name].contains(action) for action in elements(undrawn, undrawn(out)))


@pytest.mark.parametrize("draws", [False, True])
def test_numbers_stay_inside_of_bounds_that_only_some_sides_have(draws: bool) -> None:
    low, high = np.array([0, -np.inf, -np.inf], np.float32), np.array([np.inf, 1, np.inf], np.float32)
    space, out = spaces.Box(low, high), np.array([[-2, 3, -4], [5, -6, 7]], np.float32)
    for head in (make_head(space, stochastic=draws), make_head(spaces.Dict(only=space), stochastic=draws)):
        got = as_batch(head, head.to_env(head.sample(out, np.zeros(head.num_log_std, np.float32), None)))
        got = got["only"] if isinstance(head, Composite) else got
        assert got.tolist() == [[0, 1, -4], [5, -6, 7]]


@pytest.mark.parametrize(("name", "gaussian"), KINDS)
def test_log_probability_and_entropy_are_those_of_torchs_distributions(name: str, gaussian: str) -> None:
    head = head_of(name, gaussian)
    out, log_std, action = drawn(head, 50)
    logits, deviation, chosen = torch.from_numpy(out), torch.from_numpy(log_std).exp(), torch.from_numpy(action)
    logprob, entropy, width, k, stds = torch.zeros(50), torch.zeros(50), 0, 0, 0
    for leaf in head.leaves:
        if leaf.sizes:
            for size in leaf.sizes:
                choice = distributions.Categorical(logits=logits[:, width : width + size])
                logprob, entropy = logprob + choice.log_prob(chosen[:, k]), entropy + choice.entropy()
                width, k = width + size, k + 1
            continue
        for low, high in zip(leaf.low, leaf.high, strict=True):
            normal: Any = distributions.Normal(logits[:, width], deviation[stds])
            entropy, taken = entropy + normal.entropy(), chosen[:, k].double()
            if gaussian == "squashed_gaussian":
                half, middle = (high - low) / 2, (high + low) / 2
                maps: list[distributions.Transform] = [
                    distributions.TanhTransform(),
                    distributions.AffineTransform(middle, half),
                ]
                normal = distributions.TransformedDistribution(normal, maps)
                taken = middle + half * torch.tanh(taken)
            logprob = logprob + normal.log_prob(taken)
            width, k, stds = width + 1, k + 1, stds + 1
    assert (width, k, stds) == (head.width, head.components, head.num_log_std)
    np.testing.assert_allclose(head.logprob(out, log_std, action), logprob, rtol=1e-4, atol=1e-4)
    ours = head.logprob_and_entropy(logits, torch.from_numpy(log_std), chosen)
    torch.testing.assert_close(ours[0].double(), logprob.double(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours[1].double(), entropy.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "gaussian"), KINDS)
def test_a_row_has_the_same_bits_in_any_company(name: str, gaussian: str) -> None:
    head = head_of(name, gaussian)
    out, log_std, action = drawn(head, 41)
    logprob, sent = head.logprob(out, log_std, action), head.to_env(action)
    for rows in ([7], [40, 7, 3]):
        order = np.array(rows)
        assert head.logprob(out[order], log_std, action[order]).tobytes() == logprob[order].tobytes()
        sideways = head.logprob(np.asfortranarray(out[order]), log_std, np.asfortranarray(action[order]))
        assert sideways.tobytes() == logprob[order].tobytes()
        assert head.to_env(action[order]).tobytes() == sent[order].tobytes()


def test_a_squashed_density_is_finite_and_exact_far_out() -> None:
    head = make_head(spaces.Box(-1, 1, (1,), np.float32), distribution="squashed_gaussian")
    action = np.array([[-60.0], [0.0], [60.0]], np.float32)
    # log(1 - tanh(u)^2) is 2 (log 2 - |u|) as far out, and 0 at 0.
    slope = np.array([2 * np.log(2) - 120, 0, 2 * np.log(2) - 120])
    density = -0.5 * (action[:, 0] / 60) ** 2 - np.log(60) - 0.5 * np.log(2 * np.pi) - slope
    log_std, out = np.log(np.array([60], np.float32)), np.zeros((3, 1), np.float32)
    np.testing.assert_allclose(head.logprob(out, log_std, action), density, rtol=1e-5)
    theirs, _ = head.logprob_and_entropy(*map(torch.from_numpy, (out, log_std, action)))
    np.testing.assert_allclose(theirs, density, rtol=1e-5)


# Masks


def test_what_is_not_legal_is_never_drawn_and_has_no_probability() -> None:
    head = head_of("mixed")
    out = np.zeros((DRAWS, head.width), np.float32)
    out[:, head.columns["move",]] = [5, 0, 0]  # the most likely one is forbidden
    legal = np.ones(out.shape, np.bool_)
    legal[:, head.columns["move",]] = [False, True, True]
    log_std, noise = np.zeros(head.num_log_std, np.float32), head.sample_noise(np.random.default_rng(0), (DRAWS,))
    permitted = head.masked(out, legal)
    moves = head.to_env(head.sample(permitted, log_std, noise))
    taken = as_batch(head, moves)["move"]
    assert set(taken.tolist()) == {2, 3}  # choices begin with 1
    assert abs((taken == 2).mean() - 0.5) < 4 * np.sqrt(0.25 / DRAWS)
    assert as_batch(head, head(permitted[:1]))["move"] == 2
    np.testing.assert_array_equal(permitted[legal], out[legal])
    one = head.sample(permitted[:1], log_std, None)
    assert isinstance(head, Composite)
    [at] = [section for section in head.sections if section.leaf.path == ("move",)]
    for move, share in ((0, 0.0), (1, 0.5), (2, 0.5)):
        one[:, at.action] = move
        assert np.exp(head.logprob(permitted[:1], log_std, one) - head.logprob(out[:1] * 0, log_std, one)) == (
            pytest.approx(share * 3, abs=1e-6)
        )


def test_entropy_is_that_of_what_is_legal() -> None:
    head = head_of("choice")
    out = torch.zeros((1, 4))
    for number in (1, 2, 4):
        legal = torch.arange(4)[None] < number
        _, entropy = head.logprob_and_entropy(
            masked(out, legal), torch.zeros(0), torch.zeros((1, 1), dtype=torch.int64)
        )
        assert float(entropy) == pytest.approx(np.log(number), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "path", "k", "named"),
    [
        ("choice", (), 0, r"action_mask allows none of 4 choices in row 3;"),
        ("nested", (0, "a"), 0, r"action_mask\.0\.a, component 0, allows none of 3 choices in row 3;"),
    ],
)
def test_nothing_legal_is_an_error_that_names_the_leaf(name: str, path: tuple[Any, ...], k: int, named: str) -> None:
    head = head_of(name)
    [leaf] = [leaf for leaf in head.leaves if leaf.path == path]
    legal = np.ones((5, head.width), np.bool_)
    start = head.columns[path].start + sum(leaf.sizes[:k])
    legal[3, start : start + leaf.sizes[k]] = False
    with pytest.raises(EnvError, match=named):
        head.masked(np.zeros(legal.shape, np.float32), legal)


# Together as alone


@pytest.mark.parametrize("name", ["choice", "choices", "bits", "box"])
def test_a_leaf_alone_in_a_dict_acts_as_it_does_by_itself(name: str) -> None:
    alone, within = head_of(name), make_head(spaces.Dict({"only": SPACES[name]}))
    assert isinstance(within, Composite) and (within.width, within.components) == (alone.width, alone.components)
    assert within.inner_dtype == alone.inner_dtype and within.compact_dtype == alone.compact_dtype
    out, log_std, action = drawn(alone, 60)
    again, _, other = drawn(within, 60)
    np.testing.assert_array_equal(out, again)
    np.testing.assert_array_equal(action, other)
    np.testing.assert_array_equal(alone.logprob(out, log_std, action), within.logprob(out, log_std, other))
    rows = within.to_env(other)
    assert rows.dtype.kind == "V" and rows.shape == (60,)
    np.testing.assert_array_equal(as_batch(within, rows)["only"], alone.to_env(action))


def test_a_mixed_population_acts_the_same_in_any_company() -> None:
    mlp = MLP.for_spaces(Layout.of(spaces.Box(-1, 1, (3,), np.float32), {}, ()), SPACES["nested"], (6,), "tanh")
    generator = np.random.default_rng(0)
    parameters = 3 * generator.standard_normal((17, mlp.num_parameters)).astype(np.float32)
    obs = generator.standard_normal((17, 3)).astype(np.float32)
    together, alone = Population(mlp, 17), Population(mlp, 1)
    for slot in range(17):
        together.load(slot, parameters[slot])
    actions = together.act(obs)
    assert len({action.tobytes() for action in actions}) > 10
    for slot in range(17):
        alone.load(0, parameters[slot])
        assert alone.act(obs[slot : slot + 1]).tobytes() == actions[slot].tobytes()
    assert all(SPACES["nested"].contains(action) for action in elements(mlp.head, actions))


# What is no action


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (spaces.Text(5), r"the action space Text\(1, 5, .* is not supported; allowed: Dict, Tuple, Discrete"),
        (spaces.Box(0, 9, (2,), np.int64), "Box of floats; wrap the environment"),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Sequence(BOX)])}), r"at b\.0 Sequence"),
        (spaces.Dict({}), "is empty"),
    ],
)
def test_an_unsupported_action_space_is_one_line_with_its_path(space: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        make_head(space)
    assert "\n" not in str(caught.value)


def test_squashed_numbers_need_bounds() -> None:
    space = spaces.Dict({"arm": spaces.Dict({"force": spaces.Box(0, np.inf, (2,), np.float32)})})
    with pytest.raises(
        ConfigError,
        match=r"continuous_distribution=squashed_gaussian needs bounds, .* at arm\.force .*; use .*=gaussian",
    ):
        make_head(space, distribution="squashed_gaussian")
    assert make_head(space).num_log_std == make_head(space, stochastic=False).width == 2
    fixed = make_head(
        spaces.Box(np.array([0, 1], np.float32), np.array([1, 1], np.float32)), distribution="squashed_gaussian"
    )  # one that cannot move
    out = np.zeros((2, 2), np.float32)
    assert np.isfinite(fixed.logprob(out, out[0], out)).all()
    np.testing.assert_array_equal(fixed(out), [[0.5, 1], [0.5, 1]])
    assert NO_LOG_STD.size == 0
