"""Gradients by hand: of dense networks they are torch's; test_ppo.py has the objective's."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from algos.learning.learner import Learner
from algos.networks.architecture import Architecture
from algos.networks.dense import DenseNetwork
from algos.networks.heads import Head
from envs.spaces.layout import Layout

ACTIONS = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 3, 4]),
    "box": spaces.Box(-1, 1, (2,), np.float32),
}


def learner(**changes: Any) -> Learner:
    given: dict[str, Any] = {"hidden": (8, 7), "activation": "tanh", "shared": False} | changes
    head = Head.of(ACTIONS[given.pop("action", "discrete")])
    seen = Layout.of(spaces.Box(-1, 1, (5,), np.float32), {}, ())
    arch = Architecture.for_spaces(seen, head, encoder="mlp", lstm=False, initial_log_std=-0.2, **given)
    made = Learner(arch, 0, device="cpu", precision="float32", compiled=False, adam_epsilon=1e-5)
    made.theta += 0.1 * torch.randn(made.theta.shape, generator=torch.Generator().manual_seed(1))
    return made


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("hidden", [(8, 7), (6,), ()])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_dense_network_computes_what_torchs_does(
    action: str, shared: bool, hidden: tuple[int, ...], activation: str
) -> None:
    made = learner(action=action, shared=shared, hidden=hidden, activation=activation)
    dense = made.dense
    assert isinstance(dense, DenseNetwork)
    generator = np.random.default_rng(0)
    obs = generator.standard_normal((9, 5)).astype(np.float32)
    out, value = made.network(torch.from_numpy(obs))
    ours = dense.forward(obs)
    np.testing.assert_allclose(ours[0], out.detach(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours[1], value.detach(), rtol=1e-4, atol=1e-6)

    by_out = generator.standard_normal(out.shape).astype(np.float32)
    by_value = generator.standard_normal(9).astype(np.float32)
    made.gradient.zero_()
    torch.autograd.backward([out, value], [torch.from_numpy(by_out), torch.from_numpy(by_value)])
    expected = made.gradient.clone().numpy()
    made.gradient.fill_(7.0)
    dense.backward(by_out, by_value)
    dense.log_std_gradient[:] = 0  # which the objective fills
    np.testing.assert_allclose(made.gradient.numpy(), expected, rtol=1e-4, atol=1e-5)
