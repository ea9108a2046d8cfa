"""Single Atari environment, bit-identical to ALE's vector environment.

The same seed and actions give the same frames as `ale_py.vector_env.AtariVectorEnv` of ale-py 0.12 (`vec=atari`), whose
preprocessing is reimplemented here (src/ale/vector/preprocessed_env.cpp). A reset with a seed reloads the game, so no
state leaks from earlier episodes.
"""

from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np
from ale_py import roms
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from paddock.envs.errors import nearest
from paddock.envs.stacks import Stack

NOOP, FIRE = ale_py.Action.NOOP, ale_py.Action.FIRE
SEEDS = 2**31  # exclusive bound of the emulator's seeds
MAX_STEPS = 27_000  # half an hour of the game, at four frames a step


class Atari(gymnasium.Env[NDArray[np.uint8], Any]):
    """Atari game observed as a stack of downsampled greyscale frames."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012, Gymnasium's

    def __init__(
        self,
        *,
        game: str,
        frameskip: int,
        repeat_action_probability: float,
        full_action_space: bool,
        noop_max: int,
        use_fire_reset: bool,
        screen_size: int,
        stack_num: int,
        episodic_life: bool,
        reward_clipping: bool,
        render_mode: str | None = None,
    ) -> None:
        """Load the game.

        Args:
            game: name of the ROM, such as `ms_pacman`.
            frameskip: frames per action; an observation is the maximum of the last two.
            repeat_action_probability: probability that a frame repeats the previous action.
            full_action_space: whether to use all 18 actions or only those of the game.
            noop_max: exclusive bound of the random number of no-op frames at the start; 0 for none.
            use_fire_reset: whether to press FIRE at the start, if the game has it.
            screen_size: side of a frame, in pixels.
            stack_num: frames in an observation, oldest first.
            episodic_life: whether a lost life ends the episode; the next one starts a new game.
            reward_clipping: whether to clip rewards to their signs.
            render_mode: "rgb_array" or None.

        Raises:
            ValueError: there is no such game, or a number is out of range.
        """
        self.render_mode = render_mode
        self._path = read_rom(game)
        if min(frameskip, screen_size, stack_num) < 1 or noop_max < 0 or not 0 <= repeat_action_probability <= 1:
            raise ValueError(
                f"got frameskip={frameskip}, screen_size={screen_size}, stack_num={stack_num}, noop_max={noop_max} and "
                f"repeat_action_probability={repeat_action_probability}; at least 1, 1, 1, 0, and in [0, 1]"
            )
        self._frameskip, self._noop_max, self._size = frameskip, noop_max, (screen_size, screen_size)
        self._episodic_life, self._reward_clipping = episodic_life, reward_clipping
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", repeat_action_probability)
        self._ale.loadROM(self._path)
        self._actions = self._ale.getLegalActionSet() if full_action_space else self._ale.getMinimalActionSet()
        self._fires = use_fire_reset and FIRE in self._actions
        self._frames = [np.zeros(self._ale.getScreenDims(), np.uint8) for _ in range(2)]
        self._stack = np.zeros((stack_num, *self._size), np.uint8)
        self._lives = 0
        self._generator: np.random.MT19937 | None = None  # None before the first seed
        self.stack = Stack(stack_num, zeros=True)
        self.observation_space = Box(0, 255, self._stack.shape, np.uint8)
        self.action_space = Discrete(len(self._actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start a game; without a seed both random generators continue."""
        super().reset(seed=seed)
        if seed is None and self._generator is None:
            seed = int(self.np_random.integers(SEEDS))
        if seed is not None:
            self._generator = seeded(seed % SEEDS)
            self._ale.setInt("random_seed", seed % SEEDS)
            self._ale.loadROM(self._path)
        self._ale.reset_game()
        if self._fires:
            self._ale.act(FIRE)
        assert self._generator is not None
        for _ in range(draw_below(self._generator, max(self._noop_max, 1)) - self._fires):
            self._ale.act(NOOP)
            if self._ale.game_over():
                self._ale.reset_game()
        self._stack[:] = 0
        self._ale.getScreenGrayscale(self._frames[0])
        self._frames[1][:] = 0
        self._lives = self._ale.lives()
        return self._observe(), self._info()

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Repeat an action for `frameskip` frames."""
        chosen, reward, lost = self._actions[action], 0, False
        for left in range(self._frameskip, 0, -1):
            reward += self._ale.act(chosen)
            lost = 0 < self._ale.lives() < self._lives
            if self._ale.game_over() or (self._episodic_life and lost):
                break
            if left <= 2:
                self._ale.getScreenGrayscale(self._frames[left - 1])
        self._lives = self._ale.lives()
        over = self._ale.game_over() or (self._episodic_life and lost)
        given = np.clip(reward, -1, 1) if self._reward_clipping else reward
        return self._observe(), float(given), over, False, self._info()

    def render(self) -> NDArray[np.uint8] | None:
        """Return the last frame in colour, [210, 160, 3]."""
        return None if self.render_mode is None else self._ale.getScreenRGB()

    def _observe(self) -> NDArray[np.uint8]:
        np.maximum(self._frames[0], self._frames[1], out=self._frames[0])
        self._stack[:-1] = self._stack[1:]
        self._stack[-1] = cv2.resize(self._frames[0], self._size, interpolation=cv2.INTER_AREA)
        return self._stack.copy()

    def _info(self) -> dict[str, Any]:
        return {
            "lives": self._ale.lives(),
            "frame_number": self._ale.getFrameNumber(),
            "episode_frame_number": self._ale.getEpisodeFrameNumber(),
        }


def read_rom(game: str) -> Any:
    """Return the path of a game's ROM in ale-py.

    Raises:
        ValueError: there is no such game.
    """
    known = roms.get_all_rom_ids()
    if game not in known:
        raise ValueError(f"game={game} is not a game; {nearest(game, known)}")
    return roms.get_rom_path(game)


def seeded(seed: int) -> np.random.MT19937:
    """Return a generator equal to C++'s std::mt19937(seed)."""
    generator = np.random.MT19937()
    generator._legacy_seeding(seed)  # as RandomState does; NumPy's other seeding hashes the seed
    return generator


def draw_below(generator: np.random.MT19937, bound: int) -> int:
    """Sample from 0, ..., bound - 1 as libstdc++'s uniform_int_distribution does (Lemire 2019, arXiv:1805.10941)."""
    while True:
        product = int(generator.random_raw()) * bound
        if product % 2**32 >= 2**32 % bound:
            return product >> 32


gymnasium.register("paddock/Atari-v0", f"{__name__}:Atari", max_episode_steps=MAX_STEPS)
