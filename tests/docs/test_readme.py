"""The README and the pages of docs/: their commands and their Python run, what they name is there, the site builds."""

import contextlib
import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bindings import need_of
from conftest import ROOT, call_main

from paddock import serve
from paddock.check import check_run, read_run
from paddock.envs.native.library import built
from paddock.envs.sanity.bandit import BANDIT
from paddock.envs.sanity.task import Bar
from paddock.envs.vector import auto
from paddock.health import sanity

pytestmark = pytest.mark.xdist_group("pages")  # what a process imports for one command serves the others

BESIDE_DOCS = ("README.md", "CONTRIBUTING.md")  # not on the site
FILES = [*(ROOT / name for name in BESIDE_DOCS), *ROOT.glob("docs/**/*.md")]
PAGES = {str(path.relative_to(ROOT)): path.read_text() for path in FILES}
GUIDES = [text for page, text in PAGES.items() if not page.startswith("docs/tutorial/")]  # others: test_tutorial.py
TEXT = "\n".join(GUIDES)
EXTEND = "\n".join(text for page, text in PAGES.items() if re.match(r"docs/(extend|custom_\w+)\.md", page))
BLOCK = re.compile(r"^```(\w*)(?: title=\"([^\"\n]+)\")?\n(.*?)^```", re.M | re.S)
COMMAND = re.compile(r"\S*python -m (?=platform|paddock)")
# What scripts/check and .ci/run do, and what test_site.py does.
ELSEWHERE = re.compile(
    r"python3 -m venv|\. \.venv/bin/activate|PATH=.* scripts/check|mkdocs build --strict -f docs/site/mkdocs.yml"
    r"|python scripts/results/"
)

SERVED = {  # where the pages have servers -> of what
    "127.0.0.1:3003": ["env=cartpole"],
}
LITTLE = ["budget.iterations=1", "algo.eval_episodes=1", "algo.eval_max_steps=20"]
QUICK = [*LITTLE, "algo.population=4"]  # one iteration of whatever it is
FEW_STEPS = [*LITTLE, "algo.num_steps=8", "vec.num_envs=4"]
ONE_PASS = ["algo.minibatch_size=16", "algo.epochs=1"]
FEW_UPDATES = [
    *FEW_STEPS,
    "algo.learning_starts=32",
    "algo.batch_size=8",
    "algo.log_every_steps=32",
    "algo.eval_every_steps=32",
]
PPO = re.compile("ppo(?!nents)")  # and no opponents
SHORT_SEQUENCES = ["vec.num_envs=2", "algo.sequence_length=8", "algo.burn_in=4", "algo.learning_starts=128"]
ONE_TRIAL = [
    "budget.iterations=1",
    "algo.eval_episodes=1",
    "hydra.sweeper.n_trials=1",
    "hydra.sweeper.finals=0",
    "hydra.sweeper.held_out=0",
]
TWO_MEMBERS = [*LITTLE, "algo.members=2", "algo.interval=1", "vec.num_envs=2", "algo.member.num_steps=4"]
TINY_POET = ["algo=poet", "env=poles", "compute=serial", "algo.hidden_sizes=[4]", "algo.reproduce_every=1"]
ONE_TASK = ["tasks=[bandit]", "seeds=1", "compute=serial"]  # of the sanity suite
# Whoever learns learns it: tests/sanity asks for more.
AT_A_GLANCE = replace(BANDIT, steps=64, memoryless=Bar(), recurrent=Bar(), deterministic=Bar())
ALWAYS_ADMIT = ["algo.reproduce_score=0", "algo.criterion_low=0", "algo.criterion_high=1000"]


def read_commands(pages: Iterable[str]) -> Iterator[str]:
    """Yield every command of ours in a block of shell, before what it prints, or with arguments in a line of text."""
    for page in pages:
        lines = [line for kind, _, body in BLOCK.findall(page) if kind == "bash" for line in body.splitlines()]
        lines += re.findall(r"^\$ (python -m platform .*)\n(?!paddock: )", page, re.M)
        spans = re.findall(r"`(\S*python -m [^`]+)`", BLOCK.sub("", page))
        for line in [*lines, *(span for span in spans if "..." not in span)]:
            words = shlex.split(line, comments=True)
            if COMMAND.match(line) and len(words) > 3:
                yield shlex.join(["python", *words[1:]])


