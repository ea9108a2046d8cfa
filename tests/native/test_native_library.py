"""Finding and loading the native library, and its generator against NumPy's, draw by draw."""

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import COMPILER, native  # noqa: F401, a fixture

from paddock.envs.errors import ConfigError
from paddock.envs.native import library

GENERATOR_BYTES, ALIGNMENT = 48, 16
SEEDS = [0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 2**63 - 1]
SPANS = [1, 2, 3, 7, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**62 + 1]  # of whole numbers


class Twins:
    """A generator of the library and NumPy's on the same seed."""

    def __init__(self, seed: int) -> None:
        self._memory = ctypes.create_string_buffer(GENERATOR_BYTES + ALIGNMENT)
        self.at = -(-ctypes.addressof(self._memory) // ALIGNMENT) * ALIGNMENT
        self.numpy = np.random.default_rng(seed)
        self.c = library.load()
        self.c.seed_generator(self.at, seed)

    def draw(self, kind: int, choose: np.random.Generator) -> tuple[Any, Any]:
        """The next draw of either."""
        if kind == 0:
            return self.c.draw(self.at), self.numpy.random()
        if kind == 1:
            low, high = sorted(choose.normal(size=2).tolist())
            return self.c.draw_uniform(self.at, low, high), self.numpy.uniform(low, high)
        low = int(choose.integers(-(2**61), 2**61)) if kind == 2 else int(choose.integers(-9, 9))
        high = low + int(choose.choice(SPANS))
        return self.c.draw_integer(self.at, low, high), int(self.numpy.integers(low, high))


def load_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error of loading the library of that folder; one line."""
    monkeypatch.setattr(library, "FOLDER", folder)
    with pytest.raises(ConfigError) as caught:
        library.load.__wrapped__()
    text = str(caught.value)
    assert "\n" not in text and "vec=serial" in text and "vec=native" in text
    return text


def place(folder: Path, text: str) -> None:
    """A library of this C text, where `load` looks."""
    if COMPILER is None:
        pytest.skip("there is no C compiler (cc, gcc)")
    target = folder / f"_lanes{library.EXTENSION_SUFFIXES[0]}"
    command = [COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)]
    subprocess.run(command, input=text.encode(), check=True)


def test_the_generator_draws_what_numpy_s_draws_in_any_order() -> None:
    choose = np.random.default_rng(0)
    for seed in SEEDS + choose.integers(2**63 - 1, size=40).tolist():
        twins = Twins(seed)
        for kind in choose.integers(4, size=120).tolist():
            ours, theirs = twins.draw(kind, choose)
            assert ours == theirs, (seed, kind)


def test_a_library_that_was_not_built_is_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "were not built" in (text := load_from(tmp_path, monkeypatch)) and "install gcc" in text


def test_a_library_of_other_sources_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(tmp_path, "int native_abi(void) { return 99; }")
    assert f"ABI 99, expected {library.ABI}" in load_from(tmp_path, monkeypatch)


def test_the_environment_variable_picks_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.SET_VARIABLE, raising=False)
    widest = library.describe("cartpole").lanes
    monkeypatch.setenv(library.SET_VARIABLE, "baseline")
    assert library.widest() == "baseline" and library.describe("cartpole").lanes == 4 <= widest
