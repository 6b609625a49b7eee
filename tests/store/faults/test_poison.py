"""A disk that fails: what callers are told, what still works, and what the next open finds."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tidelog
from tidelog.disk.real import RealFile


class Failing:
    """The operating system's files, whose sync or fill fails while `error` is set."""

    def __init__(self, patch: pytest.MonkeyPatch, call: str) -> None:
        self.error = 0
        real = getattr(RealFile, call)

        def failing(file: RealFile, *args: int) -> object:
            if self.error:
                raise OSError(self.error, os.strerror(self.error))
            return real(file, *args)

        patch.setattr(RealFile, call, failing)


def test_a_failed_fsync_poisons_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Failing(monkeypatch, "fdatasync")
    db = tidelog.open(tmp_path / "s", fsync="always")
    db.xadd("s", {"n": 1})
    disk.error = errno.EIO
    with pytest.raises(tidelog.OutcomeUnknown):
        db.xadd("s", {"n": 2})
    disk.error = 0
    # A second fsync would succeed, and lie.
    with pytest.raises(tidelog.StorePoisoned):
        db.xadd("s", {"n": 3})
    with pytest.raises(tidelog.StorePoisoned):
        db.xlen("s")  # it counts what may not be on the disk
    with pytest.raises(tidelog.StorePoisoned):
        db.barrier()
    assert "Input/output error" in db.info()["failure"]
    with pytest.raises(tidelog.StorePoisoned, match="1 records"):
        db.close()
    with tidelog.open(tmp_path / "s") as again:
        assert again.xlen("s") in (1, 2)
        again.xadd("s", {"n": 4})


def test_everyone_who_waits_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Failing(monkeypatch, "fdatasync")
    db = tidelog.open(tmp_path / "s", fsync="always")
    db.xadd("s", {"n": 1})
    outcomes, lock = list[str](), threading.Lock()

    def write() -> None:
        for _ in range(50):
            try:
                db.xadd("s", {"n": 2})
            except tidelog.TidelogError as error:
                with lock:
                    outcomes.append(type(error).__name__)
                return
            disk.error = errno.EIO

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(write) for _ in range(8)]:
            future.result(60)
    assert len(outcomes) == 8 and set(outcomes) <= {"OutcomeUnknown", "StorePoisoned"}
    with pytest.raises(tidelog.StorePoisoned):
        db.close()
    disk.error = 0
    tidelog.open(tmp_path / "s").close()


def test_a_full_disk_refuses_writes_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Failing(monkeypatch, "fill")
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.xadd("s", {"n": 1})
        before = db.digest()
        disk.error = errno.ENOSPC
        big = "x" * 300_000
        for call in (
            lambda: db.xadd("s", {"n": big}),
            lambda: db.xadd("s", {"n": big}, id="*", maxlen=5),
            lambda: db.xadd_many("s", [{"n": big}]),
            lambda: db.set("k", big),
            lambda: db.pipeline(transaction=False).xadd("s", {"n": big}).execute(),
            lambda: db.pipeline().set("k", big).execute(),
        ):
            with pytest.raises(tidelog.OutOfSpace):
                call()
        assert db.digest() == before and db.xlen("s") == 1
        results = (
            db.pipeline(transaction=False)
            .set("a", 1)
            .set("k", big)
            .set("b", 1)
            .execute(raise_on_error=False)
        )
        assert results[0] is True and results[2] is True
        assert isinstance(results[1], tidelog.OutOfSpace)
        # Half a transaction is taken back by rebuilding memory.
        before = db.digest()
        with pytest.raises(tidelog.OutOfSpace):
            db.pipeline().set("a", 2).set("k", big).execute()
        assert db.digest() == before and db.get("a") == b"1"
        disk.error = 0
        db.xadd("s", {"n": big})
        digest = db.digest()
    with tidelog.open(tmp_path / "s") as db:
        assert db.digest() == digest


def test_a_unit_larger_than_the_largest_frame_is_refused(
    db: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.aof.frame.BODY_BYTES_MAX", 1 << 20)
    db.xadd("s", {"n": 1})
    before = db.digest()
    big = "x" * (1 << 20)
    with pytest.raises(tidelog.UnitTooLarge):
        db.xadd("s", {"n": big})
    with pytest.raises(tidelog.UnitTooLarge):
        db.set("k", big)
    with pytest.raises(tidelog.UnitTooLarge):
        db.pipeline().set("a", big[: 1 << 19]).set("b", big[: 1 << 19]).set("c", 1).execute()
    assert db.digest() == before
    # A pipeline is cut into frames; only the command that is too large by itself fails.
    pipe = db.pipeline(transaction=False)
    for number in range(5):
        pipe.set(f"k{number}", big[: 1 << 19])
    pipe.xadd("s", {"n": big})
    results = pipe.execute(raise_on_error=False)
    assert results[:5] == [True] * 5 and isinstance(results[5], tidelog.UnitTooLarge)


def test_a_damaged_log_is_refused_with_file_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with tidelog.open(path) as db:
        for number in range(10):
            db.xadd("s", {"n": number})
    (segment,) = (path / "aof").glob("0*.aof")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    for read_only in (False, True):
        with pytest.raises(tidelog.StoreDamaged, match=rf"{segment.name}, byte \d+: .*repair"):
            tidelog.open(path, read_only=read_only)
    assert segment.read_bytes() == data
