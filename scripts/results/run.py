"""Play the rows of matrix.yaml and store their scores in notebooks/results.

    python scripts/results/run.py [rows=NAME,...] [hours=3] [jobs=2] [runs=FOLDER]
    python scripts/results/run.py gate=true

A seed is trained in the folder runs/results/ROW/SEED, on one thread. Its final policy then plays 100 episodes on fresh
seeds, with deterministic actions, or with sampled ones if the row has `stochastic: true`. An interrupted call continues
where it stopped. A row is stored when all its seeds have ended; a stored row with another configuration is refused.
gate=true plays the first five seeds of the rows with `gate: true` and fails if their scores are worse than the stored
ones, in one decision over all rows.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

from paddock.compare import print_comparison  # noqa: E402
from paddock.config.command import Readers, parse, print_error, read_count, read_flag, read_names  # noqa: E402
from paddock.config.compose import compose_alone  # noqa: E402
from paddock.config.experiment import read_plain  # noqa: E402
from paddock.envs.errors import PaddockError, nearest, require  # noqa: E402
from paddock.reports.comparison import TaskResult, compare, read_results, store_results  # noqa: E402
from paddock.runs.checkpoint import write_atomically  # noqa: E402
from paddock.runs.folder import has_ended, read_json  # noqa: E402
from paddock.runs.identity import experiment_settings  # noqa: E402

MATRIX = Path(__file__).with_name("matrix.yaml")
STORED = ROOT / "notebooks" / "results"
EPISODES = 100  # of a seed's score
GATE_SEEDS = 5
PACKAGES = ("gymnasium", "minigrid", "mujoco", "numpy", "torch")  # their versions are stored
READERS: Readers = {
    "rows": (read_names, "comma-separated names of rows"),
    "hours": (float, "a number of hours"),
    "jobs": (read_count, "a number of concurrent runs"),
    "runs": (Path, "a folder"),
    "gate": (read_flag, "true or false"),
}


@dataclass(frozen=True)
class Row:
    """Row of the matrix."""

    name: str
    family: str
    run: str  # arguments of `python -m platform`, besides the seed
    seeds: int  # 1 to this number
    published: tuple[str, ...] = ()  # names of tables of references
    gate: bool = False
    stochastic: bool = False  # sample actions in the episodes of the score

    @property
    def episodes(self) -> str:
        """Describe the episodes of the score."""
        return f"{EPISODES}, {'sampled actions' if self.stochastic else 'deterministic'}, of the last policy"

    @property
    def file(self) -> Path:
        """Return the file of the stored results."""
        return STORED / f"{self.name}.json"


def read_matrix(file: Path = MATRIX) -> dict[str, Row]:
    """Read the rows by name."""
    families = yaml.safe_load(file.read_text())
    return {name: Row(name, family, **row) for family, rows in families.items() for name, row in rows.items()}


def main(arguments: Sequence[str]) -> int:
    """Play rows; return 1 if a run or the gate failed, and 2 for bad input."""
    try:
        others, options = parse("run.py", arguments, READERS)
        require(not others, f"{' '.join(map(str, others))}: write key=value")
        rows = read_matrix()
        for name in options.get("rows", ()):
            require(name in rows, f"rows={name} is not in {MATRIX.name}; {nearest(name, rows)}")
        chosen = [rows[name] for name in options.get("rows", rows)]
        jobs = options.get("jobs", 2)
        if options.get("gate"):
            return 0 if passes_gate([row for row in chosen if row.gate], jobs) else 1
        folder = options.get("runs", ROOT / "runs" / "results").absolute()
        for row in chosen:
            check_configuration(row)
        missing = [row for row in chosen if not row.file.exists()]
        return 0 if play(missing, folder, jobs, 3600 * options.get("hours", 24.0 * 365)) else 1
    except PaddockError as error:
        return print_error(error, 2)


def check_configuration(row: Row) -> None:
    """Raise ConfigError if the stored results of a row are of another configuration."""
    if not row.file.exists():
        return
    config = read_plain(compose_alone(shlex.split(row.run)))
    now = json.loads(json.dumps(experiment_settings(config) | {"budget.steps": config["budget"]["steps"]}))
    stored = json.loads(row.file.read_text())
    then = stored["results"][0]["settings"] | {"budget.steps": stored["row"]["steps"]}
    changed = sorted(key for key in now.keys() & then.keys() if now[key] != then[key])  # keys may be added or removed
    if stored["row"]["episodes"] != row.episodes:
        changed.append("episodes")
    what = f"{row.file.name} was played with another configuration ({', '.join(changed)})"
    require(not changed, f"{what}; delete the file and its runs to play the row again")


def play(rows: Sequence[Row], folder: Path, jobs: int, seconds: float, seeds: int | None = None) -> bool:
    """Play the missing seeds of rows, and store each complete row unless `seeds` limits it; return whether all ended."""
    deadline = time.monotonic() + seconds
    tasks = [(row, seed) for row in rows for seed in range(1, (seeds or row.seeds) + 1)]

    def play_one(task: tuple[Row, int]) -> bool:
        row, seed = task
        ended = play_seed(row, seed, folder / row.name / str(seed), deadline)
        if ended and seeds is None and not row.file.exists():
            store(row, folder / row.name)
        return ended

    with ThreadPoolExecutor(jobs) as threads:
        return all(list(threads.map(play_one, tasks)))


def play_seed(row: Row, seed: int, run: Path, deadline: float) -> bool:
    """Train and evaluate a seed, unless this is done; return whether it is."""
    train = [*shlex.split(row.run), f"seed={seed}", "compute=serial", f"run.dir={run}"]
    scores = run / "scores.json"
    score = [".evaluate", str(run), f"episodes={EPISODES}", f"seed={seed}", f"json={scores}"]
    if row.stochastic:
        score.append("stochastic=true")
    run.parent.mkdir(parents=True, exist_ok=True)
    for done, (module, *words) in ((has_ended(run), ["", *train]), (scores.exists(), score)):
        left = deadline - time.monotonic()
        if done or left <= 0:
            continue
        started = time.monotonic()
        with open(f"{run}.log", "a") as log:
            try:
                command = [sys.executable, "-m", f"paddock{module}", *words]
                thread = os.environ | {"OMP_NUM_THREADS": "1"}
                code = subprocess.run(command, cwd=ROOT, env=thread, stdout=log, stderr=log, timeout=left).returncode
            except subprocess.TimeoutExpired:
                return False
        if code:
            print(f"{row.name} seed {seed} failed with exit code {code}; see {run}.log", flush=True)
            return False
        print(f"{row.name} seed {seed}{module}: {(time.monotonic() - started) / 60:.1f} min", flush=True)
    return scores.exists()


def store(row: Row, folder: Path) -> None:
    """Store the results of a row if all its seeds have ended."""
    runs = {seed: folder / str(seed) for seed in range(1, row.seeds + 1)}
    if not all((run / "scores.json").exists() for run in runs.values()):
        return
    [result] = read_results(folder)
    provenance = {seed: read_json(run / "provenance.json") for seed, run in runs.items()}
    packages = provenance[1]["packages"]
    described = {
        "name": row.name,
        "command": f"python -m platform {row.run}",
        "steps": yaml.safe_load((runs[1] / "config.yaml").read_text())["budget"]["steps"],
        "episodes": row.episodes,
        "packages": {name: packages[name] for name in PACKAGES if name in packages},
        "runs": [
            {
                "seed": seed,
                "returns": [round(value, 4) for value in read_json(run / "scores.json")["returns"]],
                "minutes": round(read_seconds(run) / 60, 1),
                "commit": provenance[seed]["commit"],
                "cpu": provenance[seed]["cpu"],
            }
            for seed, run in runs.items()
        ],
    }
    content = json.loads(store_results([result])) | {"row": described}
    text = re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), json.dumps(content, indent=1))
    row.file.parent.mkdir(exist_ok=True)
    write_atomically(row.file, text.encode() + b"\n", alone=False)
    print(row.file, flush=True)


def read_seconds(run: Path) -> float:
    """Return the computing time of a run."""
    return float(json.loads((run / "system.jsonl").read_text().splitlines()[-1])["system/seconds"])


def passes_gate(rows: Sequence[Row], jobs: int) -> bool:
    """Play the first seeds of rows, and compare them with the stored results; return whether they are no worse."""
    rows = [row for row in rows if row.file.exists()]
    require(bool(rows), "no row of the gate is stored; play one with run.py rows=NAME")
    with tempfile.TemporaryDirectory() as scratch:
        new, old = Path(scratch, "new"), Path(scratch, "old.json")
        if not play(rows, new, jobs, float("inf"), GATE_SEEDS):
            return False
        results = {row.name: read_results(new / row.name)[0] for row in rows}
        stored = [choose_seeds(read_results(row.file)[0], results[row.name]) for row in rows]
        new.with_suffix(".json").write_bytes(store_results(list(results.values())))
        old.write_bytes(store_results(stored))
        comparison = compare(new.with_suffix(".json"), old)
    print_comparison(comparison)
    passed = comparison.passes("no_worse")
    print(f"gate: {'passed' if passed else 'failed'}")
    return passed


def choose_seeds(stored: TaskResult, new: TaskResult) -> TaskResult:
    """Return stored results with the new seeds only if their metrics are equal, else with all seeds."""
    known = {seed.seed: seed for seed in stored.seeds}
    same = all(known.get(seed.seed) == seed for seed in new.seeds)
    return replace(stored, seeds=new.seeds) if same else stored


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
