"""Writes the table of durations of slow tests, from what `--junitxml` wrote in a run of all of them.

`make durations` runs them and calls this with the file.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from tests.gate.slow import ROOT, TABLE, name_of


def durations(report: Path) -> dict[str, float]:
    """Seconds of each test, all of its cases together, by `file::function`."""
    found: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        name = "::".join((_file(case.attrib["classname"]), case.attrib["name"]))
        found[name_of(name)] += float(case.attrib["time"])
    return {name: round(seconds, 1) for name, seconds in sorted(found.items())}


def _file(module: str) -> str:
    """The file of `tests.folder.test_x`, and the class behind it if there is one: `tests/folder/test_x.py::Class`."""
    path = Path(*module.split("."))
    if (ROOT / path).with_suffix(".py").is_file():
        return f"{path}.py"
    return f"{path.parent}.py::{path.name}"


if __name__ == "__main__":
    TABLE.write_text(json.dumps(durations(Path(sys.argv[1])), indent=0) + "\n")
