"""A store that is described as text opens as what it is described to be, in whichever state its files are.

tests/formats/1.described holds a store of three lives as commit 33d779a wrote it: streams, groups, pending entries, the
jobs of a queue, strings, expiries, IDMP, several databases, a checkpoint and a log behind it. Its files were compared
byte for byte with those that commit wrote, and the rows of its checkpoint one by one, when the description was made.
"""

from __future__ import annotations

import shutil
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pytest
from tests.formats.described import Described, checked, crc32c

import tidelog
from tidelog import testing
from tidelog.disk.real import RealDisk
from tidelog.snapshot.scrub import verify_store

STORE: Final = Described((Path(__file__).parent / "1.described").read_text())
NOW_MS: Final = int(STORE.facts["now"])
WRITTEN: Final = "61ea94a4ef6c9c91a58aeca364cd0932"  # BLAKE2b of what 33d779a wrote
QUEUED: Final = ["once", "mail 2", "mail 3", "the last"]


@pytest.fixture
def clock() -> testing.Clock:
    found = testing.Clock()
    found.jump(NOW_MS / 1000 - found.time_ns() / 1e9)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    STORE.write(tmp_path / "s")
    return tmp_path / "s"


def check(db: tidelog.Store) -> None:
    for asked in STORE.asked:
        assert db.db(asked.db).execute_command(*asked.words) == asked.answer, asked.words
    assert db.digest() == STORE.facts["digest"]


def test_the_bytes_are_those_that_were_written() -> None:
    """The encoder of this test makes the bytes that were compared with the files of the commit."""
    whole = blake2b(digest_size=16)
    for name, data in sorted(STORE.files.items()):
        whole.update(name.encode() + data)
    for key, value in sorted(STORE.rows.items()):
        whole.update(key + value)
    assert whole.hexdigest() == WRITTEN
    assert crc32c(b"123456789") == 0xE3069283 and checked(b"")[-4:] == bytes(4)


def test_it_opens(root: Path, clock: testing.Clock) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert not verify_store(RealDisk(), root)
    with tidelog.open(root, read_only=True, clock=clock) as db:
        check(db)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    with tidelog.open(root, clock=clock) as db:
        check(db)


def test_the_log_alone_says_the_same(root: Path, clock: testing.Clock) -> None:
    shutil.rmtree(root / "checkpoint")
    with tidelog.open(root, clock=clock) as db:
        check(db)


def test_the_checkpoint_and_the_log_behind_it_say_the_same(
    root: Path, clock: testing.Clock
) -> None:
    first, *_ = sorted((root / "aof").glob("*.aof"))
    first.unlink()
    with tidelog.open(root, clock=clock) as db:
        check(db)


def test_it_goes_on(root: Path, clock: testing.Clock) -> None:
    """Another life: what is pending is acknowledged, jobs are done, times pass, a checkpoint is made."""
    with tidelog.open(root, clock=clock) as db:
        held = db.xpending_range("orders", "packers", "-", "+", 100)
        assert db.xack("orders", "packers", *[each["message_id"] for each in held]) == len(held) > 2
        again = db.execute_command("XADD", "once", "IDMP", "p0", "i0", "*", "n", 0)
        assert again == db.xrange("once")[1][0]
        mails = db.queue("mails", codec="str")
        assert mails.stats().dead == 1 and mails.dead.list()[0].raw == b"mail 1"
        clock.advance(3600)
        assert db.get("plain") is None and db.db(3).get("third") == b"3"
        done = []
        for job in mails.consume("worker-2", block=0):
            with job:
                done.append(job.value)
        assert sorted(done) == sorted(QUEUED)
        db.checkpoint()
        digest = db.digest()
    assert not verify_store(RealDisk(), root)
    with tidelog.open(root, clock=clock) as db:
        assert db.digest() == digest


def test_a_changed_description_is_another_store(tmp_path: Path, clock: testing.Clock) -> None:
    """The checks above see the bytes: a record and a row that say something else."""
    text = (Path(__file__).parent / "1.described").read_text()
    before = "b'salt'"
    assert text.count(before) > 1
    changed = Described(text.replace(before, "b'sand'", 1))
    changed.write(tmp_path / "s")
    with tidelog.open(tmp_path / "s", clock=clock) as db, pytest.raises(AssertionError):
        check(db)
