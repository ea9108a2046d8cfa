"""Pictures of POET's runs, by the laws they obey; expected numbers are worked by hand."""

import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import Main, call_main, env_section
from matplotlib.colors import to_hex
from matplotlib.image import imread
from matplotlib.quiver import Quiver

from paddock.config.build import build
from paddock.envs.spec import EnvSpec
from paddock.reports.lineage import History, Life, order_lines, read_history
from paddock.reports.plots.grounds import draw_grounds
from paddock.reports.plots.poet import (
    DIFFICULTY,
    draw_annecs,
    draw_lineage,
    measure_difficulty,
)
from paddock.runs.results import read_columns

Event = dict[str, Any]

LENGTHS = {0: 0.5, 1: 0.6, 4: 0.3, 5: 0.9}


def family(name: str) -> tuple[dict[str, Any], Any]:
    section = env_section(name)
    return section, build("env", section)


def birth(of: Any, iteration: int, niche: int, parent: int | None, encoding: Any, ground: int | None = None) -> Event:
    env = of.env_spec(encoding, ground).fields
    event = {"iteration": iteration, "event": "birth", "niche": niche, "parent": parent, "encoding": encoding}
    return event | {"env": env, "reason": "", **({} if parent is None else {"score": 7.0, "novelty": 0.0, "source": 0})}


def transfers(iteration: int, *pairs: str) -> list[Event]:
    """ "0>1" is an attempt, "0>1!" an accepted one."""
    moves = [(*re.split("[>!]", pair)[:2], pair.endswith("!")) for pair in pairs]
    head = {"iteration": iteration, "event": "transfer"}
    return [head | {"source": int(a), "target": int(b), "accepted": accepted} for a, b, accepted in moves]


def story() -> list[Event]:
    """Four niches: 1 and 4 are children of 0, and 5 of 1; 0 retires."""
    poles = family("poles")[1]
    born = {
        number: birth(poles, when, number, parent, {"length": LENGTHS[number]})
        for number, parent, when in ((0, None, 1), (1, 0, 11), (4, 0, 21), (5, 1, 21))
    }
    return [
        born[0],
        {"iteration": 5, "event": "no parents", "best": 3.0, "reason": ""},
        born[1],
        {"iteration": 12, "event": "reject", "niche": 2, "parent": 0, "encoding": {"length": 9.0}, "score": None},
        {"iteration": 15, "event": "solved", "niche": 1, "score": 400.0, "age": 5},
        *transfers(20, "1>0", "0>1!"),
        born[4],
        born[5],
        {"iteration": 21, "event": "retire", "niche": 0, "score": 33.0, "age": 21, "reason": ""},
        *transfers(30, "4>1", "5>1", "1>4", "5>4!", "1>5", "4>5!"),
        *transfers(40, "4>1", "5>1!", "1>4", "5>4!", "1>5", "4>5"),
    ]


