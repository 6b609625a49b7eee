"""Tests of the check that comes before LMDB reads a file: what it remembers, what it finds, who waits for it."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.snapshot.world import DISK, cold, environment, write

from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot.errors import DamagedCheckpoint
from tidelog.snapshot.rows import checked, datafile
from tidelog.snapshot.rows import environment as module
from tidelog.snapshot.rows.environment import Environment

ROWS = {b"p%06d" % i: b"%06d" % i * 10 for i in range(5000)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file of some hundred pages that nobody has checked."""
    with environment(tmp_path / "c") as env:
        write(env, ROWS)
    return tmp_path / "c"


def trusted(env: Environment) -> bool:
    return env.sound == env.committed()


def leaf_of(path: Path, key: bytes) -> int:
    """Where the leaf begins that holds a key."""
    at = path.read_bytes().rindex(key + ROWS[key])
    return at - at % 4096


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_what_was_checked_is_remembered(folder: Path) -> None:
    with environment(folder) as env:
        assert not env.recalls(1)
        env.check()
        assert trusted(env)
    record = folder / checked.NAME
    assert record.read_bytes().startswith(b"tidelog checked\nformat 1\ntransaction 1\n")
    with environment(folder) as env:
        assert env.recalls(1) and trusted(env), "at once"


@pytest.mark.parametrize("how", ["touched", "copied", "longer", "torn", "missing", "newer"])
def test_what_is_not_the_same_file_is_checked_again(folder: Path, how: str) -> None:
    path, record = folder / "data.mdb", folder / checked.NAME
    with environment(folder) as env:
        env.check()
    text = record.read_bytes()
    if how == "touched":
        change(path, path.stat().st_size - 1, path.read_bytes()[-1:])
    elif how == "copied":
        shutil.copy2(path, folder / "x")
        os.replace(folder / "x", path)
    elif how == "longer":
        with path.open("ab") as file:
            file.write(bytes(4096))
    elif how == "torn":
        record.write_bytes(text[:50])
    elif how == "missing":
        record.unlink()
    else:
        record.write_bytes(text.replace(b"format 1", b"format 2"))
    with environment(folder) as env:
        assert not env.recalls(1)
        env.check()
        assert trusted(env)


def test_who_only_reads_writes_nothing_down(folder: Path) -> None:
    with environment(folder, read_only=True) as env:
        env.check()
        assert trusted(env)
    assert not (folder / checked.NAME).exists()


