"""Search space of a sweep, in Hydra's override syntax.

algo.learning_rate=tag(log, interval(1e-5, 1e-2))   float, log scale
algo.epochs=int(interval(1, 20))                    integer, bounds included
algo.num_steps=range(32, 257, 32)                       32, 64, ... 256
algo.hidden_sizes=[32],[64,64]                            one of these, like choice([32],[64,64])
algo.value_clip_coef=tag("when:algo.advantage=gae", interval(0.1, 1))   sampled if that parameter has this value
algo.gae_lambda=tag("when:algo.advantage=gae", log, interval(0.5, 0.99))   both tags at once
"""

import graphlib
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
)
from optuna.trial import BaseTrial, FixedTrial

from paddock.envs.errors import ConfigError, nearest, one_line, require

from ..config.hydra_private import write_element

LOG, WHEN = "log", "when:"
QUOTED, TAG = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1"""), re.compile(r"\btag\s*\(")
BETWEEN = 0.6180339887  # point of an interval; not an integer if both bounds are
Choice = None | bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """Key that varies, and its distribution."""

    key: str  # as overridden, with the + of an added key
    distribution: BaseDistribution
    texts: Mapping[Choice, str]  # for categorical parameters, the text of each choice
    when: tuple[str, str] | None  # name and required value of the parameter it depends on

    @property
    def name(self) -> str:
        """Name in the study."""
        return self.key.lstrip("+")


def read_space(overrides: Sequence[Override]) -> tuple[list[str], list[Parameter]]:
    """Split overrides into fixed ones, as written, and parameters, each after the one it depends on.

    The last override of a key wins.
    """
    last = {override.get_key_element().lstrip("+"): override for override in overrides}
    fixed = [str(override.input_line) for override in last.values() if not override.is_sweep_override()]
    found = [_read(override) for override in last.values() if override.is_sweep_override()]
    return fixed, _in_order(found)


def suggest(trial: BaseTrial, parameters: Sequence[Parameter]) -> list[str]:
    """Sample a value for every parameter whose condition holds; return overrides."""
    chosen: dict[str, str] = {}
    for parameter in parameters:
        if parameter.when is None or chosen.get(parameter.when[0]) == parameter.when[1]:
            chosen[parameter.name] = _sample(trial, parameter)
    keys = {parameter.name: parameter.key for parameter in parameters}
    return [f"{keys[name]}={text}" for name, text in chosen.items()]


def format_parameters(parameters: Sequence[Parameter]) -> list[str]:
    """Describe the parameters of a study: names, kinds, choices and conditions, without bounds."""
    return sorted(
        f"{one.name}={_format(one.distribution)}" + (f" when {one.when[0]}={one.when[1]}" if one.when else "")
        for one in parameters
    )


def corners(parameters: Sequence[Parameter]) -> list[list[str]]:
    """Return a few points that cover every bound and every choice, to be checked before any trial.

    The last one lies between the bounds, since an integer key may accept the bounds of an interval only.
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


def _read(override: Override) -> Parameter:
    key, value, line = override.get_key_element(), override.value(), override.input_line
    tags = sorted(getattr(value, "tags", None) or ())
    # Hydra keeps only the outermost tag, and drops tags inside int() of a range or of choices.
    kept = len(TAG.findall(QUOTED.sub("", line or ""))) <= bool(tags)
    remedy = 'write a single outermost tag, such as tag("when:KEY=VALUE", log, interval(low, high))'
    require(kept, f"{line}: Hydra ignores nested tags; {remedy}")
    whens = [tag.removeprefix(WHEN).strip().partition("=") for tag in tags if tag.startswith(WHEN)]
    known = all(tag == LOG or tag.startswith(WHEN) for tag in tags) and len(whens) <= 1 and all(all(w) for w in whens)
    require(known, f"{line}: tags are log and a single 'when:KEY=VALUE'; got {', '.join(tags)}")
    when = (whens[0][0], whens[0][2]) if whens else None
    log = LOG in tags
    if isinstance(value, IntervalSweep | RangeSweep):
        try:
            distribution = _interval(value, log) if isinstance(value, IntervalSweep) else _range(value, log)
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise ConfigError(f"{line}: {one_line(error)}") from error
        return Parameter(key, distribution, {}, when)
    require(not log, f"{line}: log does not apply to choices; use interval or range")
    items = value.list if isinstance(value, ChoiceSweep) else list(override.sweep_iterator())
    texts: dict[Choice, str] = {}
    for item in items:
        choice = item if item is None or isinstance(item, bool | int | float | str) else write_element(item)
        same = texts.setdefault(choice, write_element(item))  # 1, 1.0 and true are equal
        require(same == write_element(item), f"{line}: {same} and {write_element(item)} are equal; remove one")
    return Parameter(key, CategoricalDistribution(list(texts)), texts, when)


def _interval(value: IntervalSweep, log: bool) -> BaseDistribution:
    low, high = value.start, value.end
    assert low is not None and high is not None
    if low >= high or math.isinf(high - low):
        raise ValueError(f"{low} to {high} is not an interval; write interval(low, high)")
    whole = isinstance(low, int) and isinstance(high, int)
    return IntDistribution(int(low), int(high), log) if whole else FloatDistribution(low, high, log)


def _range(value: RangeSweep, log: bool) -> BaseDistribution:
    start, stop, step = value.start, value.stop, value.step
    assert start is not None and stop is not None
    count = math.ceil((stop - start) / step - 1e-9)  # as Hydra counts, without stop
    if count < 1:
        raise ValueError("the range is empty; write range(start, stop, step)")
    high = start + (count - 1) * step
    if all(isinstance(number, int) for number in (start, stop, step)):
        return IntDistribution(int(start), int(high), log, int(step))
    return FloatDistribution(start, high, log, step)


def _format(distribution: BaseDistribution) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return ",".join(map(str, distribution.choices))
    kind = "int" if isinstance(distribution, IntDistribution) else "float"
    return f"log {kind}" if getattr(distribution, "log", False) else kind


def _in_order(parameters: Sequence[Parameter]) -> list[Parameter]:
    by_name = {one.name: one for one in parameters}
    for one in parameters:
        if one.when is not None:
            other, text = one.when
            names = [name for name in by_name if name != one.name]
            what = f"{one.name}: when:{other} does not name another parameter of the sweep"
            require(other in names, f"{what}; {nearest(other, names)}")
            texts = list(by_name[other].texts.values())
            remedy = nearest(text, texts) if texts else f"list choices for {other}"
            require(text in texts, f"{one.name}: when:{other}={text} is never true; {remedy}")
    try:
        order = graphlib.TopologicalSorter({one.name: [one.when[0]] if one.when else [] for one in parameters})
        return [by_name[name] for name in order.static_order()]
    except graphlib.CycleError as error:
        cycle = " and ".join(dict.fromkeys(error.args[1]))
        raise ConfigError(f"circular when: dependency between {cycle}; remove one of them") from error


def _sample(trial: BaseTrial, parameter: Parameter) -> str:
    distribution = parameter.distribution
    if isinstance(distribution, FloatDistribution):
        low, high, step, log = distribution.low, distribution.high, distribution.step, distribution.log
        return repr(trial.suggest_float(parameter.name, low, high, step=step, log=log))
    if isinstance(distribution, IntDistribution):
        first, last = distribution.low, distribution.high
        return str(trial.suggest_int(parameter.name, first, last, step=distribution.step, log=distribution.log))
    assert isinstance(distribution, CategoricalDistribution)
    return parameter.texts[trial.suggest_categorical(parameter.name, distribution.choices)]
