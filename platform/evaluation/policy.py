"""A trained policy that acts on one observation or a batch, dictionaries included.

action = policy.act(observation)                                    # the most likely action
action = policy.act(observation, deterministic=False, seed=generator)
action, state = policy.act_with_state(observation, state)           # for recurrent policies
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.algos.multiagent.joint_policy import JointPolicy
from paddock.algos.networks.inputs import blank_row, spaces_of
from paddock.algos.protocol import ReadsInputs, can_draw
from paddock.envs.errors import ConfigError, require
from paddock.envs.spaces.codecs import SpaceMismatch
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec

Seed = int | np.random.Generator | None


class TrainedPolicy:
    """Policy of a run, for inference.

    Attributes:
        observation_space: of one observation, after the environment's wrappers.
        action_space: of one action, before the environment's wrappers.
        iteration: iteration of the run that the policy is from.
        layout: of one observation in a row of bytes.
        env: the environment's recipe.
    """

    def __init__(self, policy: Any, env: EnvSpec, iteration: int, of: str | None = None) -> None:
        """Wrap a policy; `of` names a policy or an agent of a run with several policies.

        Raises:
            ConfigError: the name is unknown, or missing although the run has several policies.
        """
        policy, self.layout, self.action_space = find_member(policy, env, of)
        self.observation_space = env.raw_spaces[0] if env.seats == 1 else self.layout.space
        self.iteration = iteration
        self.policy = policy
        self.env = env
        self._own = np.random.default_rng()
        self._sampler: tuple[np.random.Generator, Any] | None = None  # the last generator, and a policy that uses it

    def __repr__(self) -> str:
        """Return the policy's iteration."""
        return f"<TrainedPolicy of iteration {self.iteration}>"

    @functools.cached_property
    def recurrent(self) -> bool:
        """Return whether the policy has a state, so that its actions depend on earlier observations."""
        _, _, state = self.policy.act(blank_row(self.layout), None)
        return np.size(state) > 0 if state is not None else False

    def act(self, observation: Any, *, deterministic: bool = True, seed: Seed = None) -> Any:
        """Choose an action, or one for each observation of a batch.

        Args:
            observation: one observation, or a batch whose arrays have a leading dimension B.
            deterministic: return the most likely action; False samples one, as in training.
            seed: of the samples; a generator keeps its state between calls, None is non-deterministic.

        Returns:
            The action in the environment's action space, or [B, ...].

        Raises:
            ConfigError: the observation is not in the observation space, the policy has no action distribution, or
                it is recurrent and needs `act_with_state`.
        """
        require(not self.recurrent, "this policy is recurrent; call act_with_state(observation, state)")
        return self.act_with_state(observation, deterministic=deterministic, seed=seed)[0]

    def act_with_state(
        self, observation: Any, state: Any = None, *, deterministic: bool = True, seed: Seed = None
    ) -> tuple[Any, Any]:
        """Choose actions as `act` does, and return the recurrent state with them.

        `state` is the one that the last call returned for the same episodes, or None for new episodes.

        Returns:
            The action, or [B, ...], and the state for the next call: [B, S], or a policy's custom state.

        Raises:
            ConfigError: as for `act`, or the state has another batch size.
        """
        rows, alone = self._rows(observation)
        episodes = len(rows) if state is None or not hasattr(state, "__len__") else len(state)
        require(episodes == len(rows), f"state has batch size {episodes}, but there are {len(rows)} observations")
        policy = self.policy if deterministic else self._sampling_policy(seed)
        actions, _, state = policy.act(rows, state)
        if actions.dtype.kind == "V":
            layout = self.env.lay_out_actions(self.action_space)
            return (layout.reader(actions)(0) if alone else layout.batch(actions)), state
        return (actions[0] if alone else actions), state

    def feed(self, observation: Any) -> dict[str, NDArray[Any]]:
        """Return the inputs by name that a file written by `Run.export` takes for an observation or a batch.

        Raises:
            ConfigError: the observation is not in the observation space, or the policy cannot be exported.
        """
        if not isinstance(self.policy, ReadsInputs):
            raise ConfigError(f"{type(self.policy).__name__} cannot be exported")
        return self.policy.inputs.feed(self._rows(observation)[0])

    def _rows(self, observation: Any) -> tuple[NDArray[Any], bool]:
        """Return observations [B, *shape] as the policy takes them, and whether there is just one."""
        layout = self.layout
        read, batch = read_observation(self.observation_space, observation)
        if layout.plain:
            return (read if batch is not None else read[None]), batch is None
        rows = layout.zeros(1 if batch is None else batch)
        try:
            if batch is None:
                layout.writer(rows)(0, read)
            else:
                layout.pack(read, rows, choices=True)
        except SpaceMismatch as error:
            raise ConfigError(f"observation: {error}") from error
        return rows, batch is None

    def _sampling_policy(self, seed: Seed) -> Any:
        if not can_draw(self.policy):
            raise ConfigError("this policy has no action distribution to sample from; remove deterministic=False")
        if not isinstance(seed, np.random.Generator):
            if seed is not None:
                self._own.bit_generator.state = np.random.default_rng(seed).bit_generator.state
            seed = self._own
        if self._sampler is None or self._sampler[0] is not seed:
            self._sampler = seed, self.policy.drawing(seed)
        return self._sampler[1]


