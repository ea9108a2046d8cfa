"""What holds of every native game, of one agent or of several, and how native vectors are made for it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import native  # noqa: F401, a fixture
from conftest import assert_same_run, call_main, rows
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError
from paddock.envs.native import library
from paddock.envs.native.settings import native_task
from paddock.envs.native.vector import NativeVectorEnv
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Auto


@pytest.fixture(name="make")
def maker(native: None) -> Iterator[Callable[..., Any]]:  # noqa: F811
    """Make native vectors; all are closed after the test."""
    made: list[NativeVectorEnv] = []

    def begin(spec: EnvSpec, num_envs: int, *arguments: Any, **named: Any) -> Any:
        made.append(NativeVectorEnv(native_task(spec), num_envs, *arguments, **named))
        return made[-1]

    yield begin
    for vec in made:
        vec.close()


def flatten(value: Any) -> Any:
    """Arrays as bytes, whatever they lie in."""
    if isinstance(value, dict):
        return {key: flatten(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [flatten(one) for one in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [flatten(one) for one in value]
    return (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray | np.void) else value


def choose(venv: Any, draw: np.random.Generator, step: int) -> NDArray[Any]:
    """Any choices, three times of four such as the masks allow, where there are masks; of several roles as rows."""
    choices = library.describe(venv.task.name).choices
    given = draw.integers(choices, size=venv.num_envs)
    if "action_mask" in str(venv.single_observation_space) and step % 4:
        octets = venv.arrays.observation.view(np.uint8).reshape(venv.num_envs, -1)
        scores = octets[:, :choices] * draw.random((venv.num_envs, choices))
        given = np.where(scores.any(axis=1), scores.argmax(axis=1), given)
    return given.view(venv.arrays.action.dtype)


def assert_same_in_any_company(make: Any, spec: EnvSpec, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved and restored, some or all of them, on every set of instructions, a game gives the same bits."""
    draw, kept = np.random.default_rng(3), []
    sets = library.available()
    for k, lanes in enumerate([*sets, sets[0]]):
        monkeypatch.setenv(library.SET_VARIABLE, lanes)
        kept.append(make(spec, 19, threads=1 + k % 3, packed=True))
    for venv in kept:
        venv.begin(5, range(19))
    seats = kept[0].seats
    for step in range(steps):
        actions = choose(kept[0], draw, step)
        some = np.flatnonzero(draw.integers(2, size=19)) if step % 3 == 0 else np.arange(19)
        taken = (some[:, None] * seats + np.arange(seats)).ravel()
        if step % 10 == 9:  # each goes on where another was
            states = [venv.state_dict() for venv in kept]
            for venv, state in zip(kept, states[1:] + states[:1], strict=True):
                venv.load_state_dict(state)
        for venv in kept:
            venv.send(actions[taken], taken)
        assert len({str(flatten(venv.recv())) for venv in kept}) == 1
        assert len({str(flatten(venv.state_dict())) for venv in kept}) == 1
        assert len({venv.arrays.observation.tobytes() + venv.arrays.final.tobytes() for venv in kept}) == 1


def assert_same_run_natively(words: Sequence[str], budget: str, early: int, late: int, folder: Path) -> None:
    """A run is the same natively, step by step, and stopped early and resumed; it evaluates, too."""
    runs = {"native": [late], "serial": [late], "resumed": [early, late]}
    for name, budgets in runs.items():
        vec = f"vec={'serial' if name == 'serial' else 'native'}"
        for amount in budgets:
            assert call_main(*words, vec, f"budget.{budget}={amount}", f"run.dir={folder / name}") == 0
    assert_same_run(folder / "native", folder / "resumed")
    own, theirs = ((folder / name / "metrics.jsonl").read_bytes() for name in ("native", "serial"))
    assert own == theirs and any("eval/return_mean" in row for row in rows(folder / "native"))


def assert_auto_takes(spec: EnvSpec) -> None:
    """`vec=auto` plays an environment natively."""
    section = Auto(num_envs=2, restart=False, timeout_s=1.0).choose(spec, elsewhere=True, report=lambda line: None)
    assert section["_target_"] == "paddock.envs.vector.Native"


def assert_refused(spec: EnvSpec, named: str) -> None:
    """An environment has no native version, and one line says why."""
    with pytest.raises(ConfigError, match=named) as refused:
        native_task(spec)
    assert "\n" not in str(refused.value)
