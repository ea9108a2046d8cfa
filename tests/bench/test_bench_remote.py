"""The benchmarks of servers judge what they measured, and compare numbers of runs to the last byte."""

import json
from argparse import Namespace
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from scripts.bench import remote
from scripts.bench.runs import anywhere


@pytest.mark.parametrize(("most", "reached"), [(True, (True, True, False)), (False, (False, True, True))])
def test_a_figure_is_held_to_its_target(
    most: bool, reached: tuple[bool, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    bench = remote.Bench(Namespace(quick=True))
    for value in (0.5, 1.0, 1.5):
        bench.enter("a figure", value, 1.0, " s", most=most)
    assert tuple(row["reached"] for row in bench.rows) == reached
    assert capsys.readouterr().out.count("MISSED") == 1
    assert remote.ratio([2.0, 9.0, 4.0], [1.0, 3.0, 1.0]) == 3.0


@pytest.mark.parametrize(("value", "code"), [(2.0, 0), (0.5, 1)])
def test_exit_code_says_whether_every_target_was_reached(
    value: float, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(remote.ROWS, "far", lambda bench: bench.enter("a figure", value, 1.0))
    assert remote.main(["--rows", "far", "--json", str(tmp_path / "bench.json")]) == code
    (row,) = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert row["reached"] is (code == 0)


def test_a_peer_that_is_not_installed_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    bench = remote.Bench(Namespace(quick=True, peers="false"))
    assert bench.ask_peer("json_turns.py", 1, 1) is None
    assert "json_turns.py is left out (it failed)" in capsys.readouterr().out


@pytest.mark.parametrize("differs", [False, True])
def test_runs_are_the_same_if_all_their_bytes_are(differs: bool, tmp_path: Path) -> None:
    def train(last: str) -> Callable[[list[str]], int]:
        def write(run: list[str]) -> int:
            sweep = Path(next(word for word in run if word.startswith("hydra.sweep.dir=")).partition("=")[2])
            for seed in ("0", "1"):
                (sweep / seed).mkdir(parents=True)
                (sweep / seed / "metrics.jsonl").write_text(f"{{}}\n{seed if seed == '0' else last}\n")
            return 0

        return write

    rows = anywhere.compare(
        tmp_path, "ppo", "pendulum", {"serial": train("1"), "there": train("2" if differs else "1")}, 2
    )
    assert [row["same"] for row in rows] == [True, not differs]
    assert rows[0]["lines"] == 2 and rows[0]["digests"]["there"] == sha256(b"{}\n0\n").hexdigest()
    with pytest.raises(SystemExit, match="ppo on pendulum, serial: exit code 3"):
        anywhere.compare(tmp_path, "ppo", "pendulum", {"serial": lambda run: 3}, 2)
