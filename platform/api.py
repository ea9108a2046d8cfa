"""Python interface to runs, with the behaviour of the command line.

run = paddock.run("algo=ppo", "env=cartpole", "budget.steps=50000")
run.metrics(), run.policy(), run.evaluate(episodes=100), run.film("episode.mp4")
run = paddock.load("runs/2026-11-22_12-13-34_ppo_CartPole-v1_seed0")
"""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium

from paddock.algos.pool.main_guard import Unguarded, check_guarded
from paddock.algos.protocol import KeepsNiches
from paddock.envs.errors import ConfigError, nearest, require
from paddock.envs.spec import EnvSpec

from .config.command import display_path
from .config.compose import compose_sections
from .config.experiment import SECTIONS
from .config.overrides import format_run_dir
from .evaluation.choice import choose_policy
from .evaluation.elites import tabulate_elites
from .evaluation.fresh_episodes import MAX_STEPS, Evaluation, evaluate
from .evaluation.load import build_on_cpu
from .evaluation.load import load as load_algorithm
from .evaluation.policy import TrainedPolicy
from .evaluation.target import find_env, find_target
from .evaluation.video import Film, draw_without_screen
from .launch import format_end, prepare, print_dry_run, retry_if_folder_taken
from .runs.folder import read_config
from .runs.results import read_events, read_metrics
from .session import run_session

if TYPE_CHECKING:
    import polars as pl

    from .export import Export

NOT_ARGUMENTS = ("_target_", "name")  # keys of a section that are not passed to its class


def run(*overrides: str, progress: bool = True) -> "Run":
    """Run an experiment to the end of its budget, as the command with the same overrides does.

    If `run.dir=` names the folder of a run, that run is resumed. In the main thread, Ctrl-C finishes the iteration and
    saves; a second Ctrl-C quits immediately.

    Args:
        overrides: as on the command line: "algo=ppo", "env=cartpole", "budget.steps=50000".
        progress: show progress; False shows warnings only.

    Raises:
        PaddockError: the input is invalid, or the run failed.
        KeyboardInterrupt: Ctrl-C was pressed; the run is saved and can be resumed. SIGTERM raises SystemExit instead.
    """
    try:
        check_guarded()
    except Unguarded as error:
        what = "importing the script calls paddock.run, and workers import it"
        raise Unguarded(f"{what}; move the call below `if __name__ == '__main__':`") from error
    return retry_if_folder_taken(lambda: _run(overrides, progress))


def _run(overrides: Sequence[str], progress: bool) -> "Run":
    experiment = prepare(overrides)
    run = Run(experiment.path.absolute())
    if experiment.config["dry_run"]:
        print_dry_run(experiment)
        return run
    resume = f"paddock.run(..., {format_run_dir(experiment.path)!r})"
    command = f"python -m paddock {shlex.join(overrides)}"
    try:
        outcome, ran = run_session(
            experiment, resume=resume, command=command, progress=progress, on_second_signal=_raise_second_signal
        )
    except _SecondSignal as second:
        _exit_by_signal(second.number)
    if progress and ran:
        print(format_end(experiment.path, outcome), flush=True)
    if outcome.signal is not None and progress:
        print(f"  read it with paddock.load({str(experiment.path)!r}), or resume it with {resume}")
    if outcome.caught is not None:  # even if the run ended by itself, so that the caller stops too
        _exit_by_signal(outcome.caught)
    return run


def load(folder: str | os.PathLike[str]) -> "Run":
    """Return the run in a folder; it may still be running. Raise FolderError if the folder holds no run."""
    path = Path(folder).absolute()
    read_config(path)
    return Run(path)


def defaults(choice: str, *overrides: str) -> dict[str, Any]:
    """Return the keyword arguments that a YAML option sets: `PPO(..., **defaults("algo=ppo"))`.

    Args:
        choice: an option of a group, such as `algo=ppo`.
        overrides: further overrides, such as `algo.hidden_sizes=[32]`.

    Raises:
        ConfigError: the option does not exist, or an override is invalid.
    """
    section = choice.partition("=")[0]
    require(section in SECTIONS, f"{choice} is not GROUP=OPTION, such as algo=ppo; {nearest(section, SECTIONS)}")
    settings = compose_sections([section], [choice, *overrides])[section]
    plain = {key: value for key, value in settings.items() if key not in NOT_ARGUMENTS}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}


