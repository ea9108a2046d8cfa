"""`python -m paddock.report`, by the laws it obeys, on real runs and in a real browser; numbers are worked by hand."""

import csv
import html
import io
import json
import re
import shlex
import shutil
import subprocess
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import TINY, Main, call_main
from run_folders import CONFIG, write, write_sweep

from paddock.report import report
from paddock.reports.curves import common_grid
from paddock.reports.data import Group, gather, group
from paddock.reports.sections.tasks import normalize
from paddock.runs.results import read_columns

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Downloads all files of the page, and points at the first value of each figure.
VISIT = """<script>
document.body.style.width = "400px";
const found = {files: {}, values: {}, width: document.querySelector("main").scrollWidth};
URL.createObjectURL = () => "data:,";
for (const picture of document.querySelectorAll(".picture")) {
  const name = picture.dataset.name, [point] = locate(readData(picture));
  for (const button of picture.closest("figure").querySelectorAll(".downloads button")) {
    window.Blob = function ([content]) { found.files[`${name}.${button.value}`] = content; };
    button.click();
  }
  if (!point) continue;
  const svg = picture.querySelector("svg"), {x, y} = new DOMPoint(point.x, point.y).matrixTransform(svg.getScreenCTM());
  svg.dispatchEvent(new PointerEvent("pointermove", {clientX: x, clientY: y}));
  found.values[name] = [...tooltip.children].map(line => line.textContent).join("\\n");
}
document.documentElement.replaceChildren(JSON.stringify({errors, ...found}));
</script>"""

POET = [
    "algo=poet",
    "env=poles",
    "algo.population=8",
    "algo.hidden_sizes=[4]",
    "algo.eval_episodes=2",
    "algo.transfer_every=1",
]
MUTATE = ["algo.reproduce_every=1", "algo.reproduce_score=0", "algo.criterion_low=0", "algo.criterion_high=501"]


class Reader(HTMLParser):
    """What a page says, refers to, and calls its parts."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.references: list[str] = []
        self.identifiers: list[str] = []
        self.headings: list[str] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "poster", "data", "action", "xlink:href"):
                self.references.append(value or "")
            if name == "id":
                self.identifiers.append(value or "")
            self.references += re.findall(r"url\(([^)]*)\)", value or "")

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] == ["script"]:
            self.scripts.append(data)
        else:
            self.text += data
        if self.tags[-1:] == ["h2"] and data.strip():
            self.headings.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two algorithms with two seeds, a run of POET, a video, a sweep, and runs that are not as they should be."""
    folder = tmp_path_factory.mktemp("tree")
    short = ["compute=serial", "budget.iterations=4"]
    ppo = [
        "algo=ppo",
        "env=cartpole",
        "algo.num_steps=16",
        "algo.minibatch_size=32",
        "algo.eval_every_iterations=2",
        "algo.eval_episodes=2",
    ]
    for seed in (1, 2):
        assert call_main(*TINY, *short, f"seed={seed}", f"run.dir={folder}/es{seed}") == 0
        assert call_main(*ppo, *short, f"seed={seed}", f"run.dir={folder}/ppo{seed}") == 0
    assert call_main(*POET, *MUTATE, *short, f"run.dir={folder}/poet") == 0
    (folder / "es1/episode.mp4").write_bytes(b"not really a film")
    (folder / "es2/long.webm").write_bytes(bytes(30_000))
    write_sweep(folder / "sweep", trials=8)
    write(folder / "begun", ended=False)
    (write(folder / "damaged") / "config.yaml").write_text("a: [")
    return folder


@pytest.fixture(scope="module")
def page(tree: Path) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paddock.reports.sections.runs.MOST_MB", 0.02)
        return report([tree], base=tree)


