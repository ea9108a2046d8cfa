"""Export of policies as ONNX graphs (opset 17), built node by node: preprocessing, network, deterministic action."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from paddock.algos.networks.actor import ActorPolicy, Architecture, Weights
from paddock.algos.networks.actor_critic import acting_network
from paddock.algos.networks.convolutions import Pixels, Residual
from paddock.algos.networks.encoders import FlatRows, MultiInputEncoder, NumberColumns
from paddock.algos.networks.flat import FlatPolicy
from paddock.algos.networks.heads import LOWEST
from paddock.algos.networks.inputs import Inputs
from paddock.envs.errors import require
from paddock.envs.native.networks import Normalizer

OPSET, IR = 17, 8  # oldest versions with these operators; supported since onnxruntime 1.13
FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
KINDS = f"{FlatPolicy.__name__} or {ActorPolicy.__name__}"


def build_model(policy: Any, shape: tuple[int, ...], dtype: np.dtype[Any], notes: dict[str, str]) -> onnx.ModelProto:
    """Build the ONNX model of a FlatPolicy or ActorPolicy.

    The inputs are those of `Inputs.feed` and, with an LSTM, `state` [B, S], which is zero at the start of an episode.
    The outputs are `action` [B, ...] in the environment's format, the network's `output` [B, W] and, with an LSTM,
    `next_state` [B, S]. Dict and Tuple actions have one output per leaf, such as `action.arm.0`. `shape` and `dtype`
    describe array observations; `notes` are stored as metadata.

    Raises:
        ConfigError: the policy has another type or a custom encoder.
    """
    spec = _inputs_of(policy)
    graph = Graph()
    if not spec.plain:
        shape, dtype = (spec.width,), np.dtype(np.float32)
    inputs = [_value("observation", dtype, *shape)] if spec.width else []
    leaves = zip(spec.raw_names, spec.raw, strict=True)
    inputs += [_value(name, np.dtype(leaf.dtype), *leaf.shape) for name, leaf in leaves]
    if spec.legal_width:
        inputs.append(_value("legal", np.dtype(np.bool_), spec.legal_width))
    outputs = []
    if isinstance(policy, FlatPolicy):
        head = policy.mlp.head
        out = _add_flat_network(graph, policy, dtype)
    else:
        architecture, head = policy.architecture, policy.architecture.head
        out = _add_actor_network(graph, architecture, policy.weights, dtype)
        if architecture.lstm:
            inputs.append(_value("state", np.dtype(np.float32), architecture.state_width))
            outputs.append(_value("next_state", np.dtype(np.float32), architecture.state_width))
    if spec.legal_width:
        out = graph.add("Where", "legal", out, graph.constant(LOWEST, np.float32))
    graph.add("Identity", out, name="output")
    sections = graph.split(out, [leaf.width for leaf in head.leaves]) if len(head.leaves) > 1 else [out]
    actions = []
    for name, leaf, section in zip(spec.action_names, head.leaves, sections, strict=True):
        leaf_dtype = np.dtype(leaf.dtype)
        shaped = graph.add("Reshape", leaf.to_onnx(graph, section), graph.constant([-1, *leaf.shape]))
        graph.cast(shaped, _type(leaf_dtype), name)
        actions.append(_value(name, leaf_dtype, *leaf.shape))
    outputs = [*actions, _value("output", np.dtype(np.float32), head.width), *outputs]
    graph_proto = helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants)
    model = helper.make_model(
        graph_proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="paddock"
    )
    helper.set_model_props(model, notes)
    onnx.checker.check_model(model, full_check=True)
    return model


def _inputs_of(policy: Any) -> Inputs:
    supported = isinstance(policy, FlatPolicy | ActorPolicy)
    require(supported, f"{type(policy).__name__} cannot be exported; use a {KINDS}")
    network = policy.architecture.custom_encoder if isinstance(policy, ActorPolicy) else None
    problem = f"custom encoder {dict(network or ()).get('_target_')} cannot be exported"
    require(network is None, f"{problem}; use torch.onnx")
    inputs: Inputs = policy.inputs
    return inputs


class Graph:
    """Builder of an ONNX graph; its own names begin with a slash, as those of inputs and outputs do not."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Append a node with one output and return the name of the output."""
        name = name or f"/{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def split(self, value: str, sizes: Sequence[int]) -> list[str]:
        """Split [B, sum(sizes)] into blocks [B, size]."""
        names = [f"/split_{len(self.nodes)}_{k}" for k in range(len(sizes))]
        self.nodes.append(helper.make_node("Split", [value, self.constant(sizes)], names, axis=1))
        return names

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Add a constant array; Python integers become int64."""
        name = f"/constant_{len(self.constants)}"
        array = np.ascontiguousarray(np.asarray(values, dtype))
        self.constants.append(numpy_helper.from_array(array.reshape(np.shape(values)), name))
        return name

    def cast(self, value: str, to: int, name: str | None = None) -> str:
        """Cast to an ONNX type."""
        return self.add("Cast", value, name=name, to=to)

    def as_float(self, value: str) -> str:
        """Cast to float32."""
        return self.cast(value, FLOAT)

    def rows(self, value: str) -> str:
        """Flatten [B, *shape] to [B, O]."""
        return self.add("Flatten", value, axis=1)

    def dense(self, value: str, weights: Any, bias: Any) -> str:
        """Apply a dense layer with weights [in, out] and bias [out] to [B, in]."""
        return self.add("Gemm", value, self.constant(weights), self.constant(bias))

    def activate(self, value: str, tanh: bool) -> str:
        """Apply tanh or ReLU."""
        return self.add("Tanh" if tanh else "Relu", value)

    def clipped(self, value: str, low: Any, high: Any, dtype: Any = np.float32) -> str:
        """Clip to [low, high]."""
        clipped = self.add("Max", value, self.constant(low, dtype))
        return self.add("Min", clipped, self.constant(high, dtype))


def _add_normalization(graph: Graph, scaling: Normalizer | Weights, dtype: np.dtype[Any]) -> str:
    """Add the normalization of flattened observations, computed in NumPy's precision and cast to float32."""
    precision = np.result_type(dtype, np.float32)
    rows = graph.cast(graph.rows("observation"), DOUBLE if precision == np.float64 else FLOAT)
    centred = graph.add("Sub", rows, graph.constant(scaling.mean, precision))
    scaled = graph.add("Div", centred, graph.constant(scaling.std, precision))
    return graph.cast(graph.clipped(scaled, -scaling.clip, scaling.clip, precision), FLOAT)


