"""Runs from Python: what `import paddock` offers programs and notebooks, under the same laws as the command.

run = paddock.run("algo=ppo", "env=cartpole", "budget.steps=50000")
run.metrics(), run.policy(), run.evaluate(episodes=100), run.film("episode.mp4")
run = paddock.load("runs/2026-11-22_12-13-34_ppo_CartPole-v1_seed0")
"""

import os
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
from .config.overrides import format_main_command, format_run_dir
from .evaluation.fresh_episodes import MAX_STEPS, Evaluation, evaluate
from .evaluation.load import build_on_cpu
from .evaluation.load import load as load_algorithm
from .evaluation.policy import TrainedPolicy
from .evaluation.target import find_env, find_policy, find_target
from .evaluation.video import Film, draw_without_screen
from .launch import format_end, play, prepare, print_dry_run, retry_if_folder_taken
from .runs.folder import read_config
from .runs.results import read_events, read_metrics
from .runs.trust import trust as trust_run

if TYPE_CHECKING:
    import polars as pl

    from .export import Export

FOR_CLASSES = ("_target_", "name")  # keys of a section that are no settings of what it names


def run(*overrides: str, progress: bool = True) -> "Run":
    """Run an experiment, as the command with the same overrides does, to the end of its budget.

    The numbers, checks and folder are the command's. With `run.dir=` of a folder that holds the run it goes on. Ctrl-C
    finishes the iteration and saves; a second one leaves at once. In another thread than the main one it does not.

    Args:
        overrides: those of the command line: "algo=ppo", "env=cartpole", "budget.steps=50000".
        progress: show it; else warnings alone.

    Raises:
        PaddockError: bad input, or the run failed; in one line.
        KeyboardInterrupt: Ctrl-C ended it, and it can go on, or came as it ended by itself; of SIGTERM SystemExit.
    """
    try:
        check_guarded()
    except Unguarded as error:
        said = "the script calls paddock.run whenever it is imported, which workers do, too"
        raise Unguarded(f"{said}; call it below `if __name__ == '__main__':`") from error
    return retry_if_folder_taken(lambda: _run(overrides, progress))


def _run(overrides: Sequence[str], progress: bool) -> "Run":
    parts = prepare(overrides)
    run = Run(parts.path.absolute())
    if parts.config["dry_run"]:
        print_dry_run(parts)
        return run
    try:
        outcome, played = play(parts, command=format_main_command(overrides), progress=progress, leave=_left)
    except _Left as left:
        _leave(left.number)
    if progress and played:
        print(format_end(parts.path, outcome), flush=True)
    if outcome.signal is not None and progress:
        print(f"  paddock.load({str(parts.path)!r}) has it; the same call with {format_run_dir(parts.path)!r} goes on")
    if outcome.caught is not None:  # also where the run has ended by itself: what comes after it is not to begin
        _leave(outcome.caught)
    return run


def load(folder: str | os.PathLike[str], trust: bool = False) -> "Run":
    """Return the run in a folder, which may be going on.

    Args:
        folder: the run's folder.
        trust: let a folder of another user name any code; see `paddock.runs.trust`.

    Raises:
        FolderError: there is none.
    """
    path = Path(folder).absolute()
    read_config(path)
    if trust:
        trust_run(path)
    return Run(path)


def defaults(choice: str, *overrides: str) -> dict[str, Any]:
    """Return the settings of one section from YAML, to build what it names by hand: `PPO(..., **defaults("algo=ppo"))`.

    Args:
        choice: an option of a group, as `algo=ppo`; the group is the section.
        overrides: further ones, as `algo.hidden_sizes=[32]`.

    Raises:
        ConfigError: there is no such option, or a mistake in the overrides.
    """
    section = choice.partition("=")[0]
    require(
        section in SECTIONS, f"{choice} is not an option of a section, such as algo=ppo; {nearest(section, SECTIONS)}"
    )
    settings = compose_sections([section], [choice, *overrides])[section]
    plain = {key: value for key, value in settings.items() if key not in FOR_CLASSES}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}


