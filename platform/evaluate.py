"""Play a run's policy on fresh episodes: their mean return, how sure it is, and a video of the first.

python -m paddock.evaluate RUN video=FILE.mp4
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from algos.common.keys import Stream, episode_seed, keyed_generator
from algos.common.threads import one_thread
from algos.learning.policy_episodes import Performance, perform, perform_share, policy_of_episode
from algos.pool.serial import SerialPool
from algos.protocol import Drawing, KeepsPolicies, LearnsInEnv
from envs.cores import usable_cores
from envs.errors import ConfigError, require
from envs.spec import EnvSpec
from envs.vector.serial import SerialVectorEnv

from .compute.recipes import Local
from .config.build import build
from .config.command import Readers, check_output, parse, run_command, write_output
from .config.experiment import build_algorithm
from .evaluation.matrix import write_matrix
from .evaluation.other_env import place, read_env
from .evaluation.target import EvaluationTarget, find_policy, find_target, write_control
from .evaluation.video import Mp4
from .runs.checkpoint import CheckpointError, Checkpoints
from .runs.folder import import_from_where_it_began, read_config
from .runs.loop import Progress, restore
from .runs.results import read_columns
from .tracking.console import LiveLine

HELP = """\
Play a run's policy on fresh episodes, from its newest checkpoint; the run may still be going on.

    python -m paddock.evaluate RUN [key=value ...]

    RUN                 the run's folder
    episodes=20         whole number >= 1; played in full, whatever cap the training has
    max_steps=100000    steps after which an episode is cut off, whole number >= 1, as it may never end by itself
    seed=0              whole number >= 0; with episodes it decides every number, and other runs meet the same episodes
    which=last          last: the policy as it is now; best: the best that an evaluation met
    stochastic=false    true: draw actions as training does, of PPO and A2C; false: the most likely ones
    workers=4           play in so many processes, whole number >= 1; else in this one; changes no number
    video=FILE.mp4      film the first episode, one frame a step; needs no screen
    json=FILE.json      write all of it, each episode's return and length too

Any machine will do: the training's vec=, device and compiler are not needed. Elsewhere than in training:

    env=NAME            an option of conf/env with as many observations and actions
    env.KEY=VALUE       another value of a key of the environment, such as env.kwargs.hardcore=true

Of a run of POET, niches by their numbers, as events.jsonl has them:

    niche=7             in this niche's environment, its own agent; else the newest active niche
    agent=3             in its place the agent of this niche, as it is now or was when it retired
    on=RUN              the run that has the niche; RUN above may then be of any algorithm
    matrix=FILE.csv     the mean return of every agent in every environment, also .png, .pdf or .svg: a picture;
                        of episodes=5, from seed=0, played by as many processes as there are cores, or workers=2
"""


def _read_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


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
    "max_steps": (int, "a whole number >= 1"),
    "stochastic": (_read_bool, "true or false"),
    "json": (Path, "a file *.json"),
}
MAX_STEPS = 100_000
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
    cut: int  # of the episodes, by max_steps
    seconds: float
    iteration: int  # that the policy is of
    progress: Progress  # of the run, at the checkpoint that was played
    env: EnvSpec
    film: Film | None  # of episode 0, where a video was asked for
    target: EvaluationTarget | None  # who played where, if it was in a niche

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())


def main() -> int:
    """The command `paddock.evaluate`; see `run_command` for the exit codes."""
    # Whoever asks for a video on a machine without a screen or a sound card gets it too.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    return run_command(HELP, _command)


def evaluate(
    run: Path,
    *,
    episodes: int = 20,
    seed: int = 0,
    which: str = "last",
    max_steps: int = MAX_STEPS,
    stochastic: bool = False,
    workers: int | None = None,
    video: Path | None = None,
    env: Sequence[str] = (),
    niche: int | None = None,
    agent: int | None = None,
    on: Path | None = None,
) -> Evaluation:
    """Play episodes that training and its evaluations never saw; the same arguments give the same bits.

    Args:
        run: the run's folder; it is only read, and may be in use.
        episodes: E, played until the environment ends them, or `max_steps` are over.
        stochastic: draw actions, where the policy has a distribution of them.
        workers: processes that play; None: this one alone.
        env: another environment, as on the command line: `env=NAME`, `env.KEY=VALUE`.
        seed: episode k depends on (seed, k) alone.
        which: last or best, where the algorithm keeps one.
        video: an MP4 of episode 0.
        niche, agent, on: see `find_target`.

    Raises:
        PaddockError: no run, no checkpoint, an argument out of range, or an environment that cannot draw.
    """
    seeds = _seeds(seed, episodes)
    require(max_steps >= 1, f"max_steps={max_steps} must be at least 1; {MAX_STEPS} suits most")
    if video is not None:
        check_output("video", video, (".mp4",))
    algorithm, progress = load(run)
    host = algorithm if on is None else load(on)[0]
    target = find_target(algorithm, run, niche, agent, host, on)
    if which == "best" and target is None and _ended_best(run, algorithm, progress):
        which = "last"  # an evaluation at the run's end, which its state does not know
    policy, iteration = find_policy(algorithm, which, target, int(progress.metrics["iteration"]))
    if env:
        require(target is None, f"{env[0]}: {run} plays in niches; choose with niche= and on=")
        spec = place(algorithm, read_env(read_config(run)["env"], env))
    elif target is not None:
        spec = target.env
    else:
        spec = algorithm.env if isinstance(algorithm, LearnsInEnv) else build("env", read_config(run)["env"])
    drawn = "has no distribution of actions to draw from; leave stochastic= out"
    require(not stochastic or isinstance(policy, Drawing), f"stochastic=true: {type(algorithm).__name__} {drawn}")
    what = Performance(spec, policy, max_steps, stochastic)
    film = None if video is None else _film(what, seeds[0], video)
    started = time.perf_counter()
    returns, lengths = _play_all(what, seeds, workers)
    seconds = time.perf_counter() - started
    if video is not None and film is not None:
        write_output("video", video, film.content)
    interval = bootstrap_interval(returns, keyed_generator(seed, Stream.FRESH, iteration=1))
    cut = int((lengths >= max_steps).sum())
    return Evaluation(returns, lengths, interval, cut, seconds, iteration, progress, spec, film, target)


@dataclass(frozen=True)
class Unplayed:
    """In place of a run's `vec`, which this machine may lack: training goes on elsewhere."""

    num_envs: int
    seeded_slots = True

    def check(self, spec: EnvSpec) -> None:
        """See `Vec.check`."""

    def make(self, spec: EnvSpec, autoreset: Any = None, copy: bool = True) -> NoReturn:
        """See `Vec.make`."""
        raise AssertionError("a policy that is evaluated does not train")


