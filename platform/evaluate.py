"""Play a run's policy on fresh episodes: their mean return, how sure it is, and a video of the first.

python -m paddock.evaluate RUN video=FILE.mp4
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from algos.noise import Stream, episode_seed, keyed_generator
from algos.serial import SerialPool
from envs.errors import ConfigError, require
from envs.spec import EnvSpec
from envs.vector.serial import SerialVectorEnv

from .assembly import build_algorithm
from .border import build
from .checkpoint import CheckpointError, Checkpoints
from .command import Readers, check_output, parse, run_command, write_output
from .console import LiveLine
from .folder import read_config
from .matrix import write_matrix
from .run import Progress, restore
from .video import Mp4
from .visit import Visit, find_policy, plan_visit, write_control

GUIDE = """\
Play a run's policy on fresh episodes, from its newest checkpoint; the run may still be going on.

    python -m paddock.evaluate RUN [key=value ...]

    RUN                 the run's folder
    episodes=20         whole number >= 1; played in full, whatever cap the training has
    seed=0              whole number >= 0; with episodes it decides every number, and other runs meet the same episodes
    which=last          last: the policy as it is now; best: the best that an evaluation met
    video=FILE.mp4      film the first episode, one frame a step; needs no screen

Of a run of POET, niches by their numbers, as events.jsonl has them:

    niche=7             in this niche's environment, its own agent; else the newest active niche
    agent=3             in its place the agent of this niche, as it is now or was when it retired
    on=RUN              the run that has the niche; RUN above may then be of any algorithm
    matrix=FILE.csv     the mean return of every agent in every environment, also .png, .pdf or .svg: a picture;
                        of episodes=5, from seed=0, played by as many processes as there are cores, or workers=2