def test_before_the_check_is_through_rows_are_read_without_lmdb(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = threading.Event()
    monkeypatch.setattr(module, "FIRST_S", 0)
    monkeypatch.setattr(time, "sleep", lambda seconds: going_on.wait())
    with environment(folder) as env, cold(env) as rows:
        assert rows._txn is None
        assert rows.get(b"p000007") == ROWS[b"p000007"]
        assert list(rows.rows(b"p")) == sorted(ROWS.items())
        assert rows._txn is None
        going_on.set()
        env.check()
        assert rows.get(b"p000007") == ROWS[b"p000007"]
        assert rows._txn is not None, "from then on LMDB reads"


def test_closing_does_not_wait_for_the_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, going_on = threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        reached.set()
        going_on.wait(0.05)

    monkeypatch.setattr(module, "FIRST_S", 0)
    monkeypatch.setattr(time, "sleep", sleep)
    env = module.open_environment(DISK, folder)
    rows = module.ColdRows(env)
    assert reached.wait(60)
    rows.close()
    env.close()
    assert env.sound == 0 and env.damage is None
    assert not (folder / checked.NAME).exists()


def test_a_write_waits_for_the_check_and_its_commit_counts_as_checked(folder: Path) -> None:
    with environment(folder) as env:
        write(env, {b"q": b"1"})
        env.remember()
        assert trusted(env)
    with environment(folder) as env, cold(env) as rows:
        assert rows._txn is not None and rows.get(b"q") == b"1"


def test_nothing_is_written_over_damage_and_everything_else_is_read(folder: Path) -> None:
    path = folder / "data.mdb"
    with environment(folder) as env:
        env.check()
    at = leaf_of(path, b"p002500")
    change(path, at + 10, b"\7")
    with environment(folder) as env, cold(env) as rows:
        for _ in range(2):
            with pytest.raises(DamagedCheckpoint, match=f"page {at // 4096}: the flags 0x7"):
                env.write()
        assert env.damage is not None and not trusted(env)
        with pytest.raises(CorruptBlock, match=f"page {at // 4096}, byte {at + 10}"):
            rows.get(b"p002500")
        assert rows.get(b"p000001") == ROWS[b"p000001"]
        assert rows.get(b"p004999") == ROWS[b"p004999"]
    with environment(folder) as env, pytest.raises(DamagedCheckpoint):
        env.copy_to(1)


def test_a_page_that_lmdb_cannot_read_later_harms_its_own_rows_alone(folder: Path) -> None:
    """Changed behind the check. LMDB then fails every read of that transaction; others are not blamed for it."""
    path = folder / "data.mdb"
    with environment(folder) as env, cold(env) as rows:
        env.check()
        assert rows.get(b"p000001") == ROWS[b"p000001"] and rows._txn is not None
        change(path, leaf_of(path, b"p002500") + 10, b"\0")
        with pytest.raises(CorruptBlock, match="cannot be read: page"):
            rows.get(b"p002500")
        assert rows.get(b"p000001") == ROWS[b"p000001"]
        assert rows.get(b"p9") is None
        assert rows.before(b"p000100", b"p") == (b"p000100", ROWS[b"p000100"])
        with pytest.raises(DamagedCheckpoint):
            env.check()
        assert not (folder / checked.NAME).exists()


def _head(path: Path) -> datafile.Head:
    file = DISK.open(path)
    try:
        head = datafile.read_head(file)
    finally:
        file.close()
    assert head is not None
    return head


def test_counts_of_the_meta_page_are_compared(folder: Path) -> None:
    path = folder / "data.mdb"
    whole = path.read_bytes()
    page = _head(path).transaction % 2 * 4096
    for at, what in ((96, "branches"), (104, "leaves"), (112, "pages of values"), (120, "rows")):
        (before,) = struct.unpack_from("=Q", whole, page + at)
        path.write_bytes(whole)
        change(path, page + at, struct.pack("=Q", before + 1))
        with environment(folder) as env, pytest.raises(DamagedCheckpoint, match=what):
            env.check()


def test_a_page_in_two_places(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with environment(folder) as env:
        write(env, {b"pa": b"a" * 5000, b"pb": b"b" * 5000})
    path = folder / "data.mdb"
    data = path.read_bytes()
    a, b = (data.index(each * 5000) - 16 for each in (b"a", b"b"))
    change(path, data.index(b"pb") + 2, struct.pack("=Q", a // 4096))
    assert a != b
    with environment(folder) as env, pytest.raises(DamagedCheckpoint, match="used in two places"):
        env.check()


def test_a_page_in_use_that_is_listed_as_free(folder: Path) -> None:
    path = folder / "data.mdb"
    with environment(folder) as env:
        write(env, {b"p000001": b"new"})
    head = _head(path)
    assert head.free.root is not None and head.rows.root is not None
    data = path.read_bytes()
    at = head.free.root * 4096
    (node,) = struct.unpack_from("=H", data, at + 16)
    count, first = struct.unpack_from("=QQ", data, at + node + 16)
    assert count >= 2
    used = max(head.rows.root, head.free.root)
    change(path, at + node + 24, struct.pack("=Q", max(used, first + 1)))
    with environment(folder) as env, pytest.raises(DamagedCheckpoint, match="free"):
        env.check()


FORKED = """
import os, sys, threading
from pathlib import Path
from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows import environment as module
from tidelog.snapshot.errors import CheckpointError

reached, going_on = threading.Event(), threading.Event()
def sleep(seconds):
    reached.set()
    going_on.wait()
module.time.sleep = sleep
module.FIRST_S = 0
env = module.open_environment(RealDisk(), Path(sys.argv[1]))
rows = module.ColdRows(env)
reached.wait()
pid = os.fork()
if pid == 0:
    going_on.set()
    for call in (env.check, lambda: rows.get(b"p000001")):
        try:
            call()
            os._exit(1)
        except CheckpointError as error:
            if "fork" not in str(error):
                os._exit(2)
    env.close()
    own = module.open_environment(RealDisk(), Path(sys.argv[1]))
    own.check()
    mine = module.ColdRows(own)
    if mine.get(b"p000001") is None:
        os._exit(3)
    mine.close()
    own.close()
    os._exit(7)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
going_on.set()
env.check()
assert rows.get(b"p000001") and env.sound == 1
rows.close()
env.close()
print("well")
"""


def test_a_fork_in_the_middle_of_a_check(folder: Path) -> None:
    argv = [sys.executable, "-c", FORKED, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.stdout == "well\n", done.stderr
