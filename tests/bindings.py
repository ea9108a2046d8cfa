"""What options of conf/env need that `pip install -e .[test]` does not bring: a test of one is skipped without it."""

import importlib
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

CONF = Path(__file__).resolve().parent.parent / "conf"

MODULES: dict[str, list[str]] = {
    "atari_machado": ["ale_py", "cv2"],
    "atari_nature": ["ale_py", "cv2"],
    "crafter": ["crafter"],
    "dmc": ["shimmy", "dm_control"],
    "go1": ["envpool"],
    "gymnax": ["jax", "gymnax"],
    "minatar": ["minatar"],
    "minigrid": ["minigrid"],
    "minihack": ["minihack"],
    "mujoco": ["mujoco", "imageio"],
    "nethack": ["nle"],
    "procgen": ["envpool"],
    "vizdoom": ["vizdoom"],
}

WORLDS: dict[str, list[str]] = {  # of several agents
    "battle": ["magent2"],
    "connect4": ["pettingzoo", "pygame"],
    "cooperative_pong": ["pettingzoo", "pygame"],
    "foraging": ["lbforaging"],
    "holdem": ["pettingzoo", "pygame", "rlcard"],
    "knights_archers_zombies": ["pettingzoo", "pygame"],
    "mpe_speaker_listener": ["mpe2"],
    "mpe_spread": ["mpe2"],
    "mpe_tag": ["mpe2"],
    "multiwalker": ["pettingzoo", "pygame"],
    "pistonball": ["pettingzoo", "pygame", "pymunk"],
    "pursuit": ["pettingzoo", "pygame"],
    "relay": [],
    "roles": [],
    "snake": [],
    "spread": [],
    "tictactoe": ["pettingzoo"],
    "warehouse": ["rware"],
}


def need(option: str) -> None:
    """Skip the test where an option's packages are not installed."""
    base = "minigrid" if option.startswith("minigrid_") else option
    for module in {**MODULES, **WORLDS}.get(base, []):
        try:
            imported = importlib.import_module(module)
            if option == "procgen":
                imported.make_spec("CoinrunEasy-v0")  # which needs Qt
        except ImportError as error:
            pytest.skip(f"env={option} needs what is not installed here ({error}); docs/environments.md says how")


def need_of(words: Sequence[str]) -> None:
    """Skip the test where the packages of the environment that a command names are not installed."""
    for word in words:
        group, _, name = word.partition("=")
        if group == "env":
            need(name)
        elif group == "experiment":
            for option in re.findall(r"override /env: (\w+)", (CONF / group / f"{name}.yaml").read_text()):
                need(option)