def load(run: Path) -> tuple[Any, Progress]:
    """The algorithm of a run as its newest whole checkpoint left it, on this machine's CPU, and where that was.

    Neither the environments of its training can be stepped nor its network be taught where the run has a GPU for it.

    Raises:
        FolderError: there is no run.
        CheckpointError: there is no checkpoint, or none is whole.
    """
    config = read_config(run)
    import_from_where_it_began(run)
    algorithm = build_algorithm(_at_home(config), SerialPool(), Unplayed(config["vec"].get("num_envs", 1)))
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


def _at_home(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with all that computes on the CPU, in this process."""
    ours = {"device": "cpu", "compiled": False, "learners": 1, "threads": 1}
    algo = {
        key: ours.get(key, value) if type(value) is type(ours.get(key)) else value
        for key, value in config["algo"].items()
    }
    if isinstance(algo.get("member"), Mapping):
        algo["member"] = _at_home({"algo": algo["member"]})["algo"]
    return {**config, "algo": algo}


def _ended_best(run: Path, algorithm: Any, progress: Progress) -> bool:
    """Whether the evaluation of the last policy, which a run's end may have added, is better than all before."""
    columns = read_columns(run)
    if not isinstance(algorithm, KeepsPolicies) or "eval/of_iteration" not in columns:
        return False
    returns, last = columns["eval/return_mean"], int(progress.metrics["iteration"])
    known = columns["iteration"][-1] == columns["eval/of_iteration"][-1] == last
    return bool(known and returns[-1] > np.nanmax(np.append(returns[:-1], -np.inf)))


def _play_all(
    what: Performance, seeds: Sequence[int], workers: int | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns and lengths of one episode from each seed, each [E]."""
    if workers is None:
        played = perform(what, seeds, usable_cores())
        return played.returns, played.lengths
    recipe = Local(workers=workers, retries=3, task_timeout_s=None)
    try:
        cloudpickle.dumps(what)
    except Exception as error:  # of whatever a policy is made of
        why = f"{type(what.policy).__name__} cannot be sent to another process ({type(error).__name__}: {error})"
        raise ConfigError(f"workers={workers}: {why}; leave workers= out") from error
    size = -(-len(seeds) // (4 * workers))
    parts: dict[int, Any] = {}
    with closing(
        recipe.open({"algos", "envs", what.env.id.partition(":")[0]} if ":" in what.env.id else {"algos", "envs"})
    ) as pool:
        shared = pool.broadcast(what)
        tasks = [(shared, seeds[start : start + size]) for start in range(0, len(seeds), size)]
        for done in pool.imap_unordered(perform_share, tasks):
            if done.error is not None:
                raise done.error
            parts[done.index] = done.value
    returns, lengths = (np.concatenate([parts[index][k] for index in sorted(parts)]) for k in range(2))
    return returns, lengths


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


def _film(what: Performance, seed: int, path: Path) -> Film:
    """Film one episode, in an environment of its own that draws.

    Raises:
        ConfigError: the environment cannot draw.
    """
    spec, policy = what.env, policy_of_episode(what, seed)
    remedy = "leave video= out"
    with closing(spec.make()) as env:
        modes, fps = env.metadata.get("render_modes") or ["none"], env.metadata.get("render_fps") or 30
    # Asked before the environment is made for drawing, where Gymnasium would only warn.
    known = f"{spec.id} cannot draw to an array; its modes: {', '.join(modes)}; {remedy}"
    require("rgb_array" in modes, f"video={path}: {known}")
    drawing = replace(spec, kwargs={**dict(spec.kwargs), "render_mode": "rgb_array"})
    progress = LiveLine(sys.stderr)
    with one_thread(), closing(SerialVectorEnv(drawing, 1, AutoresetMode.DISABLED)) as venv, closing(progress):
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

        obs, _ = venv.reset(seed=[seed])
        state, total, length, over = None, 0.0, 0, False
        while not over:
            actions, _, state = policy.act(obs, state)
            obs, reward, terminated, truncated, _ = venv.step(actions)
            total += float(reward[0])
            length += 1
            over = bool(terminated[0] or truncated[0]) or length >= what.max_steps
            watch()
    return Film(total, length, encoder.codec, encoder.finish())


def _command(arguments: Sequence[str]) -> None:
    env = [word for word in arguments if word.startswith(("env=", "env."))]
    runs, options = parse("evaluate", [word for word in arguments if word not in env], READERS)
    usage = "python -m paddock.evaluate RUN episodes=20"
    require(len(runs) == 1, f"evaluate plays one RUN, and {len(runs)} are given; write {usage}")
    if "matrix" in options:
        require(not env, f"{' '.join(env)}: matrix= plays in the niches' own environments; leave it out")
        _matrix(runs[0], **options)
        return
    out = options.pop("json", None)
    if out is not None:
        check_output("json", out, (".json",))
    result = evaluate(runs[0], **options, env=env)
    returns, lengths, n = result.returns, result.lengths, len(result.returns)
    lines = {
        "run": runs[0],
        "policy": _name_policy(options.get("which", "last"), result),
        **({"environment": result.env.id + "".join(f" {word}" for word in env)} if env else {}),
        **({} if result.target is None else result.target.describe()),
        "episodes": f"{n:,}, fresh, from seed {options.get('seed', 0)}",
        "mean return": _show(returns.mean()),
        "95 % of mean": "not known from one episode"
        if n == 1
        else f"[{', '.join(map(_show, result.interval))}], by {RESAMPLES:,} bootstrap resamples",
        "spread": f"min {_show(returns.min())}, max {_show(returns.max())}"
        + ("" if n == 1 else f", standard deviation {_show(returns.std(ddof=1))}"),
        "mean length": f"{_show(lengths.mean())} steps",
    }
    if options.get("stochastic"):
        lines["actions"] = "drawn, as in training"
    if result.cut:
        limit = options.get("max_steps", MAX_STEPS)
        lines["cut off"] = f"{result.cut:,} episodes after max_steps={limit} steps; raise it to see them end"
    if result.film is not None:
        film = result.film
        note = "; MPEG-4, as PyAV has no H.264 here: browsers may refuse it" if film.codec == "mpeg4" else ""
        lines["video"] = f"{options['video']}, episode 0: {film.frames} frames, return {_show(film.return_)}{note}"
    if result.target is not None and result.target.guest is result.target.niche:
        lines["control"] = write_control(options.get("on", runs[0]), result.target)
    if out is not None:
        write_output("json", out, json.dumps(_as_plain(runs[0], options, env, result), indent=2).encode())
        lines["json"] = out
    _print(lines)
    _print_speed(int(lengths.sum()), result.seconds)


def _name_policy(which: str, result: Evaluation) -> str:
    if result.iteration == result.progress.metrics["iteration"]:
        return f"{which}, {_moment(result.progress)}"
    return f"{which}, at iteration {result.iteration:,} (of a run {_moment(result.progress)})"


def _as_plain(run: Path, options: Mapping[str, Any], env: Sequence[str], result: Evaluation) -> dict[str, Any]:
    """All that an evaluation has found, as strict JSON has it."""
    low, high = (None if np.isnan(bound) else bound for bound in result.interval)
    target = result.target
    return {
        "run": str(run),
        "policy": options.get("which", "last"),
        "iteration": int(result.iteration),
        "step": int(result.progress.metrics["step"]),
        "niche": None if target is None else target.niche.number,
        "agent": None if target is None or target.guest is None else target.guest.number,
        "env": result.env.fields,
        "seed": options.get("seed", 0),
        "stochastic": options.get("stochastic", False),
        "return_mean": _finite(float(result.returns.mean())),
        "return_interval_95": [low, high],
        "returns": [_finite(value) for value in result.returns.tolist()],
        "lengths": result.lengths.tolist(),
        "max_steps": options.get("max_steps", MAX_STEPS),
        "cut": result.cut,
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _matrix(
    run: Path,
    matrix: Path,
    episodes: int = 5,
    seed: int = 0,
    workers: int | None = None,
    max_steps: int = MAX_STEPS,
    **others: Any,
) -> None:
    named = " and ".join(f"{key}=" for key in others)
    require(not others, f"{named} cannot go with matrix=, where every agent plays everywhere; leave it out")
    algorithm, progress = load(run)
    result = write_matrix(run, algorithm, _seeds(seed, episodes), matrix, workers, max_steps)
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
