"""The guard of a refactoring: workloads that must come to the same bytes, states, replies and verdicts as before.

    python -m tests.guard record [NAME...]        run, and keep what came out as tests/guard/hashes.json
    python -m tests.guard compare [NAME...]       run, and say which workload and aspect parts where; exit code 1
    python -m tests.guard dump FOLDER [NAME...]   run, and write everything as text, one line an item
    python -m tests.guard diff FOLDER FOLDER      the first line that differs of each file of two dumps
    python -m tests.guard names                   list the workloads

A dump of an earlier version: run this with PYTHONPATH at the `src` of a checkout of it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.guard import record
from tests.guard.workloads import WORKLOADS, run

import tidelog


def commit() -> str:
    """The commit that is checked out where the program lies."""
    source = Path(tidelog.__file__).resolve().parent
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=source, capture_output=True, text=True
    )
    return told.stdout.strip() or "no commit"


def ran(names: list[str]) -> dict[str, dict[str, record.Items]]:
    found = {}
    for name in names:
        started = time.perf_counter()
        found[name] = run(name)
        counts = ", ".join(f"{len(items)} {aspect}" for aspect, items in found[name].items())
        print(f"{name}: {counts}, {time.perf_counter() - started:.1f} s", flush=True)
    return found


def record_all(names: list[str]) -> int:
    recorded = record.load() if record.DATA.exists() and names != list(WORKLOADS) else {}
    for name, found in ran(names).items():
        recorded[name] = {aspect: record.kept(items) for aspect, items in found.items()}
    record.save({name: recorded[name] for name in WORKLOADS if name in recorded}, commit())
    return 0


def compare(names: list[str]) -> int:
    recorded = record.load()
    parted = 0
    for name in names:
        if name not in recorded:
            print(f"{name}: nothing was recorded of it")
            parted += 1
            continue
        for difference in record.differences(name, recorded[name], ran([name])[name]):
            print(difference)
            parted += 1
    print(f"{parted} differences in {len(names)} workloads")
    return 1 if parted else 0


def dump(folder: Path, names: list[str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        record.dump(name, ran([name])[name], folder)
    return 0


def diff(before: Path, after: Path) -> int:
    parted = 0
    for path in sorted(before.glob("*.txt")):
        old, new = path.read_text().split("\n"), (after / path.name).read_text().split("\n")
        for number, pair in enumerate(zip(old, new, strict=False)):
            if pair[0] != pair[1]:
                print(f"{path.name}, item {number}:\n- {pair[0][:4000]}\n+ {pair[1][:4000]}")
                break
        else:
            if len(old) == len(new):
                continue
            print(f"{path.name}: {len(old)} lines and {len(new)}, equal as far as both go")
        parted += 1
    print(f"{parted} files differ")
    return 1 if parted else 0


def main(args: list[str]) -> int:
    match args:
        case ["names"]:
            print("\n".join(WORKLOADS))
            return 0
        case ["diff", before, after]:
            return diff(Path(before), Path(after))
        case ["dump", folder, *names]:
            return dump(Path(folder), names or list(WORKLOADS))
        case ["record", *names]:
            return record_all(names or list(WORKLOADS))
        case ["compare", *names]:
            return compare(names or list(WORKLOADS))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
