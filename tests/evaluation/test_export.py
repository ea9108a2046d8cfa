"""An exported policy does in onnxruntime what it does here, whatever its network, its head and its observations."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TINY
from gymnasium import spaces
from numpy.typing import NDArray

import paddock
from paddock import export as command
from paddock.algos.networks.actor import ActorPolicy, Architecture, Weights
from paddock.algos.networks.actor_critic import ActorCritic, acting_network
from paddock.algos.networks.flat import MLP, FlatPolicy
from paddock.algos.networks.heads import make_head
from paddock.algos.networks.inputs import Inputs
from paddock.algos.networks.support import Support
from paddock.envs.errors import ConfigError
from paddock.envs.native.networks import Normalizer
from paddock.envs.spaces.layout import Layout

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
onnx_graph = pytest.importorskip("paddock.algos.networks.onnx_graph")

pytestmark = pytest.mark.xdist_group("export")  # the run is made once

PPO = [
    *(
        "algo=ppo",
        "vec.num_envs=2",
        "algo.num_steps=8",
        "algo.minibatch_size=16",
        "algo.hidden_sizes=[8]",
        "algo.eval_every_iterations=9",
    ),
    *("algo.eval_episodes=1", "budget.iterations=1"),
]
POET = [
    "algo=poet",
    "env=poles",
    "algo.hidden_sizes=[4]",
    "algo.population=4",
    "algo.eval_episodes=1",
    "budget.iterations=1",
]
RUNS = {
    "es": [*TINY, "budget.iterations=2"],
    "poet": [*POET, "algo.reproduce_every=9"],
    "lstm": [*PPO, "env=recall", "algo.lstm=true"],
}
ACTIONS = {
    "discrete": spaces.Discrete(3, start=-1),
    "multi_discrete": spaces.MultiDiscrete([3, 2], start=[0, 4]),
    "binary": spaces.MultiBinary((2, 2)),
    "bounded": spaces.Box(np.array([-1, 0], np.float32), np.array([1, 5], np.float32)),
    "unbounded": spaces.Box(-np.inf, np.inf, (2, 1), np.float64),
    "bounded in part": spaces.Box(np.array([0, -np.inf], np.float32), np.array([np.inf, 0.1], np.float32)),
}
PAIR: spaces.Space = spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (), np.float32)])
MIXED = spaces.Dict({**ACTIONS, "pair": PAIR})
NETWORKS: dict[str, tuple[spaces.Box, dict[str, Any]]] = {
    "normalized doubles": (spaces.Box(-5, 5, (3, 2), np.float64), {}),
    "bytes": (spaces.Box(0, 255, (4,), np.uint8), {"activation": "relu"}),
    "images, channels last": (spaces.Box(0, 255, (12, 10, 3), np.uint8), {"encoder": "cnn"}),
    "large images, channels first": (spaces.Box(0, 255, (2, 36, 40), np.uint8), {"encoder": "cnn", "shared": True}),
    "layer norm": (spaces.Box(-5, 5, (3,), np.float32), {"layer_norm": True, "hidden_sizes": (8, 7)}),
    "residual blocks": (spaces.Box(0, 255, (12, 10, 3), np.uint8), {"encoder": "impala", "layer_norm": True}),
    "images of bits": (spaces.Box(0, 1, (12, 10, 3), np.bool_), {"encoder": "cnn"}),  # type: ignore[arg-type]
    "layer norm of images": (spaces.Box(0, 255, (12, 10, 3), np.uint8), {"encoder": "cnn", "layer_norm": True}),
    "memory, shared": (spaces.Box(-5, 5, (3,), np.float32), {"lstm": True, "shared": True}),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> paddock.Run:
    folder = tmp_path_factory.mktemp("run")
    return paddock.run(*RUNS["es"], "compute=serial", f"run.dir={folder / 'run'}", progress=False)


def run_file(policy: Any, obs: NDArray[Any], state: Any = None) -> list[NDArray[Any]]:
    """What onnxruntime gives: action, output and, of a memory, the next state."""
    model = onnx_graph.build_model(policy, obs.shape[1:], obs.dtype, {})
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"observation": obs} | ({} if state is None else {"state": state}))


def flat_policy(action: spaces.Space, *, normalized: bool, scale: float = 1.0) -> FlatPolicy:
    mlp = MLP.for_spaces(Layout.of(spaces.Box(-9, 9, (5,)), {}, ()), action, (7,), "tanh")
    draw = np.random.default_rng(1)
    parameters = scale * draw.normal(size=mlp.num_parameters).astype(np.float32)
    mean, std = draw.normal(size=(2, 5)).astype(np.float32)
    return FlatPolicy(
        mlp, parameters.astype(np.float32), Normalizer(mean, np.abs(std) + 1, 2.0) if normalized else None
    )


@pytest.mark.parametrize("kind", ACTIONS)
def test_every_head_of_a_flat_policy_is_exported(kind: str) -> None:
    policy, obs = flat_policy(ACTIONS[kind], normalized=True), np.random.default_rng(2).normal(size=(64, 5)) * 3
    action, output = run_file(policy, obs)
    ours, _, _ = policy.act(obs)
    assert action.dtype == ours.dtype and action.shape == ours.shape
    np.testing.assert_allclose(output, policy.outputs(obs)[0], atol=2e-6)
    np.testing.assert_allclose(action, ours, atol=0 if np.issubdtype(ours.dtype, np.integer) else 1e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_of_an_actor_is_exported(network: str) -> None:
    space, settings = NETWORKS[network]
    plain: dict[str, Any] = {
        "encoder": "mlp",
        "hidden_sizes": (8,),
        "activation": "tanh",
        "shared": False,
        "lstm": False,
    }
    architecture = Architecture.for_spaces(
        Layout.of(space, {}, ()), make_head(ACTIONS["bounded"]), **plain | settings, initial_log_std=0.0
    )
    draw, size = np.random.default_rng(3), int(np.prod(space.shape))
    mean = std = np.zeros(0, np.float32)
    if "normalized" in network or "memory" in network:
        mean, std = draw.normal(size=size).astype(np.float32), draw.uniform(0.5, 2, size).astype(np.float32)
    network_size = sum(part.numel() for part in ActorCritic(architecture, 0).parameters())
    parameters = draw.normal(0, 0.3, size=network_size).astype(np.float32)
    policy = ActorPolicy(architecture, Weights(0, parameters, mean, std, 1.5))
    space.seed(4)
    obs = np.array([space.sample() for _ in range(32)])
    state = draw.normal(size=(32, architecture.state_width)).astype(np.float32) if architecture.lstm else None
    action, output, *rest = run_file(policy, obs, state)
    (ours, _, after), (expected, _) = policy.act(obs, state), policy.outputs(obs, state)
    # Of the large ones torch is up to 2.2e-5 from double precision where it convolves with AVX2, onnxruntime 0.9e-5.
    apart = 5e-5 if network.startswith("large") else 1e-5
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=apart)
    assert action.dtype == ours.dtype
    np.testing.assert_allclose(action, ours, rtol=1e-4, atol=apart)
    if architecture.lstm:
        np.testing.assert_allclose(rest[0], after, rtol=1e-4, atol=1e-5)


def test_distributional_network_is_exported_with_its_means() -> None:
    space, settings = NETWORKS["images, channels last"]
    plain: dict[str, Any] = {
        "encoder": "mlp",
        "hidden_sizes": (8,),
        "activation": "tanh",
        "shared": False,
        "lstm": False,
    }
    layout, head = Layout.of(space, {}, ()), make_head(spaces.Discrete(3, start=-1))
    support = Support(5, -1.0, 7.0)
    architecture = Architecture.for_spaces(layout, head, **plain | settings, initial_log_std=0.0, support=support)
    draw, nothing = np.random.default_rng(3), np.zeros(0, np.float32)
    count = sum(part.numel() for part in acting_network(architecture).parameters())
    weights = Weights(0, draw.normal(0, 0.5, count).astype(np.float32), nothing, nothing, 1.5)
    policy = ActorPolicy(architecture, weights)
    space.seed(4)
    obs = np.array([space.sample() for _ in range(32)])
    action, output = run_file(policy, obs)
    assert output.shape == (32, 3) and (np.abs(output - 3) < 4).all() and output.std() > 0.1
    np.testing.assert_allclose(output, policy.outputs(obs)[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(action, policy.act(obs)[0])


@pytest.mark.parametrize("kind", ["flat", "gaussian", "squashed_gaussian"])
def test_actions_of_several_kinds_are_exported_leaf_by_leaf(kind: Any) -> None:
    obs = np.random.default_rng(2).normal(size=(64, 5)).astype(np.float32) * 3
    bounded = {name: space for name, space in MIXED.items() if name not in ("unbounded", "bounded in part")}
    space = spaces.Dict(bounded) if kind == "squashed_gaussian" else MIXED
    policy: Any = flat_policy(space, normalized=True)
    if kind != "flat":
        head, nothing = make_head(space, distribution=kind), np.zeros(0, np.float32)
        inputs = Inputs(Layout.of(spaces.Box(-9, 9, (5,), np.float32), {}, ()), head)
        architecture = Architecture(inputs, "mlp", None, (8,), "tanh", False, False, 0.0)
        size = sum(part.numel() for part in ActorCritic(architecture, 0).parameters())
        drawn = np.random.default_rng(3).normal(0, 0.9, size=size).astype(np.float32)
        policy = ActorPolicy(architecture, Weights(0, drawn, nothing, nothing, 1.5))
    model = onnx_graph.build_model(policy, (5,), obs.dtype, {})
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    got = dict(zip(names, session.run(None, {"observation": obs}), strict=True))
    rows, _, _ = policy.act(obs)
    layout = Layout.of(space, {}, ())
    views = layout.fields(rows)
    ours = {f"action.{name}": views[name] for name in space if name != "pair"}
    ours |= {f"action.pair.{k}": part for k, part in enumerate(views["pair"])}
    assert sorted(names) == sorted([*ours, "output"])
    for name, part in ours.items():
        assert got[name].dtype == part.dtype and got[name].shape == part.shape and len(np.unique(part)) > 1
        np.testing.assert_allclose(got[name], part, atol=0 if np.issubdtype(part.dtype, np.integer) else 1e-4)


STRUCTURED: dict[str, spaces.Space] = {
    "numbers": spaces.Dict(gear=spaces.Discrete(3, start=-1), speed=spaces.Box(-5, 5, (3,), np.float64)),
    "images": spaces.Dict(
        front=spaces.Box(0, 255, (6, 5, 3), np.uint8),
        speed=spaces.Box(-5, 5, (3,), np.float64),
        back=spaces.Tuple([spaces.Box(0, 255, (5, 5), np.uint8)]),
    ),
    "masked": spaces.Dict(action_mask=spaces.MultiBinary(3), speed=spaces.Box(-5, 5, (3,), np.float64)),
}


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "flat") for name in STRUCTURED), ("images", "actor"), ("masked", "memory")]
)
def test_policy_of_structured_observations_is_exported(name: str, kind: str) -> None:
    space, action = STRUCTURED[name], spaces.Discrete(3)
    layout, draw = Layout.of(space, {}, ()), np.random.default_rng(5)
    rows = layout.zeros(32)
    space.seed(6)
    for k, write in enumerate([layout.writer(rows)] * 32):
        write(k, {**space.sample(), "action_mask": np.array([k % 2, 1, k % 3 > 0], np.int8)})
    policy: Any
    if kind == "flat":
        mlp = MLP.for_spaces(layout, action, (7,), "tanh")
        mean, std = np.zeros(mlp.sizes[0], np.float32), np.full(mlp.sizes[0], 2, np.float32)
        parameters = draw.normal(size=mlp.num_parameters).astype(np.float32)
        policy, state = FlatPolicy(mlp, parameters, Normalizer(mean, std, 3.0)), None
    else:
        plain: dict[str, Any] = {"encoder": "auto", "hidden_sizes": (8,), "activation": "tanh", "shared": False}
        architecture = Architecture.for_spaces(
            layout, make_head(action), **plain, lstm=kind == "memory", initial_log_std=0.0
        )
        mean, std = np.zeros(architecture.inputs.width, np.float32), np.full(architecture.inputs.width, 2, np.float32)
        size = sum(part.numel() for part in ActorCritic(architecture, 0).parameters())
        parameters = draw.normal(0, 0.3, size=size).astype(np.float32)
        policy = ActorPolicy(architecture, Weights(0, parameters, mean, std, 3.0))
        state = draw.normal(size=(32, architecture.state_width)).astype(np.float32) if kind == "memory" else None
    model = onnx_graph.build_model(policy, (), layout.row.base, {})
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = policy.inputs.feed(rows) | ({} if state is None else {"state": state})
    assert {value.name for value in session.get_inputs()} == given.keys()
    images = 0 if kind == "flat" else sum(leaf.kind == "pixels" for leaf in layout.leaves)
    assert len(given) == 1 + images + (name == "masked") + (state is not None)
    action_, output, *_ = session.run(["action", "output"], given)
    np.testing.assert_allclose(output, policy.outputs(rows, state)[0], rtol=1e-4, atol=1e-5)
    assert np.array_equal(action_, policy.act(rows, state)[0]) and len(np.unique(action_)) > 1


def test_first_of_equal_choices_is_taken() -> None:
    policy = flat_policy(ACTIONS["multi_discrete"], normalized=False, scale=0.0)
    obs = np.ones((1, 5))
    assert run_file(policy, obs)[0].tolist() == policy.act(obs)[0].tolist() == [[0, 4]]


@pytest.mark.parametrize("kind", RUNS)
def test_policy_of_a_run_is_exported(kind: str, tmp_path: Path) -> None:
    run = paddock.run(*RUNS[kind], "compute=serial", f"run.dir={tmp_path / 'run'}", progress=False)
    made = run.export(tmp_path / "policy.onnx")
    session = runtime.InferenceSession((tmp_path / "policy.onnx").read_bytes())
    assert (
        session.get_modelmeta().custom_metadata_map["iteration"] == str(made.iteration) == str(run.policy().iteration)
    )
    assert ("state" in made.inputs) == ("next_state" in made.outputs) == (kind == "lstm")


def test_command_reports_what_it_wrote(
    trained: paddock.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["export", *words])
        return command.main(), *capsys.readouterr()

    code, out, _ = call(str(trained.path), str(tmp_path / "policy.onnx"), "which=best")
    assert code == 0 and "input observation   float32 [B, 4]" in out and "output action       int64 [B]" in out
    monkeypatch.setitem(sys.modules, "onnx", None)
    for words, said in (
        ([str(trained.path), str(tmp_path / "policy.onnx")], "pip install 'paddock[export]'"),
        ([str(trained.path), str(tmp_path / "policy.pt")], "allowed: *.onnx"),
        ([str(tmp_path), str(tmp_path / "policy.onnx")], "is not a run folder"),
        ([str(trained.path)], "usage: python -m paddock.export RUN FILE.onnx"),
    ):
        code, _, err = call(*words)
        assert code == 2 and said in err and err.count("\n") == 1, err


def test_object_that_is_no_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="object cannot be exported"):
        onnx_graph.build_model(object(), (4,), np.dtype(np.float32), {})
