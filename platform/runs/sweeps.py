"""Sweep membership of runs, and labels that distinguish the runs of a sweep."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .identity import algorithm_name, env_name, flatten, format_value, short_name


def sweep_name(run_dir: Path) -> str | None:
    """Return the name of the sweep folder that contains a run; None outside a sweep."""
    folder = run_dir.absolute().parent
    grid = (folder / "multirun.yaml").exists()
    searched = (folder / "sweep.json").exists() and (run_dir / "trial.json").exists()
    return folder.name if grid or searched else None


def label_runs(configs: Mapping[Path, Mapping[str, Any]]) -> dict[Path, str]:
    """Return a short label for each run of a sweep, made of the values in which its runs differ."""
    sweeps: dict[Path, list[Path]] = {}
    for run, config in configs.items():
        if all(isinstance(config.get(section), Mapping) for section in ("algo", "env")) and sweep_name(run) is not None:
            sweeps.setdefault(run.absolute().parent, []).append(run)
    labels = [zip(runs, _label([configs[run] for run in runs]), strict=True) for runs in sweeps.values()]
    return {run: label for pairs in labels for run, label in pairs}


def _label(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the differences between runs of one sweep as overrides: `learning_rate=0.001 seed=1`.

    They are the algorithm and environment if these vary, and the keys that vary among runs with the same ones.
    """
    subjects = [{"algo": algorithm_name(config), "env": short_name(env_name(config))} for config in configs]
    # The run section always differs.
    values = [flatten({name: section for name, section in config.items() if name != "run"}) for config in configs]
    labels = [
        {key: name for key, name in subject.items() if any(other[key] != name for other in subjects)} | differing
        for subject, differing in zip(subjects, find_differences(subjects, values), strict=True)
    ]
    return [" ".join(f"{key}={format_value(value)}" for key, value in label.items()) for label in labels]


def find_differences(subjects: Sequence[object], values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Find the keys whose values differ among settings with the same subject.

    Returns:
        The values of these keys for each setting, by the last component of the key if that is unambiguous.
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
                    # Label a class by its name and the section.
                    target = str(value).rpartition(".")[2] if key.endswith("._target_") else value
                    found[k][key.removesuffix("._target_")] = target
    lasts = {key: key.rpartition(".")[2] for values in found for key in values}
    counts = Counter(lasts.values())
    return [
        {lasts[key] if counts[lasts[key]] == 1 else key: value for key, value in values.items()} for values in found
    ]
