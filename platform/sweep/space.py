"""The search space of a sweep, in Hydra's own syntax: what varies, between which bounds, and where it matters at all.

algo.learning_rate=tag(log, interval(1e-5, 1e-2))   a float, by its logarithm
algo.epochs=int(interval(1, 20))                    a whole number, both bounds included
algo.num_steps=range(32, 257, 32)                       32, 64, ... 256
algo.hidden=[32],[64,64]                            one of these; choice([32],[64,64]) is the same
algo.value_clip_coef=tag("when:algo.advantage=gae", interval(0.1, 1))   drawn where that parameter has this value
algo.gae_lambda=tag("when:algo.advantage=gae", log, interval(0.5, 0.99))   both in one tag
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    check_distribution_compatibility,
)
from optuna.study import Study
from optuna.trial import BaseTrial, FixedTrial

from paddock.envs.errors import ConfigError, nearest, require

from ..config.hydra_private import write_element

LOG, WHEN = "log", "when:"
QUOTED, TAG = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1"""), re.compile(r"\btag\s*\(")
BETWEEN = 0.6180339887  # of an interval: no whole number where both bounds are
Choice = None | bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """One key that varies."""

    key: str  # as overridden, with the + of a key that is added
    distribution: BaseDistribution
    texts: Mapping[Choice, str]  # of a categorical one, how each choice is written
    when: tuple[str, str] | None  # the parameter it depends on, and the text of the value that lets it matter

    @property
    def name(self) -> str:
        """What the study calls it."""
        return self.key.lstrip("+")


def read_space(overrides: Sequence[Override]) -> tuple[list[str], list[Parameter]]:
    """Part overrides into those that are fixed, as they were written, and the parameters, each after what it needs.

    Of one key the last override holds.

    Raises:
        ConfigError: a parameter cannot be searched as it is written.
    """
    last = {override.get_key_element().lstrip("+"): override for override in overrides}
    fixed = [str(override.input_line) for override in last.values() if not override.is_sweep_override()]
    found = [_read(override) for override in last.values() if override.is_sweep_override()]
    return fixed, _in_order(found)


def suggest(trial: BaseTrial, parameters: Sequence[Parameter]) -> list[str]:
    """Draw a value for every parameter that matters; what comes out are overrides."""
    chosen: dict[str, str] = {}
    for parameter in parameters:
        if parameter.when is None or chosen.get(parameter.when[0]) == parameter.when[1]:
            chosen[parameter.name] = _draw(trial, parameter)
    keys = {parameter.name: parameter.key for parameter in parameters}
    return [f"{keys[name]}={text}" for name, text in chosen.items()]


def spell_parameters(parameters: Sequence[Parameter]) -> tuple[str, ...]:
    """Return what a study's trials have in common, whatever the bounds: which keys vary, and where they matter."""
    whens = {one.name: f" when {one.when[0]}={one.when[1]}" if one.when else "" for one in parameters}
    return tuple(f"{name}{when}" for name, when in sorted(whens.items()))


def check_space(study: Study, parameters: Sequence[Parameter]) -> None:
    """Raise ConfigError if a study has drawn one of the parameters in a way that Optuna cannot go on from."""
    for trial in study.get_trials(deepcopy=False):
        for parameter in parameters:
            before = trial.distributions.get(parameter.name)
            try:
                if before is not None:
                    check_distribution_compatibility(before, parameter.distribution)
            except ValueError as error:
                was, now = (_spell(one) for one in (before, parameter.distribution))
                what = f"{parameter.name} was drawn from {was} in the study {study.study_name}, and is now {now}"
                raise ConfigError(f"{what}; use its own, or another study=") from error


def corners(parameters: Sequence[Parameter]) -> list[list[str]]:
    """A few points of the space that meet every bound and every choice, for a check of all before any is tried.

    The last one lies between bounds: of a key that takes whole numbers alone, they may be whole, and what is drawn not.
    """
    most = max([2, *(len(parameter.texts) for parameter in parameters)])
    points: list[list[str]] = []
    for number in range(2 * most + 1):
        values: dict[str, Any] = {}
        for parameter in parameters:
            distribution = parameter.distribution
            if isinstance(distribution, FloatDistribution) and distribution.step is None and number == 2 * most:
                values[parameter.name] = distribution.low + BETWEEN * (distribution.high - distribution.low)
            elif isinstance(distribution, FloatDistribution | IntDistribution):
                values[parameter.name] = distribution.high if number >= most else distribution.low
            elif isinstance(distribution, CategoricalDistribution):
                values[parameter.name] = distribution.choices[number % len(distribution.choices)]
        point = suggest(FixedTrial(values), parameters)
        if point not in points:
            points.append(point)
    return points


def suggest_whole(refusal: str, parameters: Sequence[Parameter]) -> str | None:
    """Say how whole numbers are drawn, where the refusal is of an interval's number that is none."""
    for parameter in parameters:
        distribution = parameter.distribution
        refused = refusal.startswith(f"{parameter.name}=") and "a whole number" in refusal
        if refused and isinstance(distribution, FloatDistribution) and distribution.step is None:
            bounds = f"interval({distribution.low:g}, {distribution.high:g})"
            return f"{bounds} has all numbers between, and int({bounds}) the whole ones"
    return None


