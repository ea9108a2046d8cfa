"""What all benchmarks share: mistakes are told in one line before any work, with an exit code that no target has."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import HydraException

from paddock.envs.errors import ConfigError
from scripts import cross_play, durations, spread_by_rule
from scripts.bench import bindings, es, ppo, replay
from scripts.bench.harness import interpreter, output_file, positive_float, positive_int, run_script
from scripts.bench.limits import native_split
from scripts.bench.runs import hardcore, seeds


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("algo.population=3 is odd"), 2, "paddock: algo.population=3 is odd"),
        (HydraException("Could not override\nTo append"), 2, "paddock: Could not override To append"),
        (FileNotFoundError(2, "No such file", "x"), 2, "paddock: [Errno 2] No such file: 'x'"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_mistakes_and_ctrl_c_end_in_one_line_at_most(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> int:
        raise error

    assert run_script(main) == code
    assert capsys.readouterr().err.strip() == said


def test_the_exit_code_of_a_target_is_passed_on() -> None:
    assert run_script(lambda: 0) == 0 and run_script(lambda: 1) == 1


def test_where_figures_go_is_checked_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "x.json", f"there is no folder {tmp_path}/none"),
    ):
        with pytest.raises(SystemExit) as refused:
            ppo.main(["--quick", "--json", str(path)])
        assert refused.value.code == 2 and said in capsys.readouterr().err
    assert output_file(str(tmp_path / "x.json")) == tmp_path / "x.json" and not list(tmp_path.iterdir())


@pytest.mark.parametrize("main", [replay.main, seeds.main, hardcore.main])
@pytest.mark.parametrize("held", ["no JSON", "[1]", "{}", '{"rows": [1]}', '{"rows": {"sac": 1}}'])
def test_a_report_that_is_none_is_not_gone_on_with(main: Callable[[Any], int], held: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(held)
    with pytest.raises(ConfigError, match=r"report\.json has no rows of a benchmark"):
        main(["--quick", "--json", str(file)])
    assert file.read_text() == held


@pytest.mark.parametrize("text", ["0", "-1", "x", "2.5", "nan"])
def test_numbers_of_the_command_line_are_positive(text: str) -> None:
    with pytest.raises(Exception, match=text):
        positive_int(text)
    if text != "2.5":
        with pytest.raises(Exception, match=text):
            positive_float(text)


@pytest.mark.parametrize(
    ("main", "words", "said"),
    [
        (bindings.main, ["--quick", "minigird"], "minigird is not timed here; did you mean 'minigrid'?"),
        (native_split.main, ["x"], "argument SECONDS"),
        (spread_by_rule.main, ["0"], "argument EPISODES: 0 is not positive"),
        (cross_play.main, [], "required: RUN"),
        (durations.main, [], "required: JUNIT.xml"),
        (durations.main, ["/nonexist.xml"], "/nonexist.xml is no report of pytest's"),
    ],
)
def test_wrong_arguments_are_refused_by_the_parser(
    main: Callable[[], Any], words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *words])
    with pytest.raises(SystemExit) as refused:
        main()
    told = capsys.readouterr()
    assert refused.value.code == 2 and said in told.err and not told.out


def test_an_interpreter_is_looked_for_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        ppo.main(["--quick", "--pufferlib", "/nonexist/python"])
    assert refused.value.code == 2 and "/nonexist/python is no program that can be run" in capsys.readouterr().err
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    # Contenders start in the repository's root, and an interpreter finds its packages by the name that it is called by.
    assert interpreter("./python") == str(tmp_path / "python")


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("scripts.bench.remote", "grpc", "remote"),
        ("scripts.bench.runs.anywhere", "grpc", "remote"),
        ("scripts.bench.runs.report", "pandas", "bench"),
        ("scripts.spread_by_rule", "mpe2", "multiagent"),
    ],
)
def test_an_extra_that_is_missing_is_told_with_what_installs_it(
    name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"paddock: {module} is not installed; pip install 'paddock[{extra}]'\n"


@pytest.mark.parametrize("option", ["--workers", "--repeats", "--members", "--cap"])
def test_none_of_something_is_nothing_to_measure(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        es.main(["--quick", option, "0"])
    assert refused.value.code == 2 and f"argument {option}: 0 is not positive" in capsys.readouterr().err
