"""Histories of POET's niches and PBT's members: parents, lifetimes and takeovers.

They are read from the run's folder alone, so that they can be drawn during the run.
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
    """Lifetime of a niche."""

    number: int
    parent: int | None  # niche whose encoding was mutated; None for the first
    encoding: Encoding
    env: EnvSpec
    born: int  # iteration
    solved: int | None  # iteration
    retired: int | None  # iteration; None: active
    score: float | None  # last score of its agent; None: not evaluated, or lost


@dataclass(frozen=True)
class Attempt:
    """Attempted transfer of an agent to another niche."""

    iteration: int
    source: int
    target: int
    accepted: bool


@dataclass(frozen=True, eq=False)
class History:
    """History of a POET run."""

    config: Mapping[str, Any]
    columns: Columns
    lives: Mapping[int, Life]  # by number, in order of creation
    attempts: Sequence[Attempt]  # in order
    now: int  # iteration


@dataclass(frozen=True)
class Span:
    """Rounds of a member with the same hyperparameters."""

    member: int
    begun: int  # first round
    settings: Mapping[str, float]
    origin: int  # initial member that its parameters descend from
    source: int | None = None  # member whose parameters it copied before; None: its initial parameters


@dataclass(frozen=True, eq=False)
class PopulationHistory:
    """History of a run of population based training."""

    config: Mapping[str, Any]
    columns: Columns
    spans: Mapping[int, Sequence[Span]]  # of each member, in order
    now: int  # round


def read_history(run: Path, config: Mapping[str, Any], columns: Columns) -> History | None:
    """Return the history of a run's niches; None without events of them."""
    events = read_events(run)
    if not any(event.get("event") == "birth" and "niche" in event for event in events):
        return None
    now = max([events[-1]["iteration"], *(int(i) for i in columns.get("iteration", ())[-1:])])
    return History(config, columns, _lives(events, columns), _attempts(events), now)


def read_population(run: Path, config: Mapping[str, Any], columns: Columns) -> PopulationHistory | None:
    """Return the history of a run's members; None without events of them."""
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
    """Trace a member's parameters back: (first round, last round, span), the latest first."""
    way: list[tuple[int, int, Span]] = []
    last = population.now
    while True:
        span = next(span for span in reversed(population.spans[member]) if span.begun <= last)
        way.append((span.begun, last, span))
        if span.source is None:
            return way
        member, last = span.source, span.begun - 1


def order_lines(lives: Mapping[int, Life]) -> list[int]:
    """Return the numbers in depth-first order, the youngest child first.

    Niches between a parent and a child in this order are younger than the child, so the edge that is drawn at the
    child's creation crosses no line.
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
    last_scores: dict[int, float] = {}
    for event in events:
        if event.get("event") == "solved":
            solved[event["niche"]] = event["iteration"]
        elif event.get("event") == "retire":
            retired[event["niche"]] = event["iteration"]
        if event.get("event") in ("birth", "solved", "retire") and event.get("score") is not None:
            last_scores[event["niche"]] = float(event["score"])
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
            score=float(scores[-1]) if len(scores) else last_scores.get(number),
        )
    return lives


def _attempts(events: Iterable[Event]) -> list[Attempt]:
    return [
        Attempt(event["iteration"], event["source"], event["target"], event["accepted"])
        for event in events
        if event.get("event") == "transfer"
    ]
