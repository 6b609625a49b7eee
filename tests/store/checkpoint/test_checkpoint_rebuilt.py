"""A checkpoint beside memory that is rebuilt, and one that was committed and then could not be looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import inside

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.engine.keys.freeze import Frozen
from tidelog.engine.streams.stream import Stream
from tidelog.snapshot import portable
from tidelog.snapshot.checkpoint import write_checkpoint
from tidelog.snapshot.errors import CheckpointError
from tidelog.snapshot.restore import restore
from tidelog.snapshot.rows.environment import ColdRows, Writing
from tidelog.store import checkpoints
from tidelog.testing import Clock

# Commits the row META again, as it is.
COMMIT = """
import sys
from pathlib import Path
from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows.environment import ColdRows, open_environment
from tidelog.engine.rowkeys import META
environment = open_environment(RealDisk(), Path(sys.argv[1]))
rows = ColdRows(environment)
value = rows.get(META)
rows.close()
writing = environment.write()
writing.put(META, value)
writing.commit()
environment.close()
"""


def opened(path: Path) -> tidelog.Store:
    return tidelog.open(path, fsync="no", checkpoint_bytes=0, save=())


def test_memory_that_is_rebuilt_meanwhile_ends_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as db:
        db.xadd("s", {"n": 0})
        tried = []

        def disturbed(*args: Any, **more: Any) -> None:
            tried.append(True)
            if len(tried) == 1:
                with inside.lock(db):
                    inside.landing(db).trouble = "the test wants it"
                db.xadd("s", {"n": 1})
            write_checkpoint(*args, **more)

        monkeypatch.setattr(checkpoints, "write_checkpoint", disturbed)
        assert db.checkpoint() == db.info()["written_lsn"]
        assert len(tried) == 2 and db.xlen("s") == 2


def test_what_an_interrupt_left_out_of_a_checkpoint_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It strikes while a stream that is about to change is copied; nobody calls before the checkpoint would commit."""
    copy = Frozen._copy
    struck: list[bool] = []

    def strikes(frozen: Frozen, stream: Stream, *, waits: bool) -> None:
        if waits and not struck:
            struck.append(True)
            raise KeyboardInterrupt
        copy(frozen, stream, waits=waits)

    monkeypatch.setattr(Frozen, "_copy", strikes)
    with opened(tmp_path / "s") as db:
        db.xadd("s", {"n": 0})
        before = db.digest()

        def disturbed(*args: Any, **more: Any) -> None:
            if not struck:
                with pytest.raises(KeyboardInterrupt):
                    db.xadd("s", {"n": 1})
            write_checkpoint(*args, **more)

        monkeypatch.setattr(checkpoints, "write_checkpoint", disturbed)
        assert db.checkpoint() == db.info()["written_lsn"]
        assert struck and db.digest() == before
    with opened(tmp_path / "s") as db:
        assert db.digest() == before


@pytest.mark.parametrize(
    "place", ["tidelog.engine.keys.expiries.heappush", "tidelog.engine.keys.expiries.Expiries.load"]
)
def test_a_key_keeps_its_time_though_an_interrupt_strikes_while_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def strikes(*given: object) -> None:
        raise KeyboardInterrupt

    clock = Clock()
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        db.set("k", "v", px=1000)
        db.checkpoint()
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        with monkeypatch.context() as patch:
            patch.setattr(place, strikes)
            with pytest.raises(KeyboardInterrupt):
                db.get("k")
        assert db.get("k") == b"v" and db.pttl("k") == 1000
        clock.advance(2)
        db.ping()
        assert db.dbsize() == 0


def test_a_commit_that_could_not_be_looked_at_is_found_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as db:
        db.xadd("s", {"n": 0})
        db.checkpoint()
        db.xadd("s", {"n": 1})

        def written(*args: Any, **more: Any) -> None:
            write_checkpoint(*args, **more)
            monkeypatch.setattr(ColdRows, "renew", full)

        def full(rows: ColdRows) -> None:
            raise CheckpointError("no reader more")

        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "write_checkpoint", written)
            with pytest.raises(tidelog.CheckpointFailed, match="no reader more"):
                db.checkpoint()
        monkeypatch.undo()
        db.xadd("s", {"n": 2})
        assert db.xlen("s") == 3
        before = db.digest()
        assert db.checkpoint() == db.info()["written_lsn"]
        assert db.digest() == before
    with opened(tmp_path / "s") as db:
        assert db.digest() == before


def test_the_log_behind_a_snapshot_that_is_being_made_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    with tidelog.open(path, fsync="no", segment_bytes=4096, retain_bytes=0) as db:

        def many() -> None:
            for n in range(50):
                db.xadd("s", {"n": n, "pad": "x" * 200})

        def slowly(*args: Any, **more: Any) -> Any:
            made = copy(*args, **more)
            many()
            db.checkpoint()
            return made

        many()
        copy = portable.copy_of
        with monkeypatch.context() as patch:
            patch.setattr(portable, "copy_of", slowly)
            made = db.snapshot()
        restored = restore(RealDisk(), made.path, tmp_path / "restored", aof=path)
        assert restored.lsn == db.info()["written_lsn"] > made.manifest.lsn


def test_memory_that_is_rebuilt_right_before_a_commit_is_rebuilt_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was rebuilt from the checkpoint before, so it does not fit the rows that were committed then."""
    commit = Writing.commit
    struck: list[bool] = []
    with opened(tmp_path / "s") as db:
        db.xadd("s", {"n": 0})
        db.checkpoint()
        for n in range(300):
            db.xadd("s", {"n": n, "pad": "x" * 100})
        db.xgroup_create("s", "g", id="0")
        db.xreadgroup("g", "ann", {"s": ">"}, count=200)

        def disturbed(writing: Writing) -> None:
            if not struck:
                struck.append(True)
                with inside.lock(db):
                    inside.landing(db).trouble = "the test wants it"
                    inside.core(db).mend()
            commit(writing)

        monkeypatch.setattr(Writing, "commit", disturbed)
        before = db.digest()
        assert db.checkpoint() == db.info()["written_lsn"]
        assert struck
        with inside.lock(db):
            assert inside.landing(db).trouble is not None
        assert db.digest() == before
        db.xack(
            "s", "g", *[each["message_id"] for each in db.xpending_range("s", "g", "-", "+", 9)]
        )
        db.xtrim("s", maxlen=150, approximate=False)
        before = db.digest()
        db.checkpoint()
        assert db.digest() == before
    with opened(tmp_path / "s") as db:
        assert db.digest() == before


def test_a_checkpoint_over_one_that_another_process_committed_is_refused(tmp_path: Path) -> None:
    """The changes of this store need not fit rows that it never read."""
    with opened(tmp_path / "s") as db:
        db.xadd("s", {"n": 0})
        db.checkpoint()
        subprocess.run([sys.executable, "-c", COMMIT, tmp_path / "s" / "checkpoint"], check=True)
        db.xadd("s", {"n": 1})
        with pytest.raises(tidelog.CheckpointFailed, match="replaced by a newer checkpoint"):
            db.checkpoint()
        before = db.digest()
    with opened(tmp_path / "s") as db:
        assert db.digest() == before
        assert db.checkpoint() == db.info()["written_lsn"]
