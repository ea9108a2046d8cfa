"""Play a run's policy on fresh episodes: their mean return, how sure it is, and a video of the first.

python -m paddock.evaluate RUN video=FILE.mp4
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.algos.multiagent.selfplay.sides import is_symmetric
from paddock.algos.protocol import LearnsInEnv
from paddock.envs.errors import require

from .config.command import (
    Readers,
    check_output,
    display_path,
    parse,
    read_flag,
    read_names,
    run_command,
    split_overrides,
    write_output,
)
from .evaluation.description import as_plain, describe, describe_moment
from .evaluation.fresh_episodes import MAX_STEPS, check_max_steps, evaluate, fresh_seeds
from .evaluation.load import load
from .evaluation.matches import FORMATS, play_matches
from .evaluation.matrix import write_matrix
from .evaluation.target import write_control

HELP = """\
Play a run's policy on fresh episodes, from its newest checkpoint; the run may still be going on.

    python -m paddock.evaluate RUN [key=value ...]

    RUN                 the run's folder
    episodes=20         whole number >= 1; played in full, whatever cap the training has
    max_steps=100000    steps after which an episode is cut off, whole number >= 1, as it may never end by itself
    seed=0              whole number >= 0; with episodes it decides every number, and other runs meet the same episodes
    which=last          last: the policy as it is now; best: the best that an evaluation met
    trust=false         true: RUN is from somebody else, and may run code that it names
    stochastic=false    true: draw actions as training does, of PPO, A2C and SAC; false: the most likely ones
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

Of a run in a world, matches of two, on every side in turn; actions are drawn where training draws them,
unless stochastic=false:

    players=random      its policy against each of these, with commas between: random, twoply (Connect Four and
                        tic-tac-toe: looks two moves ahead), perfect (tic-tac-toe), RUN, RUN@ITERATION of a version
                        that a run keeps, or the dotted path of a class; of episodes=20 each
    matrix=FILE.json    all against all, the versions that it keeps too, and Elo ratings; as RUN/matches.json they come
                        into its report and its plots; also .csv, or .png, .pdf, .svg: a picture
"""


READERS: Readers = {
    "episodes": (int, "a whole number >= 1"),
    "seed": (int, "a whole number >= 0"),
    "which": (str, "last or best"),
    "video": (Path, "a file *.mp4"),
    "niche": (int, "a niche's number"),
    "agent": (int, "the number of an agent's niche"),
    "on": (Path, "the folder of a POET run"),
    "matrix": (Path, "a file *.csv, *.png, *.pdf, *.svg, or of matches *.json"),
    "players": (read_names, "who plays, with commas between"),
    "workers": (int, "a whole number >= 1"),
    "max_steps": (int, "a whole number >= 1"),
    "stochastic": (read_flag, "true or false"),
    "json": (Path, "a file *.json"),
}


def main() -> int:
    """The command `paddock.evaluate`; see `run_command` for the exit codes."""
    return run_command(HELP, _command)


def _command(arguments: Sequence[str]) -> None:
    env, others = split_overrides(arguments, ("env",))
    runs, options = parse("evaluate", others, READERS)
    usage = "python -m paddock.evaluate RUN episodes=20"
    require(len(runs) == 1, f"evaluate plays one RUN, and {len(runs)} are given; write {usage}")
    if {"matrix", "players"} & options.keys():
        both = " and ".join(key for key in ("matrix=", "players=") if key[:-1] in options)
        require(not env, f"{' '.join(env)}: {both} plays where the run has learned; leave it out")
        (_matrix if _has_niches(runs[0], options) else _matches)(runs[0], **options)
        return
    out = options.pop("json", None)
    if out is not None:
        out = check_output("json", out, (".json",))
    result = evaluate(runs[0], **options, env=env)
    lines = describe(runs[0], options, env, result)
    if result.target is not None and result.target.guest is result.target.niche:
        lines["control"] = write_control(options.get("on", runs[0]), result.target)
    if out is not None:
        write_output("json", out, json.dumps(as_plain(runs[0], options, result), indent=2).encode())
        lines["json"] = out
    _print(lines)
    _print_speed(int(result.lengths.sum()), result.seconds)


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
    check_max_steps(max_steps)
    algorithm, progress = load(run)
    result = write_matrix(run, algorithm, fresh_seeds(seed, episodes), matrix, workers, max_steps)
    _print({"run": run, "policies": f"{len(result.niches)} agents, {describe_moment(progress)}"})
    _print({"episodes": f"{episodes:,}, fresh, from seed {seed}, the same for all agents and environments"})
    print("", *result.table(), "", sep="\n")
    _print({"matrix": f"{matrix}, a row for each agent and a column for each environment"})
    _print_speed(result.steps, result.seconds)


def _has_niches(run: Path, options: Mapping[str, Any]) -> bool:
    """Whether a matrix is one of agents in environments, and not of matches."""
    algorithm, _ = load(run)
    return "players" not in options and not (isinstance(algorithm, LearnsInEnv) and algorithm.env.seats > 1)


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
    require(not others, f"{named} cannot go with matches; leave it out")
    require(episodes >= 2 and episodes % 2 == 0, f"episodes={episodes} must be even, half on each side; 20 suits most")
    check_max_steps(max_steps)
    named_files = (("matrix", matrix, FORMATS), ("json", json, (".json",)))
    files = {key: check_output(key, out, suffixes) for key, out, suffixes in named_files if out is not None}
    algorithm, progress = load(run)
    seeds = fresh_seeds(seed, episodes // 2)
    iteration = int(progress.metrics["iteration"])
    settings: dict[str, Any] = {"stochastic": stochastic, "workers": workers, "max_steps": max_steps}
    played = play_matches(algorithm, run, iteration, seeds, players, round_robin=matrix is not None, **settings)
    told = {
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
    if alike := played.deterministic_opponents():
        same = "does the same every time: where a game has no chance in it, all of two such on the same sides are equal"
        _print({"": f"each of {', '.join(alike)} {same}"})
    print("", *played.table(), "", sep="\n")
    for key, out in files.items():
        write_output(key, out, played.encode(out.suffix, told))
        _print({key: display_path(out)})
    _print_speed(played.results.steps, played.results.seconds)


def _print(lines: Mapping[str, Any]) -> None:
    for name, text in lines.items():
        print(f"{name:12}  {text}")


def _print_speed(steps: int, seconds: float) -> None:
    # Apart from the rest, which is the same text every time.
    sys.stdout.flush()
    print(f"played {steps:,} steps in {seconds:.1f} s: {steps / seconds:,.0f} steps/s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
