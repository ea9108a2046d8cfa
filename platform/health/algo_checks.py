"""What is wrong with an algorithm for who needs repeatable results: it is played, stopped anywhere, and compared."""

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

from paddock.algos.pool.late import LatePool
from paddock.algos.pool.protocol import Pool
from paddock.algos.pool.serial import SerialPool
from paddock.algos.protocol import TellsEvents

from ..config.build import build
from ..config.experiment import build_algorithm, packages
from ..runs.checkpoint import Checkpoints, State, check_fits
from ..runs.journal import describe_changes
from ..tracking.console import Console
from ..tracking.tracker import Tracker
from .installed import Finding, in_words

SHOWN = 3  # attributes that are named in one line
PLAIN = (bool, int, float, str, type(None), np.generic)
Findings = Iterator[tuple[str, Finding]]
Make = Callable[[Pool], Any]  # an algorithm at its beginning, on a pool


@dataclass(frozen=True)
class PlayedRun:
    """Some iterations of an algorithm.

    Attributes:
        rows: their metrics.
        states: after each, as a checkpoint has it; of iteration 1 first.
    """

    rows: list[dict[str, Any]]
    states: list[State]


def check_algo(config: Mapping[str, Any], compute: Mapping[str, Any], iterations: int) -> Findings:
    """Play an algorithm for so many iterations, again and from every state; yields what was looked at, and what found.

    Args:
        config: of a whole run.
        compute: the section of two workers, on which it is played too.

    Raises:
        ConfigError: it cannot be built.
    """
    with tempfile.TemporaryDirectory() as scratch:

        def make(pool: Pool) -> Any:
            return build_algorithm(config, pool, folder=Path(scratch, "files"))

        started = time.perf_counter()
        first = make(SerialPool())
        yield "made", Finding("ok", f"{type(first).__name__} in {time.perf_counter() - started:.1f} s")
        started, states = time.perf_counter(), Checkpoints(Path(scratch), keep=1)
        try:
            whole = play(first, iterations, states)
        except Exception as error:
            yield "plan", Finding("FAIL", in_words(error), "mend what raised it")
            return
        yield "plan", Finding("ok", f"{iterations} iterations in {time.perf_counter() - started:.1f} s")
        yield "metrics", _guarded(lambda: _check_rows(whole.rows, Path(scratch)))
        repeated = _guarded(lambda: _check_repeated(make, whole, states))
        yield "repeated", repeated
        if repeated.level == "FAIL":
            return  # whatever it is compared with would differ, too
        yield "state", _guarded(lambda: _check_states(make, whole, states))
        yield "workers", _guarded(lambda: _check_workers(make, config, compute, whole, states))


def play(algorithm: Any, iterations: int, states: Checkpoints) -> PlayedRun:
    """Pull so many rows, and keep the state at each as the disk gives it back."""
    rows, kept = list[dict[str, Any]](), list[State]()
    with closing(algorithm.plan()) as plan:
        for row in itertools.islice(plan, iterations):
            if isinstance(algorithm, TellsEvents):
                algorithm.drain_events()
            rows.append(dict(row))
            kept.append(_stored(algorithm, states, len(kept)))
    if len(rows) < iterations:
        raise ValueError(f"plan() ended after {len(rows)} of {iterations} iterations; it goes on for ever")
    return PlayedRun(rows, kept)


def _stored(algorithm: Any, states: Checkpoints, number: int) -> State:
    """Return an algorithm's state as a checkpoint gives it back."""
    states.save(number, {"algorithm": algorithm.state_dict()})
    loaded = states.load()
    assert loaded is not None
    state: State = loaded["algorithm"]
    return state


def _guarded(check: Callable[[], Finding]) -> Finding:
    """Return what a check finds, or what was raised in it."""
    try:
        return check()
    except Exception as error:
        return Finding("FAIL", in_words(error), "mend what raised it")


def _check_rows(rows: Sequence[Mapping[str, Any]], folder: Path) -> Finding:
    """Each row is one that a run can track: flat, `group/name` -> number, with iteration and step."""
    step = 0
    with closing(Tracker(folder, [], 0, Console(None, None, {}))) as tracker:
        for number, row in enumerate(rows, 1):
            tracker.log(row)
            if bare := sorted(name for name in row.keys() - {"iteration", "step"} if "/" not in name):
                what = f"iteration {number}: {bare[0]!r} has no group"
                return Finding("FAIL", what, f"name it group/name, such as mine/{bare[0]}")
            if row["step"] < step:
                what = f"iteration {number}: 'step' falls from {_shown(step)} to {_shown(row['step'])}"
                return Finding("FAIL", what, "it counts all environment steps so far")
            step = row["step"]
    names = {name for row in rows for name in row if not name.startswith("system/")} - {"iteration", "step"}
    found = f"{len(names)} names, {step:,} steps"
    if not names & {"train/return_mean", "eval/return_mean"}:
        shown = "by these names returns are shown, plotted and compared"
        return Finding("warn", f"{found}, none of them train/return_mean or eval/return_mean", shown)
    return Finding("ok", found)


