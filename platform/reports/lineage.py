"""What POET's niches and PBT's members went through: who came from whom, who lived when, and who took over what.

It is read from a run's folder alone, so that it can be drawn while the run goes on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from paddock.envs.family import Encoding
from paddock.envs.spec import EnvSpec

from ..runs.results import Columns, read_events

Event = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Life:
    """A niche, as far as it has come."""

    number: int
    parent: int | None  # whose encoding was mutated; None for the first
    encoding: Encoding
    env: EnvSpec
    born: int  # iteration
    solved: int | None  # iteration
    retired: int | None  # iteration; None: active
    score: float | None  # the last of its agents'; None: not yet evaluated, or all of that was lost


@dataclass(frozen=True)
class Attempt:
    """An agent that tried another niche."""

    iteration: int
    source: int
    target: int
    accepted: bool


@dataclass(frozen=True, eq=False)
class History:
    """All that happened in a run up to now."""

    config: Mapping[str, Any]
    columns: Columns
    lives: Mapping[int, Life]  # by number, in the order of birth
    attempts: Sequence[Attempt]  # in order
    now: int  # iteration


@dataclass(frozen=True)
class Span:
    """The rounds of a member with the same hyperparameters."""

    member: int
    begun: int  # the first round
    settings: Mapping[str, float]
    origin: int  # the first member that its parameters descend from
    source: int | None = None  # whose parameters it took over before; None: it began with its own


@dataclass(frozen=True, eq=False)
class PopulationHistory:
    """All that happened in a run of population based training up to now."""

    config: Mapping[str, Any]
    columns: Columns
    spans: Mapping[int, Sequence[Span]]  # of each member, in order
    now: int  # round


def read_history(run: Path, config: Mapping[str, Any], columns: Columns) -> History | None:
    """The history of a run's niches; None where no birth has been told: of other algorithms, or before an iteration.

    Args:
        columns: as `results.read_columns` gives them.

    Raises:
        FolderError: a journal cannot be read.
    """
    events = read_events(run)
    if not any(event.get("event") == "birth" and "niche" in event for event in events):
        return None
    now = max([events[-1]["iteration"], *(int(i) for i in columns.get("iteration", ())[-1:])])
    return History(config, columns, _lives(events, columns), _attempts(events), now)


def read_population(run: Path, config: Mapping[str, Any], columns: Columns) -> PopulationHistory | None:
    """The history of a run's members; None where no birth of one has been told.

    Args:
        columns: as `results.read_columns` gives them.

    Raises:
        FolderError: a journal cannot be read.
    """
    events = read_events(run)
    births = [event for event in events if event.get("event") == "birth" and "member" in event]
    first = {event["member"]: event["hyperparameters"] for event in births}
    if not first:
        return None
    spans = {member: [Span(member, 1, settings, member)] for member, settings in first.items()}
    for iteration, together in groupby(
        (e for e in events if e.get("event") == "exploit"), lambda event: event["iteration"]
    ):
        origins = {member: lives[-1].origin for member, lives in spans.items()}
        for event in together:
            origin = origins[event["source"]]
            spans[event["member"]].append(
                Span(event["member"], iteration + 1, event["hyperparameters"], origin, event["source"])
            )
    now = max(events[-1]["iteration"], *(int(i) for i in columns.get("iteration", ())[-1:]), 1)
    return PopulationHistory(config, columns, spans, now)


def trace_back(population: PopulationHistory, member: int) -> list[tuple[int, int, Span]]:
    """The spans that a member's parameters went through: (first round, last round, whose span), the last one first."""
    way: list[tuple[int, int, Span]] = []
    last = population.now
    while True:
        span = next(span for span in reversed(population.spans[member]) if span.begun <= last)
        way.append((span.begun, last, span))
        if span.source is None:
            return way
        member, last = span.source, span.begun - 1


def order_lines(lives: Mapping[int, Life]) -> list[int]:
    """The numbers from parents to children, depth first and of children the youngest first.

    What stands between a parent and a child in this order was born after the child: an edge drawn between them at the
    child's birth crosses nothing.
    """
    children: dict[int | None, list[int]] = {}
    for number, life in lives.items():
        children.setdefault(life.parent, []).append(number)
    order: list[int] = []
    ahead = children.get(None, [])[::-1]
    while ahead:
        number = ahead.pop()
        order.append(number)
        ahead += children.get(number, [])
    return order


def _lives(events: Sequence[Event], columns: Columns) -> dict[int, Life]:
    solved: dict[int, int] = {}
    retired: dict[int, int] = {}
    told: dict[int, float] = {}
    for event in events:
        if event.get("event") == "solved":
            solved[event["niche"]] = event["iteration"]
        elif event.get("event") == "retire":
            retired[event["niche"]] = event["iteration"]
        if event.get("event") in ("birth", "solved", "retire") and event.get("score") is not None:
            told[event["niche"]] = float(event["score"])
    lives = {}
    for event in events:
        if event.get("event") != "birth":
            continue
        number = event["niche"]
        scores = columns.get(f"score/{number}", np.empty(0))
        scores = scores[np.isfinite(scores)]
        lives[number] = Life(
            number=number,
            parent=event["parent"],
            encoding=event["encoding"],
            env=EnvSpec(**event["env"]),
            born=event["iteration"],
            solved=solved.get(number),
            retired=retired.get(number),
            score=float(scores[-1]) if len(scores) else told.get(number),
        )
    return lives


def _attempts(events: Iterable[Event]) -> list[Attempt]:
    return [
        Attempt(event["iteration"], event["source"], event["target"], event["accepted"])
        for event in events
        if event.get("event") == "transfer"
    ]
