"""Vector of MuJoCo robots, stepped together by `mujoco.batch`; results are bit-identical to Gymnasium's."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode
from mujoco.batch import Batch as Simulations
from numpy.typing import NDArray

from paddock.envs.machine import usable_cores
from paddock.envs.mujoco.robots import Floats, find_robot
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.adapters.batched import check_whole
from paddock.envs.vector.contract import (
    Batch,
    Episodes,
    Rows,
    Seeds,
    Started,
    VectorEnv,
    VectorMisuse,
    check_open,
    describe,
    keyed_seeds,
    read_episodes,
)
from paddock.envs.vector.storage import Layouts, RowIndex, numbers
from paddock.envs.vector.table import ARRAYS, NEW, SENT, Arrays, Table

STATE = mujoco.mjtState.mjSTATE_INTEGRATION


class MuJoCoVectorEnv(VectorEnv):
    """N robots of one kind; `recv` steps them on threads.

    A single environment of Gymnasium starts all episodes and has the settings of rewards and terminations.
    """

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        threads: int,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        packed: bool = False,
    ) -> None:
        """Build the simulations; `autoreset`, `copy` and `packed` are those of `Vec.make`.

        `threads` of 0 is one per usable core; it does not affect results.

        Raises:
            ConfigError: the environment is none of the robots, or its recipe needs single environments.
        """
        check_whole(spec, "mujoco")
        self._robot = find_robot(spec)
        self._env = env = spec.make().unwrapped
        layouts = Layouts.of(spec, env.observation_space, env.action_space)
        describe(self, env, layouts, num_envs, autoreset)
        self.batch_size = num_envs
        self._limit = spec.made.limit or 2**31 - 1
        self._arrays = Arrays.allocate(layouts, num_envs, np.zeros)
        self._table = Table(self._arrays, layouts, autoreset, copy, packed)
        self.alive = self._table.alive
        self._contacts = "cfrc_ext" in self._robot.fields  # which MuJoCo computes on request only, in whole MjData
        self._batch = Simulations(env.model, num_envs, min(threads or usable_cores(), num_envs), self._contacts)
        names = {"qpos", "qvel", "ctrl", *self._robot.fields} - {"cfrc_ext"}
        self._fields: dict[str, Floats] = {name: self._batch.bind(name) for name in names}
        if self._contacts:
            self._fields["cfrc_ext"] = np.zeros((num_envs, *env.data.cfrc_ext.shape))
            self._scratch = mujoco.MjData(env.model)
        self._position = np.zeros(num_envs)  # after the last step
        self._random: list[Any] = [None] * num_envs  # the environments' generators; None: not yet created
        self._key: int | None = None  # of keyed episodes; None: later episodes continue the generators

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """See `VectorEnv.reset`; there are no options except the mask."""
        check_open(self, "reset")
        rows, seeds, _ = self._table.parse_reset(seed, options)
        self._key = None
        self._start(rows, [seeds[i] for i in numbers(rows)])
        return self._table.start(rows)

    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """See `VectorEnv.begin`."""
        check_open(self, "begin")
        self._arrays.episode[:] = read_episodes(episodes, self.num_envs)
        self._key = seed
        self._start_next(np.arange(self.num_envs))
        return self._table.start(self._table.everyone)

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        check_open(self, "send")
        rows = self._table.rows(env_ids, "send")
        self._table.put_actions(actions, rows)
        self._table.set_state(SENT, rows)

    def recv(self, env_ids: Rows = None) -> Batch:
        """Step the robots; see `VectorEnv.recv`."""
        check_open(self, "recv")
        rows, arrays, env = self._table.pending(env_ids), self._arrays, self._env
        self._fields["ctrl"][rows] = arrays.action[rows]
        self._simulate(rows)
        f = SimpleNamespace(**{name: array[rows] for name, array in self._fields.items()})
        position = self._robot.position(env, f)
        velocity = (position - self._position[rows]) / env.dt
        self._position[rows] = position
        reward, terminated = self._robot.reward(env, f, arrays.action[rows], velocity)
        truncated = arrays.running_length[rows] + 1 >= self._limit
        arrays.observation[rows] = self._robot.observe(env, f)
        arrays.enter(rows, reward, terminated, truncated)
        if self.autoreset is AutoresetMode.SAME_STEP and (over := terminated | truncated).any():
            ended = np.arange(self.num_envs)[rows][over]
            arrays.final[ended] = arrays.observation[ended]
            arrays.end(ended)
            self._start_next(ended)
        return self._table.batch(rows)

    def state_dict(self) -> dict[str, Any] | None:
        """See `VectorEnv.state_dict`; None before the first episode."""
        check_open(self, "state_dict")
        if NEW[0] in self._table.flag:
            return None
        arrays = {name: getattr(self._arrays, name).copy() for name in ARRAYS}
        random = [one.bit_generator.state for one in self._random]
        robots = {"simulations": self._batch.state.copy(), "position": self._position.copy()}
        return {**robots, "arrays": arrays, "flags": self._table.flag.copy(), "key": self._key, "random": random}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `VectorEnv.load_state_dict`."""
        check_open(self, "load_state_dict")
        if np.shape(state.get("simulations", ())) != self._batch.state.shape:
            raise VectorMisuse("load_state_dict: got the state of other environments; load it into the same vec=mujoco")
        self._batch.state[...], self._position[...] = state["simulations"], state["position"]
        self._key, self._table.flag[...] = state["key"], state["flags"]
        for name in ARRAYS:
            getattr(self._arrays, name)[...] = state["arrays"][name]
        self._random = [np.random.default_rng() for _ in state["random"]]
        for one, saved in zip(self._random, state["random"], strict=True):
            one.bit_generator.state = saved

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment that starts episodes, and end the threads."""
        self._env.close()
        self._fields.clear()
        del self._batch

    def _simulate(self, rows: RowIndex) -> None:
        """Step the simulations of these rows, and compute the contact forces if the robot reads them."""
        chosen = np.zeros(self.num_envs, np.bool_)
        chosen[rows] = True
        self._batch.step(chosen, self._env.frame_skip)
        if self._contacts:
            for i in numbers(rows):
                self._batch.get_data(i, self._scratch)
                mujoco.mj_rnePostConstraint(self._env.model, self._scratch)
                self._fields["cfrc_ext"][i] = self._scratch.cfrc_ext

    def _start_next(self, ids: NDArray[np.intp]) -> None:
        """Start the episodes that follow in these rows."""
        seeds: Sequence[int | None] = [None] * len(ids)
        if self._key is not None:
            seeds = keyed_seeds(self._key, ids, self._arrays.episode[ids]).tolist()
        self._start(ids, seeds)

    def _start(self, rows: RowIndex, seeds: Sequence[int | None]) -> None:
        """Reset Gymnasium's environment on each seed and copy its state."""
        env, arrays = self._env, self._arrays
        for i, seed in zip(numbers(rows), seeds, strict=True):
            env.np_random = self._random[i]
            arrays.observation[i] = env.reset(seed=seed)[0]
            self._random[i] = env.np_random
            mujoco.mj_getState(env.model, env.data, self._batch.state[i], STATE)
            f = SimpleNamespace(**{name: getattr(env.data, name)[None] for name in self._fields})
            self._position[i] = self._robot.position(env, f)[0]
        arrays.running_return[rows] = arrays.running_length[rows] = 0
