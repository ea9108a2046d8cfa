"""Networks of off-policy algorithms, with their targets and parameter vectors."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.common.sample_blocks import NormalBlocks
from paddock.algos.learning.offpolicy.learners.torch_batch import AnyBatch, TorchBatch, TorchSequences
from paddock.algos.learning.replay.batch import SequenceBatch
from paddock.algos.networks.actor_critic import ActorCritic, expect, masked, one_thread
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective, SoftPolicy
from paddock.algos.networks.encoders import dense_layers, first_layers, legal_in, make_encoder
from paddock.algos.networks.heads import LOG_2, LOG_2PI, LOG_STD, LOWEST
from paddock.algos.networks.layers import linear
from paddock.algos.networks.noisy import NoisyNetworks
from paddock.algos.networks.training import ParameterVector, copy_network, init_layers, to_numpy, wrap_encoders


class Networks:
    """Networks of one policy, with one parameter vector per optimizer."""

    architecture: Architecture  # of the acting network
    learned: dict[str, nn.Module]  # by optimizer
    vectors: dict[str, ParameterVector]  # their parameters, gradients and moments; the acting network comes first
    targets: dict[str, tuple[Tensor, str]]  # target parameters by name, and the optimizer whose parameters they track
    _device: torch.device

    def batches(self, batch: Any) -> Iterator[AnyBatch]:
        """Move a batch to the device and yield the batch of each update."""
        return TorchBatch.split(batch, self.architecture, self._device)

    def acting(self, rollout: int | None) -> NDArray[np.float32]:
        """Return the acting parameters, with the exploration noise of `rollout` if given and if networks are noisy."""
        return next(iter(self.vectors.values())).parameters()

    def draw_noise(self, first: int, updates: int, rows: int) -> NDArray[np.float32] | None:
        """Return the noise of updates [U, draws, B, A]; None if losses need none."""
        return None

    def begin(self, update: int) -> None:
        """Prepare for an update, counted from 0."""
        return

    def backward(self, optimizer: str, loss: Tensor) -> None:
        """Compute the gradient of a loss in the vector of one optimizer only."""
        self.vectors[optimizer].gradient.zero_()
        parameters = self.learned[optimizer].parameters()
        loss.backward(inputs=[each for each in parameters if each.numel() and each.requires_grad])

    def no_grad(self) -> AbstractContextManager[Any]:
        """Return a context without gradients."""
        return torch.no_grad()


class QNetwork(nn.Module):
    """Q-network with N estimates per action [B, A, N], dueling if it is shared; acting parameters come first."""

    def __init__(self, architecture: Architecture, estimates: int, seed: int) -> None:
        super().__init__()
        self._shape = architecture.head.width, estimates
        self._distributional = architecture.support is not None
        generator = torch.Generator().manual_seed(seed % 2**63)
        with one_thread():
            self.policy_encoder, width = make_encoder(architecture, generator)
        self.policy_head = linear(width, architecture.head.width * estimates, 1.0, generator)
        self.value_head = linear(width, estimates, 1.0, generator) if architecture.shared else None
        init_layers(self, np.random.default_rng(seed % 2**63))

    def forward(self, obs: Tensor) -> Tensor:
        """Map observations to estimates [B, A, N]."""
        features = self.policy_encoder(obs)
        q: Tensor = self.policy_head(features).unflatten(1, self._shape)
        if self.value_head is None:
            return q
        return q - q.mean(1, keepdim=True) + self.value_head(features).unsqueeze(1)

    def acting(self) -> Tensor:
        """Return the acting parameters [P]: all atoms, or the mean of quantiles without the shared state value."""
        shared = [None, None] if self.value_head is None else [self.value_head.weight, self.value_head.bias]
        own = [self.policy_head.weight, self.policy_head.bias]
        heads = [self._acting(a.unflatten(0, self._shape), v) for a, v in zip(own, shared, strict=True)]
        return nn.utils.parameters_to_vector([*self.policy_encoder.parameters(), *heads])

    def _acting(self, advantages: Tensor, value: Tensor | None) -> Tensor:
        if not self._distributional:
            return advantages.mean(1)
        whole = advantages if value is None else advantages - advantages.mean(0) + value  # a softmax depends on both
        return whole.flatten(0, 1)


class QNetworks(Networks):
    """Q-network and its target, with N estimates per action; N = 1 is the expected return."""

    def __init__(
        self,
        architecture: Architecture,
        seed: int,
        *,
        quantiles: int | None = None,
        noisy_sigma: float | None = None,
        adam_epsilon: float,
        precision: str,
        device: str,
    ) -> None:
        """Initialize the networks.

        N is `quantiles`, the number of atoms in the architecture's support, or 1. `precision=bfloat16` selects mixed
        precision in encoders; `noisy_sigma=None` disables noisy networks.
        """
        self.architecture, self._device = architecture, torch.device(device)
        self.support = support = architecture.support
        count = quantiles or (1 if support is None else support.atoms)
        self.levels = (torch.arange(count, device=self._device) + 0.5) / count  # [N], of quantiles
        self.atoms = None if support is None else torch.from_numpy(support.values).to(self._device)  # [N]
        self.online = QNetwork(architecture, count, seed).to(self._device)
        wrap_encoders(self.online, precision)
        self._noisy: NoisyNetworks | None = None
        self.target: nn.Module
        if noisy_sigma is None:
            self.target, targets = copy_network(self.online)
            vector = ParameterVector(self.online, adam_epsilon)
        else:
            generator = partial(keyed_generator, seed, Stream.UPDATE)
            self._noisy = noisy = NoisyNetworks(self.online, noisy_sigma, generator, adam_epsilon)
            self.target, targets, vector = noisy.target, noisy.targets, noisy.learned
        self.learned, self.vectors, self.targets = {"q": self.online}, {"q": vector}, {"targets": (targets, "q")}

    def __call__(self, obs: Tensor) -> Tensor:
        """Map observations to the estimates of each action [B, A, N]."""
        estimates: Tensor = self.online(obs)
        return estimates

    def greedy(self, estimates: Tensor, obs: Tensor) -> Tensor:
        """Return the legal actions [B] of the highest expected return."""
        support, legal = self.architecture.support, legal_in(self.architecture.inputs, obs)
        q = estimates.mean(2) if support is None else expect(estimates, support)
        return (q if legal is None else masked(q, legal)).argmax(1)

    def begin(self, update: int) -> None:
        """See `Networks.begin`; resamples the noise of noisy networks."""
        if self._noisy is not None:
            self._noisy.resample(update)

    def backward(self, optimizer: str, loss: Tensor) -> None:
        """See `Networks.backward`."""
        if self._noisy is None:
            super().backward(optimizer, loss)
        else:
            self._noisy.zero_grad()
            loss.backward()
            self._noisy.split_gradient()

    @torch.no_grad()
    def acting(self, rollout: int | None) -> NDArray[np.float32]:
        """See `Networks.acting`."""
        if self._noisy is not None:
            self._noisy.act(rollout)
        return to_numpy(self.online.acting())


class RecurrentQNetworks(Networks):
    """Recurrent Q-network, an actor-critic whose actor outputs are action values or advantages, and its target."""

    def __init__(
        self,
        architecture: Architecture,
        seed: int,
        *,
        dueling: bool,
        adam_epsilon: float,
        precision: str,
        device: str,
    ) -> None:
        self.architecture, self._device, self._dueling = architecture, torch.device(device), dueling
        self.online = ActorCritic(architecture, seed)
        init_layers(self.online, np.random.default_rng(seed % 2**63))
        self.online.to(self._device)
        wrap_encoders(self.online, precision)
        self.target, targets = copy_network(self.online)
        self.learned, self.vectors = {"q": self.online}, {"q": ParameterVector(self.online, adam_epsilon)}
        self.targets = {"targets": (targets, "q")}

    def unroll(self, network: ActorCritic, batch: TorchSequences, burn_in: int) -> tuple[Tensor, Tensor]:
        """Return action values [length + n, B, A] and the recurrent states after each step; burn-in has no gradient."""
        state = batch.state
        if burn_in:
            with torch.no_grad():
                state = network.unroll(batch.obs[:burn_in], state, batch.start[:burn_in])[2][-1]
        out, value, states = network.unroll(batch.obs[burn_in:], state, batch.start[burn_in:])
        return self._values(out, value), states

    def step(self, network: ActorCritic, obs: Tensor, state: Tensor) -> Tensor:
        """Return action values [F, A] of single observations, given the recurrent state before them."""
        out, value, _ = network.step(obs, state)
        return self._values(out, value)

    def _values(self, out: Tensor, value: Tensor) -> Tensor:
        """Return action values [..., A]; dueling subtracts the mean advantage of legal actions."""
        if not self._dueling:
            return out
        legal = out > LOWEST / 2
        mean = torch.where(legal, out, 0).sum(-1, keepdim=True) / legal.sum(-1, keepdim=True).clamp(min=1)
        return torch.where(legal, out - mean + value.unsqueeze(-1), LOWEST)

    def batches(self, batch: SequenceBatch) -> Iterator[TorchSequences]:
        """See `Networks.batches`."""
        return iter([TorchSequences.of(batch, self.architecture, self._device)])


class Critic(nn.Module):
    """Critic [B, N] of continuous actions [B, A] in [-1, 1], which join the features, or of each discrete action."""

    def __init__(
        self, architecture: Architecture, hidden_sizes: tuple[int, ...], actions: int, outputs: int, seed: int
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed % 2**63)
        first, width = first_layers(architecture, generator)
        rest, wide = dense_layers(hidden_sizes, architecture.activation, width + actions, generator)
        self.observation_encoder, self.joint_encoder = nn.Sequential(*first), nn.Sequential(*rest)
        self.value_head = linear(wide, outputs, 1.0, generator)

    def forward(self, obs: Tensor, action: Tensor | None) -> Tensor:
        """Map observations and actions to estimates [B, N]."""
        features = self.observation_encoder(obs)
        value: Tensor = self.value_head(
            self.joint_encoder(features if action is None else torch.cat([features, action], 1))
        )
        return value


class ActorCriticNetworks(Networks):
    """Actor, critics, their targets, and the temperature; each network has its own encoder."""

    def __init__(
        self,
        architecture: Architecture,
        seed: int,
        *,
        objective: ActorCriticObjective,
        quantiles: int | None = None,
        adam_epsilon: float,
        precision: str,
        device: str,
    ) -> None:
        """Initialize the networks; `seed` also keys the noise of updates.

        The actor has A outputs, 2A for a squashed Gaussian, or one per discrete action. Critics have the same encoder,
        hidden sizes and activation; each estimates `quantiles` of the return, or its mean if None.
        """
        self.architecture, self._device, self._draws = architecture, torch.device(device), objective.draws
        head = architecture.head
        self._actions = 0 if head.columns else head.components
        self._blocks = NormalBlocks(seed, Stream.UPDATE)
        outputs = head.width if head.columns else quantiles or 1
        self.levels = (torch.arange(outputs, device=self._device) + 0.5) / outputs  # [N], of quantiles
        generator = np.random.default_rng(seed % 2**63)
        hidden_sizes, critics = architecture.hidden_sizes, range(objective.num_critics)
        with one_thread():
            self.actor = ActorCritic(architecture, seed, critic=False)
            self._critics = nn.ModuleList(
                [Critic(architecture, hidden_sizes, self._actions, outputs, seed + k) for k in critics]
            )
        for network in (self.actor, *self._critics):
            init_layers(network, generator)
            network.to(self._device)
            wrap_encoders(network, precision)
        self._target_critics, critic_targets = copy_network(self._critics)
        self.targets = {"target_critics": (critic_targets, "critics")}
        if not objective.soft:
            self.target_actor, actor_targets = copy_network(self.actor)
            self.targets["target_actor"] = actor_targets, "actor"
        policy = objective.policy
        self._learns_alpha = isinstance(policy, SoftPolicy) and policy.learned
        alpha = policy.alpha if isinstance(policy, SoftPolicy) else 1.0
        log_alpha = math.log(alpha) if self._learns_alpha else 0.0
        self._alpha = torch.tensor(alpha, device=self._device)
        temperature = nn.ParameterList([torch.tensor([log_alpha], dtype=torch.float32)]).to(self._device)
        self.learned = {"actor": self.actor, "critics": self._critics, "log_alpha": temperature}
        self.vectors = {name: ParameterVector(network, adam_epsilon) for name, network in self.learned.items()}
        self.log_alpha = next(temperature.parameters())  # [1]

    @property
    def alpha(self) -> Tensor:
        """Temperature, without gradient."""
        return self.log_alpha.detach()[0].exp() if self._learns_alpha else self._alpha

    def critics(self, obs: Tensor, action: Tensor | None) -> Tensor:
        """Return each critic's estimates [C, B, N] of actions, or of all discrete actions."""
        return torch.stack([critic(obs, action) for critic in self._critics])

    def target_critics(self, obs: Tensor, action: Tensor | None) -> Tensor:
        """Return each target critic's estimates [C, B, N]."""
        return torch.stack([critic(obs, action) for critic in self._target_critics])

    def first_critic(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the first critic's estimates [B, N]."""
        value: Tensor = self._critics[0](obs, action)
        return value

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions [B, A] of the squashed Gaussian with noise [B, A]; return them and their log-densities [B]."""
        return squashed(self.actor.policy(obs), noise)

    def log_probabilities(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities of all discrete actions [B, K] and their logarithms, 0 for illegal actions."""
        logs = self.actor.policy(obs).log_softmax(1)
        share = logs.exp()
        return share, torch.where(share > 0, logs, 0)

    def choices_share(self, obs: Tensor) -> Tensor | float:
        """Return the entropy of a uniform policy over legal actions relative to that over all actions."""
        legal = legal_in(self.architecture.inputs, obs)
        if legal is None:
            return 1.0
        return legal.sum(1).clamp(min=1).log().mean() / math.log(max(legal.shape[1], 2))

    def draw_noise(self, first: int, updates: int, rows: int) -> NDArray[np.float32]:
        """See `Networks.draw_noise`; the noise equals that of the C backend."""
        return self._blocks.take((self._draws, rows, self._actions), first, updates)


def squashed(out: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Sample tanh-Gaussian actions [B, A] from means and log stds [B, 2A]; return them and their log-densities [B]."""
    mean, log_std = out.chunk(2, 1)
    log_std = log_std.clamp(*LOG_STD)
    u = mean + log_std.exp() * noise
    slope = 2 * (LOG_2 - u - nn.functional.softplus(-2 * u))  # log(1 - tanh^2 u), which does not saturate
    return u.tanh(), (-0.5 * noise**2 - log_std - 0.5 * LOG_2PI - slope).sum(1)
