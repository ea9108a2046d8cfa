"""Whole episodes of multi-agent environments, one row per agent; `learning/episodes.py` has one agent's."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.episodes import Episodes, Moments, Players, RowMoments, play
from paddock.algos.networks.inputs import blank_agent_rows
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import VectorEnv
from paddock.envs.vector.infos import read_numbers
from paddock.envs.vector.storage import Layouts, allocate


def play_episodes(
    venv: VectorEnv, env: EnvSpec, players: Players, seeds: Sequence[int], *, cap: int | None, **options: Any
) -> Episodes:
    """Play one episode per seed, with one agent or several; see `learning.episodes.play`."""
    if venv.seats == 1:
        return play(venv, players, seeds, cap=cap, **options)
    return play_jointly(venv, env, players, seeds, cap=cap, **options)


def play_jointly(
    venv: VectorEnv,
    env: EnvSpec,
    players: Players,
    seeds: Sequence[int],
    *,
    cap: int | None,
    observe: Sequence[bool] = (),
    watch: Callable[[], None] | None = None,
    metrics: Sequence[str] = (),
) -> Episodes:
    """Play one episode of several agents per seed; see `learning.episodes.play`.

    Rows of `venv` are environment * seats + seat. Environment metrics are means over lives.
    """
    observe = observe or [False] * len(seeds)
    seats, rows_count = venv.seats, venv.num_envs
    num_envs, episodes = rows_count // seats, len(seeds)
    rows_of = np.arange(rows_count).reshape(num_envs, seats)
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    moments: list[Moments | None] = [None] * episodes
    env_metrics = np.full((episodes, len(metrics)), np.nan)
    lives: list[list[float]] = [[] for _ in range(episodes)]
    seats_of: list[list[int]] = [[] for _ in range(episodes)]
    life_metrics: list[list[list[float]]] = [[] for _ in range(episodes)]

    playing = np.full(num_envs, -1)  # the episode of each environment
    steps, total = np.zeros(num_envs, np.int64), np.zeros(rows_count)  # of each episode, and of each row's life
    obs = np.zeros((rows_count, *players.shape), players.dtype)
    seen = RowMoments(players.numbers(obs))
    acts, lived = np.zeros(rows_count, np.bool_), np.zeros(rows_count, np.bool_)  # lived: acted in the present life
    no_action = allocate(Layouts.of_roles(env.roles).action, rows_count, np.zeros)
    waiting_rows = np.tile(blank_agent_rows(env), num_envs) if len(env.roles) > 1 else None

    def start(ids: NDArray[np.intp], first: int) -> int:
        """Start episodes from `first` on in the free environments `ids`; return the next one that waits."""
        ids = ids[: episodes - first]
        if not len(ids):
            return first
        reset_seeds: list[int | None] = [None] * num_envs
        mask = np.zeros(rows_count, np.bool_)
        for episode, env_id in enumerate(ids.tolist(), first):
            for row in rows_of[env_id].tolist():
                players.start(row, episode)
            playing[env_id], reset_seeds[env_id], mask[rows_of[env_id]] = episode, seeds[episode], True
        fresh, infos = venv.reset(seed=reset_seeds, options={"reset_mask": mask})
        at = rows_of[ids].ravel()
        obs[at] = fresh[at].reshape(len(at), *players.shape)
        steps[ids] = total[at] = 0
        seen.clear(at)
        acts[at], lived[at] = infos["acts"][at], False
        return first + len(ids)

    def end_life(row: int, episode: int) -> None:
        lives[episode].append(float(total[row]))
        seats_of[episode].append(row % seats)
        total[row], lived[row] = 0, False
        players.forget(row)

    def end_episode(env_id: int) -> None:
        episode, own = playing[env_id], rows_of[env_id]
        lengths[episode] = steps[env_id]
        for row in own[lived[own]].tolist():  # cut off
            end_life(row, episode)
        returns[episode] = sum(lives[episode]) / seats
        if life_metrics[episode]:
            env_metrics[episode] = np.mean(life_metrics[episode], axis=0)
        acts[own] = False
        if observe[episode]:
            moments[episode] = functools.reduce(Moments.merge, [seen.of(row) for row in own.tolist()])

    def active_rows() -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Return the environments with a running episode, their rows, and the rows seats_of moments are taken."""
        active = np.flatnonzero(playing >= 0)
        observed = active[[observe[episode] for episode in playing[active]]]
        return active, rows_of[active].ravel(), rows_of[observed].ravel()

    waiting = start(np.arange(num_envs), 0)
    active, rows, observed = active_rows()
    while len(active):
        lived |= acts
        if len(observed):
            at = observed[acts[observed]]
            seen.add(at, players.numbers(obs[at]))
        # An inactive row must not depend on another role's bytes, and needs a legal action.
        obs[~acts] = obs[acts.argmax()] if waiting_rows is None else waiting_rows[~acts]
        # If no row acts, the step ignores all actions.
        actions = players.act(obs, acts) if acts.any() else no_action
        venv.send(actions[rows], rows)
        next_obs, reward, terminated, truncated, infos = venv.recv(rows)
        obs[rows] = next_obs.reshape(len(rows), *players.shape)
        total[rows] += reward
        steps[active] += 1
        if watch is not None:
            watch()
        acts[rows] = infos["acts"]
        for k in np.flatnonzero(terminated | truncated).tolist():
            episode = playing[rows[k] // seats]
            end_life(int(rows[k]), episode)
            if metrics:
                life_metrics[episode].append(read_numbers(infos["final_info"], metrics, k))
        ended = infos["over"].copy()
        if cap is not None:
            ended |= steps[active] >= cap
        if ended.any():
            over = active[ended]
            for env_id in over.tolist():
                end_episode(env_id)
            playing[over] = -1
            waiting = start(over, waiting)
            active, rows, observed = active_rows()
    return Episodes(
        returns, lengths, moments, env_metrics, [*map(np.array, lives)], [np.array(each, np.int64) for each in seats_of]
    )
