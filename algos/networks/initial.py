"""Warm start: initialize an algorithm with the policy of another run, whatever algorithm trained it.

For example, PPO can fine-tune a policy found by an evolution strategy, if the layers are the same. Only the policy is
copied; value functions are initialized as usual, unless they share an LSTM with the policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.flat import MLP, FlatPolicy
from paddock.algos.networks.heads import Binary, Head, LeafHead, Numbers, SoftGaussian
from paddock.algos.networks.inputs import Inputs, visible_leaves
from paddock.envs.errors import ConfigError, require
from paddock.envs.native.networks import DenseLayout
from paddock.envs.spaces.codecs import at_path

Floats = NDArray[np.float32]

MAX_LENGTH = 120  # characters of a value in error messages
# Properties that must match, and the settings that determine them.
SETTINGS = {
    "observations": "env",
    "actions": "env",
    "encoder": "algo.encoder and algo.custom_encoder",
    "layer_norm": "algo.layer_norm",
    "hidden_sizes": "algo.hidden_sizes",
    "activation": "algo.activation",
    "lstm": "algo.lstm",
    "shared": "algo.shared",
    "atoms": "algo.atoms, algo.v_min and algo.v_max",
    "numbers": "algo.continuous_distribution",
    "observation_clip": "algo.normalize_observations and algo.observation_clip",
    "bytes": "algo.normalize_observations",
    "images": "env",
}


class ObservationMoments(NamedTuple):
    """Observation statistics for normalization."""

    total: int  # observations
    mean: NDArray[np.float64]  # [O]
    m2: NDArray[np.float64]  # [O], sum of squared deviations from the mean


@dataclass(frozen=True, eq=False)
class InitialPolicy:
    """Parameters of a policy, split for reuse in other networks."""

    kind: Mapping[str, Any]  # keys as in `SETTINGS`
    values: bool  # outputs are action values
    log_std: Floats  # [A] of a Gaussian, else [0]
    body: Floats  # all layers except the last
    weight: Floats  # [A, H] of the last layer
    bias: Floats  # [A]
    rest: Floats  # value function and LSTM of recurrent networks
    seen: ObservationMoments | None  # None: no normalization

    @classmethod
    def of(cls, policy: Any, count: int = 0, *, values: bool = False) -> "InitialPolicy":
        """Split the parameters of a FlatPolicy or an ActorPolicy; raise ConfigError for others.

        `count` is the number of observations in its normalization statistics; `values`: its outputs are action values.
        """
        if isinstance(policy, FlatPolicy):
            network: MLP | Architecture = policy.mlp
            parameters, normalizer = _transposed(policy.mlp, policy.parameters, True), policy.normalizer
        elif isinstance(policy, ActorPolicy):
            network, parameters, normalizer = policy.architecture, policy.parameters, policy.weights.normalizer
        else:
            raise ConfigError(f"its policy, a {type(policy).__name__}, cannot be reused; choose another run")
        views, head = _split(network, parameters.copy()), network.head
        count_of = head.components if isinstance(head, SoftGaussian) else _outputs(network)
        found = None
        if normalizer is not None:
            # Keep the standard deviation that was used, which has a floor.
            mean, std = normalizer.mean.astype(np.float64), normalizer.std.astype(np.float64)
            found = ObservationMoments(max(count, 1), mean, std**2 * max(count, 1))
        clip = None if normalizer is None else normalizer.clip
        weight, bias = views.weight[:count_of], views.bias[:count_of]
        return cls(_kind(network, clip), values, views.log_std, views.body, weight, bias, views.rest, found)

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "InitialPolicy":
        """Restore it from `state_dict`."""
        return cls(**{**state, "seen": None if state["seen"] is None else ObservationMoments(**state["seen"])})

    def state_dict(self) -> dict[str, Any]:
        """Return the state as arrays and plain data."""
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        return state | {"seen": None if self.seen is None else self.seen._asdict()}

    def apply_to(
        self, network: Architecture | MLP, initial: Floats, clip: float | None = None, *, values: bool = False
    ) -> Floats:
        """Return the parameters `initial` [P] of a network with its policy, which comes first, replaced by this one.

        `clip` is the bound of normalized observations, None without normalization; `values`: outputs are trained as
        action values. Raise ConfigError if the networks differ, with the first difference.
        """
        self._check(_kind(network, clip))
        known = self.values or not values
        require(known, "its outputs are not action values, which algo=dqn needs; choose a run of algo=dqn")
        parameters = initial.copy() if isinstance(network, Architecture) else _transposed(network, initial, True)
        views = _split(network, parameters)
        if self.log_std.size and views.log_std.size:
            views.log_std[:] = self.log_std
        views.body[:] = self.body
        views.weight[: len(self.weight)], views.bias[: len(self.bias)] = self.weight, self.bias
        shared = min(len(views.rest), len(self.rest))  # the LSTM is last, after the value function if there is one
        views.rest[len(views.rest) - shared :] = self.rest[len(self.rest) - shared :]
        return parameters if isinstance(network, Architecture) else _transposed(network, parameters, False)

    def for_policy(self, name: str) -> "InitialPolicy":
        """Return the initial policy for a policy name: always this one."""
        return self

    def _check(self, wanted: Mapping[str, Any]) -> None:
        for name, settings in SETTINGS.items():
            got, want = self.kind[name], wanted[name]
            difference = f"its {name}: {_format(got)}, this run's: {_format(want)}"
            require(got == want, f"{difference}; set {settings} to the same value in both runs, or choose another run")


@dataclass(frozen=True, eq=False)
class InitialPolicies:
    """Several initial policies by name."""

    each: Mapping[str, InitialPolicy]
    main: str | None = None  # the main policy of a league, which acts for all agents; None: policies per role

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "InitialPolicies":
        """Restore them from `state_dict`."""
        return cls({name: InitialPolicy.restore(one) for name, one in state["policies"].items()}, state.get("main"))

    def state_dict(self) -> dict[str, Any]:
        """Return the state as arrays and plain data."""
        main = {} if self.main is None else {"main": self.main}
        return {"policies": {name: one.state_dict() for name, one in self.each.items()}, **main}

    def for_policy(self, name: str) -> InitialPolicy:
        """Return the initial policy for a policy name; raise ConfigError if there is none."""
        if not name and self.main is not None:
            name = self.main
        wanted = f"but this run needs {name}" if name else "but this run has a single policy"
        key = "algo.policies" if self.main is None else "league of algo.opponents"
        require(name in self.each, f"it has policies {', '.join(self.each)}, {wanted}; use the same names in {key}")
        return self.each[name]


Initial = InitialPolicy | InitialPolicies


def restore(state: Mapping[str, Any]) -> Initial:
    """Restore one policy or several from `state_dict`."""
    return InitialPolicies.restore(state) if "policies" in state else InitialPolicy.restore(state)


class _Sections(NamedTuple):
    log_std: Floats
    body: Floats
    weight: Floats  # [W, H]
    bias: Floats  # [W]
    rest: Floats


def _split(network: Architecture | MLP, parameters: Floats) -> _Sections:
    """View the policy's parameters, which are in torch's order."""
    head = network.head
    (H, body), W = _measure(network), _outputs(network)
    ends = np.cumsum([head.num_log_std, body, (H + 1) * W])
    log_std, middle, last, behind = np.split(parameters, ends.tolist())
    weight, bias = last[: H * W].reshape(W, H), last[H * W :]
    with_memory = isinstance(network, Architecture) and network.lstm
    return _Sections(log_std, middle, weight, bias, behind if with_memory else behind[:0])


def _outputs(network: Architecture | MLP) -> int:
    return network.outputs if isinstance(network, Architecture) else network.head.width


def _measure(network: Architecture | MLP) -> tuple[int, int]:
    """Return the input width H of the policy's last layer, and the number of parameters before it."""
    if isinstance(network, MLP) or network.is_dense:
        sizes = (network.inputs.width, *network.hidden_sizes)
        return sizes[-1], DenseLayout(sizes).num_parameters
    # Import torch only if needed, since that takes a second.
    from paddock.algos.networks.actor_critic import acting_network

    acting = acting_network(network)
    return acting.policy_head.in_features, sum(part.numel() for part in acting.policy_encoder.parameters())


