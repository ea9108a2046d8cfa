"""`python -m paddock.plot`, by the laws it obeys; expected numbers are worked by hand."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import Main
from matplotlib.image import imread

from paddock.plot import plot
from paddock.reports.curves import explain_lines
from paddock.reports.data import ReportedRun, find_repeats, group_by_seed, label_groups, sort_groups
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


def drawn(*paths: Path, **options: Any) -> Any:
    return plot(*paths, **options)


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


def test_several_runs_become_one_picture_here(tmp_path: Path, main: Main) -> None:
    runs = [write(tmp_path / f"run{seed}", returns(1, 2), seed) for seed in (1, 2)]
    assert main(*runs, runs[0]) == (0, "curves.png\n", "")
    assert imread("curves.png").shape[:2] == (675, 1200)
    assert main(*runs, "out=two.png", "x=minutes", "y=[eval/return_mean, system/seconds]")[:2] == (0, "two.png\n")
    assert imread("two.png").shape[:2] == (1125, 1200)


def test_single_run_shows_evaluation_and_training(tmp_path: Path) -> None:
    rows = [{"train/return_mean": 1.0}, {"train/return_mean": 2.0, "eval/return_mean": 5.0}, {"train/return_mean": 3.0}]
    ax = drawn(write(tmp_path / "run", rows, seed=7)).axes[0]
    assert labelled(ax) == {"evaluation": [[200], [5]], "training": [[100, 200, 300], [1, 2, 3]]}
    assert [line.get_color() for line in ax.lines] == [COLORS[0], GREY]
    assert ax.get_title() == "es on CartPole-v1, seed 7"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("environment steps", "mean return of an episode")
    assert ax.xaxis.get_major_formatter()(1_500_000) == "1.5M"


def test_seeds_share_a_colour_a_mean_and_an_interval(tmp_path: Path) -> None:
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
    assert [text.get_text() for text in ax.texts] == [explain_lines([2])]


def test_mean_and_interval_equal_those_of_reports(tmp_path: Path) -> None:
    scores = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    ax = drawn(*(write(tmp_path / f"{seed}", returns(score), seed) for seed, score in enumerate(scores))).axes[0]
    # One point each: the mean of 2, 4 and 8, the middle ones of 5.
    assert labelled(ax) == {"evaluation (5 seeds)": [[100], [14 / 3]]}
    longer = [write(tmp_path / f"longer{seed}", returns(s, s), seed, algo__rate=9) for seed, s in enumerate(scores)]
    (band,) = drawn(*longer).axes[0].collections
    low, high = interval(scores[:, None])
    np.testing.assert_allclose(np.unique(band.get_paths()[0].vertices[:, 1]), [low, high])
    assert low < interquartile_mean(scores[:, None]) < high


def test_repeated_seeds_count_once_and_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = write(tmp_path / "first", returns(0, 2), seed=1)
    again = write(tmp_path / "again", returns(0, 2), seed=1)
    farther = write(tmp_path / "farther", returns(0, 2, 4), seed=1, vec__num_envs=16)
    other = write(tmp_path / "other", returns(4, 6), seed=2)
    ax = drawn(first, again, farther, other).axes[0]
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[0, 2, 4], [4, 6]]
    assert list(labelled(ax)) == ["evaluation (2 seeds)"]
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{path} is skipped: it repeats the settings and seed of {farther}" for path in (first, again)]


def test_evaluation_is_drawn_at_the_steps_of_its_policy(tmp_path: Path) -> None:
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
        f"paddock: no run in {tmp_path / 'here'}; a run folder holds config.yaml and metrics.jsonl\n",
    )


def test_best_ten_groups_are_drawn_best_first(tmp_path: Path) -> None:
    figure = drawn(*(write(tmp_path / f"{rate}", returns(rate), algo__rate=rate) for rate in range(12)))
    assert list(labelled(figure.axes[0])) == [f"es, rate={rate}" for rate in range(11, 1, -1)]
    assert figure.axes[0].get_title() == "es on CartPole-v1: the best 10 of 12 groups"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        f"es, rate={rate}" for rate in range(11, 1, -1)
    ]


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


def test_groups_are_labelled_by_what_differs(tmp_path: Path) -> None:
    def labels(**changes: Sequence[Any]) -> list[str]:
        number = len(list(tmp_path.iterdir()))
        rows = [dict(zip(changes, values, strict=True)) for values in zip(*changes.values(), strict=True)]
        paths = [write(tmp_path / f"{number}-{k}", returns(1), **row) for k, row in enumerate(rows)]
        return label_groups(group_by_seed([ReportedRun(path, read_config(path), {}) for path in paths]))

    assert labels(algo__rate=[1, 2]) == ["es, rate=1", "es, rate=2"]
    assert labels(algo__rate=[1, 1, 2], vec__num_envs=[1, 2, 1]) == ["es, rate=1", "es, rate=2"]
    assert labels(algo__name=["ppo", "ppo"], vec__num_envs=[8, 16]) == ["ppo, num_envs=8", "ppo, num_envs=16"]
    assert labels(algo__name=["es", "ppo"], algo__rate=[1, 2]) == ["es", "ppo"]
    assert labels(algo__name=["es", "es", "ppo"], algo__rate=[1, 2, 2]) == ["es, rate=1", "es, rate=2", "ppo"]
    assert labels(env__id=["A-v1", "B-v1"]) == ["es, A-v1", "es, B-v1"]
    many = labels(**{f"algo__{key}": [1, 2] for key in "abcdefgh"})
    assert many[0] == "es, a=1, b=1, c=1, d=1, e=1, f=1, and 2 more"


def test_names_are_never_read_as_formulas(tmp_path: Path) -> None:
    apart = ({f"algo__{key}": k for key in "abcd"} for k in range(2))
    runs = [write(tmp_path / f"{k}$x_$", returns(2), **changes) for k, changes in enumerate(apart)]
    drawn(*runs).savefig(tmp_path / "curves.svg")
    player = {"iteration": None, "elo": 0.0, "low": -1.0, "high": 1.0}
    matches = {"players": [{**player, "name": run.name} for run in runs], "points": [[None, 0.5], [0.5, None]]}
    for picture in (draw_elo, draw_points):
        picture(matches, "").savefig(tmp_path / "matches.svg")


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


# Figures for papers


def test_labels_name_groups_in_the_order_given(tmp_path: Path) -> None:
    worse, better = (write(tmp_path / f"{rate}", returns(rate), algo__rate=rate) for rate in (1, 2))
    assert labelled(drawn(worse, better, label=["A", "B"]).axes[0]) == {"A": [[100], [1]], "B": [[100], [2]]}
    assert [*labelled(drawn(better, worse, label=["B", "A"]).axes[0])] == ["B", "A"]


def test_title_and_size_are_those_given(tmp_path: Path, main: Main) -> None:
    run = write(tmp_path / "run", returns(1, 2))
    assert [drawn(run, title=title).axes[0].get_title() for title in ("", "$5_")] == ["", "$5_"]
    assert main(run, "size=3x2", "title=$5_", "out=a.png")[:2] == (0, "a.png\n")
    assert imread("a.png").shape[:2] == (800, 1200)
    assert main(run, "size=3x2", "out=a.pdf")[0] == 0
    assert b"/MediaBox [ 0 0 216 144 ]" in Path("a.pdf").read_bytes()  # 72 points per inch


def test_smoothing_averages_points_of_each_seed(tmp_path: Path) -> None:
    runs = [write(tmp_path / f"{seed}", returns(*values), seed) for seed, values in enumerate([(0, 2, 6), (4, 4, 4)])]
    ax = drawn(*runs, smooth=2).axes[0]
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[0, 1, 4], [4, 4, 4]]
    (x, y) = labelled(ax)["evaluation (2 seeds)"]
    assert [y[x.index(at)] for at in (100, 300)] == [2, 4]
    assert "smoothed over 2 points" in " ".join(ax.texts[0].get_text().split())


def test_table_has_the_points_and_the_interval_of_the_picture(tmp_path: Path, main: Main) -> None:
    for seed, score in enumerate((1, 2, 3)):
        write(tmp_path / f"run{seed}", returns(score), seed)
    write(tmp_path / "single", returns(None, 5), algo__rate=9)
    folders = [*sorted(tmp_path.glob("run?")), tmp_path / "single"]
    assert main(*folders, "label=A,B", "out=a.csv", "size=3x2") == (0, "a.csv\n", "")
    assert Path("a.csv").read_text().splitlines() == [
        "group,metric,seed,x,y,iqm,low,high",
        *(f"A,eval/return_mean,{seed},100.0,{seed + 1}.0,,," for seed in range(3)),
        "A,eval/return_mean,,100.0,,2.0,1.0,3.0",
        "B,eval/return_mean,0,200.0,5.0,,,",
    ]


def test_intervals_of_few_seeds_are_marked(tmp_path: Path) -> None:
    runs = [write(tmp_path / f"{seed}", returns(1, 2), seed) for seed in range(5)]
    for count, marked in ((1, False), (4, True), (5, False)):
        texts = drawn(*runs[:count]).axes[0].texts
        assert any("fewer than 5 seeds" in " ".join(text.get_text().split()) for text in texts) == marked


# Runs that go on


def test_null_is_no_point(tmp_path: Path) -> None:
    assert labelled(drawn(write(tmp_path / "run", returns(1, None, 3))).axes[0]) == {"evaluation": [[100, 300], [1, 3]]}


def test_run_without_numbers_is_left_out_and_named(
    tmp_path: Path, main: Main, caplog: pytest.LogCaptureFixture
) -> None:
    given = [returns(1, 2), returns(None), []]
    begun, null, new = (write(tmp_path / f"run{k}", rows, seed=k) for k, rows in enumerate(given))
    code, out, _ = main(begun, null, new)
    assert (code, out) == (0, "curves.png\n")
    assert [record.getMessage().split()[0] for record in caplog.records] == [str(new), str(null)]


def test_matches_of_one_player_have_points_and_no_ratings(
    tmp_path: Path, main: Main, caplog: pytest.LogCaptureFixture
) -> None:
    run = write(tmp_path / "run", returns(1, 2))
    players = [{"name": "@2", "iteration": 2}, {"name": "random", "iteration": None}]
    (run / "matches.json").write_text(json.dumps({"players": players, "points": [[None, 0.5], [0.5, None]]}))
    assert main(run)[:2] == (0, f"{run}/curves.png\n{run}/points.png\n")
    (said,) = caplog.messages
    assert "elo.png is skipped: matches.json has no ratings" in said
    code, out, err = main(run, "show=elo")
    assert (code, out, err.count("\n")) == (2, "", 1) and "matches.json has no ratings" in err


# Bad input

BAD = {
    "unknown axis": (("RUN", "x=steps"), "x=steps is not an axis; allowed: step, iteration, minutes"),
    "unknown metric": (("RUN", "y=eval/retrun_mean"), "did you mean 'eval/return_mean'?"),
    "unknown picture": (("RUN", "show=curve"), "show=curve is not a picture; did you mean 'curves'?"),
    "not of POET": (("RUN", "show=lineage"), "allowed: curves; other pictures need"),
    "one of many": (("RUN", "NULL", "show=annecs"), "allowed: curves; other pictures need"),
    "too few labels": (("RUN", "label=A,B"), "label= needs 1 names but has 2"),
    "no smoothing": (("RUN", "smooth=0"), "smooth=0 must be at least 1"),
    "no size": (("RUN", "size=3"), "size=WIDTHxHEIGHT in inches"),
    "table of a history": (("RUN", "show=lineage", "out=a.csv"), "allowed: curves"),
    "no number": (("NULL",), "no value of eval/return_mean has been logged yet"),
}


@pytest.mark.parametrize("arguments, said", BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_leaves_nothing(
    arguments: tuple[str, ...], said: str, tmp_path: Path, main: Main, caplog: pytest.LogCaptureFixture
) -> None:
    places = {"RUN": tmp_path / "run", "NEW": tmp_path / "new", "NULL": tmp_path / "null"}
    for name, rows in (("RUN", returns(1, 2)), ("NEW", []), ("NULL", returns(None))):
        write(places[name], rows)
    before = sorted(tmp_path.rglob("*"))
    for name, place in places.items():
        arguments = tuple(argument.replace(name, str(place)) for argument in arguments)
    code, out, err = main(*arguments)
    assert (code, out, err.count("\n"), caplog.records) == (2, "", 1, [])
    assert err.startswith("paddock: ") and said in err
    assert sorted(tmp_path.rglob("*")) == before
