"""Runs of one sweep: whether a folder holds one, and what tells them apart."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .identity import algorithm_name, env_name, flatten, format_value, short_name


def sweep_name(run_dir: Path) -> str | None:
    """The name of the sweep's folder that a run's folder is in; None for a run of its own."""
    folder = run_dir.absolute().parent
    of_hydra = (folder / "multirun.yaml").exists()
    searched = (folder / "sweep.json").exists() and (run_dir / "trial.json").exists()
    return folder.name if of_hydra or searched else None


def label_runs(configs: Mapping[Path, Mapping[str, Any]]) -> dict[Path, str]:
    """What tells each run of a sweep from the others, in a few words; nothing of a run of its own.

    Args:
        configs: of runs, by their folders; empty where there is none yet, or it is damaged.
    """
    sweeps: dict[Path, list[Path]] = {}
    for run, config in configs.items():
        if all(isinstance(config.get(part), Mapping) for part in ("algo", "env")) and sweep_name(run) is not None:
            sweeps.setdefault(run.absolute().parent, []).append(run)
    told = [zip(runs, _differences([configs[run] for run in runs]), strict=True) for runs in sweeps.values()]
    return {run: words for of in told for run, words in of}


def _differences(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells runs of one sweep from each other, in words of the command line: `learning_rate=0.001 seed=1`.

    Algorithm and environment, where not all have the same, and the keys in which runs on the same of both differ.
    """
    subjects = [{"algo": algorithm_name(config), "env": short_name(env_name(config))} for config in configs]
    # Where a run's folder is differs by itself.
    values = [flatten({name: section for name, section in config.items() if name != "run"}) for config in configs]
    told = [
        {part: name for part, name in subject.items() if any(other[part] != name for other in subjects)} | differing
        for subject, differing in zip(subjects, find_differences(subjects, values), strict=True)
    ]
    return [" ".join(f"{key}={format_value(value)}" for key, value in of.items()) for of in told]


def find_differences(subjects: Sequence[object], values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Find the keys in which settings of one subject differ.

    Returns:
        For each, its values of these keys, by the last parts of the keys' names where that is enough.
    """
    found: list[dict[str, Any]] = [{} for _ in values]
    alike: dict[str, list[int]] = {}
    for k, subject in enumerate(subjects):
        alike.setdefault(repr(subject), []).append(k)
    for same in alike.values():
        for key in dict.fromkeys(key for k in same for key in values[k]):
            if len({repr(values[k].get(key)) for k in same}) > 1:
                for k in same:
                    value = values[k].get(key)
                    # A class by its own name, for the section that names it.
                    target = str(value).rpartition(".")[2] if key.endswith("._target_") else value
                    found[k][key.removesuffix("._target_")] = target
    lasts = {key: key.rpartition(".")[2] for of in found for key in of}
    counts = Counter(lasts.values())
    return [{lasts[key] if counts[lasts[key]] == 1 else key: value for key, value in of.items()} for of in found]
