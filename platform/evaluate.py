"""Evaluate a run's policy on fresh episodes: mean return with its confidence interval, and a video.

python -m paddock.evaluate RUN video=FILE.mp4
"""

import sys
from collections.abc import Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import Any

from paddock.algos.multiagent.selfplay.sides import is_symmetric
from paddock.envs.errors import require

from .config.command import (
    Readers,
    check_output,
    display_path,
    parse,
    read_choice,
    read_flag,
    read_names,
    read_numbers,
    run_command,
    split_overrides,
    write_output,
)
from .evaluation.description import as_plain, describe, describe_moment
from .evaluation.elites import correct_archive
from .evaluation.fresh_episodes import MAX_STEPS, check_max_steps, evaluate, fresh_seeds
from .evaluation.load import load
from .evaluation.matches import play_matches

READERS: Readers = {
    "episodes": (int, "an integer >= 1"),
    "seed": (int, "an integer >= 0"),
    "which": (str, "last or best"),
    "video": (Path, "a file *.mp4"),
    "niche": (int, "a niche's number"),
    "agent": (int, "the number of an agent's niche"),
    "on": (Path, "the folder of a POET run"),
    "cell": (int, "the number of a cell"),
    "near": (read_numbers, "comma-separated descriptors"),
    "archive": (read_choice("corrected"), "corrected"),
    "matrix": (Path, "a file *.json"),
    "players": (read_names, "comma-separated players"),
    "workers": (int, "an integer >= 1"),
    "max_steps": (int, "an integer >= 1"),
    "stochastic": (read_flag, "true or false"),
    "json": (Path, "a file *.json"),
}


def main() -> int:
    """Run the command `paddock.evaluate`."""
    return run_command("evaluate", _command)


def _command(arguments: Sequence[str]) -> None:
    env, others = split_overrides(arguments, ("env",))
    runs, options = parse("evaluate", others, READERS)
    usage = "python -m paddock.evaluate RUN episodes=20"
    require(len(runs) == 1, f"evaluate takes one RUN, got {len(runs)}; usage: {usage}")
    if {"matrix", "players"} & options.keys():
        both = " and ".join(key for key in ("matrix=", "players=") if key[:-1] in options)
        require(not env, f"{' '.join(env)}: {both} uses the training environment; remove it")
        _matches(runs[0], **options)
        return
    if options.pop("archive", None):
        require(not env, f"{' '.join(env)}: archive=corrected uses the training environment; remove it")
        _correct(runs[0], **options)
        return
    out = options.pop("json", None)
    if out is not None:
        out = check_output("json", out, (".json",))
    result = evaluate(runs[0], **options, env=env)
    lines = describe(runs[0], options, env, result)
    if out is not None:
        write_output("json", out, dumps(as_plain(runs[0], options, result), indent=2).encode())
        lines["json"] = out
    _print(lines)
    _print_speed(int(result.lengths.sum()), result.seconds)


def _matches(
    run: Path,
    matrix: Path | None = None,
    players: Sequence[str] = ("random",),
    episodes: int = 20,
    seed: int = 0,
    workers: int | None = None,
    max_steps: int = MAX_STEPS,
    stochastic: bool | None = None,
    json: Path | None = None,
    **others: Any,
) -> None:
    named = " and ".join(f"{key}=" for key in others)
    require(not others, f"{named} cannot be combined with matches; remove it")
    require(episodes >= 2 and episodes % 2 == 0, f"episodes={episodes} must be even, half of them on each side")
    check_max_steps(max_steps)
    named_files = {"matrix": matrix, "json": json}
    files = {key: check_output(key, out, (".json",)) for key, out in named_files.items() if out is not None}
    algorithm, progress = load(run)
    seeds = fresh_seeds(seed, episodes // 2)
    iteration = int(progress.metrics["iteration"])
    settings: dict[str, Any] = {"stochastic": stochastic, "workers": workers, "max_steps": max_steps}
    played = play_matches(algorithm, run, iteration, seeds, players, round_robin=matrix is not None, **settings)
    description = {
        "run": str(run),
        "env": algorithm.env.fields,
        "seed": seed,
        "episodes": episodes,
        **settings,
        "stochastic": stochastic is not False,
        **played.plain(),
    }
    _print({"run": run, "policy": f"@{iteration}, {describe_moment(progress)}"})
    half = (
        "half of them on exchanged sides"
        if is_symmetric(algorithm.env)
        else "in pairs on exchanged sides, won together"
    )
    _print({"games": f"{episodes:,} of each two, {half}, from seed {seed}"})
    _print({"actions": played.actions()})
    if repeating := played.deterministic_opponents():
        same = "in a game without chance, all games of two such players with the same sides are identical"
        _print({"": f"deterministic: {', '.join(repeating)}; {same}"})
    print("", *played.table(), "", sep="\n")
    for key, out in files.items():
        write_output(key, out, dumps(description, indent=2).encode())
        _print({key: display_path(out)})
    _print_speed(played.results.steps, played.results.seconds)


def _correct(
    run: Path, episodes: int = 8, seed: int = 0, workers: int | None = None, json: Path | None = None, **others: Any
) -> None:
    named = " and ".join(f"{key}=" for key in others)
    require(not others, f"{named} cannot be combined with archive=corrected; remove it")
    fresh_seeds(seed, episodes)  # checks them
    out = None if json is None else check_output("json", json, (".json",))
    lines, data = correct_archive(run, episodes, seed, workers)
    _print({"run": run, **lines})
    if out is not None:
        write_output("json", out, dumps(data).encode())
        _print({"json": out})


def _print(lines: Mapping[str, Any]) -> None:
    for name, text in lines.items():
        print(f"{name:12}  {text}")


def _print_speed(steps: int, seconds: float) -> None:
    # Separate stream, since the rest is reproducible.
    sys.stdout.flush()
    print(f"played {steps:,} steps in {seconds:.1f} s: {steps / seconds:,.0f} steps/s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
