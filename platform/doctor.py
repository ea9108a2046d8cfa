"""Diagnose whether this machine and the workers of a pool can run experiments.

python -m paddock.doctor compute=dask compute.address=tcp://10.0.0.1:8786
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .config.build import build
from .config.command import parse_overrides, run_command
from .config.compose import compose_sections
from .health import checks
from .health.installed import Finding, check_import, check_packages, print_findings

SECTIONS = ("compute", "run", "vec")


def main() -> int:
    """Run the command `paddock.doctor`; return 1 if a check fails."""
    return run_command("doctor", lambda arguments: print_findings(examine(arguments)))


def examine(arguments: Sequence[str]) -> Iterator[tuple[str, Finding]]:
    """Run the checks; yield the name and finding of each."""
    parse_overrides("doctor", arguments, {}, SECTIONS)
    sections = compose_sections(SECTIONS, arguments)
    asks_pool = any(argument.startswith("compute") for argument in arguments)
    pool = build("compute", sections["compute"]) if asks_pool else None
    servers = build("vec", sections["vec"]) if "vec=remote" in arguments else None
    yield "python", Finding("ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}")
    yield "packages", check_packages()
    yield "project", check_import()
    yield "disk", checks.check_disk(Path(sections["run"]["root"]))
    yield "native", checks.check_native()
    yield "gpu", checks.check_gpu()
    yield "wandb", checks.check_wandb()
    yield "slurm", checks.check_slurm()
    if pool is not None:
        yield from checks.check_compute(pool)
    if servers is not None:
        from .health.server import check_server  # needs gRPC

        yield from check_server(servers)


if __name__ == "__main__":
    sys.exit(main())
