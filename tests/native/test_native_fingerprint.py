"""A set of instructions that computes other bits than recorded is refused, and named, wherever it would be used."""

import itertools
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import COMPILER, build, extension, native  # noqa: F401, a fixture
from conftest import env_spec

from paddock.algos.networks.dense import library as dense_library
from paddock.envs.errors import ConfigError
from paddock.envs.native import library
from paddock.envs.native.networks import Network, Networks
from paddock.envs.native.originals import BOARDS, CONTROL
from paddock.envs.registration import VERSIONS
from paddock.envs.vector import Auto, Native
from paddock.health import checks
from scripts import native_fingerprint

WALKER = env_spec("paddock.envs.bipedal:paddock/BipedalWalker-v3")
FUSED = ["-O1", "-fexpensive-optimizations", "-mfma", "-ffp-contract=fast"]


@pytest.fixture
def unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the processor choose its instructions."""
    monkeypatch.delenv(library.CHOICE, raising=False)


@pytest.fixture(scope="module")
def fused_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose wide sets fuse their multiply-adds, as a compiler may that is not told or does not listen."""
    if COMPILER is None or platform.machine() != "x86_64" or "fma" not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip("there is no C compiler (cc, gcc) for a processor with AVX2 and FMA")
    folder = tmp_path_factory.mktemp("fused")
    others = [stem for source in extension().sources if (stem := Path(source).stem) not in library.SETS]
    build(folder, more={"avx2": FUSED, "avx512": FUSED, "baseline": ["-O0"], **{name: ["-O0"] for name in others}})
    return folder


class Spoilt:
    """The library, but for what it computes of walkers on wide sets."""

    def __init__(self, c: Any) -> None:
        self._c = c

    def __getattr__(self, name: str) -> Any:
        return getattr(self._c, name)

    def fingerprint(self, of_set: bytes, part: bytes) -> int:
        return int(self._c.fingerprint(of_set, part)) ^ (of_set != b"baseline" and part == b"walker")


@pytest.fixture
def fused(unchosen: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A library whose wide sets compute other bits; those sets."""
    spoilt = Spoilt(library.load())
    monkeypatch.setattr(library, "load", lambda: spoilt)
    wide = [name for name in library.available() if name != "baseline"]
    if not wide:
        pytest.skip("this processor has no wide set of instructions")
    yield wide


@pytest.mark.nightly
def test_sets_that_fuse_their_multiply_adds_compute_other_bits(fused_folder: Path, unchosen: None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "FOLDER", fused_folder)
        library.load.cache_clear()
        wide = [name for name in library.available() if name != "baseline"]
        assert [bool(library.refusal(name)) for name in wide] == [True] * len(wide) and not library.refusal("baseline")
    library.load.cache_clear()


def test_every_set_computes_the_recorded_bits(unchosen: None) -> None:
    sets = library.available()
    assert "baseline" in sets
    for name in sets:
        assert library.refusal(name) == "", (
            "after a change of the arithmetic that is meant: scripts/native_fingerprint.py"
        )
        assert not dense_library.is_refused(name)
    assert library.widest() == dense_library.widest() == sets[0] and library.passed_over() == []


def test_every_task_has_its_number_and_others_have_none() -> None:
    recorded = library.recorded_numbers()
    versions = {version.name for version in (*CONTROL.values(), *BOARDS.values(), *VERSIONS.values())}
    assert recorded.keys() == {*versions, "minigrid", "minigrid_moves", "networks", "forward", "steps", "series"}
    assert all(recorded.values())
    assert library.load().fingerprint(b"baseline", b"chess") == library.load().fingerprint(b"sse9", b"walker") == 0


def test_the_script_prints_the_recorded_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert native_fingerprint.main() == 0
    printed = dict(re.findall(r"^(\w+) 0x(\w+)$", capsys.readouterr().out, re.MULTILINE))
    recorded = library.recorded_numbers() | {"learning": dense_library.RECORDED}
    assert {name: int(number, 16) for name, number in printed.items()} == recorded


def test_fused_sets_are_passed_over_with_a_line_that_names_set_and_task(fused: list[str]) -> None:
    with pytest.warns(RuntimeWarning, match=f"^{fused[0]} instructions are refused, .* compute .*; baseline is used$"):
        assert library.widest() == "baseline"
    assert [reason.split()[0] for reason in library.passed_over()] == fused
    for reason in library.passed_over():
        assert (
            any(f"compute {task} to other bits" in reason for task in library.recorded_numbers()) and "\n" not in reason
        )


def test_a_fused_set_that_was_asked_for_is_an_error_of_one_line(
    fused: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in fused:
        monkeypatch.setenv(library.CHOICE, name)
        with pytest.raises(
            ConfigError, match=f"vec=native: {name} instructions are refused, .* leave out PADDOCK_LANES"
        ):
            Native(num_envs=2, threads=1).check(WALKER)
    monkeypatch.setenv(library.CHOICE, "baseline")
    Native(num_envs=2, threads=1).check(WALKER)


def test_doctor_says_which_set_is_refused(fused: list[str]) -> None:
    finding = checks.check_native()
    assert finding.level == "FAIL" and "clang" in finding.remedy
    assert all(f"{name} instructions are refused" in finding.text for name in fused)


@pytest.mark.filterwarnings("ignore:.*instructions are refused:RuntimeWarning")
def test_auto_takes_a_set_that_passes_and_says_why(fused: list[str]) -> None:
    said: list[str] = []
    section = Auto(num_envs=2, restart=False, timeout_s=60.0).settle(WALKER, True, said.append)
    assert section["_target_"].endswith("Native")
    assert any(line.startswith(f"vec=auto: {fused[0]} instructions are refused") for line in said), said


def test_where_no_set_passes_auto_is_serial_and_networks_are_numpy_s(
    unchosen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network((3, 2), "tanh", "bounded", (-1.0,) * 2, (1.0,) * 2)
    obs = np.ones((1, 3), np.float32)
    expected = Networks(network, 1)(obs)
    monkeypatch.setitem(library.RECORDED, "series", 1)
    library._compare.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"vec=native: .* compute series to other bits .* choose vec=serial"):
            library.widest()
        said: list[str] = []
        section = Auto(num_envs=2, restart=False, timeout_s=60.0).settle(WALKER, True, said.append)
        assert not section["_target_"].endswith("Native")
        assert any(line.startswith("vec=auto: not natively, for vec=native: ") for line in said), said
        assert Networks(network, 1)(obs).tobytes() == expected.tobytes()
        assert checks.check_native().level == "FAIL"
    finally:
        library._compare.cache_clear()


def test_a_set_is_judged_once_a_process(unchosen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    c, calls = library.load(), itertools.count()
    library._compare.cache_clear()

    class Counting:
        def __getattr__(self, name: str) -> Any:
            if name == "fingerprint":
                next(calls)
            return getattr(c, name)

    counting = Counting()
    monkeypatch.setattr(library, "load", lambda: counting)
    for _ in range(3):
        library.widest()
    assert next(calls) == len(library.recorded_numbers())
