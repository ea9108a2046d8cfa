"""From the command line to a run: compose the configuration, check it, build every part, and run.

python -m platform algo=es env=bipedal compute=dask
"""

import contextlib
import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from envs.errors import ConfigError, PaddockError, nearest, require
from envs.spec import EnvSpec, Vec

from . import CONF
from .border import build, prepare, prepare_call
from .checkpoint import Checkpoints
from .compose import composition_error, register_search_path
from .compute.late import LatePool
from .console import Console
from .folder import RunFolder, check_usable, last_path, new_path
from .guide import print_guide
from .run import Budget, Outcome, Progress, restore, run
from .track import Tracker

log = logging.getLogger(__name__)

SECTIONS = ("algo", "env", "vec", "compute", "track", "budget", "run", "checkpoint", "seed", "resume", "dry_run")
GROUPS_WITHOUT_SECTION = ("experiment",)


def main() -> int:
    """The command `paddock`. Exit codes: 0 done, 1 the run failed, 2 bad input, 128 + n stopped by signal n."""
    if {"--help", "-h"} & set(sys.argv[1:]):
        print_guide()
        return 0
    # Hydra then raises its errors, and they can be put in one line.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    register_search_path()
    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(experiment)()
    except RunFailed as error:
        return _complain(error, 1)
    except PaddockError as error:
        return _complain(error, 2)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; nothing is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        explained = composition_error(error)
        if explained is None:
            raise
        return _complain(explained, 2)
    return 0


class RunFailed(PaddockError):
    """A run ended by an error of its own, after it had begun."""


def experiment(composed: DictConfig) -> float | None:
    """Check, build and run one configuration; returns the last evaluation's mean return, for sweeps."""
    config = _plain(composed)
    budget = _budget(config["budget"])
    seed = config["seed"]
    require(isinstance(seed, int) and 0 <= seed < 2**63, f"seed={seed!r} must be a whole number in [0, 2^63)")
    pool = LatePool(prepare("compute", config["compute"]))
    algorithm = build_algorithm(config, pool)
    path = _run_path(config)
    checkpoints = _checkpoints(config["checkpoint"], path)
    check_usable(path, config)
    if config["dry_run"]:
        _print_dry_run(config, algorithm, pool, path)
        return None
    console = Console(sys.stdout, sys.stderr, config["budget"])
    with contextlib.closing(console), _messages(console) as record, contextlib.closing(pool):
        progress = restore(algorithm, checkpoints)
        reached = budget.spent(progress.metrics, progress.elapsed_s) if progress.metrics else None
        if reached is not None:
            console.message(f"{path} has reached {reached} before; raise it to go on")
            return progress.metrics.get("eval/return_mean")
        pool.open()
        folder = RunFolder.open(path, config)
        try:
            record(path / "log.txt")
            outcome = _sitting(config, algorithm, checkpoints, budget, progress, folder, console, pool)
        finally:
            folder.release()
    _print_end(path, outcome)
    if outcome.signal is not None:
        raise SystemExit(128 + outcome.signal)
    return outcome.metrics.get("eval/return_mean")


def build_algorithm(config: Mapping[str, Any], pool: Any) -> Any:
    """The algorithm of a configuration, on a pool; nothing is left behind if it cannot be built."""
    env: EnvSpec = build("env", config["env"])
    vec: Vec = build("vec", config["vec"])
    section = {key: value for key, value in config["algo"].items() if key != "name"}
    return build("algo", section, env=env, vec=vec, pool=pool, seed=config["seed"])


def _sitting(
    config: Mapping[str, Any],
    algorithm: Any,
    checkpoints: Checkpoints,
    budget: Budget,
    progress: Progress,
    folder: RunFolder,
    console: Console,
    pool: LatePool,
) -> Outcome:
    start_iteration = int(progress.metrics.get("iteration", 0))
    console.message(f"{'going on' if start_iteration else 'running'} in {folder.path}, workers: {pool.describe()}")
    identity = {"run_dir": folder.path, "run_name": folder.path.name, "config": config}
    mirrors = [build(f"track.mirrors.{name}", section, **identity) for name, section in _mirrors(config)]
    tracker = Tracker(folder.path, mirrors, start_iteration, console)
    try:
        outcome = run(
            algorithm,
            tracker,
            checkpoints,
            budget,
            progress,
            checkpoint_every_s=config["checkpoint"]["every_s"],
            stopping=lambda number: console.message("stopping after this iteration; Ctrl-C again leaves at once"),
        )
    except PaddockError as error:
        folder.finish(f"failed: {error}", progress.metrics)
        raise RunFailed(f"{error} (the run so far is in {folder.path})") from error
    finally:
        tracker.close()
    folder.finish(outcome.reason, outcome.metrics)
    return outcome


