"""Peers that evaluate a generation of ES in scripts/bench/es.py, written with NumPy.

With `multiprocessing.Pool` and Gymnasium, each process keeps one environment and plays one member at a time. With
EnvPool, a batch of members plays in its environments, with one forward pass for all that are ready.
"""

import functools
import itertools
import time
from collections.abc import Iterator
from importlib import import_module
from multiprocessing.pool import Pool as ProcessPool
from types import SimpleNamespace

import gymnasium
import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.es import ES, STD_FLOOR
from scripts.bench.harness import Report

Layers = list[tuple[NDArray[np.float32], NDArray[np.float32]]]  # weights [in, out] and bias [out] of each
Sizes = tuple[int, ...]
Members = Iterator[tuple[int, NDArray[np.float32], int]]  # index, parameters [P] and episode seed
Scale = tuple[NDArray[np.float32], NDArray[np.float32], float]  # mean and deviation [O] of observations, clip


def members(es: ES) -> Members:
    """Yield each member of the next iteration."""
    noise = es.problem.noise(es.iteration)
    sampled = es.search.sample(noise)
    for index in range(es.population):
        yield index, sampled.member(index, noise), episode_seed(es.seed, Stream.EPISODE, es.iteration, index // 2)


def describe_run(es: ES, seconds: float, steps: int, return_mean: float, busy: float) -> Report:
    """Return the figures of a generation; `busy` is the share of the workers' time spent in tasks."""
    return {
        "seconds": seconds,
        "steps": steps,
        "return_mean": return_mean,
        "evaluations_per_s": es.population / seconds,
        "steps_per_s": steps / seconds,
        "busy": busy,
    }


def play_processes(processes: ProcessPool, workers: int, es: ES, chunk_size: int) -> Report:
    """Play the episodes of the next iteration of `es`."""
    play = functools.partial(play_member, _sizes(es), _scale(es), es.episode_cap)
    returns = np.zeros(es.population)
    steps, worker_s = 0, 0.0
    started = time.perf_counter()
    for index, member_return, length, member_s in processes.imap_unordered(play, members(es), chunk_size):
        returns[index] = member_return
        steps += length
        worker_s += member_s
    seconds = time.perf_counter() - started
    return describe_run(es, seconds, steps, float(returns.mean()), worker_s / (workers * seconds))


def start_processes(processes: ProcessPool, workers: int) -> None:
    """Make each process import its packages and create its environment."""
    processes.map(_start, range(4 * workers), chunksize=1)


def _start(_: int) -> None:
    walker()


def play_member(
    sizes: Sizes, scale: Scale, cap: int | None, member: tuple[int, NDArray[np.float32], int]
) -> tuple[int, float, int, float]:
    """Play one episode in a process of the peer; return index, return, steps and seconds."""
    started = time.perf_counter()
    index, parameters, seed = member
    env, layers, (mean, std, clip) = walker(), unflatten(parameters, sizes), scale
    obs, _ = env.reset(seed=seed)
    total, steps, ended = 0.0, 0, False
    while not ended and (cap is None or steps < cap):
        x = np.clip((obs - mean) / std, -clip, clip)
        for weights, bias in layers:
            x = np.tanh(x @ weights + bias)
        obs, reward, terminated, truncated, _ = env.step(x)
        total += float(reward)
        steps += 1
        ended = terminated or truncated
    return index, total, steps, time.perf_counter() - started


@functools.cache
def walker() -> gymnasium.Env:
    """Return the environment of a process of the peer."""
    return gymnasium.make("BipedalWalker-v3", disable_env_checker=True)


def unflatten(parameters: NDArray[np.float32], sizes: Sizes) -> Layers:
    """Split flat parameters [P] into layers."""
    layers, start = [], 0
    for fan_in, fan_out in itertools.pairwise(sizes):
        bias = start + fan_in * fan_out
        layers.append((parameters[start:bias].reshape(fan_in, fan_out), parameters[bias : bias + fan_out]))
        start = bias + fan_out
    return layers


def play_envpool(es: ES, num_envs: int, batch_size: int, threads: int) -> Report:
    """Play the members of the next iteration in EnvPool."""
    batches, cap = (num_envs, batch_size, threads), es.episode_cap or 1600
    played = play_batches(_sizes(es), _scale(es), members(es), es.population, batches, cap, es.seed)
    busy = played.busy_s / (threads * played.seconds)
    return describe_run(es, played.seconds, int(played.lengths.sum()), float(played.returns.mean()), busy)


def play_batches(
    sizes: Sizes, scale: Scale, waiting: Members, population: int, batches: Sizes, cap: int, seed: int
) -> SimpleNamespace:
    """Play members in EnvPool; when an episode ends, its environment takes the next member.

    EnvPool has no seed for a single episode, so members play on different grounds. Returns, lengths and sums of
    observations are those of the members; the time excludes the pool's creation.
    """
    N, B, threads = batches
    settings = {"num_envs": N, "batch_size": B, "num_threads": threads, "max_episode_steps": cap, "seed": seed}
    pool = import_module("envpool").make("BipedalWalker-v3", env_type="gymnasium", **settings)
    started, busy_since = time.perf_counter(), time.process_time()
    mean, std, clip = scale
    layers = [(np.zeros((N, i, o), np.float32), np.zeros((N, o), np.float32)) for i, o in itertools.pairwise(sizes)]
    returns, lengths = np.zeros(population), np.zeros(population, np.int64)
    sums = np.zeros((population, sizes[0]))
    member = np.full(N, -1)  # index of the member in each environment; -1: none
    fresh = np.ones(N, np.bool_)  # whether the next observation is the first of an episode

    def take_next(slot: int) -> None:
        member[slot], parameters, _ = next(waiting, (-1, None, 0))
        fresh[slot] = True
        if parameters is not None:
            for kept, own in zip(layers, unflatten(parameters, sizes), strict=True):
                kept[0][slot], kept[1][slot] = own

    for slot in range(N):
        take_next(slot)
    pool.async_reset()
    under_way, idle = N, set[int]()
    while (member >= 0).any():
        obs, reward, terminated, truncated, info = pool.recv()
        slots = info["env_id"]
        under_way -= len(slots)
        counts = ~fresh[slots] & (member[slots] >= 0)
        stepped = slots[counts]
        returns[member[stepped]] += reward[counts]
        lengths[member[stepped]] += 1
        sums[member[stepped]] += obs[counts]
        fresh[slots] = False
        for slot in slots[counts & (terminated | truncated)]:
            take_next(slot)  # the environment's next step starts the episode, whatever the action
        x = np.clip((obs - mean) / std, -clip, clip)
        for weights, bias in layers:
            x = np.tanh(np.matmul(x[:, None, :], weights[slots])[:, 0] + bias[slots])
        playing = member[slots] >= 0
        idle.update(slots[~playing].tolist())
        # A pool returns whole batches, so idle environments fill them up.
        missing = B - under_way - int(playing.sum())
        spares = np.array([idle.pop() for _ in range(missing)], slots.dtype)
        actions = np.concatenate([x[playing], np.zeros((len(spares), sizes[-1]), np.float32)])
        if len(actions):
            pool.send(actions, np.concatenate([slots[playing], spares]))
        under_way += len(actions)
    seconds, busy_s = time.perf_counter() - started, time.process_time() - busy_since
    pool.close()
    return SimpleNamespace(returns=returns, lengths=lengths, sums=sums, seconds=seconds, busy_s=busy_s)


def _scale(es: ES) -> Scale:
    return es.observed.mean.astype(np.float32), es.observed.std(STD_FLOOR).astype(np.float32), es.observation_clip


def _sizes(es: ES) -> Sizes:
    network = es.problem.network
    return network.inputs.width, *network.hidden_sizes, network.head.width