COMMANDS = list(dict.fromkeys(read_commands(GUIDES)))
README = set(read_commands([PAGES["README.md"], PAGES["docs/start.md"]]))
ASKS = {"--help", "--cfg", "dry_run=true"}  # commands with these run nothing
MAIN = [line for line in COMMANDS if re.match(r"python -m (platform|paddock) ", line) and "my_package" not in line]
BESIDE = [line for line in COMMANDS if line.startswith("python -m paddock.") and "my_package" not in line]
NAMED = [line for line in COMMANDS if "my_package" in line and "losses" not in line]  # those are test_custom_loss.py's
OF_PACKAGE = [line for line in NAMED if not line.startswith("python -m paddock.")]
CHECK_PACKAGE = [line for line in NAMED if line not in OF_PACKAGE]


def shorten(command: str) -> str:
    """Name a test: pytest would number what is as long as some commands are."""
    return command.removeprefix("python -m ")[:70].rstrip()


def shrunk(words: Sequence[str]) -> list[str]:
    """Return what makes a command short: few steps and members, in this process where it does not say where."""
    said = " ".join(words)
    if {"--help", "--cfg", "dry_run=true"} & set(words):
        return []
    if "slurm" in said:
        return ["dry_run=true"]
    if re.search("sweep", said):
        unit = "steps" if re.search("algo=(dqn|sac|td3)", said) else "iterations"
        return [
            *ONE_TRIAL,
            f"algo.eval_every_{unit}=1",
            *([] if PPO.search(said) else ["algo.eval_max_steps=20"]),
        ]
    place = [] if "compute=" in said else ["compute=serial"]
    place += ["compute.workers=1"] if "compute=dask" in said else []
    place += ["vec=serial"] if "niche" in said else []
    if "pbt" in said:
        size = [] if "algo.member=" in said else ["algo.member.minibatch_size=8"]
        return [*TWO_MEMBERS, *size, *place]
    if PPO.search(said):
        return [*FEW_STEPS, *ONE_PASS, *place]
    if "pqn" in said:
        return [*FEW_STEPS, *ONE_PASS, "algo.log_every_steps=32", *place]
    if "=r2d2" in said:
        return [*FEW_UPDATES, *SHORT_SEQUENCES, *place]
    if re.search("dqn|apex|rainbow|sac|td3|ddpg", said):
        return [*FEW_UPDATES, *place]
    if "my_package" in said:
        return ["budget.iterations=1", *place]
    return [*(FEW_STEPS if "a2c" in said else QUICK), *place]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme") / "run"
    assert (
        call_main(
            "experiment=es_cartpole", "compute=serial", "algo.eval_every_iterations=1", *QUICK, f"run.dir={folder}"
        )
        == 0
    )
    return folder