def _transposed(mlp: MLP, parameters: Floats, to_torch: bool) -> Floats:
    """Convert weights from [in, out] to torch's [out, in], or back."""
    before, after = DenseLayout(mlp.sizes, not to_torch), DenseLayout(mlp.sizes, to_torch)
    transposed = np.empty_like(parameters)
    for old, new in zip(before.layers(parameters), after.layers(transposed), strict=True):
        for source, target in zip(old, new, strict=True):
            target[:] = source
    return transposed


def _kind(network: Architecture | MLP, clip: float | None) -> dict[str, Any]:
    lstm, shared = (network.lstm, network.shared) if isinstance(network, Architecture) else (False, False)
    support = network.support if isinstance(network, Architecture) else None
    return {
        "observations": _observations(network.inputs),
        "actions": ", ".join(_actions(leaf) for leaf in network.head.leaves),
        "encoder": _encoder(network),
        "layer_norm": isinstance(network, Architecture) and network.layer_norm,
        "hidden_sizes": list(network.hidden_sizes),
        "activation": network.activation,
        "lstm": lstm,
        "shared": lstm and shared,  # otherwise only the value function differs
        "atoms": None if support is None else [support.atoms, support.v_min, support.v_max],
        "numbers": _numbers(network.head),
        "observation_clip": clip,
        "bytes": _divided(network) if network.inputs.plain and clip is None else None,
        "images": None if network.inputs.plain else _divided(network),
    }


