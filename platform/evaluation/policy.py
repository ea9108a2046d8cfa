"""A trained policy that acts on one observation of its environment or a batch, dictionaries included.

action = policy.act(observation)                                    # the most likely one
action = policy.act(observation, deterministic=False, seed=generator)
action, state = policy.act_with_state(observation, state)           # of a policy with a memory
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.algos.multiagent.seated import SeatedPolicy
from paddock.algos.networks.inputs import blank, spaces_of, spaces_of_role
from paddock.algos.protocol import ReadsInputs, can_draw
from paddock.envs.errors import ConfigError, require
from paddock.envs.spaces.codecs import SpaceMismatch
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec

Seed = int | np.random.Generator | None


class TrainedPolicy:
    """Policy of a run, without its training.

    Attributes:
        observation_space: of one observation, as the environment with its wrappers gives it.
        action_space: of one action, as that environment takes it.
        iteration: of the run, that the policy is of.
    """

    def __init__(self, policy: Any, env: EnvSpec, iteration: int, of: str | None = None) -> None:
        """Wrap a policy.

        Args:
            policy: acts on rows of the environment's observations.
            of: of several policies in a world, whose is wanted: the name of a policy, or of an agent.

        Raises:
            ConfigError: there is none of that name, or none is named of several.
        """
        policy, self._layout, self.action_space = find_member(policy, env, of)
        self.observation_space = env.raw_spaces[0] if env.seats == 1 else self._layout.space
        self.iteration = iteration
        self.policy = policy
        self._env = env
        self._own = np.random.default_rng()
        self._drawn: tuple[np.random.Generator, Any] | None = None  # the last generator, and what draws from it

    def __repr__(self) -> str:
        return f"<TrainedPolicy of iteration {self.iteration}>"

    @functools.cached_property
    def recurrent(self) -> bool:
        """Whether it has a memory, so that what it does depends on earlier observations."""
        _, _, state = self.policy.act(blank(self._layout), None)
        return np.size(state) > 0 if state is not None else False

    def act(self, observation: Any, *, deterministic: bool = True, seed: Seed = None) -> Any:
        """Choose an action, or one for each observation of a batch.

        Args:
            observation: one, or B of them: each array of it then has a leading dimension B, as a vector environment
                gives them.
            deterministic: the most likely action; False: one drawn as training does.
            seed: of what is drawn; a generator goes on from call to call, None draws differently every time.

        Returns:
            The action as the environment takes it, or [B, ...].

        Raises:
            ConfigError: the observation is not of the environment's space; the policy has no distribution to draw
                from; or it has a memory, which `act_with_state` carries.
        """
        require(
            not self.recurrent, "this policy has a memory; call act_with_state(observation, state), which carries it"
        )
        return self.act_with_state(observation, deterministic=deterministic, seed=seed)[0]

    def act_with_state(
        self, observation: Any, state: Any = None, *, deterministic: bool = True, seed: Seed = None
    ) -> tuple[Any, Any]:
        """Choose actions as `act` does, with the memory before and after.

        Args:
            state: what the last call returned for the same episodes; None begins new ones.

        Returns:
            The action, or [B, ...], and the state for the next call: [B, S], or whatever the policy keeps.

        Raises:
            ConfigError: as of `act`, or the state is of another number of episodes.
        """
        rows, alone = self._rows(observation)
        episodes = len(rows) if state is None or not hasattr(state, "__len__") else len(state)
        require(episodes == len(rows), f"state is of {episodes} episodes, and there are {len(rows)} observations")
        policy = self.policy if deterministic else self._drawing(seed)
        actions, _, state = policy.act(rows, state)
        if actions.dtype.kind == "V":
            layout = self._env.lay_out_actions(self.action_space)
            return (layout.reader(actions)(0) if alone else layout.batch(actions)), state
        return (actions[0] if alone else actions), state

    def feed(self, observation: Any) -> dict[str, NDArray[Any]]:
        """Return what the file that `Run.export` writes takes for an observation, or a batch: its inputs by name.

        Raises:
            ConfigError: the observation is not of the environment's space, or the policy is none that is exported.
        """
        if not isinstance(self.policy, ReadsInputs):
            raise ConfigError(f"{type(self.policy).__name__} is no policy that can be exported")
        return self.policy.inputs.feed(self._rows(observation)[0])

    def _rows(self, observation: Any) -> tuple[NDArray[Any], bool]:
        """Observations [B, *shape] as the policy takes them, and whether it is one alone."""
        layout = self._layout
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

    def _drawing(self, seed: Seed) -> Any:
        if not can_draw(self.policy):
            raise ConfigError("this policy has no distribution of actions to draw from; leave deterministic=False out")
        if not isinstance(seed, np.random.Generator):
            if seed is not None:
                self._own.bit_generator.state = np.random.default_rng(seed).bit_generator.state
            seed = self._own
        if self._drawn is None or self._drawn[0] is not seed:
            self._drawn = seed, self.policy.drawing(seed)
        return self._drawn[1]


def find_member(policy: Any, env: EnvSpec, of: str | None) -> tuple[Any, Layout, gymnasium.Space]:
    """Return the policy that is asked for of several in a world, how its observations lie in rows, and its actions.

    Args:
        of: the name of a policy or of an agent; None where one acts for all.

    Raises:
        ConfigError: there is none of that name, or none is named of several.
    """
    if not isinstance(policy, SeatedPolicy):
        require(of is None, f"of={of}: one policy was learned, which acts for all; leave of= out")
        return (policy, *spaces_of(env))
    member = policy.find(of)
    seat = next((seat for seat in range(env.seats) if policy.plays(seat) is member), 0)  # of a league any
    role = next(role for role in env.roles if seat in role.seats)
    return (member, *spaces_of_role(env, role))


def read_observation(space: gymnasium.Space, value: Any, name: str = "observation") -> tuple[Any, int | None]:
    """Read one observation or a batch of them, with arrays in the dtypes of their spaces.

    Args:
        space: of one observation.
        value: the observation, or a batch.
        name: what messages call it.

    Returns:
        The observation, and B where every array of it has a leading dimension B; None where it is one alone.

    Raises:
        ConfigError: its shape, its dtype or its keys are not those of the space.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = isinstance(space, spaces.Dict)
        parts: dict[Any, gymnasium.Space] = (
            dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        )
        given: Any = value if named or not isinstance(value, Sequence) else dict(enumerate(value))
        fits = isinstance(given, Mapping) and given.keys() == parts.keys()
        kind, listed = ("mapping" if named else "tuple"), ", ".join(map(str, parts))
        got = ", ".join(map(str, given)) if isinstance(given, Mapping) else type(value).__name__
        require(fits, f"{name} must be a {kind} with the parts {listed}; got {got or 'none'}")
        read = {key: read_observation(inner, given[key], f"{name}[{key!r}]") for key, inner in parts.items()}
        batches = list(dict.fromkeys(batch for _, batch in read.values()))
        spelled = ", ".join("one observation" if batch is None else f"a batch of {batch}" for batch in batches)
        require(len(batches) <= 1, f"the parts of {name} differ: {spelled}; give one, or batches of one length")
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
        raise ConfigError(f"{name} is no array ({error}); allowed: shape {shape}, or {('B', *shape)}") from error
    fits = array.ndim - len(shape) in (0, 1) and array.shape[array.ndim - len(shape) :] == shape
    batch = f"({', '.join(map(str, ('B', *shape)))})"
    require(fits, f"{name} has shape {array.shape}; allowed: {shape} for one, or {batch} for a batch")
    read = array.astype(dtype, copy=False) if array.dtype.kind in "biuf" else array
    exact = array.dtype.kind in "biuf" and (dtype.kind == "f" or bool((read == array).all()))
    require(exact, f"{name} holds {array.dtype} that are no {dtype}; give it as the environment does")
    return read, None if array.ndim == len(shape) else len(array)


def _read_other(space: gymnasium.Space, value: Any, name: str) -> tuple[Any, int | None]:
    """Read text, graphs and sequences: a batch of them is a tuple or a list."""
    if space.contains(value):
        return value, None
    several = isinstance(value, tuple | list) and bool(value) and all(space.contains(one) for one in value)
    require(several, f"{name} is not of the space {space}; give one of it, or a tuple of them")
    return value, len(value)
