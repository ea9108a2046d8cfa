"""The text of `--help`: the groups, their options in a line each, and the commands worth knowing."""

from pathlib import Path

from . import CONF

INTRODUCTION = """\
Paddock: experiments in reinforcement learning and population-based search, chosen by configuration.

    python -m platform algo=es env=bipedal compute=local

Choose one option of each group as group=option; set any key as path.key=value.
"""

COMMANDS = """\
Keys of every run
    seed=1                                   the run's numbers, on every backend
    budget.iterations=100 budget.steps=1e6 budget.minutes=30 budget.return=300
                                             ends at whichever comes first
    run.dir=FOLDER                           where it is kept; the same command goes on with the run that is there
    resume=last                              go on with the newest run
    dry_run=true                             print what would be assembled

Commands
    python -m platform experiment=es_cartpole            a whole recipe
    python -m platform ... --multirun seed=1,2,3         one run for each value
    python -m platform ... --cfg job                     the composed configuration, every key with its value
    python -m platform ... --info                        where each value comes from
    python -m paddock.evaluate RUN video=FILE.mp4        play the policy on fresh seeds
    python -m paddock.plot RUN... out=FILE.png           draw learning curves
    python -m paddock ...                                the same as `python -m platform`, in any folder

Every key is explained beside its value, in the YAML of its group:"""


def print_guide() -> None:
    """Print the guide."""
    print(INTRODUCTION)
    for group in ("algo", "env", "vec", "compute", "track", "experiment"):
        options = sorted((CONF / group).glob("*.yaml"))
        print(f"{group}=")
        width = max((len(option.stem) for option in options), default=0)
        for option in options:
            print(f"    {option.stem:{width}}  {summary(option)}")
        print()
    print(COMMANDS)
    print(f"    {CONF}")


def summary(option: Path) -> str:
    """The first comment of an option's YAML, which says what it chooses."""
    comments = (line[1:].strip() for line in option.read_text().splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@package")), "")
