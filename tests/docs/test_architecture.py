"""The page on architecture and its laws: short reading lists, a loss in each algorithm file, single-agent code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
LIMITS = {"ES": (12, 2200), "PPO": (14, 3000), "SAC": (13, 2600)}  # files and lines from `plan` to the gradient


@pytest.mark.parametrize("algorithm", LIMITS)
def test_an_algorithm_is_read_in_few_files_and_lines(algorithm: str) -> None:
    section = PAGE.split(f"## Reading {algorithm}\n")[1].split("\n## ")[0]
    files = re.findall(r"^\| `([\w/.]+\.py)`", section, re.M)
    lines = sum(len((ROOT / file).read_text().splitlines()) for file in files)
    most_files, most_lines = LIMITS[algorithm]
    assert files[0] == f"algos/{algorithm.lower()}.py"
    assert len(files) <= most_files and lines <= most_lines, (len(files), lines)


@pytest.mark.parametrize("name", ["ppo", "a2c", "dqn", "sac", "td3", "r2d2", "pqn"])
def test_each_algorithm_file_has_its_loss(name: str) -> None:
    assert re.search(r"^def \w+_loss(es)?\(", (ROOT / "algos" / f"{name}.py").read_text(), re.M)


def test_single_agent_code_does_not_mention_agents() -> None:
    word = re.compile(r"\b(agents?|seats?|seated|roles?)\b", re.IGNORECASE)
    files = [*(ROOT / "algos" / "learning").rglob("*.py"), *(ROOT / "algos" / "networks" / "heads").glob("*.py")]
    assert files
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if word.search(line) and "multiagent" not in line
    ]
    assert not found, "\n".join(found)
