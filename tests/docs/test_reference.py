"""The reference pages are complete: every configuration key, every metric, every name of another library."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from conftest import ROOT, TINY, call_main, last_of_each, rows

from paddock.config.vocabulary import find_usual

spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "site" / "reference.py")
assert spec is not None and spec.loader is not None
reference: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)

METRICS = (ROOT / "docs" / "reference" / "metrics.md").read_text()
NAMES = (ROOT / "docs" / "names.md").read_text()
# Options that set keys of other groups, and have none of their own.
RECIPES = ("experiment", "sweep", "algo/sanity")

SHORT = ["compute=serial", "algo.hidden_sizes=[8]", "algo.eval_episodes=2"]
ON_POLICY = [*SHORT, "vec.num_envs=4", "algo.num_steps=32", "algo.eval_every_iterations=1", "budget.iterations=2"]
MINIBATCHES = ["algo.minibatch_size=64", "algo.epochs=1"]
REPLAY = [
    *(*SHORT, "vec.num_envs=2", "algo.num_steps=8", "algo.learning_starts=64", "algo.batch_size=8"),
    *("algo.log_every_steps=128", "algo.eval_every_steps=128", "budget.steps=256", "env.max_episode_steps=20"),
]
AGENTS = ["env=relay", "env.id=agents:Mortals"]
PLAYED = {  # runs that together report every metric
    "es": [*TINY, "compute=serial", "budget.iterations=2"],
    "map_elites": [*SHORT, "algo=map_elites", "env=cartpole", "algo.batch_size=4", "budget.iterations=10"],
    "poet": [*SHORT, "algo=poet", "env=poles", "algo.population=4", "algo.eval_max_steps=8", "budget.iterations=2"],
    "pbt": [
        *("experiment=pbt_cartpole", "compute=serial", "algo.members=2", "algo.interval=1", "algo.eval_episodes=1"),
        *("vec.num_envs=2", "algo.member.minibatch_size=64", "budget.iterations=1"),
    ],
    "ppo": [
        *ON_POLICY,
        *MINIBATCHES,
        *AGENTS,
        "algo=ppo",
        "env.metrics=[steps]",
        "algo.policies={x: [a, b], y: [c, d]}",
    ],
    "a2c": [*ON_POLICY, "algo=a2c", "algo.rollouts=actors", "algo.eval_max_steps=5"],
    "dqn": [*REPLAY, "algo=dqn", "env=cartpole"],
    "apex": [*REPLAY, "algo=apex", "env=cartpole"],
    "sac": [*REPLAY, "algo=sac", "env=pendulum"],
    "td3": [*REPLAY, "algo=td3", "env=pendulum"],
    "ddpg": [*REPLAY, "algo=ddpg", "env=pendulum"],
    "r2d2": [*REPLAY, "algo=r2d2", "env=recall", "algo.sequence_length=8", "algo.burn_in=4"],
    "pqn": [*REPLAY[:4], *MINIBATCHES, "algo=pqn", "env=cartpole", *REPLAY[-4:]],
}


def leaves(node: Any, path: str) -> Iterator[str]:
    """The path of every key that has a value."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}")
    else:
        yield path


def test_every_key_of_the_configuration_is_on_a_page() -> None:
    pages = {name: reference.config_page(name) for name in reference.PAGES}
    missing = []
    for path in sorted((ROOT / "conf").rglob("*.yaml")):
        folder = path.parent.relative_to(ROOT / "conf").as_posix()
        if folder in RECIPES:
            continue
        text = path.read_text()
        keys = yaml.safe_load(text) or {}
        keys.pop("defaults", None)
        prefix = "" if folder == "." or "@package _global_" in text else folder.replace("/", ".")
        page = pages["run" if folder == "." else "sweep" if folder.startswith("hydra") else folder.partition("/")[0]]
        heading = reference.HEADINGS.get(path.name, path.stem)
        section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
        assert section is not None, path
        listed = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \| \S", common(page) + section[1], re.M))
        for key in leaves(keys, prefix) if keys else ():
            key = key.lstrip(".")
            above = [key.rsplit(".", k)[0] for k in range(key.count(".") + 1)]  # a flow mapping is one value
            last = key.rpartition(".")[2]
            if not (key in listed or any(last in listed.get(other, "") for other in above)):
                missing.append(f"{path.name}: {key}")
    assert not missing


def common(page: str) -> str:
    """The first section of the page of environments, whose rows the others do not repeat."""
    return page.split("\n## ")[1] if "## gymnasium" in page else ""


def reporters(cell: str) -> set[str]:
    """The algorithms that the last column of the page on metrics names."""
    named = set(re.findall(r"`(\w+)`", cell))
    return set(PLAYED) - named if cell.startswith("all") else named


def test_the_page_of_metrics_is_what_runs_report(tmp_path: Path) -> None:
    table = re.findall(r"^\| `([\w/]+)` \| [^|]+\|[^|]*\| ([^|]+) \|$", METRICS, re.M)
    page = {name: reporters(cell) for name, cell in table}
    reported: dict[str, set[str]] = {}
    for algorithm, words in PLAYED.items():
        assert call_main(*last_of_each(words), f"run.dir={tmp_path / algorithm}") == 0
        for journal in ("metrics.jsonl", "system.jsonl"):
            for name in {name for row in rows(tmp_path / algorithm, journal) for name in row}:
                name = re.sub(r"/[xy]/", "/", name)  # a policy
                name = re.sub(r"^score/\d+$", "score/N", name)
                name = re.sub(r"^pbt/(learning_rate|clip_coef|entropy_coef)$", "pbt/NAME", name)
                name = re.sub(r"/steps_mean$", "/NAME_mean", name)
                reported.setdefault(name, set()).add(algorithm)
    assert reported.keys() - page.keys() == set()
    assert page.keys() - reported.keys() == set()
    assert {name: found - page[name] for name, found in reported.items() if found - page[name]} == {}


def test_the_names_of_other_libraries_lead_to_the_keys_on_the_page() -> None:
    lines = [line.strip("|").split("|") for line in NAMES.splitlines() if line.startswith("| `")]
    wrong = []
    for ours, *others in (line[:4] for line in lines if len(line) == 5):
        keys = re.findall(r"`([\w.]+)`", ours)
        for name in re.findall(r"`(\w+)`", " ".join(others)):
            if not any(name == key.rpartition(".")[2] or key in find_usual(name) for key in keys):
                wrong.append((name, keys))
    assert lines and not wrong
