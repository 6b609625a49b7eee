"""Writes the table of durations of slow tests, from what `--junitxml` wrote in a run of all of them.

`make durations` runs them and calls this with the file.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.gate.slow import TABLE, name_of

ROOT: Final = Path(__file__).parents[2]
LONG_S: Final = 30.0


def durations(report: Path) -> dict[str, float]:
    """Seconds of each test, by `file::function`; of each of its cases, if they take more than LONG_S together."""
    found = dict[str, float]()
    for name, of_cases in _cases(report).items():
        seconds = sum(of_cases.values())
        found |= of_cases if seconds > LONG_S else {name: seconds}
    return {name: round(seconds, 1) for name, seconds in sorted(found.items())}


def seconds_of(report: Path) -> dict[str, float]:
    """Seconds of all cases of each `file::function` together."""
    return {name: sum(of_cases.values()) for name, of_cases in _cases(report).items()}


def _cases(report: Path) -> dict[str, dict[str, float]]:
    """`file::function` -> case -> seconds."""
    cases: dict[str, dict[str, float]] = defaultdict(dict)
    for each in ElementTree.parse(report).iter("testcase"):
        case = f"{_file(each.attrib['classname'])}::{each.attrib['name']}"
        cases[name_of(case, ())][case] = float(each.attrib["time"])
    return cases


def _file(module: str) -> str:
    """The file of `tests.folder.test_x`, and the class behind it if there is one: `tests/folder/test_x.py::Class`."""
    path = Path(*module.split("."))
    if (ROOT / path).with_suffix(".py").is_file():
        return f"{path}.py"
    return f"{path.parent}.py::{path.name}"


if __name__ == "__main__":
    TABLE.write_text(json.dumps(durations(Path(sys.argv[1])), indent=0) + "\n")