@pytest.fixture
def main(call_command: Main, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Main:
    """The command in this process, in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return partial(call_command, "report")


def scored(folder: Path, **scores: list[float]) -> list[Group]:
    """Groups by algorithm and environment, as in es_CartPole=[1, 2]: runs whose last evaluations these are."""
    for name, values in scores.items():
        algo, env = name.split("_")
        for seed, value in enumerate(values):
            config = {"algo": {"name": algo}, "env": {"id": env}, "seed": seed}
            write(folder / f"{name}{seed}", [{"eval/return_mean": 0.0}, {"eval/return_mean": value}], config)
    return group(gather([folder]).entries, "eval/return_mean")


def visit(page: bytes, folder: Path) -> dict[str, Any]:
    """Open a page, 400 pixels wide; return its errors, its width, its files, and the values of its figures."""
    assert CHROMIUM is not None
    handler = "<head><script>const errors = []; onerror = message => { errors.push(message) };</script>"
    text = page.decode().replace("<head>", handler, 1).replace("</body>", f"{VISIT}</body>")
    (folder / "page.html").write_text(text)
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}/profile",
    ]
    command = [CHROMIUM, *flags, "--dump-dom", f"file://{folder}/page.html"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found: dict[str, Any] = json.loads(html.unescape(dom[dom.index("{") : dom.rindex("}") + 1]))
    return found


# The page


def test_page_has_a_section_for_all_there_is(page: bytes, tree: Path) -> None:
    reader = Reader(page)
    assert reader.headings == [
        "Groups",
        "Learning curves",
        "Scores",
        "Probability of improvement",
        "Training",
        "Sweep: sweep",
        "Speed",
        "Niches of POET",
        "Videos",
        "Runs",
        "Commands",
    ]
    shown = ("value loss", "approximate KL", "entropy", "gradient norm", "History", "Importances", "Lineage", "ANNECS")
    assert [words for words in shown if words not in reader.text] == []
    assert reader.tags.count("video") == 1
    assert "omitted (over 0.02 MB, or more than 12): es2/long.webm (0.0 MB)" in reader.text
    provenance = json.loads((tree / "es1/provenance.json").read_text())
    assert provenance["command"] in reader.text
    assert (provenance["commit"] or "unknown") in reader.text


def test_page_refers_only_to_run_folders(page: bytes, tree: Path) -> None:
    reader = Reader(page)
    assert len(reader.references) > 100
    links = {reference for reference in reader.references if not reference.startswith(("#", "data:"))}
    assert links == {f"{entry.run.path.relative_to(tree)}/" for entry in gather([tree]).entries}
    assert str(tree) not in re.sub("<pre>.*?</pre>", "", page.decode(), flags=re.DOTALL)  # apart from commands
    inside = {reference for reference in reader.references if reference.startswith("#")}
    assert inside <= {f"#{identifier}" for identifier in reader.identifiers}
    assert len(set(reader.identifiers)) == len(reader.identifiers)
    assert not {"iframe", "object", "base"} & set(reader.tags)
    assert "@import" not in page.decode() and "http" not in re.sub(r"base64,[^\"]*", "", page.decode())


def test_damaged_and_unfinished_runs_are_named(page: bytes) -> None:
    text = Reader(page).text
    assert "no metrics yet: begun" in text
    assert "config.yaml is damaged" in text
    assert "14 done, 1 lost" in text or "1 lost, 14 done" in text


def test_content_of_files_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert('$x$ & co')</script>"
    config = CONFIG | {"algo": {"name": evil, "rate": 1}, "env": {"id": f"a/{evil}"}}
    for seed in range(2):
        run = write(
            tmp_path / f"<b>{seed}", [{"eval/return_mean": 1.0}, {"eval/return_mean": 2.0}], config | {"seed": seed}
        )
        (run / "provenance.json").write_text(json.dumps({"command": evil, "commit": evil, "host": evil}))
        (run / "done.json").write_text(json.dumps({"reason": f"failed: {evil}"}))
        (run / '"><img src=x>.mp4').write_bytes(b"x")
    sweep = write_sweep(tmp_path / "sweep")
    told = json.loads((sweep / "sweep.json").read_text())
    (sweep / "sweep.json").write_text(json.dumps(told | {"command": f"python {shlex.quote(evil)}"}))
    reader = Reader(report([tmp_path]))
    assert "img" not in reader.tags
    assert "alert('$x$ & co')" in reader.text
    *data, script = reader.scripts
    assert all(json.loads(content)["series"] for content in data)
    assert "alert" not in script


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_figures_show_and_save_the_metrics_of_the_runs(page: bytes, tree: Path, tmp_path: Path) -> None:
    found = visit(page, tmp_path)
    assert found["errors"] == []
    assert found["width"] <= 400
    table = list(csv.DictReader(io.StringIO(found["files"]["curves0-step.csv"])))
    for algo in ("es", "ppo"):
        for seed in (1, 2):
            columns = read_columns(tree / f"{algo}{seed}")
            evaluated = np.isfinite(columns["eval/return_mean"])
            rows = [row for row in table if (row["group"], row["seed"]) == (algo, str(seed))]
            for name, metric in (("x", "step"), ("y", "eval/return_mean")):
                np.testing.assert_allclose([float(row[name]) for row in rows], columns[metric][evaluated], rtol=1e-8)
        mean = [row for row in table if (row["group"], row["seed"]) == (algo, "")]
        assert mean and all(float(row["low"]) <= float(row["iqm"]) <= float(row["high"]) for row in mean)
    row, shown = table[0], found["values"]["curves0-step"]
    assert f"{row['group']}, seed {row['seed']}" in shown
    for label, name in (("environment steps", "x"), ("eval/return_mean", "y")):
        (value,) = re.findall(rf"^{label}: (.*)$", shown, re.MULTILINE)
        assert float(value.replace(",", "")) == pytest.approx(float(row[name]), rel=1e-4)
    images = {name: content for name, content in found["files"].items() if name.endswith(".svg")}
    assert len(images) == Reader(page).text.count("SVG")
    for content in images.values():
        assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
        assert "currentColor" not in content and "var(" not in content


# What it says


def test_groups_are_labelled_by_keys_that_differ(tmp_path: Path) -> None:
    for k, (rate, seed) in enumerate([(0.1, 0), (0.1, 1), (0.2, 0)]):
        config = {"algo": {"name": "es", "rate": rate, "same": 3}, "env": {"id": "CartPole-v1"}, "seed": seed}
        write(tmp_path / str(k), [{"eval/return_mean": 10.0 * k}], config)
    groups = group(gather([tmp_path]).entries, "eval/return_mean")
    # The best median first: 20, then that of 0 and 10.
    assert [(one.label, one.scores.tolist()) for one in groups] == [("es, rate=0.2", [20]), ("es, rate=0.1", [0, 10])]


def test_runs_of_a_grid_show_their_differences(tmp_path: Path) -> None:
    for k, rate in enumerate((0.1, 0.2)):
        write(tmp_path / str(k), [{"eval/return_mean": 1.0}], CONFIG | {"algo": CONFIG["algo"] | {"rate": rate}})
    assert ">with</th>" not in report([tmp_path]).decode()
    (tmp_path / "multirun.yaml").touch()
    cells = re.findall(r'<a href="[^"]*">(\d)</a>\s*</td><td>([^<]*)</td>', report([tmp_path]).decode())
    assert cells == [("0", "rate=0.1"), ("1", "rate=0.2")]


def test_few_seeds_are_marked_and_one_has_no_probability(tmp_path: Path) -> None:
    scored(tmp_path, es_Cart=[1, 2, 3], ppo_Cart=[4, 5, 6, 7, 8], a2c_Cart=[9])
    page = report([tmp_path]).decode()
    groups, improvement = (
        re.findall(r"<td.*?</td>", page[page.index(f"<h2>{title}") :].partition("</table>")[0], re.DOTALL)
        for title in ("Groups", "Probability of improvement")
    )
    assert [bool(re.search("[34] seeds", cell)) for cell in groups if " to " in cell or "one seed" in cell] == [
        False,  # a2c, the best
        False,  # ppo
        True,
    ]
    text = [" ".join(re.sub("<.*?>", " ", cell).split()) for cell in improvement]
    assert text == [
        *("a2c", "–", "–", "–"),
        *("ppo", "–", "–", "1.00 [1.00, 1.00] 3 seeds"),
        *("es", "–", "0.00 [0.00, 0.00] 3 seeds", "–"),
    ]


def test_curves_are_compared_where_all_seeds_have_come() -> None:
    first = (np.array([0.0, 10.0, 20.0]), np.array([0.0, 10.0, 20.0]))
    second = (np.array([5.0, 15.0]), np.array([1.0, 3.0]))
    x, y = common_grid([first, second], points=3)
    assert (x.tolist(), y.tolist()) == ([5, 10, 15], [[5, 10, 15], [1, 2, 3]])
    assert common_grid([first, (first[0] + 21, first[1])])[0].size == 0


def test_scores_of_environments_are_normalized(tmp_path: Path) -> None:
    groups = scored(tmp_path, es_Cart=[0, 50], ppo_Cart=[100, 50], es_Walk=[-4, -2], ppo_Walk=[-2, -3], a2c_Poles=[1])
    found = {first.label: matrix.tolist() for first, matrix in normalize(groups)}
    # Cart spans 0 to 100, Walk -4 to -2.
    assert found == {"es": [[0, 0], [0.5, 1]], "ppo": [[1, 1], [0.5, 0.5]]}
    assert "Several environments" in Reader(report([tmp_path])).headings
    assert normalize([one for one in groups if one.env == "Cart"]) == []


def test_repeated_seeds_count_once_and_are_named(tmp_path: Path) -> None:
    rows = [{"eval/return_mean": 3.0}, {"eval/return_mean": 4.0}]
    for name, seed, length in (("one", 1, 2), ("copy", 1, 2), ("short", 1, 1), ("two", 2, 2)):
        write(tmp_path / name, rows[:length], CONFIG | {"seed": seed})
    material = gather([tmp_path])
    said = "counted once, since they repeat the settings and seed of another run"
    assert material.notes == {said: ["one (of copy)", "short (of copy)"]}
    (only,) = group(material.entries, "eval/return_mean")
    assert [entry.name for entry in only.entries] == ["copy", "two"]
    assert only.scores.tolist() == [4, 4]
    text = Reader(report([tmp_path])).text
    assert f"{said}: one (of copy), short (of copy)" in text


def test_run_and_its_rerun_begin_with_the_same_policy(tmp_path: Path) -> None:
    rows, theirs = [{"eval/return_mean": 3.0}], tmp_path / "theirs"
    for name, init_from, iteration in (
        ("run", theirs, 5),
        ("run-rerun", tmp_path / "run/initial.npz", 5),
        ("later", theirs, 9),
    ):
        run = write(tmp_path / name, rows, CONFIG | {"init_from": str(init_from)})
        facts = {"run": str(theirs), "algorithm": "es", "iteration": iteration}
        (run / "provenance.json").write_text(json.dumps({"init_from": facts}))
    material = gather([tmp_path])
    assert [names for said, names in material.notes.items() if "counted once" in said] == [["run-rerun (of run)"]]
    groups = group(material.entries, "eval/return_mean")
    assert [[entry.name for entry in each.entries] for each in groups] == [["later"], ["run"]]
    origin = f"{tmp_path.name}/theirs"
    assert [each.label for each in groups] == [f"es, init_from={origin}@9", f"es, init_from={origin}@5"]


def test_training_is_shown_for_one_group_and_for_several(tmp_path: Path) -> None:
    rows = [{"train/return_mean": 1.0, "eval/return_mean": 2.0}] * 2
    for algo in ("es", "ppo"):
        write(tmp_path / algo, rows, CONFIG | {"algo": {"name": algo}})
        assert "mean return in training" in Reader(report([tmp_path])).text


def test_commands_have_no_paths_of_the_machine(tmp_path: Path) -> None:
    run = write(tmp_path / "run", [{"eval/return_mean": 1.0}])
    (run / "provenance.json").write_text(json.dumps({"command": "/home/me/.venv/bin/python3.11 -u -m paddock algo=es"}))
    assert Reader(report([run])).text.rstrip().endswith("python -m paddock algo=es")


def test_final_evaluations_are_no_damage(tmp_path: Path) -> None:
    run = write(tmp_path / "run", [{"a": 1.0}, {"a": 2.0, "eval/return_mean": 3.0, "eval/of_iteration": 1}])
    with open(run / "metrics.jsonl", "a") as journal:
        journal.write('{"iteration": 2, "step": 20, "eval/return_mean": 4.0, "eval/of_iteration": 2}\n')
    assert gather([run]).notes == {}
    assert [group.scores.tolist() for group in group(gather([run]).entries, "eval/return_mean")] == [[4]]


# The command


def test_page_is_written_beside_one_folder_or_here(main: Main, tmp_path: Path) -> None:
    one, two = (write(tmp_path / name, [{"eval/return_mean": 1.0, "a": 2.0}]) for name in ("one", "two"))
    assert main(one) == (0, f"{one / 'report.html'}\n", "")
    assert main(one, two) == (0, "report.html\n", "")
    assert main(one, "out=mine.html", "score=a") == (0, "mine.html\n", "")
    assert "last a;" in Reader(Path("mine.html").read_bytes()).text
    assert main("--help")[1].startswith("Write a self-contained HTML report")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["RUN", "score=eval/retrun_mean"],
            "score=eval/retrun_mean is not a metric of these runs; did you mean 'eval/return_mean'?",
        ),
        (["."], "no run in ."),
    ],
)
def test_mistake_is_one_line(arguments: list[str], said: str, main: Main, tmp_path: Path) -> None:
    run = write(tmp_path / "run", [{"eval/return_mean": 1.0}])
    code, out, err = main(*(str(run) if argument == "RUN" else argument for argument in arguments))
    assert (code, out) == (2, "")
    assert said in err and err.count("\n") == 1
    assert not list(tmp_path.rglob("*.html"))
