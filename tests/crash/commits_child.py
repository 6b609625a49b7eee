"""Makes commits on a recorded disk and prints what the recorder noted of each: its pages before the sync, and after.

python commits_child.py DIRECTORY COMMITS
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
from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows.environment import open_environment


def main(root: Path, commits: int) -> None:
    rng = random.Random(7)
    disk = RecordingDisk(RealDisk(), root)
    with commits_noted():
        environment = open_environment(disk, root / "rows")
        for number in range(commits):
            with disk.held():
                begun = len(disk.operations)
            writing = environment.write()
            # A commit without a change, small ones, and one that grows the file by megabytes.
            rows = 0 if not number else rng.randint(1, 40)
            for _ in range(2000 if number == commits // 2 else rows):
                key = b"k%05d" % rng.randrange(3000)
                if rng.random() < 0.2:
                    writing.delete(key)
                else:
                    writing.put(key, rng.randbytes(rng.choice((10, 300, 5000))))
            writing.commit()
            print(json.dumps(noted(disk, begun, root / "rows" / DATA)), flush=True)
        environment.close()


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
    main(Path(sys.argv[1]), int(sys.argv[2]))
