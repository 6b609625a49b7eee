"""The program that the bench records: does a workload on a subject in a directory, and prints a line for each promise.

python -m tidelog.crash.subjects NAME DIRECTORY SEED
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidelog.crash.served import be_quiet
from tidelog.crash.subjects.registry import SUBJECTS
from tidelog.crash.subjects.subject import units_of


def main(name: str, directory: str, seed: str) -> None:
    """Do the workload in two lives."""
    be_quiet()
    subject, root = SUBJECTS[name], Path(directory)
    units = units_of(seed)
    half = len(units) // 2
    for life in (units[:half], units[half:]):
        with subject.open(root) as opened:
            for unit in life:
                opened.do(unit)
                print("promised", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
