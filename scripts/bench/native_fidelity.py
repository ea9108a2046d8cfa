"""Whether walkers earn natively what they earn in Gymnasium: the same controllers and seeds, episode by episode.

    python scripts/bench/native_fidelity.py [--quick] [--json PATH] [--episodes 500] [RUN ...]

Gymnasium's own heuristic, and the policy of each run folder, walk on BipedalWalker-v3 and on Hardcore. A native step is
Box2D's bit for bit where a world begins; Gymnasium's environment takes its Box2D world along from one episode to the
next, which changes the order of contacts, and from there a walker's steps differ as if it had been pushed by a hair. So
returns are compared as samples: the means have to agree within 3 %, or their 95 % intervals overlap.
"""

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
from gymnasium.envs.box2d.bipedal_walker import BipedalWalkerHeuristics  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from paddock.evaluation.fresh_episodes import bootstrap_interval  # noqa: E402
from paddock.evaluation.load import load  # noqa: E402
from scripts.bench.harness import (  # noqa: E402
    Report,
    command_line,
    describe_machine,
    finish,
    positive_int,
    run_script,
)

TASKS = ("BipedalWalker-v3", "BipedalWalkerHardcore-v3")
HEURISTIC = "heuristic"
CLOSE = 0.03  # of the mean return
PART = 20  # episodes that one process plays in a row

Act = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def main(arguments: list[str] | None = None) -> int:
    """Play, print a row for each controller and task; returns 1 where one earns something else natively, else 0."""
    parser = command_line(__doc__, "under a minute: 20 episodes of the heuristic alone")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="folder of a run that learned to walk")
    parser.add_argument("--episodes", type=positive_int, default=500, help="of each controller on each side (500)")
    parser.add_argument("--workers", type=positive_int, default=2, help="processes (2)")
    options = parser.parse_args(arguments)
    episodes = 20 if options.quick else options.episodes
    controllers = [HEURISTIC, *([] if options.quick else options.runs)]
    rows = compare(controllers, episodes, options.workers)
    print(f"\n{describe_machine()}\nmean return of {episodes} episodes [95 % interval]; same: equal to the last bit")
    return finish({"episodes": episodes, "rows": rows}, options.json, all(row["agrees"] for row in rows))


def compare(controllers: list[str], episodes: int, workers: int) -> list[Report]:
    """Both sides of every controller on every task, each printed as it is known."""
    print(f"{'controller':20} {'task':26} {'Gymnasium':>24} {'native':>24}   same")
    starts = range(0, episodes, PART)
    rows = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, initializer=_one_thread) as pool:
        for task in TASKS:
            for controller in controllers:
                sides = []
                for id in (task, f"paddock.envs.native:paddock/Native{task}"):
                    parts = [pool.submit(play, id, controller, k, min(k + PART, episodes)) for k in starts]
                    sides.append([total for part in parts for total in part.result()])
                rows.append(judge(controller, task, *sides))
                print(render(rows[-1]), flush=True)
    return rows


def describe_sample(values: list[float]) -> Report:
    """The mean of a sample, and its 95 % interval."""
    low, high = bootstrap_interval(np.array(values), np.random.default_rng(0))
    return {"mean": float(np.mean(values)), "low": low, "high": high}


def judge(controller: str, task: str, gymnasiums: list[float], natives: list[float]) -> Report:
    """The two samples of returns, compared."""
    row: Report = {"controller": Path(controller).name, "task": task}
    for name, returns in (("gymnasium", gymnasiums), ("native", natives)):
        row[name] = describe_sample(returns)
    ours, theirs = row["native"], row["gymnasium"]
    near = abs(ours["mean"] - theirs["mean"]) <= CLOSE * abs(theirs["mean"])
    overlap = ours["low"] <= theirs["high"] and theirs["low"] <= ours["high"]
    same = float(np.mean(np.array(gymnasiums) == np.array(natives)))
    return row | {"agrees": near or overlap, "same": same}


def render(row: Report) -> str:
    """One line of the table."""
    cells = [
        f"{side['mean']:.1f} [{side['low']:.1f}, {side['high']:.1f}]" for side in (row["gymnasium"], row["native"])
    ]
    verdict = f"{row['same']:6.0%}" if row["agrees"] else f"{row['same']:6.0%}  DIFFERS"
    return f"{row['controller']:20} {row['task']:26} {cells[0]:>24} {cells[1]:>24} {verdict}"


def play(id: str, controller: str, first: int, last: int) -> list[float]:
    """The returns of a controller from seeds first..last-1, one after another in one environment."""
    with closing(gymnasium.make(id, disable_env_checker=True)) as env:
        return [_episode(env, seed, _mind(controller)) for seed in range(first, last)]


def _episode(env: gymnasium.Env, seed: int, act: Act) -> float:
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(act(np.asarray(obs, np.float32)))
        total += float(reward)
        over = terminated or truncated
    return total


def _mind(controller: str) -> Act:
    if controller == HEURISTIC:
        mind = BipedalWalkerHeuristics()
        return lambda obs: mind.step_heuristic(obs).astype(np.float32)  # as the action space says
    if controller not in _policies:
        _policies[controller] = load(Path(controller))[0].policy()
    policy = _policies[controller]
    return lambda obs: policy.act(obs[None])[0][0]


_policies: dict[str, Any] = {}  # of this process


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(run_script(main))
