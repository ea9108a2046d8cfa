"""What networks see of structured observations: numbers, images, encoders of one's own, and what is legal."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from paddock.algos.learning.learner import dense_inputs
from paddock.algos.learning.torch_learner import TorchLearner
from paddock.algos.networks.actor import ActorPolicy, DenseActor, make_actor
from paddock.algos.networks.actor_critic import ActorCritic, TorchActor, as_tensor
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.convolutions import convolutions
from paddock.algos.networks.flat import MLP, FlatPolicy
from paddock.algos.networks.heads import make_head
from paddock.algos.networks.inputs import Inputs
from paddock.algos.ppo import ppo_loss
from paddock.envs.errors import ConfigError
from paddock.envs.spaces.layout import Layout
from paddock.envs.vector import EnvError

B = 7
NOTHING = np.zeros(0, np.float32)
CHOICES = spaces.Discrete(3)
VECTOR = spaces.Box(-5, 5, (3,), np.float64)
IMAGE = spaces.Box(0, 255, (6, 5, 3), np.uint8)
SPACES: dict[str, gymnasium.Space] = {
    "a choice": spaces.Discrete(4, start=-1),
    "numbers": spaces.Dict(speed=VECTOR, gear=spaces.Discrete(3), lamps=spaces.MultiBinary((2, 2))),
    "nested": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Dict(x=spaces.Box(-1, 1, (), np.float32))]),
    "images": spaces.Dict(front=IMAGE, back=spaces.Box(0, 255, (5, 5), np.uint8), speed=VECTOR),
    "image alone": spaces.Tuple([IMAGE]),
    "text": spaces.Dict(mission=spaces.Text(8), speed=VECTOR),
    "parts of nothing": spaces.Dict(
        x=spaces.Box(-1, 1, (2, 0)),
        y=spaces.Box(0, 255, (5, 5, 0), np.uint8),
        speed=VECTOR,
        gears=spaces.MultiDiscrete([]),
        mission=spaces.Text(0, min_length=0),
    ),
}
MANY = spaces.MultiDiscrete([20] * 9)
MASKED = spaces.Dict(action_mask=spaces.MultiBinary(3), speed=VECTOR)


def rows_of(space: gymnasium.Space, layout: Layout, count: int = B) -> NDArray[Any]:
    rows, space_ = layout.zeros(count), space
    space_.seed(1)
    write = layout.writer(rows)
    for k in range(count):
        write(k, space_.sample())
    return rows


def architecture(layout: Layout, action: gymnasium.Space = CHOICES, **changes: Any) -> Architecture:
    given: dict[str, Any] = {
        "encoder": "auto",
        "hidden_sizes": (8, 7),
        "activation": "tanh",
        "shared": False,
        "lstm": False,
        "initial_log_std": -0.3,
    }
    return Architecture.for_spaces(layout, make_head(action), **(given | changes))


def weights_of(arch: Architecture, normalized: bool = False, seed: int = 0) -> Weights:
    network, generator = ActorCritic(arch, seed), torch.Generator().manual_seed(seed)
    drawn = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
    flat = (drawn + 0.1 * torch.randn(drawn.shape, generator=generator)).numpy()
    if not normalized:
        return Weights(0, flat, NOTHING, NOTHING, 10.0)
    real = arch.inputs.is_real
    draw = np.random.default_rng(3)
    mean, std = draw.normal(size=real.size), draw.uniform(0.5, 2, real.size)
    return Weights(0, flat, np.where(real, mean, 0).astype(np.float32), np.where(real, std, 1).astype(np.float32), 10.0)


def through(arch: Architecture, weights: Weights, rows: NDArray[Any]) -> tuple[Tensor, Tensor]:
    network = ActorCritic(arch, 0)
    nn.utils.vector_to_parameters(torch.from_numpy(weights.parameters.copy()), network.parameters())
    seen: Tensor = as_tensor(arch.prepare(rows, weights), torch.device("cpu"))
    with torch.no_grad():
        out, value = network(seen)
    return out, value


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("normalized", [False, True])
def test_an_actor_computes_what_the_network_does(name: str, normalized: bool) -> None:
    layout = Layout.of(SPACES[name], {}, ())
    rows, arch = rows_of(SPACES[name], layout), architecture(layout)
    assert arch.encoder == ("cnn" if "image" in name else "mlp")
    weights, actor = weights_of(arch, normalized), make_actor(arch)
    assert isinstance(actor, TorchActor if "image" in name else DenseActor)
    actor.load(weights)
    out, _ = actor.act(rows, np.zeros((B, 0), np.float32))
    np.testing.assert_allclose(out, through(arch, weights, rows)[0], rtol=1e-4, atol=1e-5)
    assert len(np.unique(out, axis=0)) > 1  # it depends on the observation


BYTES: dict[str, Any] = {
    "array": (lambda high: spaces.Box(0, high, (4,), np.uint8), {}),
    "array in torch": (lambda high: spaces.Box(0, high, (4,), np.uint8), {"layer_norm": True}),
    "image": (lambda high: spaces.Box(0, high, (6, 5, 3), np.uint8), {}),
    "image beside": (lambda high: spaces.Dict(a=spaces.Box(0, high, (6, 5, 3), np.uint8), b=VECTOR), {}),
    "numbers": (lambda high: spaces.Dict(a=spaces.Box(0, high, (2, 3), np.uint8), b=VECTOR), {}),
    "few among choices": (lambda high: spaces.Dict(a=spaces.Box(0, high, (2, 3), np.uint8), b=MANY), {}),
}


@pytest.mark.parametrize("high", [1, 5])
@pytest.mark.parametrize("name", BYTES)
def test_bytes_are_seen_as_shares_of_the_greatest_that_is_declared(name: str, high: int) -> None:
    of, changes = BYTES[name]
    few, many = (Layout.of(of(most), {}, ()) for most in (high, 255))
    rows = rows_of(of(high), few)
    scaled = rows.copy()
    fields = many.fields(scaled)
    fields = fields if many.plain else fields["a"]
    assert fields.max() == high
    fields *= 255 // high
    seen = []
    for layout, each in ((few, rows), (many, scaled)):
        arch = architecture(layout, **changes)
        weights = weights_of(arch)
        out, _ = ActorPolicy(arch, weights).outputs(each)
        dense, sparse = dense_inputs(arch, each, weights) if arch.is_dense else (out, None)
        assert (sparse is not None) == (name == "few among choices")
        seen.append([out, dense, *([] if sparse is None else [sparse.value])])
    for one, other in zip(*seen, strict=True):
        np.testing.assert_array_equal(one, other)


def test_normalization_leaves_all_but_real_numbers_alone() -> None:
    layout = Layout.of(SPACES["numbers"], {}, ())
    inputs = Inputs(layout, make_head(CHOICES))
    numbers = inputs.numbers(rows_of(SPACES["numbers"], layout))
    assert numbers.shape == (B, 3 + 4 + 3) and inputs.is_real.sum() == 3
    real = np.flatnonzero(inputs.is_real)
    assert set(np.unique(np.delete(numbers, real, 1))) == {0, 1} and not set(np.unique(numbers[:, real])) <= {0, 1}


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("name", ["numbers", "images"])
def test_a_learner_and_its_actor_agree(name: str, lstm: bool) -> None:
    layout = Layout.of(SPACES[name], {}, ())
    arch = architecture(layout, lstm=lstm)
    made = TorchLearner(arch, 0, ppo_loss, device="cpu", precision="float32", adam_epsilon=1e-5)
    rows, actor, weights = rows_of(SPACES[name], layout), make_actor(arch), Weights(0, made.parameters())
    actor.load(weights)
    state = np.zeros((B, arch.state_width), np.float32)
    out, after = actor.act(rows, state)
    seen = as_tensor(arch.prepare(rows, weights), made.device)
    with torch.no_grad():
        expected, _, remembered = made.network.step(seen, torch.from_numpy(state))
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after, remembered, rtol=1e-4, atol=1e-5)


# Encoders of one's own


class Telling(nn.Module):
    """Remembers what it was given."""

    def __init__(self, width: int, given: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(3, width)

    def forward(self, obs: Any) -> Tensor:
        self.seen = obs
        leaf = obs["speed"] if isinstance(obs, dict) else obs
        made: Tensor = self.layer(leaf)
        return made


class Wrong(Telling):
    def forward(self, obs: Any) -> Tensor:
        return super().forward(obs)[0]


class Keeps(Telling):
    def __init__(self) -> None:
        super().__init__(4)
        self.norm = nn.BatchNorm1d(4)


class Draws(Telling):
    """Drops some of what it gives, unless it was built at rest."""

    def __init__(self, rest: bool) -> None:
        super().__init__(4)
        self.dropout = nn.Dropout(0.5).train(not rest)

    def forward(self, obs: Any) -> Tensor:
        made: Tensor = self.dropout(super().forward(obs))
        return made


class Late(Telling):
    """Draws its parameters when it first sees an observation."""

    def __init__(self) -> None:
        super().__init__(4)
        self.layer = nn.LazyLinear(4)


def own(target: str, **arguments: Any) -> dict[str, Any]:
    return {"_target_": f"{__name__}.{target}", **arguments}


def test_an_encoder_of_ones_own_gets_the_leaves_in_the_form_of_the_space() -> None:
    space = spaces.Dict(
        speed=spaces.Box(-5, 5, (3,), np.float32),
        inner=spaces.Tuple([IMAGE, spaces.Discrete(3), spaces.Text(4, charset="ab")]),
        items=spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32), stack=True),
    )
    layout = Layout.of(space, {"items": 40}, ())
    arch = architecture(layout, custom_encoder=own("Telling", width=6), hidden_sizes=(4,))
    rows, weights = rows_of(space, layout), weights_of(arch, normalized=True)
    actor = make_actor(arch)
    assert isinstance(actor, TorchActor)
    actor.load(weights)
    actor.act(rows, np.zeros((B, 0), np.float32))
    encoder: Any = actor._network.policy_encoder[0]
    seen = encoder.encoder.seen
    fields = layout.fields(rows)
    assert layout.leaves[0].path == ("speed",)
    scaled = (fields["speed"] - weights.mean[:3]) / weights.std[:3]
    np.testing.assert_allclose(seen["speed"], scaled, rtol=1e-6)
    image, choice, text = seen["inner"]
    assert image.dtype == torch.uint8 and np.array_equal(image, fields["inner"][0])
    assert np.array_equal(choice, fields["inner"][1])
    assert np.array_equal(text.numpy().view("<U4")[:, 0], fields["inner"][2])
    assert np.array_equal(seen["items"]["length"], fields["items"]["length"])
    assert seen["items"]["items"].shape == (B, 40, 2)


def test_what_an_encoder_draws_comes_from_the_seed_alone() -> None:
    arch = architecture(Layout.of(spaces.Box(-1, 1, (3,)), {}, ()), custom_encoder=own("Telling", width=6))
    first = weights_of(arch, seed=1).parameters
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert np.array_equal(first, weights_of(arch, seed=1).parameters)
    assert torch.equal(state, torch.get_rng_state())
    assert not np.array_equal(first, weights_of(arch, seed=2).parameters)
    late = architecture(Layout.of(spaces.Box(-1, 1, (3,)), {}, ()), custom_encoder=own("Late"))
    one, again, other = (weights_of(late, seed=seed).parameters for seed in (1, 1, 2))
    assert np.array_equal(one, again) and not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ({"width": 3}, "has no _target_"),
        (own("Telling"), "rejects {}: .*'width'"),
        (own("Wrong", width=3), r"returns \(3,\) for one observation; it must be float32 \[B, width\]"),
        (own("Keeps"), "buffers .norm.running_mean, .*LayerNorm instead"),
    ],
)
def test_an_encoder_that_is_none_is_refused(network: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ActorCritic(architecture(Layout.of(spaces.Box(-1, 1, (3,)), {}, ()), custom_encoder=network), 0)


def test_an_encoder_that_draws_random_numbers_is_refused() -> None:
    layout = Layout.of(spaces.Box(-1, 1, (3,)), {}, ())
    ActorCritic(architecture(layout, custom_encoder=own("Draws", rest=True)), 0)
    with pytest.raises(ConfigError, match=r"random numbers in forward\(\), .*; set dropout=0"):
        ActorCritic(architecture(layout, custom_encoder=own("Draws", rest=False)), 0)


@pytest.mark.parametrize(
    ("space", "changes", "said"),
    [
        (SPACES["numbers"], {"encoder": "cnn"}, "encoder=cnn needs images"),
        (spaces.Box(-1, 1, (2, 0)), {}, r"env: observation space Box\(.*\) is empty"),
        (spaces.Dict(x=spaces.Discrete(70_000)), {}, "70,000 features; .* 65,536"),
    ],
)
def test_what_cannot_be_encoded_is_refused(space: gymnasium.Space, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        architecture(Layout.of(space, {}, ()), **changes)


# Masks


def masked_rows(layout: Layout) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    legal = np.random.default_rng(2).random((B, 3)) < 0.5
    legal[~legal.any(axis=1), 1] = True
    rows = rows_of(MASKED, layout)
    layout.fields(rows)["action_mask"][:] = legal
    return rows, legal


@pytest.mark.parametrize(
    "changes", [{}, {"lstm": True}, {"custom_encoder": own("Telling", width=4)}], ids=["mlp", "lstm", "own"]
)
def test_what_is_not_legal_is_never_taken_and_moves_no_parameter(changes: dict[str, Any]) -> None:
    layout = Layout.of(MASKED, {}, ())
    arch, (rows, legal) = architecture(layout, **changes), masked_rows(layout)
    assert arch.inputs.numbers(rows).shape == (B, 3)  # the mask is no feature
    weights = weights_of(arch)
    for k in range(50):
        policy = ActorPolicy(arch, weights, np.random.default_rng(k))
        actions, _, _ = policy.act(rows)
        assert legal[np.arange(B), actions].all()
    network = ActorCritic(arch, 0)
    seen = as_tensor(arch.prepare(rows, weights), torch.device("cpu"))
    out, _, _ = network.step(seen, torch.zeros(B, arch.state_width))
    shares = torch.softmax(out, 1)
    assert (shares[~torch.from_numpy(legal)] == 0).all()
    blocked = torch.from_numpy(np.flatnonzero(~legal[0]))
    bias = network.policy_head.bias
    shares[0].square().sum().backward()
    assert bias.grad is not None and (bias.grad[blocked] == 0).all()


@pytest.mark.parametrize("flat", [True, False])
def test_where_nothing_is_legal_it_is_an_error(flat: bool) -> None:
    layout = Layout.of(MASKED, {}, ())
    mlp, arch = MLP.for_spaces(layout, CHOICES, (5,), "tanh"), architecture(layout)
    policy: Any = FlatPolicy(mlp, np.zeros(mlp.num_parameters, np.float32), None) if flat else None
    policy = policy or ActorPolicy(arch, weights_of(arch))
    with pytest.raises(EnvError, match="action_mask allows none of 3 choices in row 0"):
        policy.act(layout.zeros(2))


@pytest.mark.parametrize(
    ("mask", "action"),
    [
        (spaces.MultiBinary(2), CHOICES),
        (spaces.Box(0, 1, (3,), np.float32), CHOICES),
        (spaces.MultiBinary(3), spaces.Box(-1, 1, (3,), np.float32)),
    ],
    ids=["size", "dtype", "no choice"],
)
def test_a_mask_that_is_about_no_choice_is_refused(mask: gymnasium.Space, action: gymnasium.Space) -> None:
    layout = Layout.of(spaces.Dict(action_mask=mask, speed=VECTOR), {}, ())
    with pytest.raises(ConfigError, match=r"match no action; allowed: .*env\.without="):
        architecture(layout, action)


def test_a_mask_of_several_choices_finds_its_own() -> None:
    action = spaces.Dict(arm=spaces.Discrete(2), legs=spaces.Tuple([spaces.MultiDiscrete([2, 3])]))
    mask = spaces.Dict(legs=spaces.Tuple([spaces.MultiBinary(5)]))
    layout = Layout.of(spaces.Dict(action_mask=mask, speed=VECTOR), {}, ())
    inputs = Inputs(layout, make_head(action))
    rows = layout.zeros(1)
    layout.fields(rows)["action_mask"]["legs"][0][:] = [0, 1, 1, 0, 1]
    legal = inputs.legal(rows)
    assert legal is not None and legal.tolist() == [[True, True, False, True, True, False, True]]


def test_a_mask_of_bits_holds_where_nothing_is_drawn() -> None:
    action = spaces.Dict(keys=spaces.MultiBinary(2), lamp=spaces.MultiBinary(1))
    mask = spaces.Dict(keys=spaces.MultiBinary(4))  # of each key 0, then 1; of the lamp none
    layout = Layout.of(spaces.Dict(action_mask=mask, speed=VECTOR), {}, ())
    mlp = MLP.for_spaces(layout, action, (5,), "tanh")
    assert [leaf.kind for leaf in mlp.head.leaves] == ["choices", "binary"] and mlp.head.width == 4 + 1
    parameters = 3 * np.random.default_rng(0).normal(size=mlp.num_parameters).astype(np.float32)
    rows = rows_of(spaces.Dict(action_mask=mask, speed=VECTOR), layout)
    policy, masks = FlatPolicy(mlp, parameters, None), layout.fields(rows)["action_mask"]["keys"]
    masks[:] = 1
    free = Layout.of(action, {}, ()).batch(policy.act(rows)[0])
    assert free["keys"].min(axis=0).tolist() == [0, 0] and free["keys"].max(axis=0).tolist() == [1, 1]
    masks[:] = [0, 1, 1, 1]  # the first key is held
    held = Layout.of(action, {}, ()).batch(policy.act(rows)[0])
    assert held["keys"][:, 0].all()
    np.testing.assert_array_equal(held["keys"][:, 1], free["keys"][:, 1])
    np.testing.assert_array_equal(held["lamp"], free["lamp"])


def test_dense_layers_after_convolutions_are_those_of_nature_by_default() -> None:
    unset: dict[str, Any] = {"hidden_sizes": None, "activation": None, "default_layers": ((64, 64), "tanh")}
    image = architecture(Layout.of(spaces.Box(0, 255, (84, 84, 4), np.uint8), {}, ()), **unset)
    vector = architecture(Layout.of(VECTOR, {}, ()), **unset)
    assert (image.hidden_sizes, image.activation) == ((512,), "relu")
    assert (vector.hidden_sizes, vector.activation) == ((64, 64), "tanh")
    assert architecture(Layout.of(VECTOR, {}, ()), hidden_sizes=32).hidden_sizes == (32,)


def test_residual_network_has_the_shape_of_impalas() -> None:
    layers = torch.nn.Sequential(*convolutions((84, 84, 4), 255, torch.Generator(), False, residual=True))
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in layers.modules()) == 3 * (1 + 2 * 2)
    # Each stage halves the sides: 84, 42, 21, 11.
    assert layers(torch.zeros((2, 84, 84, 4), dtype=torch.uint8)).shape == (2, 32 * 11 * 11)


BIT_BOX: Any = np.bool_  # Gymnasium types bounds as floats
BIT_IMAGES = [spaces.Box(0, 1, (6, 5, 3), BIT_BOX), spaces.MultiBinary((6, 5, 3))]


@pytest.mark.parametrize("space", BIT_IMAGES)
def test_bits_are_convolved_on_request_as_the_same_bytes_are(space: gymnasium.Space) -> None:
    bits, image = Layout.of(space, {}, ()), Layout.of(spaces.Box(0, 1, (6, 5, 3), np.uint8), {}, ())
    assert architecture(bits, encoder="auto").encoder == "mlp"
    ours, theirs = architecture(bits, encoder="cnn"), architecture(image, encoder="cnn")
    rows, weights = rows_of(space, bits), weights_of(theirs)
    same = bits.octets(rows).reshape(-1, 6, 5, 3)
    for own, other in zip(through(ours, weights, rows), through(theirs, weights, same), strict=True):
        torch.testing.assert_close(own, other)
