"""The policy that an algorithm begins with in place of a random one: another run's, whatever algorithm learned it.

What an evolution strategy has found, PPO goes on from: networks of the same layers act alike. Only what acts is taken:
values and critics are drawn as ever, but for those that share an LSTM with the policy.
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
from paddock.algos.networks.inputs import Inputs, seen
from paddock.envs.errors import ConfigError, require
from paddock.envs.native.networks import DenseLayout
from paddock.envs.spaces.codecs import at_path

Floats = NDArray[np.float32]

SPELT = 120  # characters of a difference that an error shows; MiniGrid has 147 choices
# What must be equal, and the settings that it depends on.
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


class SeenMoments(NamedTuple):
    """What observations have been like, by which they are normalized."""

    total: int  # observations
    mean: NDArray[np.float64]  # [O]
    m2: NDArray[np.float64]  # [O], sum of squared deviations from the mean


@dataclass(frozen=True, eq=False)
class InitialPolicy:
    """A network that acts, in the parts that others may take of it."""

    kind: Mapping[str, Any]  # by the names of `SETTINGS`
    values: bool  # outputs are action values
    log_std: Floats  # [A] of a Gaussian, else [0]
    body: Floats  # all layers but the last
    weight: Floats  # [A, H], of the last
    bias: Floats  # [A]
    rest: Floats  # of a network with an LSTM, what comes behind
    seen: SeenMoments | None  # None: observations go in as they are

    @classmethod
    def of(cls, policy: Any, count: int = 0, *, values: bool = False) -> "InitialPolicy":
        """Take a policy apart.

        Args:
            count: observations that it is normalized by.
            values: its outputs are action values.

        Raises:
            ConfigError: it is of another making.
        """
        if isinstance(policy, FlatPolicy):
            network: MLP | Architecture = policy.mlp
            parameters, normalizer = _turned(policy.mlp, policy.parameters, to_torch=True), policy.normalizer
        elif isinstance(policy, ActorPolicy):
            network, parameters, normalizer = policy.architecture, policy.parameters, policy.weights.normalizer
        else:
            raise ConfigError(f"its policy is a {type(policy).__name__}, of which no network is known; choose another")
        parts, head = _split(network, parameters.copy()), network.head
        count_of = head.components if isinstance(head, SoftGaussian) else _outputs(network)
        found = None
        if normalizer is not None:
            # A deviation is kept as it was used, not below its floor.
            mean, std = normalizer.mean.astype(np.float64), normalizer.std.astype(np.float64)
            found = SeenMoments(max(count, 1), mean, std**2 * max(count, 1))
        clip = None if normalizer is None else normalizer.clip
        weight, bias = parts.weight[:count_of], parts.bias[:count_of]
        return cls(_kind(network, clip), values, parts.log_std, parts.body, weight, bias, parts.rest, found)

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "InitialPolicy":
        """Return it of what `state_dict` gave."""
        return cls(**{**state, "seen": None if state["seen"] is None else SeenMoments(**state["seen"])})

    def state_dict(self) -> dict[str, Any]:
        """Return all of it, as arrays and plain data."""
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        return state | {"seen": None if self.seen is None else self.seen._asdict()}

    def into(
        self, network: Architecture | MLP, drawn: Floats, clip: float | None = None, *, values: bool = False
    ) -> Floats:
        """Return parameters [P] with this policy in place of the one that was drawn.

        Args:
            drawn: [P] in the network's order, the policy's first; what else there is stays.
            clip: deviations that normalized observations are clipped to; None: they go in as they are.
            values: outputs are learned as action values.

        Raises:
            ConfigError: the network is another one; the first difference is named.
        """
        self._check(_kind(network, clip))
        known = self.values or not values
        require(known, "its outputs are no action values, which algo=dqn learns; choose a run of algo=dqn")
        parameters = drawn.copy() if isinstance(network, Architecture) else _turned(network, drawn, to_torch=True)
        parts = _split(network, parameters)
        if self.log_std.size and parts.log_std.size:
            parts.log_std[:] = self.log_std
        parts.body[:] = self.body
        parts.weight[: len(self.weight)], parts.bias[: len(self.bias)] = self.weight, self.bias
        parts.rest[:] = self.rest
        return parameters if isinstance(network, Architecture) else _turned(network, parameters, to_torch=False)

    def of_name(self, name: str) -> "InitialPolicy":
        """Return what a policy of this name begins with: any does with this one."""
        return self

    def _check(self, wanted: Mapping[str, Any]) -> None:
        for name, settings in SETTINGS.items():
            got, want = self.kind[name], wanted[name]
            difference = f"its {name}: {_spell(got)}, this run's: {_spell(want)}"
            require(got == want, f"{difference}; set {settings} alike in both runs, or choose another run")


@dataclass(frozen=True, eq=False)
class InitialPolicies:
    """Several policies, by their names.

    Attributes:
        main: of a league the name of the run's, which acts for all agents as well; None: each acts for some of them.
    """

    each: Mapping[str, InitialPolicy]
    main: str | None = None

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "InitialPolicies":
        """Return them of what `state_dict` gave."""
        return cls({name: InitialPolicy.restore(one) for name, one in state["policies"].items()}, state.get("main"))

    def state_dict(self) -> dict[str, Any]:
        """Return all of them, as arrays and plain data."""
        main = {} if self.main is None else {"main": self.main}
        return {"policies": {name: one.state_dict() for name, one in self.each.items()}, **main}

    def of_name(self, name: str) -> InitialPolicy:
        """Return what a policy of this name begins with; ConfigError where there is none."""
        if not name and self.main is not None:
            name = self.main
        wanted = f"and this run wants {name}" if name else "and this run learns one for all"
        key = "algo.policies" if self.main is None else "league of algo.opponents"
        require(name in self.each, f"it has policies {', '.join(self.each)}, {wanted}; name them alike in {key}")
        return self.each[name]


Initial = InitialPolicy | InitialPolicies


def restore(state: Mapping[str, Any]) -> Initial:
    """Return what `state_dict` gave, of one policy or of several."""
    return InitialPolicies.restore(state) if "policies" in state else InitialPolicy.restore(state)


class _Parts(NamedTuple):
    """Views of flat parameters."""

    log_std: Floats
    body: Floats
    weight: Floats  # [W, H]
    bias: Floats  # [W]
    rest: Floats


def _split(network: Architecture | MLP, parameters: Floats) -> _Parts:
    """View parameters in torch's order, and those of no value behind them."""
    head = network.head  # of which one that is not drawn has no log standard deviations
    (H, body), W = _measure(network), _outputs(network)
    ends = np.cumsum([head.num_log_std, body, (H + 1) * W])
    log_std, middle, last, behind = np.split(parameters, ends.tolist())
    weight, bias = last[: H * W].reshape(W, H), last[H * W :]
    with_memory = isinstance(network, Architecture) and network.lstm
    return _Parts(log_std, middle, weight, bias, behind if with_memory else behind[:0])


