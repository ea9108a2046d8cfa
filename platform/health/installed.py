"""Checks of the installed packages and of the project itself, and how findings are printed."""

import importlib.metadata
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from .. import CONF, ROOT

INSTALL = "pip install -c constraints.txt -e . in the repository's root"


@dataclass(frozen=True)
class Finding:
    """Result of a check, printed in one line."""

    level: Literal["ok", "warn", "FAIL"]
    text: str
    remedy: str = ""  # empty if the level is ok

    def __str__(self) -> str:
        return self.text + (f"; {self.remedy}" if self.remedy else "")


def print_findings(findings: Iterable[tuple[str, Finding]]) -> int:
    """Print a line for each finding as it arrives, and return the exit code: 1 if any check fails."""
    failed = False
    for name, finding in findings:
        print(f"{finding.level:4} {name}: {finding}", flush=True)
        failed |= finding.level == "FAIL"
    return int(failed)


def check_packages(requirements: Sequence[str] | None = None) -> Finding:
    """Check that the required packages are installed in the required versions."""
    every = [Requirement(line) for line in (_required() if requirements is None else requirements)]
    wanted = [one for one in every if one.marker is None or one.marker.evaluate({"extra": ""})]
    wrong = []
    for requirement in wanted:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version} is not {requirement.specifier}")
    if wrong:
        return Finding("FAIL", ", ".join(wrong), INSTALL)
    return Finding("ok", f"all {len(wanted)} requirements are met")


def check_import() -> Finding:
    """Check that a process in another folder, such as a worker, imports this project."""
    code = "import paddock.algos, paddock.envs; print(paddock.CONF)"
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run([sys.executable, "-c", code], cwd=elsewhere, capture_output=True, text=True)
    remedy = "pip install -e . in the repository's root"
    if done.returncode != 0:
        return Finding("FAIL", f"outside this folder: {last_line(done.stderr)}", remedy)
    if Path(done.stdout.strip()) != CONF:
        return Finding("FAIL", f"outside this folder Python imports another copy: {done.stdout.strip()}", remedy)
    return Finding("ok", "paddock can be imported from any folder")


def _required() -> list[str]:
    # pip's metadata may be older than the file.
    project = ROOT / "pyproject.toml"
    if project.exists():
        return tomllib.loads(project.read_text())["project"]["dependencies"]
    return importlib.metadata.requires("paddock") or []


def last_line(text: str) -> str:
    """Return the last line of a failed command's output."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "nothing"


def format_error(error: BaseException) -> str:
    """Format an exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
