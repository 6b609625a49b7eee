"""Opens a store whose checkpoint file was damaged in its structure, over and over; asks, writes, checkpoints, reopens.

    python structure_damage_child.py DIRECTORY WAY FIRST LAST [TRACE]

    WAY    `structure`: fields of pages, nodes and meta pages; `older`: whole pages of an earlier commit put back

One line of output per seed, flushed, before the next one may end this process:

    SEED right          every answer was right, before and after a write, a checkpoint and a reopening
    SEED damaged TEXT   some calls named the damage; every other answer was right
    SEED late TEXT      an answer was not right, and the damage was named by a later call of the same open
    SEED wrong TEXT     an answer was not right, or an error of another kind
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

from tests.store.checkpoint import checkpoint_damage_child as base

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows import checked, datafile, environment
from tidelog.snapshot.rows.treepage import Branch, tree_page

PSIZE = 4096
COMMITS = 12
QUIET: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0, "retain_bytes": 0}


def fill(directory: Path) -> None:
    """A store after several checkpoints, the file of each of them beside it, and the right answers."""
    r = random.Random(11)
    store = directory / "store"
    base.fill(store)
    data = store / "checkpoint" / "data.mdb"
    for n in range(COMMITS):
        shutil.copy(data, directory / f"commit-{n}")
        with tidelog.open(store, **QUIET) as db:
            for key in r.sample(base.KEYS, 6):
                db.set(key, r.randbytes(r.randrange(600)), keepttl=True)
            db.xadd_many(r.choice(base.STREAMS), [{"n": j} for j in range(r.randrange(200))])
            for key in base.STREAMS[1:]:
                got = db.xreadgroup("g", "c1", {key: ">"}, count=r.randrange(1, 30))
                for _, entries in got:
                    db.xack(key, "g", *[i for i, _ in entries][::2])
            db.checkpoint()
    (directory / "answers").write_bytes(pickle.dumps(base.answers(store)))


def tree_pages(data: bytes) -> tuple[list[int], list[int]]:
    """Page numbers in use: of both trees, and where values begin."""
    trees: list[int] = []
    values: list[int] = []
    heads = []
    for at in (0, PSIZE):
        fields = datafile._META.unpack_from(data, at + datafile.PAGE_HEADER)
        heads.append((fields[21], [fields[11], fields[19]]))
    todo = [root for root in max(heads)[1] if root != datafile.NO_PAGE]
    while todo:
        number = todo.pop()
        trees.append(number)
        page = tree_page(data[number * PSIZE : (number + 1) * PSIZE], number, PSIZE, 1 << 40)
        if isinstance(page, Branch):
            todo += page.children
        else:
            values += [first for first, _, _ in page.values if first]
    return trees, values


def some_value(r: random.Random, before: int, bits: int) -> int:
    """Something else for a field, near to what it was or far."""
    mask = (1 << bits) - 1
    while True:
        value = r.choice(
            (
                before ^ 1 << r.randrange(bits),
                before + r.choice((-4, -2, -1, 1, 2, 4)),
                r.getrandbits(r.randrange(1, bits + 1)),
                0,
                mask,
            )
        )
        if value & mask != before:
            return value & mask


def damage_structure(data: bytearray, r: random.Random) -> str:
    """Change one field that LMDB goes by."""
    trees, values = tree_pages(bytes(data))

    def change(at: int, layout: str, what: str) -> str:
        (before,) = struct.unpack_from("=" + layout, data, at)
        value = some_value(r, before, struct.calcsize("=" + layout) * 8)
        struct.pack_into("=" + layout, data, at, value)
        return f"{what} at {at}: {before} to {value}"

    way = r.randrange(12)
    if way < 2:
        at, layout = r.choice(
            [(0, "Q"), (10, "H"), (16, "I"), (20, "I"), (40, "I"), (44, "H"), (46, "H"), (48, "Q"), (56, "Q")]
            + [(64, "Q"), (72, "Q"), (80, "Q"), (88, "I"), (92, "H"), (94, "H"), (96, "Q"), (104, "Q")]
            + [(112, "Q"), (120, "Q"), (128, "Q"), (136, "Q"), (144, "Q"), (32, "Q"), (24, "Q")]
        )  # fmt: skip
        return change(r.choice((0, PSIZE)) + at, layout, "meta")
    if way == 2 and values:
        page = r.choice(values) * PSIZE
        return (
            change(page + r.choice((0, 10)), "H", "value page")
            if r.random() < 0.4
            else change(page + 12, "I", "pages of a value")
        )
    page = r.choice(trees) * PSIZE
    _, _, flags, lower, _ = datafile.PAGE.unpack_from(data, page)
    if way < 5:
        at, layout = r.choice([(0, "Q"), (10, "H"), (12, "H"), (14, "H")])
        return change(page + at, layout, "header")
    pointer = page + 16 + 2 * r.randrange((lower - 16) // 2)
    if way < 7:
        return change(pointer, "H", "pointer")
    node = page + struct.unpack_from("=H", data, pointer)[0]
    if way < 11:
        at = r.choice((0, 2, 4, 6))
        kind = "branch" if flags & datafile.BRANCH else "leaf"
        return change(node + at, "H", f"field {at} of a node of a {kind}")
    low, high, bits, key_bytes = datafile.NODE.unpack_from(data, node)
    if flags & datafile.LEAF and bits & datafile.BIG:
        return change(node + 8 + key_bytes, "Q", "page of a value")
    return change(node + 8 + r.randrange(max(key_bytes, 1)), "B", "key")


def put_back_older(data: bytearray, directory: Path, r: random.Random) -> str:
    """Put a page of an earlier commit in the place of what is there now, as after a write that never came."""
    back = r.choice((1, 1, 2, 3, 5, 8))
    old = (directory / f"commit-{COMMITS - back}").read_bytes()
    trees, values = tree_pages(bytes(data))
    of_old, values_of_old = tree_pages(old)
    candidates = [
        page
        for page in (trees + of_old if r.random() < 0.7 else values + values_of_old)
        if page * PSIZE < min(len(old), len(data))
        and old[page * PSIZE : (page + 1) * PSIZE] != data[page * PSIZE : (page + 1) * PSIZE]
    ]
    page = r.choice(candidates)
    data[page * PSIZE : (page + 1) * PSIZE] = old[page * PSIZE : (page + 1) * PSIZE]
    return f"page {page} of {back} commits before"


class Asked:
    """Everything that one open store was asked: the first wrong answer, and the first damage that was named."""

    def __init__(self) -> None:
        self.wrong = self.damaged = ""

    def all(self, asked: list[tuple[str, Any]], right: dict[str, Any]) -> None:
        for what, call in asked:
            try:
                if (answer := call()) != right[what]:
                    text = f"{what}: {str(answer)[:200]} and not {str(right[what])[:200]}"
                    self.wrong = self.wrong or text
            except tidelog.StoreDamaged as error:
                self.damaged = self.damaged or f"{what}: {error}"

    def note(self, what: str, error: Exception) -> None:
        self.damaged = self.damaged or f"{what}: {error}"

    def verdict(self) -> str:
        if self.wrong:
            return f"late {self.wrong}; {self.damaged}" if self.damaged else f"wrong {self.wrong}"
        return f"damaged {self.damaged}" if self.damaged else "right"


NAMED = (tidelog.StoreDamaged, tidelog.CannotOpen, tidelog.CheckpointFailed)


def attempt(
    store: Path, right: dict[str, Any], ids: dict[str, list[bytes]], r: random.Random
) -> str:
    found = "right"
    for turn in range(2):
        asked = Asked()
        read_only = turn == 0 and not r.randrange(4)
        written = turn == 1
        try:
            with tidelog.open(store, read_only=read_only, **({} if read_only else QUIET)) as db:
                questions = base.questions(db) + base.ids_questions(db, ids)
                if written:  # the others were changed by what was written
                    questions = [q for q in questions if q[0] not in ("dbsize", "keys", "scan")]
                r.shuffle(questions)
                asked.all(questions, right)
                if not read_only:
                    for what, call in (
                        ("set", lambda: db.set(f"new{turn}", "1")),
                        ("xadd", lambda: db.xadd(f"newstream{turn}", {"a": 1})),
                        ("checkpoint", db.checkpoint),
                    ):
                        try:
                            call()
                        except NAMED as error:
                            asked.note(what, error)
                    asked.all(
                        [q for q in questions if q[0] not in ("dbsize", "keys", "scan")], right
                    )
        except NAMED as error:
            asked.note("open or close", error)
        told = asked.verdict()
        if told.startswith("wrong"):
            return told
        if told != "right" and found == "right" or told.startswith("late"):
            found = told
    return found


def main(directory: Path, way: str, first: int, last: int, trace: bool) -> None:
    if way == "older":
        # On a slow machine the check would need more time than it gets before the first read. Reads beside it may show
        # an older page, as docs/DURABILITY.md says; here the verdict must not depend on the machine.
        environment.FIRST_S = 60
    right, ids = pickle.loads((directory / "answers").read_bytes())
    data = (directory / "store" / "checkpoint" / "data.mdb").read_bytes()
    copy = directory / f"copy-{os.getpid()}"
    for seed in range(first, last):
        r = random.Random(f"{way} {seed}")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory / "store", copy, ignore=shutil.ignore_patterns("lock.mdb"))
        path = copy / "checkpoint" / "data.mdb"
        changed = bytearray(data)
        done = (
            damage_structure(changed, r)
            if way == "structure"
            else put_back_older(changed, directory, r)
        )
        if seed % 2:  # it was checked before, and is changed then
            checked.remember(RealDisk(), path, COMMITS + 3)
        with path.open("r+b") as file:
            file.write(changed)
        try:
            told = attempt(copy, right, ids, r)
        except BaseException as error:
            told = f"wrong error {error!r}"
            if trace:
                raise
        os.write(1, f"{seed} {' '.join(told.split())} [{done}]\n".encode())
    shutil.rmtree(copy, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), len(sys.argv) > 5)