class Run:
    """Read-only view of a run folder: configuration, metrics and policy.

    Attributes:
        path: the folder, absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        """Return the call that loads the run."""
        return f"paddock.load({str(display_path(self.path))!r})"

    @property
    def config(self) -> dict[str, Any]:
        """The composed configuration."""
        return read_config(self.path)

    def metrics(self) -> "pl.DataFrame":
        """Return one row of metrics per iteration."""
        return read_metrics(self.path)

    def events(self) -> list[dict[str, Any]]:
        """Return the events that the algorithm recorded, such as POET's births."""
        return read_events(self.path)

    def elites(self) -> "pl.DataFrame":
        """Return the elites of a quality diversity run: cell, return, descriptors and iteration of each.

        Raises:
            PaddockError: there is no checkpoint, or the run keeps no archive.
        """
        return tabulate_elites(self.path)

    def policy(
        self,
        which: str = "last",
        *,
        of: str | None = None,
        niche: int | None = None,
        agent: int | None = None,
        cell: int | None = None,
        near: Sequence[float] | float | None = None,
    ) -> TrainedPolicy:
        """Return the policy of the newest checkpoint.

        Args:
            which: "last", or "best" if the algorithm keeps it.
            of: name of a policy or agent, in multi-agent runs.
            niche: number of a POET niche; None for the newest active one.
            agent: number of the niche whose agent is returned; None for the niche's own.
            cell: cell of a quality diversity archive whose elite is returned; None for the best elite.
            near: descriptors, or the only one; the nearest elite is returned.

        Raises:
            PaddockError: there is no checkpoint, or no such policy.
        """
        return choose_policy(self.path, which=which, of=of, niche=niche, agent=agent, cell=cell, near=near)

    def evaluate(
        self,
        *,
        episodes: int = 20,
        seed: int = 0,
        which: str = "last",
        max_steps: int = MAX_STEPS,
        stochastic: bool = False,
        workers: int | None = None,
        video: str | os.PathLike[str] | None = None,
        env: Sequence[str] = (),
        niche: int | None = None,
        agent: int | None = None,
        on: str | os.PathLike[str] | None = None,
        cell: int | None = None,
        near: Sequence[float] | float | None = None,
    ) -> Evaluation:
        """Evaluate on fresh episodes, as `python -m paddock.evaluate` does with the same keys.

        `env` takes overrides, such as `["env.kwargs.g=5.0"]`; `video` is an MP4 of the first episode.

        Raises:
            PaddockError: there is no checkpoint, an argument is out of range, or the environment cannot render.
        """
        return evaluate(
            self.path,
            episodes=episodes,
            seed=seed,
            which=which,
            max_steps=max_steps,
            stochastic=stochastic,
            workers=workers,
            video=None if video is None else Path(video),
            env=env,
            niche=niche,
            agent=agent,
            on=None if on is None else Path(on),
            cell=cell,
            near=near,
        )

    def film(self, path: str | os.PathLike[str], **options: Any) -> Film:
        """Record the first episode of `evaluate` with the same options as an MP4.

        Raises:
            PaddockError: the evaluation fails, or the file cannot be written.
        """
        played = self.evaluate(episodes=1, video=path, **options)
        assert played.film is not None
        return played.film

    def make_env(self, render_mode: str | None = None, *, niche: int | None = None) -> gymnasium.Env:
        """Make the policy's environment, with its wrappers.

        If its configuration sets `fresh`, make a new one per episode, or episodes depend on earlier ones.

        Args:
            render_mode: passed to the environment.
            niche: number of a POET niche; None for the newest active one.

        Raises:
            PaddockError: it cannot be made here, or there is no such niche.
        """
        if render_mode == "rgb_array":
            draw_without_screen()
        algorithm = build_on_cpu(self.path)
        if isinstance(algorithm, KeepsNiches):
            algorithm, _ = load_algorithm(self.path)
        elif niche is not None:
            raise ConfigError(f"niche={niche}: {self.path} has no niches; remove niche=")
        spec = find_env(algorithm, self.path, find_target(algorithm, self.path, niche, None))
        what = f"{self.path} trained on a family of environments, not on a single one; use env.make()"
        require(isinstance(spec, EnvSpec), what)
        return spec.make(render_mode)

    def export(self, path: str | os.PathLike[str], **options: Any) -> "Export":
        """Write the policy that `policy` returns with the same options as an ONNX file.

        Raises:
            PaddockError: there is no such policy, a package is missing, or the file cannot be written.
        """
        from .export import export  # slow to import

        return export(self.path, Path(path), **options)


class _SecondSignal(KeyboardInterrupt):
    """Second signal; not a SystemExit, which tasks and environments would report as their own error."""

    def __init__(self, number: int) -> None:
        self.number = number


def _raise_second_signal(number: int) -> NoReturn:
    raise _SecondSignal(number)


def _exit_by_signal(number: int) -> NoReturn:
    """Raise what the signal raises in a Python program."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