def _add_flat_network(graph: Graph, policy: FlatPolicy, dtype: np.dtype[Any]) -> str:
    mlp = policy.mlp
    if policy.normalizer is None:
        hidden = graph.cast(graph.rows("observation"), FLOAT)
    else:
        hidden = _add_normalization(graph, policy.normalizer, np.dtype(np.float32))
    for k, (weights, bias) in enumerate(mlp.network.layout.layers(policy.parameters)):
        hidden = graph.dense(hidden, weights, bias)
        if k < len(mlp.sizes) - 2:
            hidden = graph.activate(hidden, mlp.activation == "tanh")
    return graph.add("Tanh", hidden) if mlp.network.head == "bounded" else hidden


def _add_actor_network(graph: Graph, architecture: Architecture, weights: Weights, dtype: np.dtype[Any]) -> str:
    """Add the network up to the output of the policy head, and `next_state` with an LSTM."""
    network = acting_network(architecture).requires_grad_(False)
    nn.utils.vector_to_parameters(torch.from_numpy(weights.parameters.copy()), network.parameters())
    value = "observation"
    if weights.mean.size:
        shape = graph.constant([-1, *(architecture.inputs.shape or (architecture.inputs.width,))])
        value, dtype = graph.add("Reshape", _add_normalization(graph, weights, dtype), shape), np.dtype(np.float32)
    features = _add_encoder(graph, network.policy_encoder, value, dtype)
    if network.lstm is not None:
        if network.value_encoder is not None:
            value_features = _add_encoder(graph, network.value_encoder, value, dtype)
            features = graph.add("Concat", features, value_features, axis=1)
        features = _add_lstm_step(graph, network.lstm, features)
        if network.value_encoder is not None:
            features = graph.split(features, [architecture.features // 2] * 2)[0]
    out = graph.dense(features, network.policy_head.weight.T, network.policy_head.bias)
    if (support := architecture.support) is None:
        return out
    # The expected returns [B, A] of a categorical distribution with logits [B, A * N].
    logits = graph.add("Reshape", out, graph.constant([0, -1, support.atoms]))
    return graph.add("MatMul", graph.add("Softmax", logits, axis=2), graph.constant(support.values))


def _add_encoder(graph: Graph, encoder: nn.Sequential, value: str, dtype: np.dtype[Any]) -> str:
    for layer in encoder:
        if isinstance(layer, MultiInputEncoder):
            images = zip(layer.layers, layer.names, layer.shapes, strict=True)
            shaped = [
                (cnn, graph.add("Reshape", name, graph.constant([-1, *shape])), np.dtype(np.uint8))
                for cnn, name, shape in images
            ]
            encoded = [_add_encoder(graph, *image) for image in shaped]
            value = graph.add("Concat", *([value] if layer.has_numbers else []), *encoded, axis=1)
        elif isinstance(layer, NumberColumns):
            pass
        elif isinstance(layer, Pixels | FlatRows):
            value = graph.cast(value, FLOAT)
            if dtype == np.uint8:
                value = graph.add("Div", value, graph.constant(layer.greatest, np.float32))
            if isinstance(layer, FlatRows):
                value = graph.rows(value)
            elif layer.last:
                value = graph.add("Transpose", value, perm=[0, 3, 1, 2])
        elif isinstance(layer, nn.Conv2d):
            arrays = [graph.constant(layer.weight), graph.constant(layer.bias)]
            value = graph.add(
                "Conv",
                value,
                *arrays,
                kernel_shape=layer.kernel_size,
                strides=layer.stride,
                pads=[layer.padding[0]] * 4,
            )
        elif isinstance(layer, nn.MaxPool2d):
            value = graph.add("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        elif isinstance(layer, Residual):
            value = graph.add("Add", value, _add_encoder(graph, layer.layers, value, dtype))
        elif isinstance(layer, nn.Linear):
            value = graph.dense(value, layer.weight.T, layer.bias)
        elif isinstance(layer, nn.GroupNorm):
            value = _add_layer_norm(graph, layer, value)
        elif isinstance(layer, nn.Flatten):
            value = graph.rows(value)
        else:
            assert isinstance(layer, nn.Tanh | nn.ReLU), layer
            value = graph.activate(value, isinstance(layer, nn.Tanh))
    return value


def _add_layer_norm(graph: Graph, layer: nn.GroupNorm, value: str) -> str:
    scale, shape = graph.constant([1.0], np.float32), graph.add("Shape", value)
    weight, bias = (graph.constant(array.unsqueeze(1)) for array in (layer.weight, layer.bias))
    flat = graph.add("Reshape", value, graph.constant([0, 1, -1]))
    normalized = graph.add("InstanceNormalization", flat, scale, graph.constant([0.0], np.float32), epsilon=layer.eps)
    scaled = graph.add("Mul", graph.add("Reshape", normalized, graph.constant([0, layer.num_channels, -1])), weight)
    return graph.add("Reshape", graph.add("Add", scaled, bias), shape)


def _add_lstm_step(graph: Graph, lstm: nn.LSTMCell, features: str) -> str:
    """Add one LSTM step from `state` to `next_state` and return its output [B, F]."""
    width = lstm.hidden_size
    hidden, cell = graph.split("state", [width, width])
    from_input = graph.dense(features, lstm.weight_ih.T, lstm.bias_ih)
    from_hidden = graph.dense(hidden, lstm.weight_hh.T, lstm.bias_hh)
    gates = graph.split(graph.add("Add", from_input, from_hidden), [width] * 4)
    input_gate, forget_gate, output_gate = (graph.add("Sigmoid", gates[k]) for k in (0, 1, 3))
    update = graph.add("Mul", input_gate, graph.add("Tanh", gates[2]))
    cell = graph.add("Add", graph.add("Mul", forget_gate, cell), update)
    hidden = graph.add("Mul", output_gate, graph.add("Tanh", cell))
    graph.add("Concat", hidden, cell, name="next_state", axis=1)
    return hidden


def _value(name: str, dtype: np.dtype[Any], *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _type(dtype), ["B", *shape])


def _type(dtype: np.dtype[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))
