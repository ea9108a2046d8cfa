"""What tracking costs a run: the time of `Tracker.log` against that of an iteration of PPO on CartPole.

    python scripts/bench/runs/track.py [--quick] [--json PATH]

An iteration is that of experiment=ppo_cartpole, a short one. Its own rows are logged again, at its pace, with journals
only, with each mirror, and with both. Two figures for each: how long the call takes, which is what the loop waits and
has the target, and the processor time of all threads of the process, with what feeds the mirrors behind the loop's
back. W&B's own work is done by a process beside. The peers are called as their users do, in the loop.
"""

import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

import tensorboard.compat.proto.event_pb2  # noqa: E402, F401  (imported by the mirror's first row otherwise)
from omegaconf import OmegaConf  # noqa: E402

from paddock.algos.pool.serial import SerialPool  # noqa: E402
from paddock.config.compose import compose_alone  # noqa: E402
from paddock.config.experiment import build_algorithm, build_mirrors  # noqa: E402
from paddock.tracking.console import Console  # noqa: E402
from paddock.tracking.tracker import Tracker  # noqa: E402
from scripts.bench.harness import Report, command_line, describe_machine, finish, medians, run_script, versions  # noqa: E402

TARGET = 0.01  # of an iteration, at most, that the loop waits
MIRRORS: dict[str, tuple[str, ...]] = {
    "journals": (),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "tensorboard and wandb": ("tensorboard", "wandb"),
}
PACKAGES = ("paddock", "wandb", "tensorboard", "torch")

Log = Callable[[dict[str, float]], object]


def main(arguments: list[str] | None = None) -> int:
    """Measure all in turn, print medians; returns 1 if the loop waits for ours longer than the target, else 0."""
    options = command_line(__doc__, "one round, about half a minute").parse_args(arguments)
    rounds, count = (1, 150) if options.quick else (5, 300)
    os.environ["WANDB_SILENT"] = "true"
    lengths: list[float] = []
    costs: dict[str, list[Report]] = {}
    for _ in range(rounds):
        rows, seconds = play(count)
        lengths.append(seconds)
        idle_s = pace(rows, seconds, lambda row: None)["cpu_s"]
        for name, contender in CONTENDERS.items():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contender(Path(folder)) as log:
                cost = pace(rows, seconds, log)
            costs.setdefault(name, []).append(cost | {"cpu_s": max(0.0, cost["cpu_s"] - idle_s)})
    report = summarize(lengths, costs, {"rounds": rounds, "rows": count})
    print(render(report))
    return finish(report, options.json, report["worst"] <= TARGET)


def play(iterations: int) -> tuple[list[dict[str, float]], float]:
    """Rows of PPO as the loop tracks them, and the median length of an iteration in seconds."""
    # Evaluation, which in a run is the workers' affair, would take the learner's time here.
    overrides = ["experiment=ppo_cartpole", "algo.eval_every=1000000"]
    config: Any = OmegaConf.to_container(compose_alone(overrides), resolve=True)
    with closing(build_algorithm(config, SerialPool()).plan()) as plan:
        next(plan)  # which starts everything
        rows = [next(plan) for _ in range(iterations)]
    loop = {"system/seconds": 1.0, "system/steps_per_s": 1.0, "system/memory_gb": 1.0}
    return [{**row, **loop} for row in rows], statistics.median(row["system/iteration_s"] for row in rows)


def pace(rows: Sequence[dict[str, float]], seconds: float, log: Log) -> Report:
    """Log rows, one in so many seconds: the median time of a call, and the processor time of each row in all."""
    calls = []
    begun, used = time.perf_counter(), time.process_time()
    for number, row in enumerate(rows, 1):
        before = time.perf_counter()
        log(row)
        after = time.perf_counter()
        calls.append(after - before)
        time.sleep(max(0.0, begun + number * seconds - after))
    return {"call_s": statistics.median(calls), "cpu_s": (time.process_time() - used) / len(rows)}


@contextmanager
def tracker(folder: Path, names: Sequence[str]) -> Iterator[Log]:
    """Ours, with some mirrors that have all started."""
    config: Any = OmegaConf.to_container(compose_alone([f"track={names[0] if names else 'none'}"]), resolve=True)
    for name in names[1:]:
        more: Any = OmegaConf.to_container(compose_alone([f"track={name}"]), resolve=True)
        config["track"]["mirrors"] |= more["track"]["mirrors"]
    for keys in config["track"]["mirrors"].values():
        if "mode" in keys:
            keys["mode"] = "offline"
    heard = io.StringIO()
    track = Tracker(folder, build_mirrors(config, folder), 0, Console(heard, io.StringIO(), {}))
    with closing(track):
        deadline = time.monotonic() + 60
        while "wandb" in names and "W&B is offline" not in heard.getvalue():
            if time.monotonic() > deadline:
                raise TimeoutError("W&B did not start within a minute")
            time.sleep(0.05)
        yield track.log


@contextmanager
def wandb_itself(folder: Path) -> Iterator[Log]:
    """W&B as its users call it."""
    import wandb

    run = wandb.init(mode="offline", project="bench", dir=folder, settings=wandb.Settings(console="off", silent=True))
    try:
        yield lambda row: run.log(row, step=int(row["iteration"]))
    finally:
        run.finish()


@contextmanager
def summary_writer(folder: Path) -> Iterator[Log]:
    """PyTorch's writer of TensorBoard's files as its users call it."""
    from torch.utils.tensorboard import SummaryWriter

    def log(row: dict[str, float]) -> None:
        for key, value in row.items():
            writer.add_scalar(key, value, int(row["step"]))

    with SummaryWriter(str(folder)) as writer:
        yield log


CONTENDERS: dict[str, Callable[[Path], Any]] = {
    **{f"ours: {title}": partial(tracker, names=names) for title, names in MIRRORS.items()},
    "peer: wandb.log": wandb_itself,
    "peer: torch SummaryWriter": summary_writer,
}


def summarize(lengths: list[float], costs: dict[str, list[Report]], settings: Report) -> Report:
    """Medians, and what they are of an iteration."""
    iteration_s = statistics.median(lengths)
    contenders = {}
    for name, rounds in costs.items():
        middle = medians(rounds)
        shares = {key.replace("_s", "_share"): value / iteration_s for key, value in middle.items()}
        contenders[name] = {**middle, **shares, "rounds": rounds}
    ours = [side for name, side in contenders.items() if name.startswith("ours")]
    return {
        "machine": describe_machine(),
        "versions": versions(*PACKAGES),
        "settings": settings,
        "iteration_s": iteration_s,
        "contenders": contenders,
        "worst": max(side["call_share"] for side in ours),
        "target": TARGET,
    }


def render(report: Report) -> str:
    """The report as a table."""
    lines = [
        report["machine"],
        f"an iteration of PPO on CartPole: {1000 * report['iteration_s']:.2f} ms",
        f"{'a row costs':34}{'the loop waits':>18}{'processor time':>20}",
    ]
    for name, side in report["contenders"].items():
        parts = (f"{1e6 * side[f'{key}_s']:6.0f} us {side[f'{key}_share']:7.2%}" for key in ("call", "cpu"))
        lines.append(f"{name:34}{''.join(f'{part:>19}' for part in parts)}")
    return "\n".join([*lines, f"the loop waits at most {report['worst']:.2%} for ours; target {report['target']:.0%}"])


if __name__ == "__main__":
    sys.exit(run_script(main))
