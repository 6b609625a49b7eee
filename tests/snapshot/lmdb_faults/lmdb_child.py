"""The process under test: commits to an LMDB environment, and says each commit that was promised.

    python lmdb_child.py write DIRECTORY COMMITS sync|no
    python lmdb_child.py look DIRECTORY...

Commit n puts 40 rows, some of them long enough for overflow pages, and deletes a third of those of the commit before.
`look` says of each environment how many commits it holds, or what is wrong: in a process of its own, since a damaged
file that is mapped may kill the process that reads it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import lmdb


def value(n: int) -> bytes:
    return b"%d," % n * (1 if n % 3 else 3000)


def rows(commits: int) -> dict[bytes, bytes]:
    """The rows of the environment after its first commits."""
    found: dict[bytes, bytes] = {}
    for n in range(1, commits + 1):
        change(found, n)
    return found


def change(found: dict[bytes, bytes], n: int) -> None:
    for row in range(40):
        found[b"%d.%d" % (n, row)] = value(n + row)
    found[b"newest"] = b"%d" % n
    for row in range(0, 40, 3):
        found.pop(b"%d.%d" % (n - 1, row), None)


def write(directory: Path, commits: int, sync: bool) -> None:
    env = lmdb.open(str(directory), map_size=1 << 24, sync=sync, metasync=sync)
    with env.begin() as transaction:
        before = int(transaction.get(b"newest") or 0)
    for n in range(before + 1, before + commits + 1):
        old, new = rows(n - 1), rows(n)
        with env.begin(write=True) as transaction:
            for key in sorted(old.keys() - new.keys()):
                transaction.delete(key)
            for key, data in new.items():
                if old.get(key) != data:
                    transaction.put(key, data)
        print(n, flush=True)
    env.close()


def look(directory: str) -> str:
    try:
        with lmdb.open(directory, map_size=1 << 24, create=False) as env, env.begin() as reading:
            found = {bytes(key): bytes(data) for key, data in reading.cursor()}
    except lmdb.Error as error:
        return f"{type(error).__name__}: {error}"
    commits = int(found.get(b"newest", 0))
    return str(commits) if found == rows(commits) else f"not as after commit {commits}"


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "sync")
    else:
        print(*map(look, sys.argv[2:]), sep="\n")
