"""Makes commits on a recorded disk. Prints of each the pages that differ then, and what the recorder noted: the pages
before the sync, and after.

The last quarter of them is made in a copy of the file.

python commits_child.py DIRECTORY COMMITS ROWS

ROWS  in the commit in the middle. With more than 131,071 changed pages LMDB writes some before the commit
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tidelog.aof.identity import DATA
from tidelog.crash.commits import commits_noted
from tidelog.crash.record import PAGE, RecordingDisk
from tidelog.crash.trace import SyncBegin, SyncEnd, Write
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows.environment import open_environment


def main(root: Path, commits: int, most: int) -> None:
    rng = random.Random(7)
    disk = RecordingDisk(RealDisk(), root)
    with commits_noted():
        place = root / "rows"
        environment = open_environment(disk, place)
        for number in range(commits):
            if number == commits - commits // 4:
                environment.close()
                place = copied(disk, place, root / "copied")
                environment = open_environment(disk, place)
            with disk.held():
                begun = len(disk.operations)
            old = recipe.read(disk, place / DATA)
            writing = environment.write()
            # A commit without a change, small ones, and one that grows the file.
            rows = 0 if not number else rng.randint(1, 40)
            if number == commits // 2:
                for n in range(most):
                    writing.put(b"m%07d" % n, rng.randbytes(4000))
            for _ in range(rows):
                key = b"k%05d" % rng.randrange(3000)
                if rng.random() < 0.2:
                    writing.delete(key)
                else:
                    writing.put(key, rng.randbytes(rng.choice((10, 300, 5000))))
            writing.commit()
            new = recipe.read(disk, place / DATA)
            line = [differing(old, new), noted(disk, begun, place / DATA)]
            print(json.dumps(line), flush=True)
        environment.close()


def copied(disk: RecordingDisk, rows: Path, target: Path) -> Path:
    """A copy of the file, in a directory of its own. Its writes are not those of LMDB, so it has another name first."""
    disk.mkdir(target)
    file = disk.create(target / "copying")
    file.write(0, recipe.read(disk, rows / DATA))
    file.fsync()
    file.close()
    disk.rename(target / "copying", target / DATA)
    disk.sync_directory(target)
    return target


def differing(old: bytes, new: bytes) -> list[int]:
    """The pages that differ between two contents of a file. Where a file had no page before, it had zeros."""
    return [
        at // PAGE
        for at in range(0, len(new), PAGE)
        if new[at : at + PAGE] != old[at : at + PAGE].ljust(len(new[at : at + PAGE]), b"\0")
    ]


def noted(disk: RecordingDisk, begun: int, path: Path) -> list[object]:
    """For each stretch between syncs the pages that were written, with the word `sync` between them."""
    node = disk.node_of(path)
    found: list[object] = []
    pages: set[int] = set()
    for operation in disk.operations[begun:]:
        if isinstance(operation, Write) and operation.node == node:
            pages.update(
                range(
                    operation.offset // PAGE, -(-(operation.offset + len(operation.data)) // PAGE)
                )
            )
        elif isinstance(operation, (SyncBegin, SyncEnd)):
            if isinstance(operation, SyncBegin):
                found += [sorted(pages), "sync" if operation.end < 0 else "own"]
                pages = set()
    assert not pages, "everything of a commit is synced"
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
