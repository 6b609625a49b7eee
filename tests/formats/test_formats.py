"""Stores that earlier versions wrote open as they stand: their digest and their replies are what those versions said.

How they were made, and what is kept of them: tests/formats/make.py.
"""

from __future__ import annotations

import ast
import base64
import errno
import json
import re
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.formats.described import crc32c
from tests.formats.make import ASKED, LINE

import tidelog
from tidelog import testing
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.disk.simulated import SimulatedDisk
from tidelog.snapshot.restore import restore
from tidelog.snapshot.scrub import verify_snapshot, verify_store

HERE: Final = Path(__file__).parent
KEPT: Final = sorted(path.stem for path in HERE.glob("*.txt"))
SNAPSHOTS: Final = ["1-checkpoint"]


class Kept(NamedTuple):
    """A store as it is kept."""

    root: Path
    clock: testing.Clock
    facts: dict[str, str]
    replies: list[tuple[list[Any], Any]]

    def check(self, db: tidelog.Store) -> None:
        assert db.digest() == self.facts["digest"]
        for (number, *words), reply in self.replies:
            assert db.db(number).execute_command(*words) == reply, words


def unpack(name: str, root: Path) -> Kept:
    """Write the store of that name into `root`."""
    facts: dict[str, str] = {}
    replies = []
    text = (HERE / f"{name}.txt").read_text()
    for head, below in re.findall(r"^(\S.*)\n((?:  .*\n)*)", text, re.M):
        what, value = head.split(" ", 1)
        lines = [line[2:] for line in below.splitlines()]
        if what == "reply":
            replies.append((json.loads(value), ast.literal_eval(" ".join(lines))))
        elif what == "file":
            path = root / value
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(zlib.decompress(base64.b64decode("".join(lines))))
        else:
            facts[what] = value
    clock = testing.Clock()
    clock.advance(float(facts["now"]) - clock.time_ns() / 1e9)
    return Kept(root, clock, facts, replies)


@pytest.fixture(params=KEPT)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    return unpack(request.param, tmp_path / "s")


def test_all_are_there() -> None:
    assert KEPT == ["1-checkpoint", "1-log"]
    assert set(SNAPSHOTS) <= set(KEPT)
    for path in HERE.glob("*.txt"):
        assert max(map(len, path.read_text().splitlines())) <= LINE + 4


def test_it_is_what_it_was(kept: Kept) -> None:
    assert [reply[0] for reply in kept.replies] == [[db, *words] for db, words in ASKED]
    before = {path: path.read_bytes() for path in kept.root.rglob("*") if path.is_file()}
    assert not verify_store(RealDisk(), kept.root, with_snapshots=True)
    with tidelog.open(kept.root, read_only=True, clock=kept.clock) as db:
        kept.check(db)
    assert {path: path.read_bytes() for path in kept.root.rglob("*") if path.is_file()} == before
    with tidelog.open(kept.root, clock=kept.clock) as db:
        kept.check(db)


def test_it_goes_on(kept: Kept) -> None:
    for turn in range(2):
        with tidelog.open(kept.root, fsync="no", clock=kept.clock) as db:
            if not turn:
                kept.check(db)
            db.xadd("orders", {"item": "new", "n": turn})
            db.xack("far", "g", "18446744073709551615-1")
            digest = db.digest()
            db.checkpoint()
            assert db.digest() == digest
    assert not verify_store(RealDisk(), kept.root, with_snapshots=True)
    with tidelog.open(kept.root, read_only=True, clock=kept.clock) as db:
        assert db.digest() == digest
        assert db.xlen("orders") == 2 + next(
            reply for ask, reply in kept.replies if ask[1:2] == ["XLEN"]
        )


def test_it_is_migrated_whole(kept: Kept, tmp_path: Path) -> None:
    """A checkpoint and a snapshot of today hold all that an old store does."""
    with tidelog.open(kept.root, fsync="no", clock=kept.clock) as db:
        made = db.snapshot()
        kept.check(db)
    restore(RealDisk(), Path(made.path), tmp_path / "new")
    with tidelog.open(tmp_path / "new", clock=kept.clock) as db:
        kept.check(db)


def test_the_way_back_is_told_once(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """Before anything is written. A reader does not tell it, and a new store has no way back to tell of."""
    at = kept.root / "STORE"
    text, log = at.read_text(), sorted((kept.root / "aof").glob("*.aof"))
    with tidelog.open(kept.root, read_only=True, clock=kept.clock):
        pass
    assert not caplog.messages and at.read_text() == text
    with tidelog.open(kept.root, clock=kept.clock):
        assert sorted((kept.root / "aof").glob("*.aof")) == log
    (told,) = caplog.messages
    assert told.startswith(f"{kept.root} comes from tidelog 0.1") and "put with dedup=" in told
    assert f"tidelog snapshot create {kept.root} " in told
    lines = at.read_text().splitlines()
    assert lines[:-1] == [*text.splitlines()[:-1], "records 2"]
    for root in kept.root, kept.root.parent / "new", kept.root.parent / "new":
        with tidelog.open(root, clock=kept.clock) as db:
            db.set("a", "1")
    assert caplog.messages == [told]


def test_a_full_disk_does_not_keep_an_old_store_shut(caplog: pytest.LogCaptureFixture) -> None:
    """The next open tells it again."""
    disk, root, full = SimulatedDisk(), Path("/s"), False
    with tidelog.open(root, disk=disk) as db:
        db.set("a", "1")
    text = recipe.read(disk, root / "STORE", 1000).replace(b"made 2\n", b"")
    text = text[: text.index(b"crc32c")]
    recipe.publish(disk, root / "STORE", text + b"crc32c %08x\n" % crc32c(text))

    def before(operation: str, path: Path) -> None:
        if full and operation == "create" and path.name == "STORE.new":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    disk.before = before
    for full, told in (True, 1), (True, 2), (False, 3), (False, 3):
        with tidelog.open(root, disk=disk) as db:
            assert db.get("a") == b"1"
        assert len(caplog.messages) == told


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_snapshots(name: str, tmp_path: Path) -> None:
    kept = unpack(name, tmp_path / "s")
    (snapshot,) = (kept.root / "snapshots").iterdir()
    assert not verify_snapshot(RealDisk(), snapshot)
    with tidelog.open(snapshot, read_only=True, clock=kept.clock) as db:
        assert db.digest() == kept.facts["snapshot"]
    restore(RealDisk(), snapshot, tmp_path / "then")
    with tidelog.open(tmp_path / "then", clock=kept.clock) as db:
        assert db.digest() == kept.facts["snapshot"]
    restore(RealDisk(), snapshot, tmp_path / "now", aof=kept.root)
    with tidelog.open(tmp_path / "now", clock=kept.clock) as db:
        kept.check(db)
