"""What can be said of an installation when nothing is installed: the interpreter, the packages, the project itself."""

import importlib.metadata
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .. import CONF, ROOT

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OLDEST = (3, 11)
INSTALL = "pip install -c constraints.txt -e . in the repository's root"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's."""

    level: Literal["ok", "warn", "FAIL"]
    text: str
    remedy: str = ""  # where the level is not ok

    def __str__(self) -> str:
        return self.text + (f"; {self.remedy}" if self.remedy else "")


def print_findings(findings: Iterable[tuple[str, Finding]]) -> int:
    """Print a line for each thing as it is found; returns the exit code, 1 where something FAILs."""
    failed = False
    for name, finding in findings:
        print(f"{finding.level:4} {name}: {finding}", flush=True)
        failed |= finding.level == "FAIL"
    return int(failed)


def check_python(version: Sequence[int] = sys.version_info[:3], oldest: tuple[int, int] = OLDEST) -> Finding:
    """Python is new enough."""
    found = ".".join(map(str, version))
    if tuple(version[:2]) < oldest:
        return Finding("FAIL", f"{found} at {sys.executable}", f"use Python {oldest[0]}.{oldest[1]} or newer")
    return Finding("ok", f"{found} at {sys.executable}")


def check_packages(requirements: Sequence[str] | None = None) -> Finding:
    """The required packages are here, in the versions that are asked for."""
    try:
        import packaging.requirements  # noqa: F401, comes with several of them
    except ImportError:
        return Finding("FAIL", "none is installed", INSTALL)
    wanted = [*_all(requirements if requirements is not None else _required())]
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
    return Finding("ok", f"all {len(wanted)} that are required")


def check_import(names: Sequence[str] = ("paddock.algos", "paddock.envs")) -> Finding:
    """A process that starts in another folder, as workers do, imports the project, and the same one."""
    code = f"import {', '.join(names)}; print(paddock.CONF)"
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run([sys.executable, "-c", code], cwd=elsewhere, capture_output=True, text=True)
    remedy = "pip install -e . in the repository's root"
    if done.returncode != 0:
        return Finding("FAIL", f"outside this folder: {last_line(done.stderr)}", remedy)
    if Path(done.stdout.strip()) != CONF:
        return Finding("FAIL", f"outside this folder Python finds another one, of {done.stdout.strip()}", remedy)
    return Finding("ok", "paddock in any folder")


def _required() -> list[str]:
    # What pip noted down when it installed the project may be older than the file.
    project = ROOT / "pyproject.toml"
    if project.exists():
        return tomllib.loads(project.read_text())["project"]["dependencies"]
    return importlib.metadata.requires("paddock") or []


def _all(requirements: Sequence[str]) -> Iterator["Requirement"]:
    """Requirements that hold on this machine, with those of their extras."""
    from packaging.requirements import Requirement

    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        yield requirement
        for extra in requirement.extras:
            for further in map(Requirement, _requires(requirement.name)):
                marker = further.marker
                if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
                    yield further


def _requires(name: str) -> list[str]:
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def last_line(text: str) -> str:
    """What a failed command says in the end."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "nothing"


def in_words(error: BaseException) -> str:
    """An exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
