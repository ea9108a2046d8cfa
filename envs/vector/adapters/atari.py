"""Adapter of ALE's multithreaded vector environment; results equal those of `paddock.envs.bindings.atari`.

ALE seeds only the first episode. The adapter resets each ended environment on its keyed seed, and adds final
observations, episode statistics and restarts by the caller.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError, provide, require
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.adapters.batched import check_whole, spaces_of
from paddock.envs.vector.adapters.lockstep import LockStepVectorEnv
from paddock.envs.vector.contract import (
    Batch,
    Episodes,
    Seeds,
    Started,
    VectorMisuse,
    check_open,
    keyed_seed,
    read_episodes,
    read_seeds,
)
from paddock.envs.vector.infos import merge_infos, pick_infos

GAME = "paddock/Atari-v0"  # the id of `paddock.envs.bindings.atari`
SEEDS = 2**31  # ALE's seeds are in [0, SEEDS)
MAX_STEPS = 27_000  # default time limit


class AtariVectorEnv(LockStepVectorEnv):
    """Atari games stepped by ALE's threads.

    The state consists of the actions of the running episodes. To restore it they are replayed with staggered starts, so
    that all episodes reach their state in the same step.
    """

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        threads: int,
        keyed: bool = True,
        autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        packed: bool = False,
    ) -> None:
        """Load the games; `threads` of 0 is ALE's default, and batches are always copies.

        With `keyed`, `begin` seeds every episode, for which ALE reloads the game (about 90 ms); else only the first.

        Raises:
            ConfigError: ale-py is not installed, or the recipe is not supported by ALE.
        """
        venv = _load(spec, num_envs, threads)
        self._wrap_vector(venv, spec, spaces_of(venv), num_envs, autoreset, packed)
        self.keyed = keyed
        self._key: int | None = None  # of keyed episodes; None: later episodes continue the generator
        self._episode = np.zeros(num_envs, np.int64)  # number of the running episode, if keyed
        self._seed = np.full(num_envs, -1, np.int64)  # of the running episode; -1: unknown
        self._taken: list[NDArray[np.uint8]] = []  # the latest actions, [N] each, newest last
        self._limit = spec.max_episode_steps or MAX_STEPS

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> Started:
        """Start episodes; without a seed, a game continues its random generator."""
        mask = self._parse_reset(options)
        self._key = None
        seeds = [-1 if one is None else one % SEEDS for one in read_seeds(seed, self.num_envs)]
        if not self._begun:
            seeds = [int(np.random.default_rng().integers(SEEDS)) if one < 0 else one for one in seeds]
        return self._start(mask, np.array(seeds)[mask])

    def begin(self, seed: int, episodes: Episodes = None) -> Started:
        """See `VectorEnv.begin`."""
        check_open(self, "begin")
        self._episode = np.array(read_episodes(episodes, self.num_envs), np.int64)
        self._drain()
        everyone = np.ones(self.num_envs, np.bool_)
        self._key = seed
        started = self._start(everyone, self._keyed(everyone))
        self._key = seed if self.keyed else None
        return started

    def state_dict(self) -> dict[str, Any] | None:
        """See `VectorEnv.state_dict`; None if an episode started without a seed."""
        check_open(self, "state_dict")
        if (self._seed < 0).any():
            return None
        taken = np.array(self._taken, np.uint8).reshape(-1, self.num_envs)
        actions = [taken[len(taken) - length :, i] for i, length in enumerate(self._length)]
        own = {"key": self._key, "episode": self._episode.copy(), "seed": self._seed.copy()}
        return {**own, "length": self._length.copy(), "actions": np.concatenate(actions)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `VectorEnv.load_state_dict`; replays the running episodes."""
        check_open(self, "load_state_dict")
        length: NDArray[np.int64] = np.asarray(state.get("length"))
        if state.keys() != {"key", "episode", "seed", "length", "actions"} or length.shape != (self.num_envs,):
            raise VectorMisuse(f"load_state_dict: got keys {sorted(state)}; pass a state_dict of as many games")
        self._drain()
        steps = int(length.max())
        taken = np.zeros((steps, self.num_envs), np.uint8)
        for i, actions in enumerate(np.split(state["actions"], np.cumsum(length)[:-1])):
            taken[steps - len(actions) :, i] = actions
        everyone, over = np.ones(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)
        self._start(everyone, state["seed"])
        for t in range(steps):
            late = length == steps - t
            if t > 0 and late.any():
                self._start(late, state["seed"][late])
            running = length >= steps - t
            _, reward, terminated, *_ = self.venv.step(taken[t].astype(np.int64))
            over |= terminated & running
            self._return[running] += reward[running]
        new = length == 0
        if steps > 0 and new.any():
            self._start(new, state["seed"][new])
        if over.any():
            raise VectorMisuse(f"load_state_dict: the actions ended episodes {np.flatnonzero(over).tolist()} here")
        self._key, self._episode = state["key"], state["episode"].copy()
        self._length, self._taken = length.copy(), list(taken)

    def close_extras(self, **kwargs: Any) -> None:
        """Release the games and end their threads."""
        self.venv.close(**kwargs)
        del self.venv.ale

    def _drain(self) -> None:
        if self._sent:
            self.venv.recv()
        self._sent = False

    def _keyed(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the seeds of the running episodes of some environments."""
        key = self._key or 0
        return np.array([keyed_seed(key, int(i), int(self._episode[i])) for i in np.flatnonzero(mask)], np.int64)

    def _start(self, mask: NDArray[np.bool_], seeds: NDArray[np.int64]) -> Started:
        """Start the games of a mask on one seed each; -1 continues the generator."""
        observation, infos = self.venv.reset(seed=seeds, options={"reset_mask": mask})
        self._begun = True
        self._seed[mask] = seeds
        self._length[mask], self._return[mask], self._ended[mask] = 0, 0.0, False
        if mask.all():
            self._taken.clear()
        spread: dict[str, Any] = {}
        merge_infos(spread, pick_infos(_own(infos), mask), np.flatnonzero(mask), self.num_envs)
        return observation, spread

    def _start_step(self, actions: Any) -> None:
        self._taken.append(actions.astype(np.uint8))
        if len(self._taken) > 2 * self._length.max() + 1000:  # most are of episodes that have ended
            del self._taken[: len(self._taken) - int(self._length.max()) - 1]
        self.venv.send(actions)

    def _finish_step(self) -> Batch:
        observation, given, terminated, truncated, infos = self.venv.recv()
        reward = given.astype(np.float64)
        self._return += reward
        self._length += 1
        truncated = truncated | (self._length >= self._limit)
        ended = terminated | truncated
        infos = _own(infos)
        if ended.any() and self.autoreset is AutoresetMode.SAME_STEP:
            observation, infos = self._restart(observation, infos, ended)
        return observation, reward, terminated, truncated, infos

    def _restart(self, observation: Any, infos: dict[str, Any], ended: NDArray[np.bool_]) -> tuple[Any, dict[str, Any]]:
        """Start the next episodes of ended games; add the final results to the infos."""
        finals, returns, lengths = self._finals(observation, ended), self._return.copy(), self._length.copy()
        self._episode[ended] += 1
        seeds = np.full(np.count_nonzero(ended), -1, np.int64) if self._key is None else self._keyed(ended)
        observation, begun = self._start(ended, seeds)
        self._return, self._length = returns, lengths
        return observation, self._episodes(self._merge_restart(infos, begun, ended), finals, ended)


def _own(infos: dict[str, Any]) -> dict[str, Any]:
    """Return the infos of single games in Gymnasium's form."""
    own = {key: value.astype(np.int64) for key, value in infos.items() if key != "env_id"}
    return own | {f"_{key}": np.ones(len(value), np.bool_) for key, value in own.items()}


def _load(spec: EnvSpec, num_envs: int, threads: int) -> Any:
    check_whole(spec, "atari")
    known = f"env.id={spec.id} is none of them; choose env=atari_nature or env=atari_machado"
    require(spec.id.rpartition(":")[2] == GAME, f"vec=atari supports ALE's games only, and {known}")
    try:
        from ale_py.vector_env import AtariVectorEnv as Ale
    except ImportError as error:
        raise ConfigError(f"vec=atari cannot import ale_py ({error}); {provide(error)}") from error
    spec.spaces  # noqa: B018, checks the arguments
    given = spec.arguments
    size = given.pop("screen_size")
    return Ale(
        num_envs=num_envs,
        num_threads=threads,
        img_height=size,
        img_width=size,
        max_num_frames_per_episode=2**31 - 1,  # ALE drops the last frame of an episode that it truncates
        **given,
    )
