"""Pictures of population based training, by the laws they obey; expected numbers are worked by hand."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Main
from matplotlib.colors import to_hex
from matplotlib.quiver import Quiver

from paddock.report import report
from paddock.reports.drawing import COLORS
from paddock.reports.lineage import PopulationHistory, read_population, trace_back
from paddock.reports.plots.pbt import draw_lineage, draw_schedule
from paddock.runs.results import read_columns

RATES = {0: 0.1, 1: 0.01, 2: 0.001}
LEADERS = (2, 2, 0, 0)


def exploit(iteration: int, member: int, source: int, rate: float) -> dict[str, Any]:
    event = {"iteration": iteration, "event": "exploit", "member": member, "source": source}
    return event | {"score": 1.0, "source_score": 2.0, "hyperparameters": {"rate": rate}}


def story() -> list[dict[str, Any]]:
    """Three members: after round 1, 0 takes over from 2, and after 3, 1 from 0 and 2 from 0; after 4, 1 from 2."""
    birth = {"iteration": 1, "event": "birth", "seed": 7}
    born = [birth | {"member": member, "hyperparameters": {"rate": rate}} for member, rate in RATES.items()]
    taken = [exploit(1, 0, 2, 0.002), exploit(3, 1, 0, 0.004), exploit(3, 2, 0, 0.003), exploit(4, 1, 2, 0.005)]
    return [*born, *taken]


def write(path: Path, events: list[dict[str, Any]], leaders: tuple[int, ...] = LEADERS) -> Path:
    """A run folder; in round t the best scores 10 t, the median 5 t and the worst t."""
    path.mkdir()
    explore = {"rate": {"low": 1e-4, "high": 1.0, "log": True}}
    config = {"algo": {"name": "pbt", "explore": explore}, "env": {"id": "CartPole-v1"}, "vec": {}, "seed": 3}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    (path / "events.jsonl").write_text("".join(json.dumps({"step": 0} | event) + "\n" for event in events))
    rows = [
        {"iteration": t, "step": 100 * t, "train/return_mean": 1.0, "eval/return_mean": 10.0 * t}
        | {"pbt/best": 10 * t, "pbt/median": 5 * t, "pbt/worst": t, "pbt/leader": leader}
        for t, leader in enumerate(leaders, 1)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def population(run: Path) -> PopulationHistory:
    found = read_population(run, yaml.safe_load((run / "config.yaml").read_text()), read_columns(run))
    assert found is not None
    return found


@pytest.fixture
def main(call_command: Main) -> Main:
    return partial(call_command, "plot")


def test_members_have_spans_from_takeover_to_takeover(tmp_path: Path) -> None:
    found = population(write(tmp_path / "run", story()))
    spans = {
        member: [(span.begun, span.settings["rate"], span.origin, span.source) for span in of]
        for member, of in found.spans.items()
    }
    assert spans == {
        0: [(1, 0.1, 0, None), (2, 0.002, 2, 2)],
        1: [(1, 0.01, 1, None), (4, 0.004, 2, 0), (5, 0.005, 2, 2)],
        # Both of round 3 descend from what their sources had in it.
        2: [(1, 0.001, 2, None), (4, 0.003, 2, 0)],
    }
    assert found.now == 4


def test_leader_is_traced_back_to_a_first_member(tmp_path: Path) -> None:
    found = population(write(tmp_path / "run", story()))
    way = [(first, last, span.member, span.settings["rate"]) for first, last, span in trace_back(found, 1)]
    # What 1 took over after the last round has not been used.
    assert way == [(4, 4, 1, 0.004), (2, 3, 0, 0.002), (1, 1, 2, 0.001)]


def test_lineage_has_a_row_a_member_in_the_colours_of_their_origins(tmp_path: Path) -> None:
    figure: Any = draw_lineage(population(write(tmp_path / "run", story())), "pbt")
    (ax,) = figure.axes
    assert ax.get_title() == "pbt: 3 takeovers, all members descend from 2"
    bars = {
        tuple(map(tuple, line.get_xydata())): to_hex(line.get_color())
        for line in ax.lines
        if len(line.get_xdata()) == 2
    }
    assert bars == {
        ((0.5, 0), (1.5, 0)): COLORS[0],
        ((1.5, 0), (4.5, 0)): COLORS[2],
        ((0.5, 1), (3.5, 1)): COLORS[1],
        ((3.5, 1), (4.5, 1)): COLORS[2],
        ((0.5, 2), (3.5, 2)): COLORS[2],
        ((3.5, 2), (4.5, 2)): COLORS[2],
    }
    (stars,) = (line for line in ax.lines if line.get_marker() == "*")
    assert stars.get_xydata().tolist() == [[1, 2], [2, 2], [3, 0], [4, 0]]
    arrows: Any
    (arrows,) = (item for item in ax.collections if isinstance(item, Quiver))
    assert list(zip(arrows.Y, arrows.Y + arrows.V, strict=True)) == [(2, 0), (0, 1), (0, 2)]  # from row to row
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["leader", "takes over", "from 2"]


def test_schedule_has_scores_and_the_last_leaders_way(tmp_path: Path) -> None:
    figure: Any = draw_schedule(population(write(tmp_path / "run", story())), "pbt")
    top, rate = figure.axes
    assert top.get_title() == "pbt: schedule of the last leader, member 0"
    scores = {str(line.get_label()): list(line.get_ydata()) for line in top.lines}
    assert scores == {"best": [10, 20, 30, 40], "median": [5, 10, 15, 20], "worst": [1, 2, 3, 4]}
    assert (rate.get_ylabel(), rate.get_yscale(), rate.get_xlabel()) == ("rate", "log", "round")
    *members, way = rate.lines
    assert way.get_xydata().tolist() == [[0.5, 0.001], [1.5, 0.001], [1.5, 0.002], [4.5, 0.002]]
    assert members[1].get_xydata().tolist() == [[0.5, 0.01], [3.5, 0.01], [3.5, 0.004], [4.5, 0.004]]


def test_run_that_has_just_begun_is_drawn(tmp_path: Path) -> None:
    found = population(write(tmp_path / "run", story()[:3], leaders=()))
    (ax,) = draw_lineage(found, "pbt").axes
    assert ax.get_title() == "pbt: 0 takeovers, all members descend from 0, 1, 2"
    assert len(draw_schedule(found, "pbt").axes) == 2


def test_plot_draws_all_pictures_of_pbt(tmp_path: Path, main: Main) -> None:
    run = write(tmp_path / "run", story())
    assert main(run) == (0, "".join(f"{run / name}.png\n" for name in ("curves", "lineage", "schedule")), "")
    code, out, err = main(run, "show=annecs")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"annecs is not a picture of {run}; allowed: curves, lineage, schedule" in err


def test_report_has_the_pictures_of_pbt(tmp_path: Path) -> None:
    page = report([write(tmp_path / "run", story())]).decode()
    assert "<h2>Population based training</h2>" in page
    assert "<b>Schedule</b>" in page and "cannot be drawn" not in page
