"""Environments with flat spaces, single and in vectors."""

from dataclasses import replace
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from paddock.envs.emulation.spaces import FlatSpaces, Form
from paddock.envs.errors import require
from paddock.envs.multiagent.roles import seats_of
from paddock.envs.spaces.codecs import Array
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import Batch, Seeds, Started, VectorEnv
from paddock.envs.vector.infos import merge_infos
from paddock.envs.vector.recipes import Serial, Vec


def emulate(
    env: Any, *, form: Form = "features", bins: int | None = None, discrete: bool = False, **fields: Any
) -> Any:
    """Return an environment with one flat Box of observations and one Box, Discrete or MultiDiscrete of actions.

    A single Box of observations is not changed. The result is a `gymnasium.Env` or, for several agents, a vector
    environment with a row for each (`emulate_vector`).

    Args:
        env: a Gymnasium environment, `env.id`, or an `EnvSpec`.
        form: format of observations: "features" are float32, with one-hot encoded discrete values and pixels in [0, 1],
            without text; "bytes" are uint8 and exact.
        bins: number of levels, from the lower to the upper bound, into which each continuous value of an action is
            discretized; required if actions also have discrete values.
        discrete: combine all values of an action into one Discrete.
        fields: other fields of `EnvSpec`, such as `without` and `bounds`.

    Raises:
        ConfigError: the environment cannot be made, or its spaces cannot be flattened.
    """
    spec = _spec_of(env if isinstance(env, str | EnvSpec) else type(env).__name__, fields)
    if isinstance(env, str | EnvSpec) and spec.seats > 1:
        return emulate_vector(spec, 1, form=form, bins=bins, discrete=discrete)
    made = spec.make() if isinstance(env, str | EnvSpec) else env
    require(isinstance(made, gymnasium.Env), f"{made} is not a gymnasium.Env; pass other environments by env.id")
    late = "" if made is not env else ", ".join(sorted({"kwargs", "wrappers", "max_episode_steps"} & fields.keys()))
    require(not late, f"{late}: the environment exists already; pass its id, or set this when making it")
    return FlatEnv(made, FlatSpaces(spec.read_roles(seats_of(made, spec.id)), form, bins, discrete))


def emulate_vector(
    env: str | EnvSpec,
    vec: int | Vec,
    *,
    autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
    form: Form = "features",
    bins: int | None = None,
    discrete: bool = False,
    **fields: Any,
) -> "FlatVectorEnv":
    """Return a Gymnasium vector environment with the flat spaces of `emulate`, whose other arguments it takes.

    A multi-agent environment has one row per agent, in the order of `possible_agents`; rows of dead agents are zeros.

    Args:
        env: `env.id` or an `EnvSpec`.
        vec: number of environments, stepped one after another, or a recipe such as `Multiprocess`.
        autoreset: SAME_STEP or NEXT_STEP, as Gymnasium defines them.
        form: see `emulate`.
        bins: see `emulate`.
        discrete: see `emulate`.
        fields: see `emulate`.
    """
    next_step = autoreset is AutoresetMode.NEXT_STEP
    require(next_step or autoreset is AutoresetMode.SAME_STEP, f"autoreset={autoreset} must be SAME_STEP or NEXT_STEP")
    spec, recipe = _spec_of(env, fields), Serial(num_envs=vec) if isinstance(vec, int) else vec
    flat, inner = FlatSpaces(spec.roles, form, bins, discrete), AutoresetMode.DISABLED if next_step else autoreset
    return FlatVectorEnv(recipe.make(spec, autoreset=inner, packed=True), flat)


def _spec_of(env: str | EnvSpec, fields: dict[str, Any]) -> EnvSpec:
    defaults: dict[str, Any] = {"kwargs": {}, "wrappers": (), "max_episode_steps": None, "fresh": False}
    return replace(env, **fields) if isinstance(env, EnvSpec) else EnvSpec(id=env, **{**defaults, **fields})


