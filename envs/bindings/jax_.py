"""Environments of gymnax, Pgx and Brax as pure functions, and one of them as a Gymnasium environment.

An episode is a function of its seed and actions: the seed is its JAX key, to which the number of the step is folded in.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import tree_util

from paddock.envs.errors import nearest, require
from paddock.envs.frozen import freeze, thaw
from paddock.envs.spaces.legal import MASK

Tree = Any  # arrays in nested containers


@dataclass(frozen=True, eq=False)
class JaxTask:
    """Environment as pure functions of one episode.

    Attributes:
        spaces: of observations and actions.
        limit: the library's time limit in steps; None: none.
        start: function from a key to (state, observation).
        step: function from (key, state, action) to (state, observation, reward, terminated).
    """

    spaces: tuple[spaces.Space, spaces.Space]
    limit: int | None
    start: Callable[[jax.Array], tuple[Tree, Tree]]
    step: Callable[[jax.Array, Tree, jax.Array], tuple[Tree, Tree, jax.Array, jax.Array]]

    @functools.cached_property
    def start_all(self) -> Callable[[Any], tuple[Tree, Tree]]:
        """Return the compiled `start` for seeds [N]."""
        return jax.jit(jax.vmap(lambda seed: self.start(jax.random.PRNGKey(seed))))

    @functools.cached_property
    def step_all(self) -> Callable[..., tuple[Tree, Tree, jax.Array, jax.Array]]:
        """Return the compiled `step` for seeds, steps taken, states and actions, [N] each."""

        def step(seed: jax.Array, length: jax.Array, state: Tree, action: jax.Array) -> Any:
            return self.step(jax.random.fold_in(jax.random.PRNGKey(seed), length + 1), state, action)

        return jax.jit(jax.vmap(step))


class JaxEnv(gymnasium.Env[Any, Any]):
    """Single environment, with the same episodes as in `vec=jax`."""

    def __init__(self, task: JaxTask) -> None:
        """Take a task of `make_task`."""
        self._task, (self.observation_space, self.action_space) = task, task.spaces
        self._seed, self._length, self._state = -1, 0, None  # -1: no episode yet

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; without a seed, on one that follows from the last."""
        super().reset(seed=seed)
        if seed is None:
            seed = next_seed(self._seed) if self._seed >= 0 else int(self.np_random.integers(2**31))
        self._seed, self._length = seed, 0
        self._state, observation = self._task.start_all(to_jax([seed]))
        return _only(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        given = to_jax([self._seed]), to_jax([self._length]), self._state, to_jax(np.asarray(action)[None])
        self._state, observation, reward, terminated = self._task.step_all(*given)
        self._length += 1
        return _only(observation), float(reward[0]), bool(terminated[0]), False, {}


def next_seed(seed: Any) -> Any:
    """Return the seed of the episode after one that was started by `reset`; of several for an array.

    The seeds form a linear congruential sequence of period 2^31, and JAX's keys hash them.
    """
    return (seed & 0x7FFFFFFF) * 1103515245 + 12345 & 0x7FFFFFFF


def to_jax(numbers: Any) -> np.ndarray:
    """Return seeds, lengths or actions with JAX's default 32 bits; integers lose their upper bits."""
    array = np.asarray(numbers)
    return array.astype(np.int32 if array.dtype.kind in "iu" else np.float32, copy=False)


def make_task(id: str, kwargs: Mapping[str, Any], max_episode_steps: int | None) -> JaxTask:
    """Return the task of an id such as `gymnax:CartPole-v1`; equal arguments give the same, already compiled.

    Raises:
        ConfigError: the library has no such environment, or it is a game of several players.
        ImportError: the library is not installed.
    """
    return _make(id, freeze(dict(kwargs)), max_episode_steps)


@functools.cache
def _make(id: str, kwargs: Any, max_episode_steps: int | None) -> JaxTask:
    library, _, name = id.partition(":")
    return LIBRARIES[library](name, dict(thaw(kwargs)), max_episode_steps)


def _gymnax(name: str, kwargs: dict[str, Any], max_episode_steps: int | None) -> JaxTask:
    """Return a task of gymnax (version 1); `kwargs` are its parameters or arguments of its constructor."""
    import gymnax
    from gymnax.environments.spaces import gymnax_space_to_gym_space

    _check_name("gymnax", name, gymnax.registered_envs)
    known = {field.name for field in fields(gymnax.make(name)[1])}
    env, params = gymnax.make(name, **{key: value for key, value in kwargs.items() if key not in known})
    limit = {} if max_episode_steps is None else {"max_steps_in_episode": max_episode_steps}
    params = params.replace(**{key: value for key, value in kwargs.items() if key in known}, **limit)
    space, action_space = (gymnax_space_to_gym_space(one(params)) for one in (env.observation_space, env.action_space))

    def start(key: jax.Array) -> Any:
        observation, state = env.reset_env(key, params)
        return state, jnp.asarray(observation, space.dtype)

    def step(key: jax.Array, state: Tree, action: jax.Array) -> Any:
        observation, state, reward, terminated, _ = env.step_env(key, state, action, params)
        return state, jnp.asarray(observation, space.dtype), reward, terminated

    return JaxTask((space, action_space), int(params.max_steps_in_episode), start, step)


def _pgx(name: str, kwargs: dict[str, Any], max_episode_steps: int | None) -> JaxTask:
    """Return a one-player game of Pgx; observations include the action mask."""
    import pgx

    _check_name("pgx", name, pgx.available_envs())
    env = pgx.make(name, **kwargs)
    many = f"env.id=pgx:{name} is a game of {env.num_players} players, and only one-player games are supported"
    require(env.num_players == 1, f"{many}: pgx:2048 and pgx:minatar-...")
    dtype = jax.eval_shape(env.init, jax.random.PRNGKey(0)).observation.dtype
    low, high = (0, 1) if dtype.kind == "b" else (-np.inf, np.inf)
    seen = spaces.Box(low, high, env.observation_shape, dtype.type)
    space = spaces.Dict({"observation": seen, MASK: spaces.MultiBinary(env.num_actions)})

    def observe(state: Any) -> Tree:
        return {"observation": state.observation, MASK: state.legal_action_mask.astype(jnp.int8)}

    def start(key: jax.Array) -> Any:
        state = env.init(key)
        return state, observe(state)

    def step(key: jax.Array, state: Any, action: jax.Array) -> Any:
        state = env.step(state, action, key)
        return state, observe(state), state.rewards[0], state.terminated

    return JaxTask((space, spaces.Discrete(env.num_actions)), None, start, step)


def _brax(name: str, kwargs: dict[str, Any], max_episode_steps: int | None) -> JaxTask:
    """Return a task of Brax with its usual limit of 1000 steps; `kwargs` are arguments of its constructor."""
    from brax import envs

    _check_name("brax", name, envs._envs)
    env = envs.get_environment(name, **kwargs)
    space = spaces.Box(-np.inf, np.inf, (env.observation_size,), np.float32)

    def start(key: jax.Array) -> Any:
        state = env.reset(key)
        return state, state.obs

    def step(key: jax.Array, state: Any, action: jax.Array) -> Any:
        state = env.step(state, action)
        return state, state.obs, state.reward, state.done != 0

    return JaxTask((space, spaces.Box(-1, 1, (env.action_size,), np.float32)), 1000, start, step)


LIBRARIES = {"gymnax": _gymnax, "pgx": _pgx, "brax": _brax}


def _check_name(library: str, name: str, known: Any) -> None:
    require(name in known, f"env.id={library}:{name} is not an environment of {library}; {nearest(name, known)}")


def _only(batch: Tree) -> Any:
    """Return the only element of a batch as NumPy arrays, which the caller may change."""
    return tree_util.tree_map(lambda leaf: np.array(leaf[0]), batch)
