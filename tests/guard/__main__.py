"""The guard of a refactoring: workloads that must come to the same bytes, states, replies and verdicts as before.

    python -m tests.guard record [NAME...]        run those that were not recorded yet, and keep what came out as
                                                  tests/guard/hashes.json
    python -m tests.guard compare [NAME...]       run, and say which workload and aspect parts where; exit code 1
    python -m tests.guard dump FOLDER [NAME...]   run, and write everything as text, one line an item
    python -m tests.guard diff FOLDER FOLDER      the first line that differs of each file of two dumps
    python -m tests.guard names                   list the workloads
    python -m tests.guard retire NAME SUCCESSOR REASON
                                                  after a wanted difference: NAME was renamed to SUCCESSOR in the list
                                                  of workloads; record that, and note why the old one is gone

A dump of an earlier version: run this with PYTHONPATH at the `src` of a checkout of it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.guard import record, retired
from tests.guard.workloads import WORKLOADS, run

import tidelog

PROGRAM: Final = (":(top)", ":(top,exclude)tests", ":(top,exclude)docs")


def commit() -> str:
    """The last commit that changed the program where it lies, with `-dirty` if it was changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words, "--", *PROGRAM],
            cwd=Path(tidelog.__file__).resolve().parent,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    found = git("log", "-1", "--format=%h")
    return found + ("-dirty" if git("status", "--porcelain") else "") if found else "no commit"


def ran(names: list[str]) -> dict[str, dict[str, record.Items]]:
    found = {}
    for name in names:
        started = time.perf_counter()
        found[name] = run(name)
        counts = ", ".join(f"{len(items)} {aspect}" for aspect, items in found[name].items())
        print(f"{name}: {counts}, {time.perf_counter() - started:.1f} s", flush=True)
    return found


def record_new(names: list[str]) -> int:
    recorded = record.load() if record.DATA.exists() else {}
    again = [name for name in names if name in recorded]
    if again:
        print(f"recorded before, so a wanted difference retires it: {', '.join(again)}")
        return 2
    for name, found in ran(names or [n for n in WORKLOADS if n not in recorded]).items():
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
        try:
            found = ran([name])[name]
        except Exception as error:  # a step cannot be made any more
            print(f"{name}: the run failed: {type(error).__name__}: {error}")
            parted += 1
            continue
        for difference in record.differences(name, recorded[name], found):
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


def retire(name: str, successor: str, reason: str) -> int:
    recorded = record.load()
    if name not in recorded or name in WORKLOADS or successor not in WORKLOADS:
        print(f"{name} must be recorded and no workload any more, {successor} must be a workload")
        return 2
    told = list(record.differences(name, recorded.pop(name), run(successor, like=name)))
    if not told:
        print(f"nothing differs between {name} as it was recorded and {successor} with its seed")
        return 1
    entry = retired.Retired(name, successor, reason, commit(), retired.first_of(told))
    retired.save([*retired.load(), entry])
    recorded[successor] = {
        a: record.kept(items) for a, items in ran([successor])[successor].items()
    }
    # in the order of the workloads; others that were renamed, and are retired next, stay at the end
    order = dict.fromkeys([*WORKLOADS, *recorded])
    record.save({name: recorded[name] for name in order if name in recorded}, commit())
    print(f"{name} is retired: {entry.first}")
    return 0


def main(args: list[str]) -> int:
    match args:
        case ["names"]:
            print("\n".join(WORKLOADS))
            return 0
        case ["diff", before, after]:
            return diff(Path(before), Path(after))
        case ["dump", folder, *names]:
            return dump(Path(folder), names or list(WORKLOADS))
        case ["retire", name, successor, reason]:
            return retire(name, successor, reason)
        case ["record", *names]:
            return record_new(names)
        case ["compare", *names]:
            return compare(names or list(WORKLOADS))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
