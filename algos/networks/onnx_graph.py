"""A policy as an ONNX graph (opset 17): what it does to observations, its network, and its most likely action.

Written node by node, so that the graph is small, the same on every version of torch, and needs no tracer.
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

OPSET, IR = 17, 8  # as old as the operators allow: onnxruntime 1.13 reads it
FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
KINDS = f"{FlatPolicy.__name__} or {ActorPolicy.__name__}"


def build_model(policy: Any, shape: tuple[int, ...], dtype: np.dtype[Any], notes: dict[str, str]) -> onnx.ModelProto:
    """Write a policy down.

    Args:
        policy: a FlatPolicy or an ActorPolicy.
        shape, dtype: of one observation that is an array; see `Inputs.feed` of what others come in.
        notes: kept in the file, by their names.

    Returns:
        Inputs: as `Inputs.feed` gives them, and of a policy with a memory `state` [B, S], zeros before an episode.
        Outputs: `action` [B, ...] as the environment takes it, or where it is a Dict or Tuple one for each leaf, named
        by its path as `action.arm.0`; `output` [B, W] of the network, from which it is made; and `next_state` [B, S].

    Raises:
        ConfigError: a policy of another kind, or one with an encoder of somebody's own.
    """
    seen = _inputs_of(policy)
    graph = Graph({*RESERVED_NAMES, *seen.raw_names, *seen.action_names})
    if not seen.plain:
        shape, dtype = (seen.width,), np.dtype(np.float32)
    inputs = [_value("observation", dtype, *shape)]
    each = zip(seen.raw_names, seen.raw, strict=True)
    inputs += [_value(name, np.dtype(leaf.dtype), *leaf.shape) for name, leaf in each]
    if seen.legal_width:
        inputs.append(_value("legal", np.dtype(np.bool_), seen.legal_width))
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
    if seen.legal_width:
        out = graph.add("Where", "legal", out, graph.constant(LOWEST, np.float32))
    graph.add("Identity", out, name="output")
    parts = graph.split(out, [leaf.width for leaf in head.leaves]) if len(head.leaves) > 1 else [out]
    actions = []
    for name, leaf, part in zip(seen.action_names, head.leaves, parts, strict=True):
        dtype_ = np.dtype(leaf.dtype)
        shaped = graph.add("Reshape", leaf.to_onnx(graph, part), graph.constant([-1, *leaf.shape]))
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
    require(known, f"{type(policy).__name__} is no policy that can be exported; allowed: {KINDS}")
    network = policy.architecture.custom_encoder if isinstance(policy, ActorPolicy) else None
    own = f"the policy has an encoder of your own, {dict(network or ()).get('_target_')}, which no graph is known for"
    require(network is None, f"{own}; export it by torch.onnx")
    inputs: Inputs = policy.inputs
    return inputs


class Graph:
    """Nodes in order, and the arrays that they use."""

    def __init__(self, taken: Collection[str]) -> None:
        """Begin without nodes.

        Args:
            taken: names of inputs and outputs, which nothing between them has.
        """
        self.taken = taken
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Append a node with one output; returns the output's name."""
        name = name or self._free(f"{operator.lower()}_{len(self.nodes)}")
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def split(self, value: str, sizes: Sequence[int]) -> list[str]:
        """Cut [B, sum(sizes)] into blocks [B, size]."""
        names = [self._free(f"split_{len(self.nodes)}_{k}") for k in range(len(sizes))]
        self.nodes.append(helper.make_node("Split", [value, self.constant(sizes)], names, axis=1))
        return names

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Keep an array; whole numbers are int64, as shapes are."""
        name = self._free(f"constant_{len(self.constants)}")
        array = np.ascontiguousarray(np.asarray(values, dtype))
        self.constants.append(numpy_helper.from_array(array.reshape(np.shape(values)), name))
        return name

    def cast(self, value: str, to: int, name: str | None = None) -> str:
        return self.add("Cast", value, name=name, to=to)

    def as_float(self, value: str) -> str:
        """Cast to float32."""
        return self.cast(value, FLOAT)

    def rows(self, value: str) -> str:
        """Flatten [B, *shape] to [B, O]."""
        return self.add("Flatten", value, axis=1)

    def dense(self, value: str, weights: Any, bias: Any) -> str:
        """Multiply [B, in] by weights [in, out], and add a bias [out]."""
        return self.add("Gemm", value, self.constant(weights), self.constant(bias))

    def activate(self, value: str, tanh: bool) -> str:
        return self.add("Tanh" if tanh else "Relu", value)

    def clipped(self, value: str, low: Any, high: Any, dtype: Any = np.float32) -> str:
        above = self.add("Max", value, self.constant(low, dtype))
        return self.add("Min", above, self.constant(high, dtype))

    def _free(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        return name


def _normalized(graph: Graph, scaling: Normalizer | Weights, dtype: np.dtype[Any]) -> str:
    """Observations as rows, normalized in the precision in which NumPy does it, in single precision."""
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
    """Outputs of the head; of a network with a memory `next_state` too."""
    network = acting_network(architecture).requires_grad_(False)
    nn.utils.vector_to_parameters(torch.from_numpy(weights.parameters.copy()), network.parameters())
    value = "observation"
    if weights.mean.size:
        shape = graph.constant([-1, *(architecture.inputs.shape or (architecture.inputs.width,))])
        value, dtype = graph.add("Reshape", _normalized(graph, weights, dtype), shape), np.dtype(np.float32)
    features = _encoded(graph, network.policy_encoder, value, dtype)
    if network.lstm is not None:
        if network.value_encoder is not None:
            apart = _encoded(graph, network.value_encoder, value, dtype)
            features = graph.add("Concat", features, apart, axis=1)
        features = _remembered(graph, network.lstm, features)
        if network.value_encoder is not None:
            features = graph.split(features, [architecture.features // 2] * 2)[0]
    out = graph.dense(features, network.policy_head.weight.T, network.policy_head.bias)
    return out if architecture.support is None else _expected(graph, architecture.support, out)


def _expected(graph: Graph, support: Support, logits: str) -> str:
    """Expected returns [B, A] of logits [B, A * N]."""
    each = graph.add("Reshape", logits, graph.constant([0, -1, support.atoms]))
    shares = graph.add("Softmax", each, axis=2)
    return graph.add("MatMul", shares, graph.constant(support.values))


def _encoded(graph: Graph, encoder: nn.Sequential, value: str, dtype: np.dtype[Any]) -> str:
    for layer in encoder:
        if isinstance(layer, MultiInputEncoder):
            parts = zip(layer.layers, layer.names, layer.shapes, strict=True)
            shaped = [
                (one, graph.add("Reshape", name, graph.constant([-1, *shape])), np.dtype(np.uint8))
                for one, name, shape in parts
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
            arrays = [graph.constant(part) for part in (layer.weight, layer.bias)]
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
    """Layer norm of rows [B, F] or images [B, F, H, W], over all that each has."""
    one, shape = graph.constant([1.0], np.float32), graph.add("Shape", value)
    weight, bias = (graph.constant(part.unsqueeze(1)) for part in (layer.weight, layer.bias))
    flat = graph.add("Reshape", value, graph.constant([0, 1, -1]))
    even = graph.add("InstanceNormalization", flat, one, graph.constant([0.0], np.float32), epsilon=layer.eps)
    scaled = graph.add("Mul", graph.add("Reshape", even, graph.constant([0, layer.num_channels, -1])), weight)
    return graph.add("Reshape", graph.add("Add", scaled, bias), shape)


def _remembered(graph: Graph, cell: nn.LSTMCell, features: str) -> str:
    """One step of an LSTM, from `state` to `next_state`; returns its output [B, F]."""
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
    """An input or an output [B, *shape]."""
    return helper.make_tensor_value_info(name, _type(dtype), ["B", *shape])


def _type(dtype: np.dtype[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))