"""
READERS: Readers = {
    "episodes": (int, "a whole number >= 1"),
    "seed": (int, "a whole number >= 0"),
    "which": (str, "last or best"),
    "video": (Path, "a file *.mp4"),
    "niche": (int, "a niche's number"),
    "agent": (int, "the number of an agent's niche"),
    "on": (Path, "the folder of a POET run"),
    "matrix": (Path, "a file *.csv, *.png, *.pdf or *.svg"),
    "workers": (int, "a whole number >= 1"),
}
RESAMPLES = 10_000  # of the bootstrap


@dataclass(frozen=True)
class Film:
    """An episode as it was filmed."""

    return_: float
    frames: int  # one a step
    codec: str
    content: bytes  # of the MP4


@dataclass(frozen=True)
class Evaluation:
    """What E fresh episodes gave, in their order."""

    returns: NDArray[np.float64]  # [E], undiscounted sum of rewards
    lengths: NDArray[np.int64]  # [E], steps
    interval: tuple[float, float]  # of the mean return, 95 %; NaN for one episode
    seconds: float
    progress: Progress  # of the run, at the checkpoint that was played
    film: Film | None  # of episode 0, where a video was asked for
    visit: Visit | None  # who played where, if it was in a niche


def main() -> int:
    """The command `paddock.evaluate`; see `run_command` for the exit codes."""
    # Whoever asks for a video on a machine without a screen or a sound card gets it too.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    return run_command(GUIDE, _command)


def evaluate(
    run: Path,
    *,
    episodes: int = 20,
    seed: int = 0,
    which: str = "last",
    video: Path | None = None,
    niche: int | None = None,
    agent: int | None = None,
    on: Path | None = None,
) -> Evaluation:
    """Play episodes that training and its evaluations never saw; the same arguments give the same bits.

    Args:
        run: the run's folder; it is only read, and may be in use.
        episodes: E, played until the environment ends them.
        seed: episode k depends on (seed, k) alone.
        which: last or best, where the algorithm keeps one.
        video: an MP4 of episode 0.
        niche, agent, on: see `plan_visit`.

    Raises:
        PaddockError: no run, no checkpoint, an argument out of range, or an environment that cannot draw.
    """
    seeds = _seeds(seed, episodes)
    if video is not None:
        check_output("video", video, (".mp4",))
    algorithm, progress = load(run)
    host = algorithm if on is None else load(on)[0]
    visit = plan_visit(algorithm, run, niche, agent, host, on)
    policy = find_policy(algorithm, which, visit)
    spec = algorithm.env if hasattr(algorithm, "env") else build("env", read_config(run)["env"])
    spec = spec if visit is None else visit.env
    # One thread: a product's last bit may depend on how many threads share it.
    with threadpool_limits(1):
        film = None if video is None else _film(spec, policy, seeds[0], video)
        started = time.perf_counter()
        with closing(SerialVectorEnv(spec, 1, AutoresetMode.DISABLED)) as venv:
            played = [_play(venv, policy, seed) for seed in seeds]
        seconds = time.perf_counter() - started
    if video is not None and film is not None:
        write_output("video", video, film.content)
    returns, lengths = np.array([r for r, _ in played]), np.array([n for _, n in played])
    resampler = keyed_generator(seed, Stream.FRESH, iteration=1)
    return Evaluation(returns, lengths, bootstrap_interval(returns, resampler), seconds, progress, film, visit)


def load(run: Path) -> tuple[Any, Progress]:
    """The algorithm of a run as its newest whole checkpoint left it, and where that was.

    Raises:
        FolderError: there is no run.
        CheckpointError: there is no checkpoint, or none is whole.
    """
    config = read_config(run)
    algorithm = build_algorithm(config, SerialPool())
    checkpoints = Checkpoints(run / "checkpoints", keep=config["checkpoint"]["keep"])
    while True:
        paths = checkpoints.paths()
        require(bool(paths), f"{run} has no checkpoint yet; a run saves one every checkpoint.every_s and at its end")
        try:
            return algorithm, restore(algorithm, checkpoints)
        except CheckpointError:
            # A run that is going on may have replaced them in the meantime.
            if checkpoints.paths() == paths:
                raise


def bootstrap_interval(returns: NDArray[np.float64], generator: np.random.Generator) -> tuple[float, float]:
    """The 95 % interval of the mean by the percentile bootstrap (Efron 1979); NaN where there is but one return."""
    n = len(returns)
    if n == 1:
        return float("nan"), float("nan")
    block = max(1, 2**20 // n)
    means = [
        returns[generator.integers(n, size=(min(block, RESAMPLES - start), n))].mean(axis=1)
        for start in range(0, RESAMPLES, block)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)


def _seeds(seed: int, episodes: int) -> list[int]:
    """Of fresh episodes."""
    require(episodes >= 1, f"episodes={episodes} must be at least 1; 20 suits most")
    require(0 <= seed < 2**63, f"seed={seed} must be a whole number in [0, 2^63)")
    return [episode_seed(seed, Stream.FRESH, 0, k) for k in range(episodes)]


def _play(venv: SerialVectorEnv, policy: Any, seed: int, watch: Callable[[], None] = lambda: None) -> tuple[float, int]:
    """Play one episode in a vector of one environment, one look a step; its return and its length."""
    obs, _ = venv.reset(seed=[seed])
    state, total, length = None, 0.0, 0
    while True:
        actions, _, state = policy.act(obs, state)
        obs, reward, terminated, truncated, _ = venv.step(actions)
        total += float(reward[0])
        length += 1
        watch()
        if terminated[0] or truncated[0]:
            return total, length


def _film(spec: EnvSpec, policy: Any, seed: int, path: Path) -> Film:
    """Film one episode.

    Raises:
        ConfigError: the environment cannot draw.
    """
    remedy = "leave video= out"
    with closing(spec.make()) as env:
        modes, fps = env.metadata.get("render_modes") or ["none"], env.metadata.get("render_fps") or 30
    # Asked before the environment is made for drawing, where Gymnasium would only warn.
    known = f"{spec.id} cannot draw to an array; its modes: {', '.join(modes)}; {remedy}"
    require("rgb_array" in modes, f"video={path}: {known}")
    drawing = replace(spec, kwargs={**dict(spec.kwargs), "render_mode": "rgb_array"})
    progress = LiveLine(sys.stderr)
    with closing(SerialVectorEnv(drawing, 1, AutoresetMode.DISABLED)) as venv, closing(progress):
        encoder, frames = Mp4(fps), itertools.count(1)

        def watch() -> None:
            progress.show(f"filming: frame {next(frames):,}")
            try:
                frame: Any = venv.envs[0].render()
            except Exception as error:
                # Where a screen, a driver or a package is missing, anything may be raised.
                what = f"{spec.id} cannot draw ({type(error).__name__}: {error}); {remedy}"
                raise ConfigError(f"video={path}: {what}") from error
            drawn = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.shape[2:] == (3,)
            require(drawn, f"video={path}: {spec.id} draws no [H, W, 3] array of uint8; {remedy}")
            encoder.add(frame)

        total, length = _play(venv, policy, seed, watch)
    return Film(total, length, encoder.codec, encoder.finish())


def _command(arguments: Sequence[str]) -> None:
    runs, options = parse("evaluate", arguments, READERS)
    usage = "python -m paddock.evaluate RUN episodes=20"
    require(len(runs) == 1, f"evaluate plays one RUN, and {len(runs)} are given; write {usage}")
    if "matrix" in options:
        _matrix(runs[0], **options)
        return
    require("workers" not in options, "workers= goes with matrix=; one policy is played by this process: leave it out")
    result = evaluate(runs[0], **options)
    returns, lengths, n = result.returns, result.lengths, len(result.returns)
    lines = {
        "run": runs[0],
        "policy": f"{options.get('which', 'last')}, {_moment(result.progress)}",
        **({} if result.visit is None else result.visit.describe()),
        "episodes": f"{n:,}, fresh, from seed {options.get('seed', 0)}",
        "mean return": _show(returns.mean()),
        "95 % of mean": "not known from one episode"
        if n == 1
        else f"[{', '.join(map(_show, result.interval))}], by {RESAMPLES:,} bootstrap resamples",
        "spread": f"min {_show(returns.min())}, max {_show(returns.max())}"
        + ("" if n == 1 else f", standard deviation {_show(returns.std(ddof=1))}"),
        "mean length": f"{_show(lengths.mean())} steps",
    }
    if result.film is not None:
        film = result.film
        note = "; MPEG-4, as PyAV has no H.264 here: browsers may refuse it" if film.codec == "mpeg4" else ""
        lines["video"] = f"{options['video']}, episode 0: {film.frames} frames, return {_show(film.return_)}{note}"
    if result.visit is not None and result.visit.guest is result.visit.niche:
        lines["control"] = write_control(options.get("on", runs[0]), result.visit)
    _print(lines)
    _print_speed(int(lengths.sum()), result.seconds)


def _matrix(
    run: Path, matrix: Path, episodes: int = 5, seed: int = 0, workers: int | None = None, **others: Any
) -> None:
    named = " and ".join(f"{key}=" for key in others)
    require(not others, f"{named} cannot go with matrix=, where every agent plays everywhere; leave it out")
    algorithm, progress = load(run)
    result = write_matrix(run, algorithm, _seeds(seed, episodes), matrix, workers)
    _print({"run": run, "policies": f"{len(result.niches)} agents, {_moment(progress)}"})
    _print({"episodes": f"{episodes:,}, fresh, from seed {seed}, the same for all agents and environments"})
    print("", *result.table(), "", sep="\n")
    _print({"matrix": f"{matrix}, a row for each agent and a column for each environment"})
    _print_speed(result.steps, result.seconds)


def _moment(progress: Progress) -> str:
    return f"at iteration {progress.metrics['iteration']:,} ({progress.metrics['step']:,} steps)"


def _print(lines: Mapping[str, Any]) -> None:
    for name, text in lines.items():
        print(f"{name:12}  {text}")


def _print_speed(steps: int, seconds: float) -> None:
    # Apart from the rest, which is the same text every time.
    sys.stdout.flush()
    print(f"played {steps:,} steps in {seconds:.1f} s: {steps / seconds:,.0f} steps/s", file=sys.stderr)


def _show(value: float) -> str:
    return f"{value:.2f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
