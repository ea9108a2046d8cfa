"""Export of policies as ONNX graphs (opset 17): preprocessing, network and most likely action.

Graphs are built node by node, so they are small and independent of torch's version and tracer.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from paddock.algos.networks.actor import ActorPolicy, Architecture, Weights
from paddock.algos.networks.actor_critic import acting_network
from paddock.algos.networks.encoders import FlatRows, MultiInputEncoder, NumberColumns, Pixels
from paddock.algos.networks.flat import FlatPolicy
from paddock.algos.networks.heads import LOWEST
from paddock.algos.networks.inputs import RESERVED_NAMES, Inputs
from paddock.algos.networks.support import Support
from paddock.envs.errors import require
from paddock.envs.native.networks import Normalizer

OPSET, IR = 17, 8  # the oldest with these operators; works with onnxruntime 1.13
FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
KINDS = f"{FlatPolicy.__name__} or {ActorPolicy.__name__}"


def build_model(policy: Any, shape: tuple[int, ...], dtype: np.dtype[Any], notes: dict[str, str]) -> onnx.ModelProto:
    """Build the ONNX model of a FlatPolicy or ActorPolicy.

    Inputs are those of `Inputs.feed` and, with an LSTM, `state` [B, S], zeros at the start of an episode. Outputs are
    `action` [B, ...] in the environment's format (for Dict and Tuple one per leaf, named as `action.arm.0`), the
    network's `output` [B, W], and `next_state` [B, S]. `shape` and `dtype` are those of array observations, `notes` are
    stored as metadata.

    Raises:
        ConfigError: the policy is of another type, or has a custom encoder.
    """
    spec = _inputs_of(policy)
    graph = Graph({*RESERVED_NAMES, *spec.raw_names, *spec.action_names})
    if not spec.plain:
        shape, dtype = (spec.width,), np.dtype(np.float32)
    inputs = [_value("observation", dtype, *shape)]
    each = zip(spec.raw_names, spec.raw, strict=True)
    inputs += [_value(name, np.dtype(leaf.dtype), *leaf.shape) for name, leaf in each]
    if spec.legal_width:
        inputs.append(_value("legal", np.dtype(np.bool_), spec.legal_width))
    outputs = []
    if isinstance(policy, FlatPolicy):
        head = policy.mlp.head
        out = _flat_network(graph, policy, dtype)
    else:
        architecture, head = policy.architecture, policy.architecture.head
        out = _actor_network(graph, architecture, policy.weights, dtype)
        if architecture.lstm:
            inputs.append(_value("state", np.dtype(np.float32), architecture.state_width))
            outputs.append(_value("next_state", np.dtype(np.float32), architecture.state_width))
    if spec.legal_width:
        out = graph.add("Where", "legal", out, graph.constant(LOWEST, np.float32))
    graph.add("Identity", out, name="output")
    sections = graph.split(out, [leaf.width for leaf in head.leaves]) if len(head.leaves) > 1 else [out]
    actions = []
    for name, leaf, section in zip(spec.action_names, head.leaves, sections, strict=True):
        dtype_ = np.dtype(leaf.dtype)
        shaped = graph.add("Reshape", leaf.to_onnx(graph, section), graph.constant([-1, *leaf.shape]))
        graph.cast(shaped, _type(dtype_), name)
        actions.append(_value(name, dtype_, *leaf.shape))
    outputs = [*actions, _value("output", np.dtype(np.float32), head.width), *outputs]
    made = helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants)
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="paddock"
    )
    helper.set_model_props(model, notes)
    onnx.checker.check_model(model, full_check=True)
    return model


def _inputs_of(policy: Any) -> Inputs:
    known = isinstance(policy, FlatPolicy | ActorPolicy)
    require(known, f"{type(policy).__name__} cannot be exported; allowed: {KINDS}")
    network = policy.architecture.custom_encoder if isinstance(policy, ActorPolicy) else None
    problem = f"custom encoder {dict(network or ()).get('_target_')} cannot be exported"
    require(network is None, f"{problem}: use torch.onnx")
    inputs: Inputs = policy.inputs
    return inputs


class Graph:
    """Builder of nodes and constants."""

    def __init__(self, taken: Collection[str]) -> None:
        """Start an empty graph; `taken` are the names of its inputs and outputs."""
        self.taken = taken
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Append a node with one output; return the output's name."""
        name = name or self._free(f"{operator.lower()}_{len(self.nodes)}")
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def split(self, value: str, sizes: Sequence[int]) -> list[str]:
        """Split [B, sum(sizes)] into blocks [B, size]."""
        names = [self._free(f"split_{len(self.nodes)}_{k}") for k in range(len(sizes))]
        self.nodes.append(helper.make_node("Split", [value, self.constant(sizes)], names, axis=1))
        return names

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Add a constant array; Python integers become int64."""
        name = self._free(f"constant_{len(self.constants)}")
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
        above = self.add("Max", value, self.constant(low, dtype))
        return self.add("Min", above, self.constant(high, dtype))

    def _free(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        return name


def _normalized(graph: Graph, scaling: Normalizer | Weights, dtype: np.dtype[Any]) -> str:
    """Normalize flattened observations in NumPy's precision; the result is float32."""
    wide = np.result_type(dtype, np.float32)
    rows = graph.cast(graph.rows("observation"), DOUBLE if wide == np.float64 else FLOAT)
    centred = graph.add("Sub", rows, graph.constant(scaling.mean, wide))
    scaled = graph.add("Div", centred, graph.constant(scaling.std, wide))
    return graph.cast(graph.clipped(scaled, -scaling.clip, scaling.clip, wide), FLOAT)


