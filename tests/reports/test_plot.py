"""`python -m paddock.plot`, by the laws it obeys; expected numbers are worked by hand."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import ROOT, TINY, Command, Main
from matplotlib.image import imread
from run_folders import close

from paddock import plot as command
from paddock.plot import draw, label_groups, plot
from paddock.report import report
from paddock.reports.curves import EXPLAINED
from paddock.reports.data import ReportedRun, find_repeats, group_by_seed, read_numbers, sort_groups
from paddock.reports.drawing import COLORS, GREY
from paddock.reports.plots.matches import draw_elo, draw_points
from paddock.reports.statistics import interquartile_mean, interval
from paddock.runs.folder import read_config
from paddock.runs.results import read_columns


def write(path: Path, rows: Sequence[dict[str, Any]], seed: int = 0, **changes: Any) -> Path:
    """A run folder with these rows; row k is of iteration k + 1, step 100 (k + 1) and second 60 (k + 1)."""
    path.mkdir()
    algo = {"name": "es", "sigma": 0.1, "rate": 0.01}
    config: dict[str, Any] = {"algo": algo, "env": {"id": "CartPole-v1"}, "vec": {"num_envs": 8}, "seed": seed}
    for key, value in changes.items():
        section, _, name = key.partition("__")
        config[section][name] = value
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    places = [{"iteration": k + 1, "step": 100 * (k + 1)} for k in range(len(rows))]
    for name, contents in (
        ("metrics", rows),
        ("system", [{"system/seconds": 60.0 * (k + 1)} for k in range(len(rows))]),
    ):
        lines = [json.dumps(place | row) + "\n" for place, row in zip(places, contents, strict=True)]
        (path / f"{name}.jsonl").write_text("".join(lines))
    return path


def returns(*values: float | None) -> list[dict[str, Any]]:
    return [{"eval/return_mean": value} for value in values]


def drawn(*paths: Path, x: str = "step", y: Sequence[str] | None = None) -> Any:
    return draw([ReportedRun(path, read_config(path), read_columns(path)) for path in paths], x, y)


def labelled(ax: Any) -> dict[str, list[list[float]]]:
    """The lines that the legend names, each as its x and its y."""
    return {
        str(line.get_label()): [list(line.get_xdata()), list(line.get_ydata())]
        for line in ax.lines
        if not str(line.get_label()).startswith("_")
    }


@pytest.fixture
def main(call_command: Main, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Main:
    """The command in this process, in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return partial(call_command, "plot")


# The picture


def test_a_real_run_becomes_a_png_of_its_own_from_any_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert Command(*TINY, "compute=serial", "budget.iterations=4", f"run.dir={run}").wait()[0] == 0
    arguments = [sys.executable, "-m", "paddock.plot", "run"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "run/curves.png\n", "")
    picture = imread(run / "curves.png")
    assert picture.shape[:2] == (675, 1200)
    assert picture.std() > 0
    for x in ("iteration", "minutes"):
        plot([run], tmp_path / f"{x}.pdf", x=x)
        assert (tmp_path / f"{x}.pdf").read_bytes().startswith(b"%PDF")


def test_several_runs_become_one_picture_here(tmp_path: Path, main: Main) -> None:
    runs = [write(tmp_path / f"run{seed}", returns(1, 2), seed) for seed in (1, 2)]
    assert main(*runs, runs[0]) == (0, "curves.png\n", "")
    assert imread("curves.png").shape[:2] == (675, 1200)
    assert main(*runs, "out=two.png", "x=minutes", "y=[eval/return_mean, system/seconds]")[:2] == (0, "two.png\n")
    assert imread("two.png").shape[:2] == (1125, 1200)


def test_one_run_shows_evaluation_and_training(tmp_path: Path) -> None:
    rows = [{"train/return_mean": 1.0}, {"train/return_mean": 2.0, "eval/return_mean": 5.0}, {"train/return_mean": 3.0}]
    ax = drawn(write(tmp_path / "run", rows, seed=7)).axes[0]
    assert labelled(ax) == {"evaluation": [[200], [5]], "training": [[100, 200, 300], [1, 2, 3]]}
    assert [line.get_color() for line in ax.lines] == [COLORS[0], GREY]
    assert ax.get_title() == "es on CartPole-v1, seed 7"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("environment steps", "mean return of an episode")
    assert ax.xaxis.get_major_formatter()(1_500_000) == "1.5M"