@final
class FlatEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment of one agent with flat spaces.

    Attributes:
        flat: its spaces.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], flat: FlatSpaces) -> None:
        """Wrap an environment."""
        super().__init__(env)
        self.flat, self.unflatten_observation = flat, flat.unflatten_observation
        self.observation_space, self.action_space = flat.observation_space, flat.action_space
        layout: Any = flat.layouts.observation
        self._rows = layout.zeros(1)
        self._write = layout.writer(self._rows)
        self._flat = flat.flatten_observations(self._rows)
        self._viewed = np.shares_memory(self._flat, self._rows)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._flatten(observation), info

    def step(self, action: Any) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
        """Take a flat action."""
        if not self.flat.unchanged:
            layout: Any = self.flat.layouts.action
            action = layout.reader(self.flat.unflatten_actions(np.asarray(action)[None]))(0)
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._flatten(observation), reward, terminated, truncated, info

    def action_masks(self) -> Array:
        """Return the action mask of the last observation: True for each legal value of each component in turn."""
        return np.asarray(self.flat.masks(self._rows)[0])

    def _flatten(self, observation: Any) -> Array:
        self._write(0, observation)
        if not self._viewed:
            self._flat = self.flat.flatten_observations(self._rows)
        return self._flat[0].copy()


@final
class FlatVectorEnv(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Vector environment with flat spaces.

    Attributes:
        flat: its spaces.
    """

    env: VectorEnv

    def __init__(self, env: VectorEnv, flat: FlatSpaces) -> None:
        """Wrap a vector of packed rows; without autoreset, it is reset in the next step."""
        super().__init__(env)
        self.flat, self.unflatten_observation = flat, flat.unflatten_observation
        self._next_step = env.autoreset is AutoresetMode.DISABLED
        if self._next_step:
            self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = flat.observation_space, flat.action_space
        self.observation_space = batch_space(flat.observation_space, env.num_envs)
        self.action_space = batch_space(flat.action_space, env.num_envs)

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """Start an episode of each environment; see `VectorEnv.reset`."""
        rows, infos = self.env.reset(seed=seed, options=options)
        self._over = np.zeros(self.num_envs, np.bool_)  # rows that are reset in the next step
        return self._flatten(rows), infos

    def step(self, actions: Any) -> Batch:
        """Step each environment or, with NEXT_STEP, reset it if its episode has ended."""
        taken = self.flat.unflatten_actions(np.asarray(actions))
        restart = self._next_step and self._over.any()
        rows, reward, terminated, truncated, infos = self._restart(taken) if restart else self.env.step(taken)
        if self._next_step:
            self._over = terminated | truncated if self.env.seats == 1 else np.repeat(infos["over"], self.env.seats)
        if "final_obs" in infos:
            final = self.flat.flatten_observations(infos["final_obs"])
            infos["final_obs"] = np.full(len(final), None, object)
            for i in np.flatnonzero(infos["_final_obs"]).tolist():
                infos["final_obs"][i] = final[i].copy()
        return self._flatten(rows), reward, terminated, truncated, infos

    def action_masks(self) -> Array:
        """Return the action masks of the last observations, [N, W] bool (`FlatEnv.action_masks`)."""
        return self.flat.masks(self._rows)

    def _flatten(self, rows: Array) -> Array:
        self._rows = rows
        flat = self.flat.flatten_observations(rows)
        if self.env.seats > 1:
            flat[~self.env.alive] = 0  # features of zeros may be ones
        return flat

    def _restart(self, taken: Array) -> Batch:
        """Reset the environments whose episode has ended, and step the others."""
        over, count, running = self._over, self.num_envs, np.flatnonzero(~self._over)
        rows, infos = self.env.reset(options={"reset_mask": over})
        reward, terminated, truncated = np.zeros(count), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        ended = np.zeros(self.env.worlds, np.bool_)
        if len(running):
            self.env.send(taken[running], running)
            rows[running], reward[running], terminated[running], truncated[running], others = self.env.recv(running)
            if self.env.seats > 1:
                ended[~over[:: self.env.seats]] = others.pop("over")
                infos["acts"][running] = others.pop("acts")
            merge_infos(infos, others, running, count)
        return rows, reward, terminated, truncated, infos | ({"over": ended} if self.env.seats > 1 else {})
