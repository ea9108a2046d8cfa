#!/usr/bin/env python3
"""Sum the durations of tests in pytest's reports: `scripts/durations.py JUNIT.xml... > tests/durations.txt`.

tests/lanes.py reads the table: the longest files start first, and `scripts/check --fast` skips them.
"""

import argparse
import xml.etree.ElementTree as ElementTree
from collections import defaultdict


def main() -> None:
    """Print wall time and processor time, for each file or for the longest tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", metavar="JUNIT.xml", help="written by pytest --junit-xml")
    parser.add_argument("--tests", type=int, default=0, metavar="N", help="show the N longest tests instead")
    arguments = parser.parse_args()
    tests: dict[str, tuple[float, float]] = {}
    for report in arguments.reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            properties = {one.get("name"): one.get("value") for one in case.iter("property")}
            file = next((part for part in case.get("classname", "").split(".") if part.startswith("test_")), "")
            took = float(case.get("time", 0)), float(properties.get("processor_s") or 0)
            tests[f"{file}::{case.get('name', '')}"] = took
    if arguments.tests:
        for name, (seconds, processor) in sorted(tests.items(), key=lambda item: -item[1][1])[: arguments.tests]:
            print(f"{seconds:7.1f}  {processor:9.1f}  {name}")
        return
    files: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, took in tests.items():
        files[name.partition("::")[0]].append(took)
    sums = {name: [sum(column) for column in zip(*each, strict=True)] for name, each in files.items()}
    seconds, processor = (sum(both[k] for both in sums.values()) for k in (0, 1))
    print(f"{len(tests)} tests, {seconds:.0f} s wall time, {processor:.0f} s processor time\n")
    print("seconds  processor  tests  file")
    for name, (seconds, processor) in sorted(sums.items(), key=lambda item: -item[1][0]):
        print(f"{seconds:7.1f}  {processor:9.1f}  {len(files[name]):5}  {name}")


if __name__ == "__main__":
    main()
