"""Count CPython's own cases for `multiprocessing` that pass on `paddock.compute`: scripts/stdlib_cases.py local dask.

Prints passed, failed and skipped cases per class, and the last line of each failure; exits with 1 if less than 85 % of
the cases that neither need a fork nor shared memory pass.
"""

import argparse
import signal
import sys
import traceback
import unittest
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/compute")]

LEAST = 0.85
LIMIT_S = 60.0
OUTCOMES = ("passed", "failed", "skipped")


class Result(unittest.TestResult):
    """Outcomes by class, and the failures."""

    def __init__(self) -> None:
        """Start without outcomes."""
        super().__init__()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.reasons: dict[str, str] = {}

    def addSuccess(self, test):  # noqa: N802
        """Count a case that passed."""
        self.counts[test.group, "passed"] += 1

    def addSkip(self, test, reason):  # noqa: N802
        """Count a case that was skipped."""
        self.counts[test.group, "skipped"] += 1

    def addFailure(self, test, error):  # noqa: N802
        """Count a case that failed."""
        self.counts[test.group, "failed"] += 1
        text = "".join(traceback.format_exception(*error)).strip()
        self.reasons[test.id().partition(".")[2]] = text.rpartition("\n")[2]

    addError = addFailure  # noqa: N815

    def addSubTest(self, test, subtest, error):  # noqa: N802
        """Count a part of a case that failed."""
        if error is not None:
            self.addFailure(test, error)

    def startTest(self, test):  # noqa: N802
        """Show which case runs."""
        super().startTest(test)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S, LIMIT_S)
        print(test.id().partition(".")[2], end="\r\x1b[K", file=sys.stderr, flush=True)

    def stopTest(self, test):  # noqa: N802
        """Stop the clock."""
        signal.setitimer(signal.ITIMER_REAL, 0)


def stop_case(*_: object) -> None:
    """Fail a case that takes too long."""
    raise TimeoutError(f"not finished after {LIMIT_S:g} s")


def count(compute: str, workers: int, pattern: str) -> bool:
    """Run the cases on a backend, print the counts, and return whether enough passed."""
    import stdlib_cases

    from paddock.compute import cluster

    suite, result = unittest.TestSuite(), Result()
    for case in stdlib_cases.CASES:
        found = unittest.defaultTestLoader.loadTestsFromTestCase(case)
        suite.addTests(test for test in found if pattern in test.id())  # type: ignore[union-attr]
    with cluster(compute, **({} if compute == "local" else {"workers": workers})), stdlib_cases.ours():
        suite.run(result)
    print(f"\n{compute:12}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES))
    for group in stdlib_cases.BY_GROUP:
        print(f"  {group:10}" + "".join(f"{result.counts[group, outcome]:9}" for outcome in OUTCOMES))
    totals = {outcome: sum(n for (_, name), n in result.counts.items() if name == outcome) for outcome in OUTCOMES}
    share = totals["passed"] / max(totals["passed"] + totals["failed"], 1)
    print(f"  {'all':10}" + "".join(f"{totals[outcome]:9}" for outcome in OUTCOMES) + f"   {share:.0%} of those run")
    for name, reason in result.reasons.items():
        print(f"    {name}: {reason[:160]}")
    return share >= LEAST


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("compute", nargs="*", default=["local", "dask"], help="options of conf/compute")
    parser.add_argument("--workers", type=int, default=2, help="workers of each cluster that is started")
    parser.add_argument("-k", dest="pattern", default="", help="run only cases whose name contains this")
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, stop_case)
    outcomes = [count(compute, arguments.workers, arguments.pattern) for compute in arguments.compute]
    sys.exit(not all(outcomes))