def _read(override: Override) -> Parameter:
    key, value, line = override.get_key_element(), override.value(), override.input_line
    tags = sorted(getattr(value, "tags", None) or ())
    # Hydra keeps the outermost tag of several, and none inside of an int() of a range or of choices.
    kept = len(TAG.findall(QUOTED.sub("", line or ""))) <= bool(tags)
    one = 'write a single one around all else, as tag("when:KEY=VALUE", log, interval(low, high))'
    require(kept, f"{line}: a tag in another function is lost; {one}")
    whens = [tag.removeprefix(WHEN).strip() for tag in tags if tag.startswith(WHEN)]
    for tag in tags:
        require(tag == LOG or tag.startswith(WHEN), f"{line}: the tag {tag} is unknown; allowed: log, 'when:KEY=VALUE'")
    require(len(whens) <= 1, f"{line}: it depends on {len(whens)} values; allowed: one when:KEY=VALUE")
    when = None
    if whens:
        other, equals, text = whens[0].partition("=")
        require(bool(equals), f"{line}: when:{other} lacks a value; write when:KEY=VALUE")
        when = other, text
    require(not getattr(value, "shuffle", False), f"{line}: a sampler needs no shuffle; leave it out")
    log = LOG in tags
    if isinstance(value, IntervalSweep):
        return Parameter(key, _interval(value, log, line), {}, when)
    if isinstance(value, RangeSweep):
        return Parameter(key, _range(value, log, line), {}, when)
    require(not log, f"{line}: choices have no logarithm; use interval or range")
    items = value.list if isinstance(value, ChoiceSweep) else list(override.sweep_iterator())
    texts: dict[Choice, str] = {}
    for item in items:
        same = texts.setdefault(_as_choice(item), _as_text(item))  # as 1, 1.0 and true are
        require(same == _as_text(item), f"{line}: {same} and {_as_text(item)} are the same choice; leave one")
    require(len(texts) > 0, f"{line}: there is nothing to choose from")
    return Parameter(key, CategoricalDistribution(list(texts)), texts, when)


def _interval(value: IntervalSweep, log: bool, line: str | None) -> BaseDistribution:
    low, high = value.start, value.end
    assert low is not None and high is not None
    require(low < high, f"{line}: {low} is not less than {high}; write interval(low, high)")
    require(math.isfinite(high - low), f"{line}: the interval has no end; write interval(low, high)")
    whole = isinstance(low, int) and isinstance(high, int)
    require(not log or low > 0, f"{line}: with log, {low} must be positive")
    return IntDistribution(int(low), int(high), log) if whole else FloatDistribution(low, high, log)


def _range(value: RangeSweep, log: bool, line: str | None) -> BaseDistribution:
    start, stop, step = value.start, value.stop, value.step
    assert start is not None and stop is not None
    ends = step > 0 and math.isfinite(stop - start)
    count = math.ceil((stop - start) / step - 1e-9) if ends else 0  # as Hydra counts: stop is left out
    require(count >= 1, f"{line}: the range is empty, or has no end; write range(start, stop, step)")
    require(not log or (step == 1 and start > 0), f"{line}: with log, a range starts above 0 and has a step of 1")
    high = start + (count - 1) * step
    if all(isinstance(number, int) for number in (start, stop, step)):
        return IntDistribution(int(start), int(high), log, int(step))
    remedy = "write interval(low, high), or its numbers as start, stop and step of whole ones"
    require(not log, f"{line}: with log, a range is of whole numbers; {remedy}")
    return FloatDistribution(start, high, step=step)


def _spell(distribution: BaseDistribution | None) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return ",".join(map(str, distribution.choices))
    kind = "a whole number" if isinstance(distribution, IntDistribution) else "a number"
    return f"{kind}, by its logarithm" if getattr(distribution, "log", False) else kind


def _as_choice(item: Any) -> Choice:
    """What the study keeps of a choice; lists and the like are kept as they are written."""
    return item if item is None or isinstance(item, bool | int | float | str) else _as_text(item)


def _as_text(item: Any) -> str:
    return write_element(item)


def _in_order(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Each after the one it depends on."""
    names = [parameter.name for parameter in parameters]
    waiting, ordered = list(parameters), list[Parameter]()
    while waiting:
        placed = {parameter.name for parameter in ordered}
        ready = [parameter for parameter in waiting if parameter.when is None or parameter.when[0] in placed]
        for parameter in ready:
            _check_when(parameter, ordered)
        ordered += ready
        waiting = [parameter for parameter in waiting if parameter not in ready]
        if not ready:
            stuck = waiting[0]
            assert stuck.when is not None
            other = stuck.when[0]
            if other in names:
                raise ConfigError(f"{stuck.name}: when:{other} goes round in a circle; let one of them always matter")
            raise ConfigError(f"{stuck.name}: when:{other} is no parameter of the sweep; {nearest(other, names)}")
    return ordered


def _check_when(parameter: Parameter, earlier: Sequence[Parameter]) -> None:
    if parameter.when is None:
        return
    other, text = parameter.when
    texts = next(known.texts for known in earlier if known.name == other)
    require(bool(texts), f"{parameter.name}: when:{other} needs choices, and {other} has bounds; give {other} choices")
    require(
        text in texts.values(), f"{parameter.name}: when:{other}={text} never holds; {nearest(text, texts.values())}"
    )


def _draw(trial: BaseTrial, parameter: Parameter) -> str:
    distribution = parameter.distribution
    if isinstance(distribution, FloatDistribution):
        low, high, step, log = distribution.low, distribution.high, distribution.step, distribution.log
        return repr(trial.suggest_float(parameter.name, low, high, step=step, log=log))
    if isinstance(distribution, IntDistribution):
        first, last = distribution.low, distribution.high
        return str(trial.suggest_int(parameter.name, first, last, step=distribution.step, log=distribution.log))
    assert isinstance(distribution, CategoricalDistribution)
    return parameter.texts[trial.suggest_categorical(parameter.name, distribution.choices)]