def _divided(network: Architecture | MLP) -> str | None:
    """Describe the divisors of uint8 observations; None if there are none."""
    divisors = network.divisors if isinstance(network, Architecture) else network.inputs.divisors
    if isinstance(network, MLP) and network.inputs.plain:
        divisors = [1 for _ in divisors]
    return f"divided by {', '.join(map(str, divisors))}" if divisors else None


def _encoder(network: Architecture | MLP) -> str:
    if isinstance(network, MLP):
        return "mlp"
    return network.encoder if network.custom_encoder is None else f"{network.encoder} {network.custom_encoder}"


def _observations(inputs: Inputs) -> str:
    if inputs.plain:
        return f"{inputs.dtype} {list(inputs.shape)}"
    leaves = visible_leaves(inputs.layout)
    return ", ".join(f"{leaf.kind} {list(leaf.shape)}{list(leaf.sizes) or ''}{at_path(leaf.path)}" for leaf in leaves)


def _actions(leaf: LeafHead) -> str:
    if leaf.sizes:
        return f"choices {list(leaf.sizes)}{at_path(leaf.path)}"
    if isinstance(leaf, Binary):
        return f"{leaf.components} bits{at_path(leaf.path)}"
    bounds = [list(dict.fromkeys(bound)) if len(set(bound)) == 1 else list(bound) for bound in (leaf.low, leaf.high)]
    return f"{leaf.components} numbers between {bounds[0]} and {bounds[1]}{at_path(leaf.path)}"


def _numbers(head: Head) -> str | None:
    """Return the family of continuous distributions; None if there are none."""
    families = sorted({leaf.family for leaf in head.leaves if isinstance(leaf, Numbers)})
    return families[-1] if families else None


def _format(value: Any) -> str:
    text = str(value).replace(" ", "") if isinstance(value, list) else str(value).lower()
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH // 2]} ... {text[-MAX_LENGTH // 2 :]}"
