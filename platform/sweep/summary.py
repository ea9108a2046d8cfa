"""Summary of a sweep: trial states, the best trial as a command, and parameter importances."""

from __future__ import annotations

import shlex
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.command import display_path, format_main_command
from ..runs.folder import read_json
from ..runs.lazy_imports import optuna
from ..runs.state import RunState
from ..runs.units import duration
from .finals import RESULT
from .study import JOURNAL, StudySettings
from .trial import Note

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

MAX_SHOWN = 5  # trials of a Pareto front
MIN_TRIALS = 4  # complete trials needed to estimate importances


def print_summary(study: optuna.Study, folder: Path) -> None:
    """Print the result of the sweep in a folder."""
    about = StudySettings.read(folder)
    trials = study.get_trials(deepcopy=False)
    steps = sum(trial.user_attrs.get("steps", 0) for trial in trials)
    print(f"{len(trials)} trials: {count_ends(trials) or 'none'}; {steps:,.0f} environment steps")
    finals = read_json(folder / RESULT)
    chosen = [trials[finals["winner"]]] if finals else best_trials(study)[:MAX_SHOWN]
    for trial in chosen:
        values = zip(about.objectives, trial.values or (), strict=False)
        value = ", ".join(f"{name} {value:.6g}" for name, value in values)
        print(
            f"best: trial {trial.number}, {describe_winner(finals) + f'; {value} in the search' if finals else value}"
        )
        print(f"  {command_of(about, folder, trial)}")
    if finals and (leader := finals["finalists"][0]) != finals["winner"]:
        *_, last = (one for one in finals["rounds"] if str(leader) in one["means"])
        mean, seeds = last["means"][str(leader)], last["seeds"][-1] - finals["rounds"][0]["seeds"][0] + 1
        fresh = "failed" if mean is None else f"has a mean of {mean:.6g}"
        over = f"{seeds} fresh seed{'s' if seeds > 1 else ''}"
        print(f"trial {leader} led the search with {trials[leader].value:.6g}, and {fresh} on {over}")
    found = importances(study) if len(study.directions) == 1 else {}
    if found:
        print("importances: " + ", ".join(f"{name} {share:.0%}" for name, share in found.items()))
    where = shlex.quote(display_path(folder))
    print(f"  python -m paddock.status {where}\n  python -m paddock.report {where}")
    storage = f"--storage-class JournalFileStorage --storage {shlex.quote(display_path(folder / JOURNAL))}"
    print(f"  optuna trials {storage} --study-name {shlex.quote(study.study_name)}", flush=True)


def command_of(about: StudySettings, folder: Path, trial: FrozenTrial) -> str:
    """Return the command that runs the parameters of a trial."""
    note = Note.read(folder / str(trial.number))
    return format_main_command([*about.sources, *about.fixed, *(note.overrides if note else ())])


def describe_winner(finals: Mapping[str, Any]) -> str:
    """Describe the score of the winner of finals, given the content of `finals.json`."""
    runs = sum(value is not None for value in finals["held_out"].values())
    iqm, bounds = finals["iqm"], finals["interval"]
    if iqm is None:
        return f"winner of {len(finals['finalists'])} finalists"
    interval = f" [{bounds[0]:.6g}, {bounds[1]:.6g}]" if bounds else ""
    return f"{finals['metric']} {iqm:.6g}{interval} (IQM of {runs} held-out seed{'s' if runs > 1 else ''})"


def describe_progress(folder: Path, run_states: Sequence[RunState]) -> str:
    """Describe what a sweep has done, and estimate the time left from the runs that have ended."""
    about = StudySettings.read(folder)
    ended = [one for one in run_states if one.state in ("done", "failed") and folder in one.run.parents]
    trials = sum(one.run.parent == folder for one in ended)
    failed = sum(one.run.parent == folder and one.state == "failed" for one in ended)
    finalists = 1 << max(min(about.finals, about.n_trials - failed), 0).bit_length() >> 1  # as in pick_finalists
    total_finals = finalists * max(finalists.bit_length() - 1, 0) + about.held_out
    finals = min(len(ended) - trials, total_finals)  # more if n_trials was increased and finalists changed
    remaining = about.n_trials + total_finals - trials - finals
    text = f"sweep {about.study}: {trials} of {about.n_trials} trials"
    if total_finals:
        text += f", {finals} of {total_finals} runs of the finals"
    if (folder / RESULT).exists() if total_finals else remaining <= 0:
        return f"{text}; finished"
    seconds = [one.metrics["system/seconds"] for one in ended if "system/seconds" in one.metrics]
    active = sum(one.state == "running" and folder in one.run.parents for one in run_states)
    if not seconds or not active or not remaining:
        return text
    return f"{text}; about {duration(remaining * sum(seconds) / len(seconds) / active)} left"


def count_ends(trials: Sequence[FrozenTrial]) -> str:
    """Count trials by state; those that Optuna calls running count as unfinished."""
    states = [trial.state.name.lower() if trial.state.is_finished() else "unfinished" for trial in trials]
    return ", ".join(f"{count} {state}" for state, count in Counter(states).items())


def best_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the best trial, or the Pareto front of several objectives; may be empty."""
    if len(study.directions) > 1:
        return study.best_trials
    try:
        return [study.best_trial]
    except ValueError:  # none is complete
        return []


def importances(study: optuna.Study) -> dict[str, float]:
    """Return the importance of each parameter for the first objective; empty if there are too few trials."""
    complete = [trial for trial in study.get_trials(deepcopy=False) if trial.state == optuna.trial.TrialState.COMPLETE]
    if len(complete) < MIN_TRIALS:
        return {}
    several = len(study.directions) > 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return optuna.importance.get_param_importances(
                study, target=(lambda trial: trial.values[0]) if several else None
            )
    except (RuntimeError, ValueError, UserWarning):  # such as equal values
        return {}