def _outputs(network: Architecture | MLP) -> int:
    return network.outputs if isinstance(network, Architecture) else network.head.width


def _measure(network: Architecture | MLP) -> tuple[int, int]:
    """H, what the last layer of the policy takes, and how many parameters its others have."""
    if isinstance(network, MLP) or network.is_dense:
        sizes = (network.inputs.width, *network.hidden_sizes)
        return sizes[-1], DenseLayout(sizes).num_parameters
    # Torch takes a second to import, and dense networks never need it.
    from paddock.algos.networks.actor_critic import acting_part

    acting = acting_part(network)
    return acting.policy_head.in_features, sum(part.numel() for part in acting.policy_encoder.parameters())


def _turned(mlp: MLP, parameters: Floats, *, to_torch: bool) -> Floats:
    """Weights [in, out] as [out, in], as torch and what is learned in its layout have them; or the other way."""
    before, after = DenseLayout(mlp.sizes, not to_torch), DenseLayout(mlp.sizes, to_torch)
    turned = np.empty_like(parameters)
    for old, new in zip(before.layers(parameters), after.layers(turned), strict=True):
        for source, target in zip(old, new, strict=True):
            target[:] = source
    return turned


def _kind(network: Architecture | MLP, clip: float | None) -> dict[str, Any]:
    """What must be equal, by the names of `SETTINGS`."""
    return {
        "observations": _observations(network.inputs),
        "actions": ", ".join(_actions(leaf) for leaf in network.head.leaves),
        "encoder": _encoder(network),
        "layer_norm": isinstance(network, Architecture) and network.layer_norm,
        "hidden_sizes": list(network.hidden_sizes),
        "activation": network.activation,
        "lstm": isinstance(network, Architecture) and network.lstm,
        "shared": isinstance(network, Architecture) and network.lstm and network.shared,  # else values alone differ
        "atoms": _atoms(network),
        "numbers": _numbers(network.head),
        "observation_clip": clip,
        "bytes": _divided(network) if network.inputs.plain and clip is None else None,
        "images": None if network.inputs.plain else _divided(network),
    }


def _divided(network: Architecture | MLP) -> str | None:
    """By what bytes of observations are divided, in words; None: there are none."""
    divisors = network.divisors if isinstance(network, Architecture) else network.inputs.divisors
    if isinstance(network, MLP) and network.inputs.plain:
        divisors = [1 for _ in divisors]
    return f"divided by {', '.join(map(str, divisors))}" if divisors else None


def _encoder(network: Architecture | MLP) -> str:
    if isinstance(network, MLP):
        return "mlp"
    return network.encoder if network.custom_encoder is None else f"{network.encoder} {network.custom_encoder}"


def _atoms(network: Architecture | MLP) -> list[float] | None:
    """How many there are, the first and the last; None: the network gives no distribution of returns."""
    support = network.support if isinstance(network, Architecture) else None
    return None if support is None else [support.atoms, support.v_min, support.v_max]


def _observations(inputs: Inputs) -> str:
    if inputs.plain:
        return f"{inputs.dtype} {list(inputs.shape)}"
    leaves = (
        f"{leaf.kind} {list(leaf.shape)}{list(leaf.sizes) or ''}{at_path(leaf.path)}" for leaf in seen(inputs.layout)
    )
    return ", ".join(leaves)


def _actions(leaf: LeafHead) -> str:
    if leaf.sizes:
        return f"choices {list(leaf.sizes)}{at_path(leaf.path)}"
    if isinstance(leaf, Binary):
        return f"{leaf.components} bits{at_path(leaf.path)}"
    bounds = [list(dict.fromkeys(bound)) if len(set(bound)) == 1 else list(bound) for bound in (leaf.low, leaf.high)]
    return f"{leaf.components} numbers between {bounds[0]} and {bounds[1]}{at_path(leaf.path)}"


def _numbers(head: Head) -> str | None:
    """How outputs become numbers; None: there are none."""
    families = sorted({leaf.family for leaf in head.leaves if isinstance(leaf, Numbers)})
    return families[-1] if families else None


def _spell(value: Any) -> str:
    text = str(value).replace(" ", "") if isinstance(value, list) else str(value).lower()
    return text if len(text) <= SPELT else f"{text[: SPELT // 2]} ... {text[-SPELT // 2 :]}"
