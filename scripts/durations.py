#!/usr/bin/env python3
"""Tell how long tests took, from pytest's reports: `scripts/durations.py JUNIT.xml... > tests/durations.txt`.

tests/lanes.py reads the table: the longest tests begin first, and `scripts/check --fast` leaves them out.
"""

import argparse
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

SHOWN_S = 0.1  # tests that took less are in the sum of their file alone


def main() -> None:
    """Print the table: seconds by the clock and of the processor, of files and of their longer tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "reports", nargs="+", type=read_report, metavar="JUNIT.xml", help="what pytest --junit-xml wrote"
    )
    tests: dict[str, tuple[float, float]] = {}
    for report in parser.parse_args().reports:
        for case in report.iter("testcase"):
            properties = {one.get("name"): one.get("value") for one in case.iter("property")}
            name = case.get("name", "")
            head = name.rpartition("@")[0]  # pytest-xdist appends the group
            name = head if head and ("[" not in head or head.endswith("]")) else name
            file = next((part for part in case.get("classname", "").split(".") if part.startswith("test_")), "")
            tests[f"{file}::{name}"] = float(case.get("time", 0)), float(properties.get("processor_s") or 0)
    files: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, took in tests.items():
        files[name.partition("::")[0]].append(took)
    sums = {name: (sum(s for s, _ in each), sum(p for _, p in each)) for name, each in files.items()}
    print(f"{len(tests)} tests, {sum(s for s, _ in sums.values()):.0f} s, of the processor {total(sums):.0f} s\n")
    print("seconds  processor  tests  file")
    for name, (seconds, processor) in sorted(sums.items(), key=lambda item: -item[1][0]):
        print(f"{seconds:7.1f}  {processor:9.1f}  {len(files[name]):5}  {name}")
    print(f"\nseconds  processor  test (of {SHOWN_S} s and more)")
    for name, (seconds, processor) in sorted(tests.items(), key=lambda item: -item[1][0]):
        if seconds >= SHOWN_S:
            print(f"{seconds:7.1f}  {processor:9.1f}  {name}")


def read_report(path: str) -> ElementTree.Element:
    """Read a report that the command line names, where it can be refused."""
    try:
        return ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise argparse.ArgumentTypeError(f"{path} is no report of pytest's ({error})") from error


def total(sums: dict[str, tuple[float, float]]) -> float:
    """The seconds of the processor."""
    return sum(processor for _, processor in sums.values())


if __name__ == "__main__":
    main()
