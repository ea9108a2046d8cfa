"""Reproducibility checks of an algorithm: repeat it, resume it from every state, and compare the results."""

import itertools
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paddock.algos.pool.lazy import LazyPool
from paddock.algos.pool.protocol import Pool
from paddock.algos.pool.serial import SerialPool
from paddock.algos.protocol import RecordsEvents

from ..config.build import build
from ..config.experiment import build_algorithm, packages
from ..runs.checkpoint import Checkpoints, State, check_fits
from ..runs.journal import describe_changes
from ..tracking.console import Console
from ..tracking.tracker import Tracker
from .installed import Finding, format_error

SHOWN = 3  # attributes named in one message
PLAIN = (bool, int, float, str, type(None), np.generic)
Findings = Iterator[tuple[str, Finding]]
Make = Callable[[Pool], Any]  # returns a new algorithm on a pool


@dataclass(frozen=True)
class PlayedRun:
    """Metrics and states of consecutive iterations of an algorithm."""

    rows: list[dict[str, Any]]
    states: list[State]  # after each iteration, as loaded from a checkpoint


def check_algo(config: Mapping[str, Any], compute: Mapping[str, Any], iterations: int) -> Findings:
    """Run an algorithm repeatedly, resume it from every state, and yield (name of the check, finding)."""
    with tempfile.TemporaryDirectory() as scratch:

        def make(pool: Pool) -> Any:
            return build_algorithm(config, pool, folder=Path(scratch, "files"))

        started = time.perf_counter()
        first = make(SerialPool())
        yield "created", Finding("ok", f"{type(first).__name__} in {time.perf_counter() - started:.1f} s")
        started, states = time.perf_counter(), Checkpoints(Path(scratch), keep=1)
        try:
            whole = play(first, iterations, states)
        except Exception as error:
            yield "plan", Finding("FAIL", format_error(error), "fix this error")
            return
        yield "plan", Finding("ok", f"{iterations} iterations in {time.perf_counter() - started:.1f} s")
        yield "metrics", _guarded(lambda: _check_rows(whole.rows, Path(scratch)))
        repeated = _guarded(lambda: _check_repeated(make, whole, states))
        yield "repeated", repeated
        if repeated.level == "FAIL":
            return  # the comparisons below would fail for the same reason
        yield "state", _guarded(lambda: _check_states(make, whole, states))
        yield "workers", _guarded(lambda: _check_workers(make, config, compute, whole, states))


def play(algorithm: Any, iterations: int, states: Checkpoints) -> PlayedRun:
    """Run some iterations, and keep the metrics and the reloaded state of each."""
    rows, kept = list[dict[str, Any]](), list[State]()
    with closing(algorithm.plan()) as plan:
        for row in itertools.islice(plan, iterations):
            if isinstance(algorithm, RecordsEvents):
                algorithm.drain_events()
            rows.append(dict(row))
            kept.append(_stored(algorithm, states, len(kept)))
    if len(rows) < iterations:
        raise ValueError(f"plan() ended after {len(rows)} of {iterations} iterations; it must yield indefinitely")
    return PlayedRun(rows, kept)


def _stored(algorithm: Any, states: Checkpoints, number: int) -> State:
    """Return an algorithm's state after a round trip through a checkpoint."""
    states.save(number, {"algorithm": algorithm.state_dict()})
    loaded = states.load()
    assert loaded is not None
    state: State = loaded["algorithm"]
    return state


def _guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        return Finding("FAIL", format_error(error), "fix this error")


def _check_rows(rows: Sequence[Mapping[str, Any]], folder: Path) -> Finding:
    """Check that a run can track each row: flat, `group/name` -> number, with iteration and step."""
    step = 0
    with closing(Tracker(folder, [], 0, Console(None, None, {}))) as tracker:
        for number, row in enumerate(rows, 1):
            tracker.log(row)
            if bare := sorted(name for name in row.keys() - {"iteration", "step"} if "/" not in name):
                what = f"iteration {number}: {bare[0]!r} has no group"
                return Finding("FAIL", what, f"rename it to group/name, such as train/{bare[0]}")
            if row["step"] < step:
                what = f"iteration {number}: 'step' decreases from {_shown(step)} to {_shown(row['step'])}"
                return Finding("FAIL", what, "count all environment steps so far")
            step = row["step"]
    names = {name for row in rows for name in row if not name.startswith("system/")} - {"iteration", "step"}
    found = f"{len(names)} names, {step:,} steps"
    if not names & {"train/return_mean", "eval/return_mean"}:
        remedy = "log returns under these names, which plots and reports use"
        return Finding("warn", f"{found}, none of them train/return_mean or eval/return_mean", remedy)
    return Finding("ok", found)