class Run:
    """A run in its folder: what it gave so far, and its policy. Nothing of it is changed here.

    Attributes:
        path: the folder, absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"paddock.load({str(display_path(self.path))!r})"

    @property
    def config(self) -> dict[str, Any]:
        """The composed configuration."""
        return read_config(self.path)

    def metrics(self) -> "pl.DataFrame":
        """Return a row for each iteration; see `read_metrics`."""
        return read_metrics(self.path)

    def events(self) -> list[dict[str, Any]]:
        """Return what happened, of algorithms that tell it; see `read_events`."""
        return read_events(self.path)

    def policy(
        self, which: str = "last", *, of: str | None = None, niche: int | None = None, agent: int | None = None
    ) -> TrainedPolicy:
        """Return the policy of the newest checkpoint.

        Args:
            which: last or best, where the algorithm keeps one.
            of: of several policies in a world, whose is wanted: the name of a policy, or of an agent.
            niche, agent: of a run of POET, as in `evaluate`.

        Raises:
            PaddockError: there is no checkpoint, or no such policy.
        """
        algorithm, progress = load_algorithm(self.path)
        target = find_target(algorithm, self.path, niche, agent)
        policy, iteration = find_policy(algorithm, self.path, which, target, progress)
        return TrainedPolicy(policy, find_env(algorithm, self.path, target), iteration, of)

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
    ) -> Evaluation:
        """Play fresh episodes, as `python -m paddock.evaluate` does with the same keys.

        Args:
            env: words of the command line: `["env.kwargs.g=5.0"]`.
            video: an MP4 of the first episode.

        Raises:
            PaddockError: no checkpoint, an argument is out of range, or the environment cannot draw.
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
        )

    def film(self, path: str | os.PathLike[str], **options: Any) -> Film:
        """Film the first episode that `evaluate` plays with the same options, as an MP4.

        Raises:
            PaddockError: as of `evaluate`, or the file cannot be written.
        """
        played = self.evaluate(episodes=1, video=path, **options)
        assert played.film is not None
        return played.film

    def make_env(self, render_mode: str | None = None, *, niche: int | None = None) -> gymnasium.Env:
        """Make the environment that the policy acts in, with its wrappers.

        Where its configuration says `fresh`, episodes depend on their seeds alone only if each has a new one.

        Args:
            niche: of a run of POET, by number; None is the newest active one.

        Raises:
            PaddockError: it cannot be made here, or there is no such niche.
        """
        if render_mode == "rgb_array":
            draw_without_screen()
        algorithm = build_on_cpu(self.path)
        if isinstance(algorithm, KeepsNiches):
            algorithm, _ = load_algorithm(self.path)
        elif niche is not None:
            raise ConfigError(f"niche={niche}: {self.path} has no niches; leave niche= out")
        spec = find_env(algorithm, self.path, find_target(algorithm, self.path, niche, None))
        what = f"{self.path} is of a family of environments, and names none of them; use env.make()"
        require(isinstance(spec, EnvSpec), what)
        return spec.make(render_mode)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        which: str = "last",
        of: str | None = None,
        niche: int | None = None,
        agent: int | None = None,
    ) -> "Export":
        """Write the policy as an ONNX file, as `python -m paddock.export` does.

        Raises:
            PaddockError: as of `policy`; the file cannot be written, or a package is missing.
        """
        from .export import export  # which seldom is asked for

        return export(self.path, Path(path), which=which, of=of, niche=niche, agent=agent)


class _Left(KeyboardInterrupt):
    """A second signal came: no task and no environment takes it for an error of its own, as they do a SystemExit."""

    def __init__(self, number: int) -> None:
        self.number = number


def _left(number: int) -> NoReturn:
    raise _Left(number)


def _leave(number: int) -> NoReturn:
    """End the call as the signal would end Python."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