def _check_repeated(make: Make, whole: PlayedRun, states: Checkpoints) -> Finding:
    """Another one of the same settings gives the same, whatever the process has drawn meanwhile."""
    random.random()
    np.random.random()
    if "torch" in sys.modules:
        sys.modules["torch"].rand(1)
    again = play(make(SerialPool()), len(whole.rows), states)
    if found := parted(whole, again, 0):
        return Finding("FAIL", f"the same settings again: {found}", "draw from keyed_generator(seed, stream, ...)")
    return Finding("ok", "the same settings give the same rows and states again")


def _check_states(make: Make, whole: PlayedRun, states: Checkpoints) -> Finding:
    """A new one that loads the state of any iteration goes on to the same bits."""
    original = make(SerialPool())
    with closing(original.plan()) as plan:
        # What differs while the original rests at its yield is what the state may lack.
        forgotten = [_forgotten(make, original, state) for _, state in zip(plan, whole.states[:-1], strict=False)]
    for k, state in enumerate(whole.states[:-1], 1):
        one = make(SerialPool())
        check_fits(state, one.state_dict())
        one.load_state_dict(state)
        if leaf := first_difference(state, _stored(one, states, 0)):
            said = f"the state of iteration {k} is another one once it was loaded, at {leaf}"
            return Finding("FAIL", said, "load_state_dict takes over all that state_dict gave")
        if found := parted(whole, play(one, len(whole.rows) - k, states), k):
            lacking = f" (after loading, {', '.join(forgotten[k - 1][:SHOWN])} differ)" if forgotten[k - 1] else ""
            remedy = "state_dict() lacks something that plan() goes on from"
            return Finding("FAIL", f"gone on from the state of iteration {k}: {found}{lacking}", remedy)
    return Finding("ok", f"complete at {len(whole.states) - 1} yields: gone on from each, the rest is the same bits")


def _forgotten(make: Make, original: Any, state: State) -> list[str]:
    """Plain attributes that a new one, which loaded the state, has otherwise than the original."""
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
    """Two worker processes give what this process does."""
    pool = LatePool(build("compute", dict(compute)))
    with closing(pool):
        algorithm = make(pool)
        pool.open(packages(config))
        found = parted(whole, play(algorithm, len(whole.rows), states), 0)
    if found:
        remedy = "the result of a task depends on its arguments alone, and is taken in the order of done.index"
        return Finding("FAIL", f"on two workers: {found}", remedy)
    return Finding("ok", "two processes give the same rows and states as this one")


def parted(whole: PlayedRun, other: PlayedRun, start: int) -> str:
    """Say where the other one, which began after iteration `start`, first differs; "" where it is the same bits."""
    for k, (row, state) in enumerate(zip(other.rows, other.states, strict=True), start):
        if changed := _changes(whole.rows[k], row):
            return f"iteration {k + 1}: {changed}"
        if leaf := first_difference(whole.states[k], state):
            return f"iteration {k + 1}: the state differs at {leaf}"
    return ""


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    shown = ({name: _shown(of[name]) for name in of if not name.startswith("system/")} for of in (before, after))
    return describe_changes(*shown)


def first_difference(one: Any, other: Any, path: str = "") -> str:
    """Name the first leaf in which two trees of plain data differ in bits, and how; "" where they do not."""
    where = f"'{path}'"
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            if key not in one or key not in other:
                return f"'{path}{'.' if path else ''}{key}', which one of them lacks"
            if found := first_difference(one[key], other[key], f"{path}{'.' if path else ''}{key}"):
                return found
        return ""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return f"{where}: {len(one)} items were {len(other)}"
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for k, (a, b) in pairs if (found := first_difference(a, b, f"{path}.{k}"))), "")
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"{where}: {one.dtype} {one.shape} and {other.dtype} {other.shape}"
        return "" if one.tobytes() == other.tobytes() else f"{where}: other numbers"
    same = one == other or (_is_nan(one) and _is_nan(other))
    return "" if same else f"{where}: {_shown(one)} and {_shown(other)}"


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | np.floating) and math.isnan(value)


def _shown(value: Any) -> str:
    text = " ".join((str(value.item()) if isinstance(value, np.generic) else repr(value)).split())
    return text if len(text) <= 40 else text[:37] + "..."
