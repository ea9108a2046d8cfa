"""Ranges that fields declare, which hold for whoever builds the object."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from paddock.envs.errors import ConfigError
from paddock.envs.ranges import PositiveInt, Range, UnitFloat, check_fields


@dataclass
class Settings:
    epochs: PositiveInt = 1
    rate: Annotated[float | None, Range("must be in (0, 1]; try 0.1", above=0, high=1)] = 0.1
    share: UnitFloat = 0.5
    mode: Literal["fast", "slow"] = "fast"


@pytest.mark.parametrize(
    "settings",
    [Settings(), Settings(rate=None), Settings(rate=1, share=0), Settings(share=1, mode="slow")],
)
def test_ends_that_belong_to_a_range_and_null_are_in_it(settings: Settings) -> None:
    check_fields(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(epochs=0), "epochs=0 must be at least 1"),
        (Settings(epochs=2.0), "epochs=2.0 must be an integer; it must be at least 1"),  # type: ignore[arg-type]
        (Settings(share="1"), "share='1' must be a number; it must be in [0, 1]"),  # type: ignore[arg-type]
        (Settings(rate=0.0), "rate=0.0 must be in (0, 1]; try 0.1"),
        (Settings(share=float("nan")), "share=nan must be in [0, 1]"),
        (Settings(mode="idle"), "mode=idle must be one of fast, slow"),  # type: ignore[arg-type]
    ],
)
def test_a_value_out_of_its_range_is_one_line(settings: Settings, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_fields(settings)
    assert str(caught.value) == message