def find_member(policy: Any, env: EnvSpec, of: str | None) -> tuple[Any, Layout, gymnasium.Space]:
    """Return the named policy of a run, the layout of its observations, and its action space.

    Raises:
        ConfigError: the name is unknown, or missing although the run has several policies.
    """
    if not isinstance(policy, JointPolicy):
        require(of is None, f"of={of}: this run has a single policy for all agents; remove of=")
        return (policy, *spaces_of(env))
    member = policy.find(of)
    seat = next((seat for seat in range(env.seats) if policy.plays(seat) is member), 0)  # in a league, any seat
    role = next(role for role in env.roles if seat in role.seats)
    return member, role.observations, role.action_space


def read_observation(space: gymnasium.Space, value: Any, name: str = "observation") -> tuple[Any, int | None]:
    """Read one observation or a batch of them, with arrays in the dtypes of their spaces.

    Returns:
        The observation, and the batch size B; None for a single observation.

    Raises:
        ConfigError: its shape, dtype or keys do not match the space.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = isinstance(space, spaces.Dict)
        items: dict[Any, gymnasium.Space] = (
            dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        )
        given: Any = value if named or not isinstance(value, Sequence) else dict(enumerate(value))
        fits = isinstance(given, Mapping) and given.keys() == items.keys()
        kind, listed = ("mapping" if named else "tuple"), ", ".join(map(str, items))
        got = ", ".join(map(str, given)) if isinstance(given, Mapping) else type(value).__name__
        require(fits, f"{name} must be a {kind} with keys {listed}; got {got or 'none'}")
        read = {key: read_observation(inner, given[key], f"{name}[{key!r}]") for key, inner in items.items()}
        batches = list(dict.fromkeys(batch for _, batch in read.values()))
        found = ", ".join("one observation" if batch is None else f"a batch of {batch}" for batch in batches)
        require(len(batches) <= 1, f"batch sizes in {name} differ: {found}; pass one observation, or equal batches")
        whole = {key: one for key, (one, _) in read.items()}
        return (whole if named else tuple(whole.values())), next(iter(batches), None)
    if space.shape is None or space.dtype is None or np.dtype(space.dtype).kind not in "biuf":
        return _read_other(space, value, name)
    return _read_array(space, value, name)


def _read_array(space: gymnasium.Space, value: Any, name: str) -> tuple[NDArray[Any], int | None]:
    shape, dtype = tuple(space.shape or ()), np.dtype(space.dtype)
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ConfigError(f"{name} is not an array ({error}); allowed: shape {shape}, or {('B', *shape)}") from error
    fits = array.ndim - len(shape) in (0, 1) and array.shape[array.ndim - len(shape) :] == shape
    batch = f"({', '.join(map(str, ('B', *shape)))})"
    require(fits, f"{name} has shape {array.shape}; allowed: {shape} for one, or {batch} for a batch")
    read = array.astype(dtype, copy=False) if array.dtype.kind in "biuf" else array
    exact = array.dtype.kind in "biuf" and (dtype.kind == "f" or bool((read == array).all()))
    require(exact, f"{name} has dtype {array.dtype}, which does not convert to {dtype} exactly; pass {dtype}")
    return read, None if array.ndim == len(shape) else len(array)


def _read_other(space: gymnasium.Space, value: Any, name: str) -> tuple[Any, int | None]:
    """Read text, graphs and sequences, whose batches are tuples or lists."""
    if space.contains(value):
        return value, None
    several = isinstance(value, tuple | list) and bool(value) and all(space.contains(one) for one in value)
    require(several, f"{name} is not in the space {space}; pass an element of it, or a tuple of elements")
    return value, len(value)