def test_runs_that_differ_in_the_seed_share_a_colour_a_mean_and_an_interval(tmp_path: Path) -> None:
    first = write(tmp_path / "first", returns(0, 2, 4), seed=1)
    second = write(tmp_path / "second", returns(4, 6), seed=2, vec__num_envs=16)
    ax = drawn(first, second).axes[0]
    # From 100 to 200 steps, where both have come, the first rises from 0 to 2 and the second from 4 to 6.
    (x, y) = labelled(ax)["evaluation (2 seeds)"]
    assert (x[0], x[-1]) == (100, 200)
    np.testing.assert_allclose(y, 2 + (np.array(x) - 100) / 50)
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[0, 2, 4], [4, 6]]
    assert len({line.get_color() for line in ax.lines}) == 1
    (band,) = ax.collections
    edges = band.get_paths()[0].vertices
    assert {tuple(point) for point in edges} >= {(100.0, 0.0), (100.0, 4.0), (200.0, 2.0), (200.0, 6.0)}
    assert ax.get_title() == "es on CartPole-v1, seeds 1, 2"
    assert [text.get_text() for text in ax.texts] == [EXPLAINED]


def test_the_mean_and_the_interval_are_those_of_reports(tmp_path: Path) -> None:
    scores = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    ax = drawn(*(write(tmp_path / f"{seed}", returns(score), seed) for seed, score in enumerate(scores))).axes[0]
    # One point each: the mean of 2, 4 and 8, the middle ones of 5.
    assert labelled(ax) == {"evaluation (5 seeds)": [[100], [14 / 3]]}
    longer = [write(tmp_path / f"longer{seed}", returns(s, s), seed, algo__rate=9) for seed, s in enumerate(scores)]
    (band,) = drawn(*longer).axes[0].collections
    low, high = interval(scores[:, None])
    np.testing.assert_allclose(np.unique(band.get_paths()[0].vertices[:, 1]), [low, high])
    assert low < interquartile_mean(scores[:, None]) < high


def test_copies_and_repeated_seeds_count_once_and_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = write(tmp_path / "first", returns(0, 2), seed=1)
    again = write(tmp_path / "again", returns(0, 2), seed=1)
    farther = write(tmp_path / "farther", returns(0, 2, 4), seed=1, vec__num_envs=16)
    other = write(tmp_path / "other", returns(4, 6), seed=2)
    ax = drawn(first, again, farther, other).axes[0]
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[0, 2, 4], [4, 6]]
    assert list(labelled(ax)) == ["evaluation (2 seeds)"]
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{path} is left out: it repeats the settings and the seed of {farther}" for path in (first, again)]


def test_an_evaluation_is_drawn_at_the_steps_of_the_policy_evaluated(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{}, {}, {"eval/return_mean": 5, "eval/of_iteration": 1}, {}]
    run = write(tmp_path / "run", rows)
    with open(run / "metrics.jsonl", "a") as journal:
        row = {"iteration": 4, "step": 400, "eval/return_mean": 7, "eval/of_iteration": 4}
        journal.write(json.dumps(row) + "\n")
    for x, expected in (("step", [100, 400]), ("iteration", [1, 4]), ("minutes", [1, 4])):
        assert labelled(drawn(run, x=x).axes[0]) == {"evaluation": [expected, [5, 7]]}