def write(path: Path, events: Iterable[Event], iterations: int, name: str = "poles") -> Path:
    """A run folder; in iteration t every niche that was ever born scores 10 t plus its number."""
    path.mkdir()
    config = {"algo": {"name": "poet"}, "env": family(name)[0], "vec": {}, "seed": 3}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    events = list(events)
    (path / "events.jsonl").write_text("".join(json.dumps({"step": 0} | event) + "\n" for event in events))
    with open(path / "metrics.jsonl", "w") as journal:
        for t in range(1, iterations + 1):
            active = [event["niche"] for event in events if event["event"] == "birth" and event["iteration"] <= t]
            active = [number for number in active if number != 0 or t < 21]
            row = {"iteration": t, "step": 100 * t, "train/return_mean": 1.0, "eval/return_mean": 2.0}
            row |= {"poet/active": len(active), "poet/annecs": int(t > 15), "poet/annecs_admitted": t // 10}
            row |= {"poet/transfers": t // 20} | {f"score/{number}": 10.0 * t + number for number in active}
            journal.write(json.dumps(row) + "\n")
    return path


def history(run: Path) -> History:
    found = read_history(run, yaml.safe_load((run / "config.yaml").read_text()), read_columns(run))
    assert found is not None
    return found


def drawn(draw: Callable[[History, str], Any], run: Path) -> Any:
    return draw(history(run), "poet")


def life(number: int, parent: int | None, born: int) -> Life:
    env = EnvSpec("CartPole-v1", {}, (), None, fresh=False)
    told: dict[str, Any] = {"encoding": {}, "env": env, "solved": None, "retired": None, "score": None}
    return Life(number=number, parent=parent, born=born, **told)


@pytest.fixture
def main(call_command: Main) -> Main:
    return partial(call_command, "plot")


# The history


def test_history_is_read_from_events_and_rows(tmp_path: Path) -> None:
    found = history(write(tmp_path / "run", story(), 42))
    assert found.now == 42
    told = [(it.number, it.parent, it.born, it.solved, it.retired, it.score) for it in found.lives.values()]
    assert told == [
        (0, None, 1, None, 21, 200.0),
        (1, 0, 11, 15, None, 421.0),
        (4, 0, 21, None, None, 424.0),
        (5, 1, 21, None, None, 425.0),
    ]


def test_niches_are_ordered_from_parents_to_youngest_children() -> None:
    family_tree = {k: life(k, parent, born) for k, parent, born in ((0, None, 1), (1, 0, 2), (2, 0, 3), (3, 1, 4))}
    assert order_lines(family_tree) == [0, 2, 1, 3]
    assert order_lines({7: life(7, None, 1)}) == [7]


def test_no_edge_of_the_lineage_crosses_a_niche() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        lives = {0: life(0, None, 1)}
        for number in range(1, 60):
            lives[number] = life(number, int(generator.integers(number)), 1 + number)
        order = order_lines(lives)
        row = {number: k for k, number in enumerate(order)}
        assert sorted(order) == list(lives)
        for number, child in lives.items():
            if child.parent is not None:
                assert row[child.parent] < row[number]
                between = order[row[child.parent] + 1 : row[number]]
                assert all(lives[other].born > child.born for other in between)


# The pictures


def test_difficulty_is_the_distance_from_the_first_environment(tmp_path: Path) -> None:
    measured, label = measure_difficulty(history(write(tmp_path / "run", story(), 42)))
    # Lengths 0.5, 0.6, 0.3 and 0.9 m.
    assert {number: round(far, 9) for number, far in measured.items()} == {0: 0.0, 1: 0.1, 4: 0.2, 5: 0.4}
    assert label.startswith("distance from the first environment")


def test_lineage_draws_niches_and_transfers(tmp_path: Path) -> None:
    figure = drawn(draw_lineage, write(tmp_path / "run", story(), 42))
    ax, bar = figure.axes
    assert ax.get_title() == "poet: 4 niches, 3 active"
    assert bar.get_ylabel().startswith("distance from the first environment")
    written, beside = bar.yaxis.label.get_window_extent(), bar.get_window_extent()
    assert beside.y0 <= written.y0 and written.y1 <= beside.y1
    # Rows: 0, then its younger child 4, then 1 and its child 5.
    lines = {tuple(map(tuple, line.get_xydata())): to_hex(line.get_color()) for line in ax.lines}
    easiest, hardest = DIFFICULTY[0], DIFFICULTY[-1]
    assert lines[(1, 0), (21, 0)] == easiest
    assert lines[(21, 3), (42, 3)] == hardest
    # Difficulty 0.2 of at most 0.4 is the third colour of five.
    assert lines[(21, 1), (42, 1)] == DIFFICULTY[2]
    assert {((11, 0), (11, 2)), ((21, 0), (21, 1)), ((21, 2), (21, 3))} <= set(lines)
    assert [line.get_xydata().tolist() for line in ax.lines if line.get_marker() == "*"] == [[[15, 2]]]
    arrows: Any
    (arrows,) = (item for item in ax.collections if isinstance(item, Quiver))
    # Accepted: 0>1 at 20; 5>4 and 4>5 at 30; 5>1 and 5>4 at 40.
    assert arrows.Y.tolist() == [0, 3, 1, 3, 3]
    assert arrows.V.tolist() == [2, -2, 2, -1, -2]
    assert np.floor(arrows.X).tolist() == [20, 30, 30, 40, 40]
    assert [text.get_text() for text in ax.texts] == ["0", "4", "1", "5"]


def test_annecs_are_steps_over_iterations(tmp_path: Path) -> None:
    upper, lower, other = drawn(draw_annecs, write(tmp_path / "run", story(), 20)).axes
    admitted, solved = upper.lines
    assert {line.get_drawstyle() for ax in (upper, lower, other) for line in ax.lines} == {"steps-post"}
    assert list(solved.get_ydata()) == [0] * 15 + [1] * 5
    assert list(admitted.get_ydata()) == [0] * 9 + [1] * 10 + [2]
    assert list(lower.lines[0].get_ydata()) == [1] * 10 + [2] * 10
    assert list(other.lines[0].get_ydata()) == [0] * 19 + [1]


def test_grounds_are_those_of_the_niches(tmp_path: Path) -> None:
    ground = 5
    terrains = family("terrains")[1]
    harder = {"roughness": 1.0, "stump_height": [1.0, 1.0]}
    events = [birth(terrains, 1, 0, None, terrains.flat(), ground), birth(terrains, 3, 2, 0, harder, ground)]
    figure = drawn(draw_grounds, write(tmp_path / "run", events, 4, "terrains"))
    flat, rough = figure.axes
    assert flat.get_title("left") == "niche 0: from 1, score 40, not solved"
    assert rough.get_title("left") == "niche 2: from 3, score 42, not solved"
    assert (flat.get_xlim(), flat.get_ylim()) == (rough.get_xlim(), rough.get_ylim())
    assert (len(flat.patches), len(rough.patches) > 0) == (0, True)
    env = terrains.env_spec(harder, ground).make()
    env.reset(seed=0)
    outline = rough.collections[0].get_paths()[0].vertices
    expected = env.unwrapped.ground
    assert {*zip(expected.x, expected.y, strict=True)} <= {*map(tuple, outline)}
    assert "drawn with seed 0" not in figure.get_suptitle()


# The command


def test_real_run_becomes_all_its_pictures(tmp_path: Path, main: Main, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    settings = "population=4 hidden_sizes=[4] transfer_every=2 reproduce_every=2 criterion_low=0 criterion_high=500 "
    settings += "reproduce_score=0 max_niches=2 max_children=2 eval_episodes=1 novelty=encoding same_ground=false"
    small = [f"algo.{setting}" for setting in settings.split()]
    assert call_main("algo=poet", "env=poles", *small, "compute=serial", "budget.iterations=6", f"run.dir={run}") == 0
    caplog.clear()
    code, out, _ = main(run)
    names = ("curves", "lineage", "annecs")
    assert (code, out.split()) == (0, [str(run / f"{name}.png") for name in names])
    (said,) = caplog.messages
    assert said.startswith(f"{run / 'grounds.png'} is skipped: CartPole-v1 has no ground to draw")
    assert all(imread(run / f"{name}.png").std() > 0 for name in names)
    found = history(run)
    columns = found.columns
    assert sum(it.retired is None for it in found.lives.values()) == columns["poet/active"][-1]
    assert sum(it.retired is not None for it in found.lives.values()) == columns["poet/archived"][-1] > 0
    assert len(found.attempts) == columns["poet/transfer_attempts"][-1] > 0
    assert sum(attempt.accepted for attempt in found.attempts) == columns["poet/transfers"][-1]


def test_show_draws_those_pictures_alone(tmp_path: Path, main: Main) -> None:
    run = write(tmp_path / "run", story(), 42)
    before = {*run.iterdir()}
    assert main(run, "show=annecs,lineage,annecs") == (0, f"{run / 'annecs.png'}\n{run / 'lineage.png'}\n", "")
    assert {*run.iterdir()} - before == {run / "annecs.png", run / "lineage.png"}
    assert main(run, "show=lineage", f"out={tmp_path / 'a'}.pdf")[0] == 0
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_missing_pictures_are_named(tmp_path: Path, main: Main, caplog: pytest.LogCaptureFixture) -> None:
    run = write(tmp_path / "run", story()[:1], 1)
    code, out, _ = main(run)
    assert (code, [Path(line).stem for line in out.split()]) == (0, ["curves", "lineage", "annecs"])
    assert [record.getMessage().split()[0] for record in caplog.records] == [str(run / "grounds.png")]
    code, out, err = main(run, "show=lineage,grounds")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "CartPole-v1 has no ground" in err


def test_run_without_events_has_no_lineage(tmp_path: Path, main: Main) -> None:
    run = write(tmp_path / "run", story(), 42)
    (run / "events.jsonl").write_text('{"iteration": 1, "event": "bi')
    code, out, err = main(run, "show=lineage")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"show=lineage: lineage is not a picture of {run}; allowed: curves" in err
    assert main(run) == (0, f"{run / 'curves.png'}\n", "")