def _check_repeated(make: Make, whole: PlayedRun, states: Checkpoints) -> Finding:
    """Check that a second run is identical, although global generators have advanced."""
    random.random()
    np.random.random()
    if "torch" in sys.modules:
        sys.modules["torch"].rand(1)
    again = play(make(SerialPool()), len(whole.rows), states)
    if found := find_divergence(whole, again, 0):
        return Finding("FAIL", f"second run: {found}", "draw random numbers from keyed_generator(seed, stream, ...)")
    return Finding("ok", "a second run gives identical rows and states")


def _check_states(make: Make, whole: PlayedRun, states: Checkpoints) -> Finding:
    """Check that resuming from the state of any iteration is bit-identical."""
    original = make(SerialPool())
    with closing(original.plan()) as plan:
        # Attributes that differ while the original is suspended at its yield may be missing in the state.
        missing = [_find_missing(make, original, state) for _, state in zip(plan, whole.states[:-1], strict=False)]
    for k, state in enumerate(whole.states[:-1], 1):
        one = make(SerialPool())
        check_fits(state, one.state_dict())
        one.load_state_dict(state)
        if leaf := first_difference(state, _stored(one, states, 0)):
            text = f"the state of iteration {k} changes when loaded, at {leaf}"
            return Finding("FAIL", text, "make load_state_dict restore everything that state_dict returns")
        if found := find_divergence(whole, play(one, len(whole.rows) - k, states), k):
            lacking = f" (after loading, {', '.join(missing[k - 1][:SHOWN])} differ)" if missing[k - 1] else ""
            remedy = "add what plan() resumes from to state_dict()"
            return Finding("FAIL", f"resumed from the state of iteration {k}: {found}{lacking}", remedy)
    return Finding("ok", f"complete at {len(whole.states) - 1} yields: resuming from each is bit-identical")


def _find_missing(make: Make, original: Any, state: State) -> list[str]:
    """Return plain attributes that differ between the original and a new algorithm that loaded the state."""
    one = make(SerialPool())
    one.load_state_dict(state)
    ours, theirs = vars(original), vars(one)
    plain = [name for name in ours if name in theirs and _is_plain(ours[name]) and _is_plain(theirs[name])]
    return [f"self.{name}" for name in plain if first_difference(ours[name], theirs[name], name)]


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN) or (isinstance(value, np.ndarray) and not value.dtype.hasobject)


def _check_workers(
    make: Make, config: Mapping[str, Any], compute: Mapping[str, Any], whole: PlayedRun, states: Checkpoints
) -> Finding:
    """Check that two worker processes give the same results as this process."""
    pool = LazyPool(build("compute", dict(compute)))
    with closing(pool):
        algorithm = make(pool)
        pool.open(packages(config))
        found = find_divergence(whole, play(algorithm, len(whole.rows), states), 0)
    if found:
        remedy = "make task results depend only on arguments, and process them in the order of done.index"
        return Finding("FAIL", f"on two workers: {found}", remedy)
    return Finding("ok", "two worker processes give identical rows and states")


def find_divergence(whole: PlayedRun, other: PlayedRun, start: int) -> str:
    """Describe where another run, which starts after iteration `start`, first differs; "" if it is bit-identical."""
    for k, (row, state) in enumerate(zip(other.rows, other.states, strict=True), start):
        rows = whole.rows[k], row
        shown = ({name: _shown(one[name]) for name in one if not name.startswith("system/")} for one in rows)
        if changed := describe_changes(*shown):
            return f"iteration {k + 1}: {changed}"
        if leaf := first_difference(whole.states[k], state):
            return f"iteration {k + 1}: the state differs at {leaf}"
    return ""


def first_difference(one: Any, other: Any, path: str = "") -> str:
    """Describe the first leaf in which two trees of plain data differ; "" if they are bit-identical."""
    where = f"'{path}'"
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            if key not in one or key not in other:
                return f"'{path}{'.' if path else ''}{key}', which is missing in one of them"
            if found := first_difference(one[key], other[key], f"{path}{'.' if path else ''}{key}"):
                return found
        return ""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return f"{where}: {len(one)} and {len(other)} items"
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for k, (a, b) in pairs if (found := first_difference(a, b, f"{path}.{k}"))), "")
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"{where}: {one.dtype} {one.shape} and {other.dtype} {other.shape}"
        return "" if one.tobytes() == other.tobytes() else f"{where}: different values"
    same = one == other or (_is_nan(one) and _is_nan(other))
    return "" if same else f"{where}: {_shown(one)} and {_shown(other)}"


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | np.floating) and math.isnan(value)


def _shown(value: Any) -> str:
    text = " ".join((str(value.item()) if isinstance(value, np.generic) else repr(value)).split())
    return text if len(text) <= 40 else text[:37] + "..."