def _flat_network(graph: Graph, policy: FlatPolicy, dtype: np.dtype[Any]) -> str:
    mlp = policy.mlp
    if policy.normalizer is None:
        hidden = graph.cast(graph.rows("observation"), FLOAT)
    else:
        hidden = _normalized(graph, policy.normalizer, np.dtype(np.float32))
    for k, (weights, bias) in enumerate(mlp.network.layout.layers(policy.parameters)):
        hidden = graph.dense(hidden, weights, bias)
        if k < len(mlp.sizes) - 2:
            hidden = graph.activate(hidden, mlp.activation == "tanh")
    return graph.add("Tanh", hidden) if mlp.network.head == "bounded" else hidden


def _actor_network(graph: Graph, architecture: Architecture, weights: Weights, dtype: np.dtype[Any]) -> str:
    """Add the network up to the head outputs, and `next_state` if it has an LSTM."""
    network = acting_network(architecture).requires_grad_(False)
    nn.utils.vector_to_parameters(torch.from_numpy(weights.parameters.copy()), network.parameters())
    value = "observation"
    if weights.mean.size:
        shape = graph.constant([-1, *(architecture.inputs.shape or (architecture.inputs.width,))])
        value, dtype = graph.add("Reshape", _normalized(graph, weights, dtype), shape), np.dtype(np.float32)
    features = _encoded(graph, network.policy_encoder, value, dtype)
    if network.lstm is not None:
        if network.value_encoder is not None:
            value_features = _encoded(graph, network.value_encoder, value, dtype)
            features = graph.add("Concat", features, value_features, axis=1)
        features = _lstm_step(graph, network.lstm, features)
        if network.value_encoder is not None:
            features = graph.split(features, [architecture.features // 2] * 2)[0]
    out = graph.dense(features, network.policy_head.weight.T, network.policy_head.bias)
    return out if architecture.support is None else _expected(graph, architecture.support, out)


def _expected(graph: Graph, support: Support, logits: str) -> str:
    """Add the expected returns [B, A] of logits [B, A * N]."""
    each = graph.add("Reshape", logits, graph.constant([0, -1, support.atoms]))
    shares = graph.add("Softmax", each, axis=2)
    return graph.add("MatMul", shares, graph.constant(support.values))


def _encoded(graph: Graph, encoder: nn.Sequential, value: str, dtype: np.dtype[Any]) -> str:
    for layer in encoder:
        if isinstance(layer, MultiInputEncoder):
            images = zip(layer.layers, layer.names, layer.shapes, strict=True)
            shaped = [
                (one, graph.add("Reshape", name, graph.constant([-1, *shape])), np.dtype(np.uint8))
                for one, name, shape in images
            ]
            value = graph.add("Concat", value, *[_encoded(graph, *image) for image in shaped], axis=1)
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
            value = graph.add("Conv", value, *arrays, kernel_shape=layer.kernel_size, strides=layer.stride)
        elif isinstance(layer, nn.Linear):
            value = graph.dense(value, layer.weight.T, layer.bias)
        elif isinstance(layer, nn.GroupNorm):
            value = _standardized(graph, layer, value)
        elif isinstance(layer, nn.Flatten):
            value = graph.rows(value)
        else:
            assert isinstance(layer, nn.Tanh | nn.ReLU), layer
            value = graph.activate(value, isinstance(layer, nn.Tanh))
    return value


def _standardized(graph: Graph, layer: nn.GroupNorm, value: str) -> str:
    """Add a layer norm of rows [B, F] or images [B, F, H, W]."""
    one, shape = graph.constant([1.0], np.float32), graph.add("Shape", value)
    weight, bias = (graph.constant(array.unsqueeze(1)) for array in (layer.weight, layer.bias))
    flat = graph.add("Reshape", value, graph.constant([0, 1, -1]))
    even = graph.add("InstanceNormalization", flat, one, graph.constant([0.0], np.float32), epsilon=layer.eps)
    scaled = graph.add("Mul", graph.add("Reshape", even, graph.constant([0, layer.num_channels, -1])), weight)
    return graph.add("Reshape", graph.add("Add", scaled, bias), shape)


def _lstm_step(graph: Graph, cell: nn.LSTMCell, features: str) -> str:
    """Add one step of an LSTM, from `state` to `next_state`; return its output [B, F]."""
    width = cell.hidden_size
    output, memory = graph.split("state", [width, width])
    by_input = graph.dense(features, cell.weight_ih.T, cell.bias_ih)
    by_output = graph.dense(output, cell.weight_hh.T, cell.bias_hh)
    gates = graph.split(graph.add("Add", by_input, by_output), [width] * 4)
    take, keep, give = (graph.add("Sigmoid", gates[k]) for k in (0, 1, 3))
    new = graph.add("Mul", take, graph.add("Tanh", gates[2]))
    memory = graph.add("Add", graph.add("Mul", keep, memory), new)
    output = graph.add("Mul", give, graph.add("Tanh", memory))
    graph.add("Concat", output, memory, name="next_state", axis=1)
    return output


def _value(name: str, dtype: np.dtype[Any], *shape: int) -> onnx.ValueInfoProto:
    """Return an input or output [B, *shape]."""
    return helper.make_tensor_value_info(name, _type(dtype), ["B", *shape])


def _type(dtype: np.dtype[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))
