"""MinAtar (Young and Tian 2019, arXiv:1903.03176): five games on a grid of 10 x 10, in C only.

Given the same random numbers, episodes equal those of the package minatar 1.0.15. `paddock/MinAtarBreakout-v0` has the
minimal action set, `paddock/MinAtarBreakoutFull-v0` all actions: 0 stay, 1 left, 2 up, 3 right, 4 down, 5 fire.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from paddock.envs.errors import require
from paddock.envs.games.game import Game
from paddock.envs.games.picture import BACK, Picture, cells
from paddock.envs.registration import Given, NativeVersion, Settings, register, settings_of

GAMES = {"asterix": (4, 5), "breakout": (4, 3), "freeway": (7, 3), "seaquest": (10, 6), "space_invaders": (6, 4)}
ACTIONS = 6  # of the full action set; GAMES has the number of channels and the size of the minimal action set
COLOURS = (
    *(BACK, (236, 236, 228), (72, 160, 220), (110, 118, 132), (200, 72, 72), (232, 150, 70), (240, 210, 90)),
    *((72, 160, 72), (150, 90, 190), (214, 110, 170), (90, 200, 190)),
)


@dataclass(frozen=True)
class Rules:
    """`struct minatar_settings` of minatar.h."""

    sticky_action_prob: float  # probability that the last action is repeated
    difficulty_ramping: bool  # whether objects get faster and more frequent


class MinAtar(Game):
    """A game of MinAtar, played in C. Observations: bool, [10, 10, channels]."""

    def __init__(self, game: str, full_actions: bool, render_mode: str | None = None, **rules: Any) -> None:
        """Build a game of `GAMES`; `rules` are the fields of `Rules`."""
        channels, actions = GAMES[game]
        seen = spaces.Box(0, 1, (10, 10, channels), np.bool_)  # type: ignore[arg-type]
        super().__init__(seen, spaces.Discrete(ACTIONS if full_actions else actions), render_mode)
        self._source, self._rules = f"{__name__}:paddock/{name_of(game, full_actions)}-v0", rules
        self._env: Any = None  # made by the first reset

    @classmethod
    def picture(cls, seen: Any) -> Picture:
        """Draw the first channel that is set in each cell."""
        return cells(np.where(seen.any(axis=2), 1 + seen.argmax(axis=2), 0), COLOURS, 16)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._seed = seed
        return super().reset(seed=seed, options=options)

    def _begin(self, draw: np.random.Generator) -> None:
        from paddock.envs.native.single import NativeEnv  # imports this package

        self._env = self._env or NativeEnv(self._source, **self._rules)
        self._seen, _ = self._env.reset(seed=self._seed)

    def _play(self, action: Any) -> tuple[float, bool]:
        self._seen, reward, over, *_ = self._env.step(action)
        return float(reward), over

    def _observe(self) -> Any:
        return self._seen


def name_of(game: str, full_actions: bool) -> str:
    """Return the name of a game in ids."""
    return f"MinAtar{game.title().replace('_', '')}{'Full' * full_actions}"


def read_rules(fixed: Given, given: Given) -> Settings:
    """Return the settings in C of a game with the `fixed` arguments."""
    for key, value in fixed.items():
        require(given[key] == value, f"env.kwargs.{key}={given[key]}: select the game and its actions by env.id")
    chance = given["sticky_action_prob"]
    require(0 <= chance <= 1, f"env.kwargs.sticky_action_prob={chance} must be in [0, 1]")
    return settings_of(Rules)({key: value for key, value in given.items() if key not in fixed})


for _game in GAMES:
    for _full in (False, True):
        _fixed = {"game": _game, "full_actions": _full}
        register(
            f"{__name__}:MinAtar",
            name=name_of(_game, _full),
            kwargs={**_fixed, "sticky_action_prob": 0.1, "difficulty_ramping": True},
            native=NativeVersion(f"minatar_{_game}{'_full' * _full}", partial(read_rules, _fixed)),
        )
