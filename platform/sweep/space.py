"""Search space of a sweep, in Hydra's override syntax.

algo.learning_rate=tag(log, interval(1e-5, 1e-2))   float, log scale
algo.epochs=int(interval(1, 20))                    integer, bounds included
algo.num_steps=range(32, 257, 32)                       32, 64, ... 256
algo.hidden_sizes=[32],[64,64]                            one of these, like choice([32],[64,64])
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
)
from optuna.trial import BaseTrial, FixedTrial

from paddock.envs.errors import ConfigError, one_line, require

from ..config.hydra_private import write_element

LOG = "log"
QUOTED, TAG = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1"""), re.compile(r"\btag\s*\(")
BETWEEN = 0.6180339887  # point of an interval; not an integer if both bounds are
Choice = None | bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """Key that varies, and its distribution."""

    key: str  # as overridden, with the + of an added key
    distribution: BaseDistribution
    texts: Mapping[Choice, str]  # for categorical parameters, the text of each choice

    @property
    def name(self) -> str:
        """Name in the study."""
        return self.key.lstrip("+")


def read_space(overrides: Sequence[Override]) -> tuple[list[str], list[Parameter]]:
    """Split overrides into fixed ones, as written, and parameters; the last override of a key wins."""
    last = {override.get_key_element().lstrip("+"): override for override in overrides}
    fixed = [str(override.input_line) for override in last.values() if not override.is_sweep_override()]
    return fixed, [_read(override) for override in last.values() if override.is_sweep_override()]


def suggest(trial: BaseTrial, parameters: Sequence[Parameter]) -> list[str]:
    """Sample a value for every parameter; return overrides."""
    return [f"{parameter.key}={_sample(trial, parameter)}" for parameter in parameters]


def format_parameters(parameters: Sequence[Parameter]) -> list[str]:
    """Describe the parameters of a study: names, kinds and choices, without bounds."""
    return sorted(f"{one.name}={_format(one.distribution)}" for one in parameters)


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
    require(kept, f"{line}: Hydra ignores nested tags; write a single outermost tag: tag(log, interval(low, high))")
    require(set(tags) <= {LOG}, f"{line}: the only tag is log; got {', '.join(tags)}")
    log = LOG in tags
    if isinstance(value, IntervalSweep | RangeSweep):
        try:
            distribution = _interval(value, log) if isinstance(value, IntervalSweep) else _range(value, log)
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise ConfigError(f"{line}: {one_line(error)}") from error
        return Parameter(key, distribution, {})
    require(not log, f"{line}: log does not apply to choices; use interval or range")
    items = value.list if isinstance(value, ChoiceSweep) else list(override.sweep_iterator())
    texts: dict[Choice, str] = {}
    for item in items:
        choice = item if item is None or isinstance(item, bool | int | float | str) else write_element(item)
        same = texts.setdefault(choice, write_element(item))  # 1, 1.0 and true are equal
        require(same == write_element(item), f"{line}: {same} and {write_element(item)} are equal; remove one")
    return Parameter(key, CategoricalDistribution(list(texts)), texts)


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
