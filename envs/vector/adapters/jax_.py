"""Vector of JAX environments: one compiled call steps all of them, and restarts those whose episodes ended."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from jax import tree_util

from paddock.envs.bindings.jax_ import JaxTask, Tree, make_task, next_seed, to_jax
from paddock.envs.spaces.views import select
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import contract
from paddock.envs.vector.adapters.batched import check_wrappers
from paddock.envs.vector.buffers import buffer_of
from paddock.envs.vector.contract import Batch, Episodes, Rows, Seeds, Started, VectorMisuse, check_open
from paddock.envs.vector.storage import Layouts, RowIndex, numbers
from paddock.envs.vector.table import ARRAYS, NEW, SENT, Arrays, Table


class JaxVectorEnv(contract.VectorEnv):
    """N environments of gymnax, Pgx or Brax, vmapped and compiled.

    States stay on JAX's device. Observations are copied into the rows that all vectors have; on the CPU, JAX's arrays
    are read in place.
    """

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        packed: bool = False,
    ) -> None:
        """Build the environments; `autoreset`, `copy` and `packed` are those of `Vec.make`.

        Raises:
            ConfigError: the recipe has wrappers, or the library has no such environment.
        """
        check_wrappers(spec, "jax")
        self._task = make_task(spec.id, spec.arguments, spec.max_episode_steps)
        space, action_space = self._task.spaces
        layouts = Layouts.of(spec, space, action_space)
        contract.describe(self, None, layouts, num_envs, autoreset)
        self.batch_size = num_envs
        self._limit = spec.max_episode_steps or self._task.limit or 2**31 - 1
        self._step = _compile_step(self._task, autoreset is AutoresetMode.SAME_STEP)
        self._arrays = Arrays.allocate(layouts, num_envs, np.zeros)
        self._table = Table(self._arrays, layouts, autoreset, copy, packed)
        self.alive = self._table.alive
        self._observation = buffer_of(space, spec.lay_out(space), self._arrays.observation)
        self._final = buffer_of(space, spec.lay_out(space), self._arrays.final)
        self._state: Tree = None  # of all environments, on the device
        self._key: int | None = None  # of keyed episodes; None: seeds follow from the last
        self._seed = np.zeros(num_envs, np.int64)  # of running episodes
        self._next_seed = np.zeros(num_envs, np.int64)  # of the episodes after them

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """See `VectorEnv.reset`; there are no options except the mask."""
        check_open(self, "reset")
        rows, seeds, _ = self._table.parse_reset(seed, options)
        self._key = None
        for i in numbers(rows):
            if (given := seeds[i]) is None:
                new = self._table.flags[i] == NEW[0]
                given = int(np.random.default_rng().integers(2**31)) if new else next_seed(self._seed[i])
            self._seed[i] = given
        return self._start(rows)

    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """See `VectorEnv.begin`."""
        check_open(self, "begin")
        self._arrays.episode[:] = contract.read_episodes(episodes, self.num_envs)
        self._key = seed
        self._seed = contract.keyed_seeds(seed, np.arange(self.num_envs), self._arrays.episode)
        return self._start(self._table.everyone)

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        check_open(self, "send")
        rows = self._table.rows(env_ids, "send")
        self._table.put_actions(actions, rows)
        self._table.set_state(SENT, rows)

    def recv(self, env_ids: Rows = None) -> Batch:
        """Step the environments; see `VectorEnv.recv`."""
        check_open(self, "recv")
        rows, arrays = self._table.pending(env_ids), self._arrays
        chosen = self._mask(rows)
        given = to_jax(self._seed), to_jax(arrays.running_length), self._state, to_jax(arrays.action)
        self._state, observation, final, *ends = self._step(*given, to_jax(self._next_seed), chosen, self._limit)
        reward, terminated, truncated = map(np.asarray, ends)
        arrays.enter(rows, reward[rows], terminated[rows], truncated[rows])
        self._write(self._observation, rows, observation)
        ended = np.flatnonzero((terminated | truncated) & chosen)
        if self.autoreset is AutoresetMode.SAME_STEP and len(ended):
            self._write(self._final, ended, final)
            arrays.end(ended)
            self._seed[ended] = self._next_seed[ended]
            self._set_next(ended)
        return self._table.batch(rows)

    def state_dict(self) -> dict[str, Any] | None:
        """See `VectorEnv.state_dict`; None before the first episode."""
        check_open(self, "state_dict")
        if self._state is None:
            return None
        leaves = {str(i): np.array(leaf) for i, leaf in enumerate(tree_util.tree_leaves(self._state))}
        arrays = {name: getattr(self._arrays, name).copy() for name in ARRAYS}
        own = {"key": self._key, "seed": self._seed.copy(), "flags": self._table.flag.copy()}
        return {**own, "leaves": leaves, "arrays": arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `VectorEnv.load_state_dict`."""
        check_open(self, "load_state_dict")
        shapes = jax.eval_shape(self._task.start_all, to_jax(self._seed))[0]
        expected, structure = tree_util.tree_flatten(shapes)
        leaves = list(state.get("leaves", {}).values())
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(leaf.shape, leaf.dtype) for leaf in expected]:
            raise VectorMisuse("load_state_dict: got the state of other environments; load it into the same vec=jax")
        self._state = tree_util.tree_unflatten(structure, leaves)
        self._key, self._seed = state["key"], state["seed"].copy()
        for name in ARRAYS:
            getattr(self._arrays, name)[...] = state["arrays"][name]
        self._table.flag[...] = state["flags"]
        self._set_next(self._table.everyone)

    def _set_next(self, rows: RowIndex) -> None:
        """Compute the seeds of the episodes after the running ones."""
        if self._key is None:
            self._next_seed[rows] = next_seed(self._seed[rows])
        else:
            ids, episodes = np.array(numbers(rows)), self._arrays.episode[rows] + 1
            self._next_seed[rows] = contract.keyed_seeds(self._key, ids, episodes)

    def _start(self, rows: RowIndex) -> Started:
        """Start episodes in these rows on their seeds."""
        self._set_next(rows)
        state, observation = self._task.start_all(to_jax(self._seed))
        self._state = state if self._state is None else _where(self._mask(rows), state, self._state)
        self._write(self._observation, rows, observation)
        self._arrays.running_return[rows], self._arrays.running_length[rows] = 0, 0
        return self._table.start(rows)

    def _mask(self, rows: RowIndex) -> Any:
        mask = np.zeros(self.num_envs, np.bool_)
        mask[rows] = True
        return mask

    def _write(self, buffer: Any, rows: RowIndex, observation: Tree) -> None:
        buffer.put(rows, select(tree_util.tree_map(np.asarray, observation), rows), len(numbers(rows)))


@functools.cache
def _compile_step(task: JaxTask, same_step: bool) -> Callable[..., Any]:
    """Return the compiled step of all environments, which changes only the chosen ones."""

    def step(seed: Any, length: Any, state: Tree, action: Any, following: Any, chosen: Any, limit: int) -> Any:
        stepped, final, reward, terminated = task.step_all(seed, length, state, action)
        truncated = length + 1 >= limit
        after = _where(chosen, stepped, state), final
        if same_step:
            ended = (terminated | truncated) & chosen
            after = jax.lax.cond(ended.any(), lambda: _where(ended, task.start_all(following), after), lambda: after)
        return *after, final, reward, terminated, truncated

    return jax.jit(step)


@jax.jit
def _where(mask: Any, new: Tree, old: Tree) -> Tree:
    """Return a tree with the new rows where the mask [N] is true."""

    def choose(one: jax.Array, other: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(-1, *[1] * (one.ndim - 1)), one, other)

    return tree_util.tree_map(choose, new, old)