@pytest.fixture(scope="module")
def poet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme") / "poet"
    assert call_main(*TINY_POET, *ALWAYS_ADMIT, *QUICK, "budget.iterations=2", f"run.dir={folder}") == 0
    return folder


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme") / "archive"
    words = ["experiment=map_elites_bipedal", "vec=serial", "compute=serial", "algo.batch_size=4"]
    assert call_main(*words, *LITTLE, "algo.hidden_sizes=[4]", f"run.dir={folder}") == 0
    return folder


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pettingzoo.classic", reason="install the extra multiagent")
    folder = tmp_path_factory.mktemp("readme") / "games"
    short = [*FEW_STEPS, *ONE_PASS, "compute=serial"]
    assert call_main("experiment=ppo_tictactoe", *short, f"run.dir={folder}") == 0
    played = [str(folder), "players=random", f"matrix={folder / 'matches.json'}", "episodes=2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["paddock.evaluate", *played])
        assert importlib.import_module("paddock.evaluate").main() == 0
    return folder


@pytest.fixture(scope="module")
def served() -> Iterator[dict[str, str]]:
    """Where servers are, by the address that the pages have."""
    pytest.importorskip("grpc", reason="grpcio is not installed")
    here = ["vec=serial", "vec.num_envs=32", "serve.address=127.0.0.1:0"]
    with contextlib.ExitStack() as stack:
        servers = {at: stack.enter_context(closing(serve.start([*what, *here]))) for at, what in SERVED.items()}
        yield {at: server.address for at, server in servers.items()}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, in which `vec=auto` decides at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(auto, "ROUND_S", 0.001)
    return tmp_path


def filled(command: str, request: pytest.FixtureRequest) -> list[str]:
    """A command's words after the module, with folders of real runs in the place of names."""
    words = shlex.split(command)[3:]
    for at in SERVED:
        if any(at in word for word in words):
            words = [word.replace(at, request.getfixturevalue("served")[at]) for word in words]
    for name, fixture in {"RUN": "run", "POET": "poet", "GAMES": "games", "ARCHIVE": "archive"}.items():
        if any(re.search(rf"\b{name}\b", word) for word in words):
            folder = str(request.getfixturevalue(fixture))
            words = [re.sub(rf"\b{name}\b", folder, word) for word in words]
    return words


def test_the_first_command_works_in_a_process_of_its_own(here: Path) -> None:
    first = next(line for line in COMMANDS if "-m platform" in line)
    words = shlex.split(first)
    command = [sys.executable, *words[1:], *shrunk(words), f"run.root={here}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert list(here.glob("*/metrics.jsonl"))


@pytest.mark.parametrize("command", MAIN[1:], ids=shorten)
def test_a_command_works(command: str, here: Path, request: pytest.FixtureRequest) -> None:
    if "vec=native" in command and not built():
        pytest.skip("nothing was compiled here")
    need_of(shlex.split(command))
    words = [re.sub(r"^seed=(\d+),.*", r"seed=\1", word) for word in filled(command, request)]  # a sweep of one
    # The README's commands run; those of other pages are composed and built.
    played = command in README or "niche" in command or "sweep" in command
    short = shrunk(words) if played else ["dry_run=true"]
    assert call_main(*words, *(short if not ASKS & set(words) else [])) == 0
    assert ASKS & {*words, *short} or list(here.rglob("metrics.jsonl"))


@pytest.mark.parametrize("command", BESIDE, ids=shorten)
def test_a_command_beside_the_run_works(
    command: str, here: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = shlex.split(command)[2]
    need_of(shlex.split(command))
    words = filled(command, request)
    for folder in {word for word in words if word.startswith("multirun/") or word == "SWEEP"}:
        run = request.getfixturevalue("run")
        (here / folder).parent.mkdir(exist_ok=True)
        if module == "paddock.compare":  # which takes three seeds
            for seed in range(3):
                config = shutil.copytree(run, here / folder / str(seed)) / "config.yaml"
                config.write_text(re.sub("(?m)^seed: .*", f"seed: {seed}", config.read_text()))
        else:
            (here / folder).symlink_to(run.parent)
    if module == "paddock.serve" and words[0] != "status":
        words += ["serve.address=127.0.0.1:0"]
        monkeypatch.setattr(serve, "_wait", lambda server: 0)
    if module == "paddock.sanity":
        words += ONE_TASK
        monkeypatch.setitem(sanity.TASKS, "bandit", AT_A_GLANCE)
    words += ["episodes=2"] if "players=" in command and "episodes=" not in command else []
    monkeypatch.setattr(sys, "argv", [module, *words])
    assert importlib.import_module(module).main() == 0


def test_a_command_for_several_machines_has_keys_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = [body for kind, _, body in BLOCK.findall(TEXT) if kind == "sh"]
    lines = [line for body in bodies for line in body.splitlines() if COMMAND.match(line)]
    assert [sum(part in line for line in lines) for part in ("paddock.serve", "vec=remote")] == [2, 4]
    for line in lines:
        _, _, module, *words = (word for word in shlex.split(line) if word != "...")
        config = ["--config-name=serve"] if module == "paddock.serve" else []
        assert call_main(*config, *words, "--cfg", "job") == 0, capsys.readouterr().err


def test_every_line_of_shell_is_run_somewhere() -> None:
    lines = [line for kind, _, body in BLOCK.findall(TEXT) if kind == "bash" for line in body.splitlines() if line]
    assert [line for line in lines if not COMMAND.match(line) and not ELSEWHERE.match(line)] == []


def test_the_mistake_it_shows_is_answered_as_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    for page in ("README.md", "docs/configure.md"):
        shown = re.search(r"```\n\$ python -m platform (.*)\n(paddock: .*)\n```", PAGES[page])
        assert shown is not None
        assert call_main(*shlex.split(shown[1])) == 2
        assert capsys.readouterr().err.strip() == shown[2]


def test_the_package_that_extends_it_works(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _, title, body in BLOCK.findall(EXTEND):
        if title:
            (here / title).parent.mkdir(parents=True, exist_ok=True)
            (here / title).write_text(body)
    algorithm = (here / "my_package" / "hill_climbing.py").read_text()
    assert len(re.search(r"^class .*?\n\n\n", algorithm, re.M | re.S)[0].splitlines()) <= 40  # type: ignore[index]
    monkeypatch.syspath_prepend(here)
    assert len(OF_PACKAGE) == 7
    for command in OF_PACKAGE:
        words = shlex.split(command)[3:]
        assert call_main(*words, *shrunk(words), f"run.dir={here / str(len(list(here.iterdir())))}") == 0
    climbing = next(line for line in OF_PACKAGE if "hill_climbing" in line)
    # Its run goes on to the same bytes as one that was not stopped, on other workers.
    words = [word for word in shlex.split(climbing)[3:] if not word.startswith(("compute", "budget"))]
    for folder, bounds in {"once": [4], "twice": [2, 4]}.items():
        for iterations in bounds:
            assert call_main(*words, "compute=serial", f"budget.iterations={iterations}", f"run.dir={folder}") == 0
    rows = (here / "once" / "metrics.jsonl").read_text()
    assert rows == (here / "twice" / "metrics.jsonl").read_text()
    best = [json.loads(line)["hill/best"] for line in rows.splitlines()]
    assert len(best) == 4 and best == sorted(best) and best[-1] > -5.0  # who stands still has -5
    monkeypatch.setattr(sys, "argv", ["evaluate", "once", "episodes=2"])
    assert importlib.import_module("paddock.evaluate").main() == 0
    world, check = sorted(CHECK_PACKAGE, key=lambda line: "algo=" in line)
    for command in (world, check):
        monkeypatch.setattr(sys, "argv", shlex.split(command)[2:])
        assert importlib.import_module("paddock.check").main() == 0
    forgetful = here / "my_package" / "hill_climbing.py"
    forgetful.write_text(forgetful.read_text().replace(', "best_return")', ")"))
    monkeypatch.delitem(sys.modules, "my_package.hill_climbing")
    found = check_run(*read_run(shlex.split(check)[3:]))
    said = next(str(finding) for name, finding in found if name == "state")
    assert f"`FAIL state: {said}`" in " ".join(EXTEND.split())


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "```python\n" in text])
def test_the_python_it_shows_runs(page: str, run: Path, here: Path) -> None:
    known: dict[str, Any] = {}
    for kind, title, body in BLOCK.findall(PAGES[page]):
        if kind != "python" or title:
            continue
        if "mpe2" in body or "tictactoe" in body:
            pytest.importorskip("mpe2")
        if "stable_baselines3" in body:
            pytest.importorskip("stable_baselines3")
        if "onnxruntime" in body:
            pytest.importorskip("onnxruntime")
        if "__main__" in body:
            printed = _run(re.sub(r'compute="dask", address="[^"]+"', 'compute="local"', body))
            if page == "docs/compute.md":
                assert printed == "[1, 2, 4, 8, 16] [1, 1, 2, 6, 24]\n"
            elif "square" in body:  # pairs of process and square
                assert sorted(map(int, re.findall(r", (\d+)\)", printed))) == [1, 4, 9, 16]
        else:
            exec(body.replace('"RUN"', repr(str(run))), known)
    if "venv" in known:
        assert known["observations"].shape == (64, 4)
        known["venv"].close()


def _run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_it_names_is_there() -> None:
    missing = []
    for page, text in PAGES.items():
        links = [link for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if not link.startswith("http")]
        links = [link for link in links if not re.match("(reference/)?config/", link)]  # made as the site is built
        missing += [f"{page}: {link}" for link in links if not (ROOT / page).parent.joinpath(link).exists()]
        named = re.findall(r"`((?:conf|algos|envs|platform|scripts|tests|notebooks|docs)/[\w./]+)`", text)
        missing += [f"{page}: {name}" for name in named if not (ROOT / name).exists()]
        for file, function in re.findall(r"`([\w/]+\.py):(\w+)`", text):
            source = (ROOT / file).read_text() if (ROOT / file).exists() else ""
            missing += (
                [] if re.search(rf"^ *(def |class )?{function}\b", source, re.M) else [f"{page}: {file}:{function}"]
            )
        for script, options in re.findall(r"`python (scripts/\S+\.py)([^`]*)`", text):
            source = (ROOT / script).read_text()
            missing += [
                f"{page}: {script} {option}" for option in re.findall(r"--\w+", options) if option not in source
            ]
    assert missing == []


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 110