def _plain(composed: DictConfig) -> dict[str, Any]:
    """The configuration as plain data, with its sections checked."""
    missing = OmegaConf.missing_keys(composed)
    if missing:
        key = min(missing)
        raise ConfigError(f"{key} has no value; give one: {key}=...")
    config = OmegaConf.to_container(composed, resolve=True)
    assert isinstance(config, dict)
    for name in config:
        require(name in SECTIONS, f"{name} is not a section of the configuration; {nearest(str(name), SECTIONS)}")
    require(config["resume"] in (None, "last"), f"resume={config['resume']!r} is unknown; allowed: last, null")
    require(isinstance(config["dry_run"], bool), f"dry_run={config['dry_run']!r} must be true or false")
    return config


def _budget(section: Any) -> Budget:
    require(isinstance(section, dict), "budget must be a mapping; set its keys, such as budget.iterations=100")
    known = {"iterations", "steps", "minutes", "return"}
    for name in section:
        require(name in known, f"budget.{name} is not a key of budget; {nearest(name, known)}")
    renamed = {"return_" if name == "return" else name: value for name, value in section.items()}
    return prepare_call("budget", Budget, renamed)()


def _checkpoints(section: Any, path: Path) -> Checkpoints:
    def checked(every_s: float, keep: int) -> Checkpoints:
        require(every_s >= 0, f"every_s={every_s} must not be negative; 10 suits most")
        require(keep >= 1, f"keep={keep} must be at least 1")
        return Checkpoints(path / "checkpoints", keep)

    return prepare_call("checkpoint", checked, section)()


def _run_path(config: Mapping[str, Any]) -> Path:
    def path(root: str, name: str | None, dir: str | None) -> Path:
        if dir is not None:
            return Path(dir)
        if config["resume"] == "last":
            return last_path(Path(root))
        if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
            return Path(HydraConfig.get().runtime.output_dir)
        short = config["env"]["id"].rpartition(":")[2].replace("/", "-")
        return new_path(Path(root), name or f"{config['algo'].get('name', 'run')}_{short}_seed{config['seed']}")

    return prepare_call("run", path, config["run"])()


def _mirrors(config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list((config["track"].get("mirrors") or {}).items())


@contextlib.contextmanager
def _messages(console: Console) -> Iterator[Any]:
    """Send log messages to the console, and, once a folder is known, to its log file."""

    class ToConsole(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            console.message(self.format(record))

    handlers: list[logging.Handler] = [ToConsole()]
    names = ("paddock", "algos", "envs")

    def add(handler: logging.Handler) -> None:
        for name in names:
            logging.getLogger(name).addHandler(handler)
            logging.getLogger(name).setLevel(logging.INFO)

    def record(path: Path) -> None:
        handler = logging.FileHandler(path)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        handlers.append(handler)
        add(handler)

    add(handlers[0])
    try:
        yield record
    finally:
        for handler in handlers:
            for name in names:
                logging.getLogger(name).removeHandler(handler)
            handler.close()


def _print_dry_run(config: Mapping[str, Any], algorithm: Any, pool: LatePool, path: Path) -> None:
    described = algorithm.describe() if hasattr(algorithm, "describe") else {}
    lines = {
        "algorithm": config["algo"]["_target_"],
        "environment": config["env"]["id"],
        "workers": pool.describe(),
        **described,
        "devices": "cpu",
        "budget": ", ".join(f"{key}={value}" for key, value in config["budget"].items() if value is not None) or "none",
        "folder": str(path),
    }
    for name, text in lines.items():
        print(f"{name:12} {text}")


def _print_end(path: Path, outcome: Outcome) -> None:
    kept = [argument for argument in sys.argv[1:] if not argument.startswith(("run.dir=", "resume="))]
    end, hint = ("stopped by", "") if outcome.signal is not None else ("ended by", "  # raise its budget to go on")
    print(f"{end} {outcome.reason} after {int(outcome.metrics.get('iteration', 0))} iterations: {path}")
    print(f"  python -m paddock.evaluate {path} video={path / 'episode.mp4'}")
    print(f"  python -m paddock.plot {path}")
    print(f"  python -m paddock {shlex.join([*kept, f'run.dir={path}'])}{hint}")


def _complain(error: PaddockError, code: int) -> int:
    print(f"paddock: {' '.join(str(error).split())}", file=sys.stderr)
    return code
