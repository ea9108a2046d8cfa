"""Play rollouts: T steps of a policy in N environments, in this process or on a worker.

Episodes start on keyed seeds and actions are drawn from keyed noise, so a rollout depends on where it starts, on the
weights and on its number alone. Any process can enter there: it loads what the environments saved of themselves or,
where they cannot, plays the actions of the running episodes again.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from algos.common.keys import Stream, episode_seed, keyed_generator
from algos.learning.offpolicy.exploration import Exploration
from algos.learning.rollouts.resume_point import ResumePoint, State
from algos.learning.rollouts.rollout import Rollout
from algos.networks.actor import make_actor
from algos.networks.architecture import Architecture, Weights
from algos.networks.inputs import blank
from algos.networks.native_policy import make_player
from envs.errors import require
from envs.native.steps import Steps
from envs.spec import EnvSpec
from envs.vector import Vec, VectorEnv, VectorMisuse
from envs.vector.contract import keyed_seed
from envs.vector.infos import read_numbers

log = logging.getLogger(__name__)

Fused = Literal["auto", "never"]

MAX_EPISODE_STEPS = 100_000  # where nothing else limits an episode, so that its actions can be kept


@dataclass(frozen=True)
class RolloutConfig:
    """What stays the same for a whole run: where rollouts are played, and by which network."""

    env: EnvSpec  # of whole episodes; `in_training` of rollouts
    vec: Vec
    architecture: Architecture
    seed: int
    num_steps: int  # T
    groups: int  # parts of the environments that are acted on in turn, while the others step
    fused: Fused  # whether native environments may choose and step in one call, which changes no number
    exploration: Exploration | None = None  # of off-policy actors, which need no log-probabilities; None: the head's
    num_actors: int = 1  # that play so many environments each


def playable(env: EnvSpec, vec: Vec) -> EnvSpec:
    """Return the recipe of environments that rollouts are played in: their episodes end.

    Where running episodes are entered again by their actions, an environment that nothing limits is limited to
    MAX_EPISODE_STEPS.

    Raises:
        ConfigError: what differs in training changes what is seen or done.
    """
    env = env.limited(MAX_EPISODE_STEPS) if vec.seeded_slots else env
    training = env.in_training()
    same = training is env or (training.seats == env.seats and _spaces(training) == _spaces(env))
    told = f"env.training changes the spaces to {_spaces(training)}"
    require(same, f"{told}; leave out what does, or say it in env.kwargs")
    return env


def _spaces(env: EnvSpec) -> Any:
    """Return the spaces that agents have."""
    return env.spaces if env.seats == 1 else [(role.observation_space, role.action_space) for role in env.roles]


class Collector:
    """Plays rollouts in one vector of environments, going on where the last one ended."""

    def __init__(self, config: RolloutConfig, actor: int = 0) -> None:
        self._config = config
        self._index = actor
        self._venv: VectorEnv = config.vec.make(config.env.in_training(), copy=False, packed=True)
        self._actor = make_actor(config.architecture)
        self._player = make_player(config.architecture, self._venv) if config.fused == "auto" else None
        self._at: ResumePoint | None = None  # where the environments stand; None: nobody knows
        self._seats = config.env.seats
        self._num_rows = N = config.vec.num_envs * self._seats
        size = N // config.groups
        self._groups = [slice(start, start + size) for start in range(0, N, size)]
        inputs = config.architecture.inputs
        self._blank = blank(inputs.layout)
        self._obs: NDArray[Any] = np.zeros((N, *inputs.shape), inputs.dtype)
        self._acts: NDArray[np.bool_] | None = None  # [N], rows that await an action; None where all always do

    def is_at(self, point: ResumePoint) -> bool:
        """Return whether the environments stand there."""
        return point.same_as(self._at)

    def collect(self, weights: Weights, start: ResumePoint, iteration: int) -> tuple[Rollout, ResumePoint]:
        """Play T steps from `start`, wherever these environments are now.

        Returns:
            The rollout and its end, whose `played` are the actions of this rollout alone.
        """
        config, head = self._config, self._config.architecture.head
        T = config.num_steps
        if not self.is_at(start):
            start = self._enter(start, iteration)
        self._at = None  # until the rollout is whole
        generator = keyed_generator(config.seed, Stream.ACTION, iteration, self._index)
        noise, state = self._draw(generator, weights.version), start.state.copy()
        lives: dict[str, Any] = {}  # of several agents
        if self._player is not None:
            self._player.load(weights)
            steps = self._player.play(noise)
            if config.exploration:
                steps.logprob[:] = 0
            over = steps.terminated | steps.truncated
        else:
            steps, over, lives = self._step(weights, noise, state)
        self._obs = steps.obs[T]
        self._acts = lives["acts"][T] if lives else None
        episode = start.episode + over.sum(axis=0)
        length = np.where(over.any(axis=0), over[::-1].argmax(axis=0), start.length + T)
        # Not every environment that saves itself can be loaded elsewhere; wherever it steps, its actions lead there.
        played = (steps.action.astype(head.compact_dtype),) if config.vec.seeded_slots else ()
        end = ResumePoint(episode, length, state, (self._save(),), played)
        self._at = end.light
        values = {field.name: getattr(steps, field.name) for field in fields(steps)} | {"obs": steps.obs[:T]}
        told = {"last_obs": steps.obs[T], "start": start.light, "restarts": self._venv.restarts}
        return Rollout(weights.version, **told, **lives, **values), end

    def close(self) -> None:
        """Close the environments."""
        self._venv.close()

    def _draw(self, generator: np.random.Generator, version: int) -> NDArray[np.float32]:
        """Return the noise of a rollout's actions."""
        config, N = self._config, self._num_rows
        lead, head = (config.num_steps, N), config.architecture.head
        if config.exploration is None:
            return head.draw(generator, lead)
        step = version * config.num_steps * N * config.num_actors
        return config.exploration.draw(head, generator, lead, step, self._index * N)

    def _step(
        self, weights: Weights, noise: NDArray[np.float32], state: NDArray[np.float32]
    ) -> tuple[Steps, NDArray[np.bool_], dict[str, Any]]:
        """Choose and step, group by group; the policy's memory [N, S] is changed.

        Who awaits no action goes through the policy too, with an observation of zeros: what the others do is then the
        same bits, whoever lives.

        Returns:
            The steps, which environments ended an episode in each [T, W], and of several agents `Rollout.acts` and
            `Rollout.stray_reward`.
        """
        config, head = self._config, self._config.architecture.head
        T, N = noise.shape[:2]
        self._actor.load(weights)
        log_std = self._actor.log_std
        obs = np.empty((T + 1, *self._obs.shape), self._obs.dtype)
        obs[0] = self._obs
        out = np.empty((T, N, head.width), np.float32)
        action = np.empty((T, N, head.components), head.inner_dtype)
        reward = np.empty((T, N), np.float32)
        terminated = np.empty((T, N), np.bool_)
        truncated = np.empty((T, N), np.bool_)
        seats, acts, stray = self._seats, None, 0.0
        over = np.empty((T, N // seats), np.bool_)
        if self._acts is not None:
            acts = np.empty((T + 1, N), np.bool_)
            acts[0] = self._acts
        finals: list[tuple[int, int, Any]] = []
        returns: list[float] = []
        lengths: list[int] = []
        told: list[list[float]] = []
        clock = time.perf_counter
        env_s = policy_s = 0.0
        for t in range(T + 1):
            for rows in self._groups:
                before = clock()
                if t > 0:
                    seen, reward[t - 1, rows], ended, cut, infos = self._venv.recv(rows)
                    obs[t, rows] = seen
                    terminated[t - 1, rows] = ended
                    truncated[t - 1, rows] = cut
                    if acts is not None:
                        acts[t, rows] = infos["acts"]
                        over[t - 1, rows.start // seats : rows.stop // seats] = infos["over"]
                        self._hide(obs[t, rows], infos["acts"])
                        stray += float(np.sum(infos.get("stray_reward", 0.0)))
                    if "final_obs" in infos:
                        for row in np.flatnonzero(ended | cut):
                            n = rows.start + int(row)
                            state[n] = 0
                            statistics = infos["final_info"]["episode"]
                            returns.append(float(statistics["r"][row]))
                            lengths.append(int(statistics["l"][row]))
                            told.append(read_numbers(infos["final_info"], config.env.metrics, int(row)))
                            if not ended[row]:
                                finals.append((t - 1, n, infos["final_obs"][row]))
                between = clock()
                env_s += between - before
                if t < T:
                    out[t, rows], after = self._actor.act(obs[t, rows], state[rows])
                    state[rows] = after if acts is None else np.where(acts[t, rows, None], after, state[rows])
                    action[t, rows] = head.sample(out[t, rows], log_std, noise[t, rows])
                    policy_s += clock() - between
                    self._venv.send(head.to_env(action[t, rows]), rows)
        flat = (T * N, -1)
        steps = Steps(
            obs=obs,
            action=action,
            logprob=np.zeros((T, N), np.float32)
            if config.exploration
            else head.logprob(out.reshape(flat), log_std, action.reshape(flat)).reshape(T, N),
            reward=reward,
            terminated=terminated,
            truncated=truncated & ~terminated,
            final_at=np.array([(t, n) for t, n, _ in finals], np.int64).reshape(-1, 2),
            final_obs=np.array([final for *_, final in finals], obs.dtype).reshape(-1, *obs.shape[2:]),
            returns=np.array(returns, np.float64),
            lengths=np.array(lengths, np.int64),
            told=np.array(told, np.float64).reshape(len(told), len(config.env.metrics)),
            env_s=env_s,
            policy_s=policy_s,
        )
        if acts is None:
            return steps, terminated | truncated, {}
        return steps, over, {"acts": acts, "stray_reward": stray}

    def _take(self, obs: NDArray[Any], infos: Mapping[str, Any]) -> None:
        """Note where the environments stand."""
        self._obs, self._acts = obs, infos.get("acts")
        if self._acts is not None:
            self._obs = obs.copy()
            self._hide(self._obs, self._acts)

    def _hide(self, obs: NDArray[Any], acts: NDArray[np.bool_]) -> None:
        """Blank the observations [B, ...] of those that await no action: nobody may depend on them."""
        if not acts.all():
            obs[~acts] = self._blank

    def _save(self) -> State | None:
        """Return what `_load` goes on from; None where the environments cannot save themselves."""
        saved = self._venv.state_dict()
        acts = {} if self._acts is None else {"acts": self._acts}
        return None if saved is None else {"obs": self._obs, **acts, "envs": saved}

    def _load(self, saved: State) -> bool:
        """Bring the environments to where others saved themselves; False where these are of another kind."""
        try:
            self._venv.load_state_dict(saved["envs"])
        except VectorMisuse as error:
            log.info("what the environments saved is of no use here (%s)", error)
            return False
        self._obs = np.array(saved["obs"])
        self._acts = np.array(saved["acts"]) if "acts" in saved else None
        return True

    def _enter(self, point: ResumePoint, iteration: int) -> ResumePoint:
        """Bring the environments to a point: by what was saved there, or else by the actions that led there."""
        key = episode_seed(self._config.seed, Stream.ROLLOUT, 0, self._index)
        saved = point.saved[0] if point.saved else None
        if saved is not None and self._load(saved):
            return point
        if self._config.vec.seeded_slots and point.can_be_replayed:
            return self._replay(point, key)
        if iteration > 0:
            log.warning("%s cannot enter an episode again: all begin anew", type(self._venv).__name__)
            episode = point.episode + 1
            if self._venv.keyed:
                self._take(*self._venv.begin(key, episode))
            else:
                self._take(*self._venv.begin(keyed_seed(key, self._index, iteration)))
            return ResumePoint(episode, np.zeros_like(point.length), np.zeros_like(point.state))
        self._take(*self._venv.begin(key, point.episode))
        return point

    def _replay(self, point: ResumePoint, key: int) -> ResumePoint:
        """Begin the running episodes again, and play the actions that led to where they were."""
        head, length, seats = self._config.architecture.head, point.length, self._seats
        obs, infos = self._venv.begin(key, point.episode)
        latest, acts = obs.copy(), infos.get("acts")
        over = np.zeros(len(length), np.bool_)
        steps = np.concatenate(point.played) if point.played else np.zeros(0)
        for t in range(int(length.max(initial=0))):
            ids = np.flatnonzero((length > t) & ~over)
            if not len(ids):
                break
            rows = ids if seats == 1 else (ids[:, None] * seats + np.arange(seats)).ravel()
            actions = steps[len(steps) - np.repeat(length[ids], seats) + t, rows].astype(head.inner_dtype)
            self._venv.send(head.to_env(actions), rows)
            latest[rows], _, terminated, truncated, infos = self._venv.recv(rows)
            over[ids] = terminated | truncated if acts is None else infos["over"]
            if acts is not None:
                acts[rows] = infos["acts"]
        self._take(latest, {} if acts is None else {"acts": acts})
        if not over.any():
            return point
        log.warning(
            "the same actions ended the episodes of environments %s, which went on before; their next ones begin",
            np.flatnonzero(over).tolist(),
        )
        state = np.where(np.repeat(over, seats)[:, None], 0, point.state)
        return ResumePoint(point.episode + over, np.where(over, 0, length), state)
