"""The process that holds a W&B run for `mirrors.Wandb`: `python wandb_child.py`, never imported.

Input: a line of JSON with the settings, then one for each row of metrics; the end of the input ends the run. Output:
lines for the user. It outlives the end of its input by `close_timeout_s` and a little, whatever wandb does.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import IO, Any, Literal


def main() -> None:
    # wandb and its service inherit the standard streams: they get the log, and the pipes stay with this process.
    rows = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # A scheduler that preempts a job signals all its processes; the run itself says when it is over.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)

    settings = json.loads(rows.readline())
    sys.argv = settings["argv"]  # wandb records it as the run's command
    run = start(settings, answers)
    for line in rows:
        row = json.loads(line)
        # Rows that a resumed run writes again are equal to those W&B has, which ignores a step it knows.
        run.log(row, step=row["iteration"])
    signal.alarm(round(settings["close_timeout_s"]) + 5)  # kills; by then the run has given up, or is gone itself
    finish(run, settings, answers)
    # wandb's remaining exit handlers only send telemetry, and wait 20 s for a server that does not answer.
    sys.stderr.flush()
    os._exit(0)


def start(settings: dict[str, Any], answers: IO[str]) -> Any:
    """Open the run in the mode asked for, or offline where W&B cannot be reached."""
    import wandb

    reason = "as configured"
    if settings["mode"] == "online":
        try:
            run = init("online", settings)
        except Exception as error:  # no key, a bad key, no network, a project that may not be written
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            wandb.teardown()  # its service would hold the run's id
        else:
            say(answers, f"W&B: {run.url}")
            return run
    run = init("offline", settings)
    say(answers, f"W&B is offline ({reason.rstrip('.')}); upload later: wandb sync {Path(run.dir).parent}")
    return run


def init(mode: Literal["online", "offline"], settings: dict[str, Any]) -> Any:
    import wandb

    run = wandb.init(
        mode=mode,
        project=settings["project"],
        entity=settings["entity"],
        group=settings["group"],
        tags=settings["tags"],
        name=settings["name"],
        id=settings["id"],
        resume="allow",
        dir=settings["dir"],
        config=settings["config"],
        settings=wandb.Settings(
            console="off",
            silent=True,  # and no look-up of the user, which init_timeout does not bound
            init_timeout=settings["init_timeout_s"],
            finish_timeout=settings["close_timeout_s"] / 2,
            finish_timeout_raises=True,
            program=settings["argv"][0],
            x_stats_pid=settings["pid"],  # the machine's use is measured on the run, not on this process
        ),
    )
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return run


def say(answers: IO[str], text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # a killed run hears nothing, and its rows are kept all the same
        answers.write(text + "\n")


def finish(run: Any, settings: dict[str, Any], answers: IO[str]) -> None:
    import wandb

    try:
        run.finish()
    except TimeoutError:
        say(answers, f"W&B had no time to upload all; do it later: wandb sync {Path(run.dir).parent}")
    wandb.teardown()


if __name__ == "__main__":
    main()