def test_folders_of_runs_become_one_picture_beside_them(
    tmp_path: Path, main: Main, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "multirun"
    folder.mkdir()
    for k in range(3):
        write(folder / str(k), returns(1, 2), seed=k)
    (write(folder / "damaged", returns(1)) / "config.yaml").write_text("a: [")
    assert main(folder) == (0, f"{folder / 'curves.png'}\n", "")
    assert [record.getMessage().split()[0] for record in caplog.records] == [str(folder / "damaged")]
    assert main(folder, folder / "1", "out=a.svg")[:2] == (0, "a.svg\n")
    code, _, err = main(tmp_path / "here")
    assert (code, err) == (
        2,
        f"paddock: there is no run in {tmp_path / 'here'}; a run's folder holds config.yaml and metrics.jsonl\n",
    )


def test_a_folder_that_is_closed_hides_no_other_run(
    tmp_path: Path, main: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "run", returns(1, 2))
    (tmp_path / "theirs").mkdir()
    close(tmp_path / "theirs", monkeypatch)
    assert main(tmp_path, "out=a.svg") == (0, "a.svg\n", "")
    code, _, err = main(tmp_path / "theirs")
    assert (code, err) == (2, f"paddock: {tmp_path / 'theirs'} is closed to you; have it opened, or name another\n")
    code, _, err = main(tmp_path, f"out={tmp_path / 'theirs/a.svg'}")
    assert (code, err.count("\n")) == (2, 1) and f"the folder {tmp_path / 'theirs'} is closed to you" in err


def test_of_many_groups_the_best_ten_are_drawn_the_best_first(tmp_path: Path) -> None:
    figure = drawn(*(write(tmp_path / f"{rate}", returns(rate), algo__rate=rate) for rate in range(12)))
    assert list(labelled(figure.axes[0])) == [f"rate={rate}" for rate in range(11, 1, -1)]
    assert figure.axes[0].get_title() == "es on CartPole-v1: the best 10 of 12 groups"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [f"rate={rate}" for rate in range(11, 1, -1)]


def test_groups_are_sorted_by_environment_and_median(tmp_path: Path) -> None:
    def made(name: str, env: str, rate: int, value: float | None, seed: int = 0) -> ReportedRun:
        path = write(tmp_path / name, returns(value), seed, env__id=env, algo__rate=rate)
        return ReportedRun(path, read_config(path), read_columns(path))

    runs = [made("a", "B-v1", 1, 1), made("b", "A-v1", 1, None), made("c", "A-v1", 2, 3), made("d", "A-v1", 3, 0)]
    runs += [made("e", "A-v1", 3, 8, seed=1), made("f", "A-v1", 3, 5, seed=1)]
    repeats = find_repeats(runs)
    assert {repeat.path.name: other.path.name for repeat, other in repeats.items()} == {"f": "e"}
    groups = group_by_seed([run for run in runs if run not in repeats])
    ordered = sort_groups(groups, "eval/return_mean")
    assert [[run.path.name for run in group] for group in ordered] == [["d", "e"], ["c"], ["b"], ["a"]]


def test_runs_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    def labels(**changes: Sequence[Any]) -> list[str]:
        number = len(list(tmp_path.iterdir()))
        rows = [dict(zip(changes, values, strict=True)) for values in zip(*changes.values(), strict=True)]
        paths = [write(tmp_path / f"{number}-{k}", returns(1), **row) for k, row in enumerate(rows)]
        return list(label_groups(group_by_seed([ReportedRun(path, read_config(path), {}) for path in paths])))

    assert labels(algo__rate=[1, 2]) == ["rate=1", "rate=2"]
    assert labels(algo__rate=[1, 1, 2], vec__num_envs=[1, 2, 1]) == ["rate=1", "rate=2"]
    assert labels(algo__name=["ppo", "ppo"], vec__num_envs=[8, 16]) == ["num_envs=8", "num_envs=16"]
    assert labels(algo__rate=[1, 2], algo__sigma=[3, 4]) == ["rate=1, sigma=3", "rate=2, sigma=4"]
    assert labels(algo__name=["es", "ppo"], algo__rate=[1, 2]) == ["es", "ppo"]
    assert labels(algo__name=["es", "es", "ppo"], algo__rate=[1, 2, 2]) == ["es, rate=1", "es, rate=2", "ppo, rate=2"]
    assert labels(env__id=["A-v1", "B-v1"]) == ["A-v1", "B-v1"]
    many = labels(algo__a=[1, 2], algo__b=[1, 2], algo__c=[1, 2], algo__d=[1, 2])
    assert [Path(label).parent for label in many] == [tmp_path, tmp_path]


def test_names_that_look_like_formulas_are_drawn_as_they_are(tmp_path: Path) -> None:
    apart = ({f"algo__{key}": k for key in "abcd"} for k in range(2))
    runs = [write(tmp_path / f"{k}$x_$", returns(2), **changes) for k, changes in enumerate(apart)]
    plot(runs, tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").exists()
    player = {"iteration": None, "elo": 0.0, "low": -1.0, "high": 1.0}
    matches = {"players": [{**player, "name": run.name} for run in runs], "points": [[None, 0.5], [0.5, None]]}
    for picture in (draw_elo, draw_points):
        picture(matches, "").savefig(tmp_path / "matches.svg")


@pytest.mark.parametrize("count", [2, 5])  # beside the lines, and below them
def test_names_that_begin_with_an_underscore_are_in_the_legend(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [write(Path(f"_{k}"), returns(k), **{f"algo__{key}": k for key in "abcd"}) for k in range(count)]
    figure = drawn(*runs)
    (legend,) = figure.legends or [figure.axes[0].get_legend()]
    assert sorted(text.get_text() for text in legend.get_texts()) == [str(run) for run in runs]


def test_points_are_percent_in_cells_and_beside_them() -> None:
    players = [{"name": name, "iteration": None} for name in "ab"]
    ax, bar = draw_points({"players": players, "points": [[None, 0.75], [0.25, None]]}, "").axes
    assert {tuple(map(int, text.get_position())): text.get_text() for text in ax.texts} == {(1, 0): "75", (0, 1): "25"}
    assert np.ma.filled(np.ma.asarray(ax.images[0].get_array()), -1).tolist() == [[-1, 75], [25, -1]]
    assert bar.get_ylim() == (0, 100) and bar.get_ylabel().startswith("% of points")


def test_metrics_of_one_name_share_a_panel(tmp_path: Path) -> None:
    rows = [{"eval/return_mean": k, "train/return_mean": k, "es/sigma": k} for k in range(3)]
    axes = drawn(write(tmp_path / "run", rows), y=["train/return_mean", "es/sigma", "eval/return_mean"]).axes
    assert [list(labelled(ax)) for ax in axes] == [["training", "evaluation"], ["es/sigma"]]
    assert [ax.get_ylabel() for ax in axes] == ["mean return of an episode", "es/sigma"]


def test_numbered_metrics_of_one_group_share_a_panel(tmp_path: Path) -> None:
    rows = [{"score/0": 1, "score/12": 2, "eval/return_mean": 3}]
    axes = drawn(write(tmp_path / "run", rows), y=["score/0", "eval/return_mean", "score/12"]).axes
    assert [list(labelled(ax)) for ax in axes] == [["score/0", "score/12"], ["evaluation"]]
    assert [ax.get_ylabel() for ax in axes] == ["score", "mean return of an episode"]


def test_families_are_called_by_their_class(tmp_path: Path) -> None:
    run = write(tmp_path / "run", returns(1), algo__name="poet")
    config = read_config(run) | {"env": {"_target_": "paddock.envs.tasks.poles.Poles", "start": 0.5}}
    assert draw([ReportedRun(run, config, read_columns(run))]).axes[0].get_title() == "poet on Poles, seed 0"


def labels_of_floats(folder: Path) -> list[str]:
    rates = (0.007963234721775595, 1e-5)
    paths = [write(folder / f"float{rate}", returns(1), algo__rate=rate) for rate in rates]
    return list(label_groups([[ReportedRun(path, read_config(path), {})] for path in paths]))


def test_many_groups_and_metrics_are_named_in_full(tmp_path: Path) -> None:
    rows = [{"eval/return_mean": 1, "train/return_mean": 2}]
    assert labels_of_floats(tmp_path) == ["rate=0.007963", "rate=1e-05"]
    runs = [write(tmp_path / f"run{rate}", rows, algo__rate=rate) for rate in (1, 2)]
    assert list(labelled(drawn(*runs).axes[0])) == ["rate=1", "rate=2"]
    both = drawn(*runs, y=["eval/return_mean", "train/return_mean"]).axes[0]
    assert list(labelled(both)) == ["rate=1, evaluation", "rate=1, training", "rate=2, evaluation", "rate=2, training"]


@pytest.mark.parametrize("x, expected", [("step", [100, 200]), ("iteration", [1, 2]), ("minutes", [1, 2])])
def test_x_is_what_was_asked_for(x: str, expected: list[float], tmp_path: Path) -> None:
    assert labelled(drawn(write(tmp_path / "run", returns(5, 6)), x=x).axes[0]) == {"evaluation": [expected, [5, 6]]}


# Runs that go on


@pytest.mark.parametrize("cut", [1, 20, 45])
def test_a_last_line_that_is_not_whole_is_left_out(cut: int, tmp_path: Path, main: Main) -> None:
    run = write(tmp_path / "run", returns(1, 2, 3))
    journal = run / "metrics.jsonl"
    journal.write_bytes(journal.read_bytes()[:-cut])
    assert labelled(drawn(run).axes[0]) == {"evaluation": [[100, 200], [1, 2]]}
    assert main(run, "x=minutes")[0] == 0


def test_rows_are_parsed_together_and_are_those_of_columns(
    tmp_path: Path, main: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = {"eval/return_mean": 7, "eval/of_iteration": 1}
    run = write(tmp_path / "run", [{"a": 1}, {"a": None}, late, {"b": 1.5}])
    with open(run / "metrics.jsonl", "a") as journal:
        journal.write("\0\0\n" + json.dumps({"iteration": 4, "step": 400} | late | {"eval/of_iteration": 4}) + "\n")
    columns, numbers = read_columns(run), read_numbers(run)
    assert columns.keys() == numbers.keys()
    for name, values in columns.items():
        np.testing.assert_array_equal(numbers[name], values, name)
    monkeypatch.setattr("paddock.runs.results.read_rows", None)  # one by one, a long run takes seconds
    assert main(run, "out=a.svg")[0] == 0


def test_null_is_no_point(tmp_path: Path) -> None:
    assert labelled(drawn(write(tmp_path / "run", returns(1, None, 3))).axes[0]) == {"evaluation": [[100, 300], [1, 3]]}


def test_a_run_without_numbers_is_left_out_and_named(
    tmp_path: Path, main: Main, caplog: pytest.LogCaptureFixture
) -> None:
    given = [returns(1, 2), returns(None), []]
    begun, null, new = (write(tmp_path / f"run{k}", rows, seed=k) for k, rows in enumerate(given))
    code, out, _ = main(begun, null, new)
    assert (code, out) == (0, "curves.png\n")
    assert [record.getMessage().split()[0] for record in caplog.records] == [str(new), str(null)]


@pytest.mark.parametrize(
    "text",
    [
        "[",
        '{"wins": []}',
        '{"players": 3, "points": []}',
        '{"players": [], "points": []}',
        '{"players": [{"name": "a"}], "points": [[null]]}',
        '{"players": [{"name": "a", "iteration": 1}], "points": [[]]}',
    ],
)
def test_matches_that_are_damaged_are_named(text: str, tmp_path: Path, main: Main) -> None:
    run = write(tmp_path / "run", returns(1, 2))
    (run / "matches.json").write_text(text)
    code, out, err = main(run)
    assert (code, out, err.count("\n")) == (2, "", 1) and "run/matches.json tells of no matches; delete it" in err


def test_matches_of_one_player_alone_have_points_and_rate_nobody(
    tmp_path: Path, main: Main, caplog: pytest.LogCaptureFixture
) -> None:
    run = write(tmp_path / "run", returns(1, 2))
    players = [{"name": "@2", "iteration": 2}, {"name": "random", "iteration": None}]
    (run / "matches.json").write_text(json.dumps({"players": players, "points": [[None, 0.5], [0.5, None]]}))
    assert main(run)[:2] == (0, f"{run}/curves.png\n{run}/points.png\n")
    (said,) = caplog.messages
    assert "elo.png is left out: matches.json rates nobody" in said
    code, out, err = main(run, "show=elo")
    assert (code, out, err.count("\n")) == (2, "", 1) and "matches.json rates nobody, as not all played all" in err


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "sale"},  # no event at all
        {"event": "birth", "member": 1},
        {"event": "birth", "niche": 1},
        {"event": "birth", "member": 1, "hyperparameters": 3},  # read, and not drawn in full
    ],
)
def test_events_of_another_program_cost_no_curves(
    event: dict[str, Any], tmp_path: Path, main: Main, caplog: pytest.LogCaptureFixture
) -> None:
    run = write(tmp_path / "run", returns(1, 2))
    (run / "events.jsonl").write_text(json.dumps({"iteration": 1} | event) + "\n")
    code, out, err = main(run)
    assert (code, err) == (0, "") and out.startswith(f"{run}/curves.png\n")
    told = f"events.jsonl or matches.json of {run} tells of something else" if "event" in event else ""
    assert all(told in message for message in caplog.messages) and bool(caplog.messages) == bool(told)
    code, _, err = main(run, "show=schedule")
    assert (code, err.count("\n")) == (2, 1) and (told or "tells of no niche and no member") in err
    assert told in report([run]).decode()


# Bad input

BAD = {
    "no run": ((), "plot needs a DIR"),
    "no such run": (("RUNN",), "runN is not a run folder; did you mean"),
    "of another program": (("OTHER",), "config.yaml is of no run: it has no section algo; name a run's folder"),
    "unknown key": (("RUN", "ot=a.png"), "ot is not a key of plot; did you mean 'out'?"),
    "an option": (("RUN", "-o"), "-o is not an option of plot; keys are written key=value"),
    "unknown axis": (("RUN", "x=steps"), "x=steps is not an axis; allowed: step, iteration, minutes"),
    "unknown metric": (("RUN", "y=eval/retrun_mean"), "did you mean 'eval/return_mean'?"),
    "empty metric": (("RUN", "y="), "y= is not a metric"),
    "unknown picture": (("RUN", "show=curve"), "show=curve is not a picture; did you mean 'curves'?"),
    "not of POET": (
        ("RUN", "show=lineage"),
        "tells of no niche and no member, and there is no matches.json; wait for the first iteration",
    ),
    "one of many": (("RUN", "NULL", "show=annecs"), "show=annecs: 2 runs were given, and this is of one; give one RUN"),
    "two in one file": (("RUN", "show=curves,annecs", "out=a.png"), "is one file, and show=curves,annecs are 2"),
    "key of curves": (("RUN", "show=lineage", "x=step"), "x= is of curves, and show=lineage has none"),
    "no picture": (("RUN", "out=a.gif"), "allowed: *.png, *.pdf, *.svg"),
    "no folder": (("RUN", "out=nowhere/a.png"), "there is no folder nowhere"),
    "no row": (("NEW",), "no run has metrics yet"),
    "no number": (("NULL",), "no number of eval/return_mean has been logged yet"),
}


@pytest.mark.parametrize("arguments, said", BAD.values(), ids=BAD.keys())
def test_bad_input_ends_in_one_line_and_leaves_nothing(
    arguments: tuple[str, ...], said: str, tmp_path: Path, main: Main, caplog: pytest.LogCaptureFixture
) -> None:
    places = {"RUN": tmp_path / "run", "NEW": tmp_path / "new", "NULL": tmp_path / "null", "OTHER": tmp_path / "other"}
    for name, rows in (("RUN", returns(1, 2)), ("NEW", []), ("NULL", returns(None))):
        write(places[name], rows)
    (write(tmp_path / "other", returns(1)) / "config.yaml").write_text("model: gpt")
    before = sorted(tmp_path.rglob("*"))
    for name, place in places.items():
        arguments = tuple(argument.replace(name, str(place)) for argument in arguments)
    code, out, err = main(*arguments)
    assert (code, out, err.count("\n"), caplog.records) == (2, "", 1, [])
    assert err.startswith("paddock: ") and said in err
    assert sorted(tmp_path.rglob("*")) == before


def test_help_is_a_guide(main: Main) -> None:
    code, out, err = main("--help")
    assert (code, err) == (0, "")
    assert all(f"{key}=" in out for key in command.READERS)
