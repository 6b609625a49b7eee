"""A GROUP row of a checkpoint that cannot be read: the stream goes on without that group, which can be given up."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest
from tests import inside
from tests.snapshot.world import without_sums
from tests.store.checkpoint.damaged_row import damage

import tidelog
from tidelog.engine.rowkeys import GROUP
from tidelog.figures.resident import figures
from tidelog.store.residence import Residence

ENTRIES = 300
QUIET: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}


def drop(store: Path, prefix: bytes) -> None:
    """Delete the first row of a kind."""
    folder = store / "checkpoint"
    with lmdb.Environment(str(folder), lock=False) as environment, environment.begin() as txn:
        cursor = txn.cursor()
        assert cursor.set_range(prefix) and cursor.key().startswith(prefix)
        row = cursor.key()
    without_sums(folder, row)


def damage_in_place(store: Path, copy: Path) -> None:
    """Flip a bit of the GROUP row while the store is open: LMDB lets nobody else of this process open it."""
    shutil.copytree(store / "checkpoint", copy)
    with lmdb.Environment(str(copy), lock=False) as environment, environment.begin() as txn:
        cursor = txn.cursor()
        assert cursor.set_range(GROUP) and cursor.key().startswith(GROUP)
        value = cursor.value()
    data = store / "checkpoint" / "data.mdb"
    at = data.read_bytes().index(value)
    with data.open("r+b") as file:
        file.seek(at + len(value) // 2)
        file.write(bytes([value[len(value) // 2] ^ 1]))


@pytest.fixture(params=[damage, drop], ids=["damaged", "missing"])
def store(request: Any, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with tidelog.open(root, **QUIET) as db:
        db.xadd_many("s", [{"n": n, "pad": "x" * 100} for n in range(ENTRIES)])
        for name in ("lost", "sound"):
            db.xgroup_create("s", name, id="0")
            db.xreadgroup(name, "anna", {"s": ">"}, count=100)
        db.checkpoint()
    request.param(root, GROUP)
    return root


def test_entries_and_other_groups_are_there(store: Path) -> None:
    with tidelog.open(store, read_only=True) as db:
        assert db.xlen("s") == len(db.xrange("s")) == ENTRIES
        assert db.xpending("s", "sound")["pending"] == 100
        assert db.xinfo_stream("s")["groups"] == 2
        with pytest.raises(tidelog.StoreDamaged, match="group b'lost' cannot be read.*DESTROY"):
            db.xinfo_groups("s")
        with pytest.raises(tidelog.StoreDamaged):
            db.digest()


USES: dict[str, Callable[[tidelog.Store], object]] = {
    "xreadgroup": lambda db: db.xreadgroup("lost", "ben", {"s": ">"}),
    "history": lambda db: db.xreadgroup("lost", "anna", {"s": "0"}),
    "xack": lambda db: db.xack("s", "lost", "1-1"),
    "xclaim": lambda db: db.xclaim("s", "lost", "ben", 0, ["1-1"]),
    "xautoclaim": lambda db: db.xautoclaim("s", "lost", "ben", 0),
    "xpending": lambda db: db.xpending("s", "lost"),
    "setid": lambda db: db.xgroup_setid("s", "lost", "0"),
    "createconsumer": lambda db: db.xgroup_createconsumer("s", "lost", "ben"),
    "delconsumer": lambda db: db.xgroup_delconsumer("s", "lost", "anna"),
    "acked": lambda db: db.execute_command("XTRIM", "s", "MAXLEN", "0", "ACKED"),
    "delref": lambda db: db.execute_command("XTRIM", "s", "MAXLEN", "0", "DELREF"),
    "copy": lambda db: db.copy("s", "t"),
    "info": lambda db: db.xinfo_consumers("s", "lost"),
    "full": lambda db: db.xinfo_stream("s", full=True),
}


@pytest.mark.parametrize("use", USES)
def test_what_needs_the_group_is_refused_and_has_changed_nothing(store: Path, use: str) -> None:
    with tidelog.open(store, **QUIET) as db:
        before = db.info()["written_lsn"]
        with pytest.raises(tidelog.StoreDamaged, match="group b'lost'"):
            USES[use](db)
        assert db.info()["written_lsn"] == before and not inside.reloads(db)
        assert db.xlen("s") == ENTRIES


def test_the_stream_goes_on_and_the_row_stays_until_the_group_is_destroyed(store: Path) -> None:
    with tidelog.open(store, **QUIET, memory_budget=1 << 20) as db:
        db.xadd("s", {"n": "more"})
        db.xack("s", "sound", *[id for id, _ in db.xrange("s", count=50)])
        db.checkpoint()
        Residence(1).relieve(inside.core(db))
        assert db.xpending("s", "sound")["pending"] == 50
    with tidelog.open(store, **QUIET) as db:
        assert db.xlen("s") == ENTRIES + 1
        with pytest.raises(tidelog.StoreDamaged):
            db.xpending("s", "lost")
        findings = [finding.text for finding in db.verify()]
        assert findings and all("group" in text for text in findings), findings
        with pytest.raises(tidelog.ResponseError, match="BUSYGROUP"):
            db.xgroup_create("s", "lost", id="0")
        assert db.xgroup_destroy("s", "lost") == 1
        assert db.xgroup_create("s", "lost", id="0")
        db.checkpoint()
        assert db.verify() == []
        assert len(db.xreadgroup("lost", "ben", {"s": ">"})[0][1]) == ENTRIES + 1
    with tidelog.open(store, **QUIET) as db:
        assert db.xpending("s", "lost")["pending"] == ENTRIES + 1


def test_the_figures_of_the_others_are_shown(store: Path) -> None:
    with tidelog.open(store, **QUIET) as db:
        assert db.xlen("s") == ENTRIES
        (stream,) = figures(inside.core(db), 10)
        assert stream.length == ENTRIES and [group.name for group in stream.each] == [b"sound"]


def test_its_key_can_be_deleted(store: Path) -> None:
    with tidelog.open(store, **QUIET) as db:
        assert db.delete("s") == 1
        db.checkpoint()
        assert db.verify() == []


def test_a_log_that_changes_the_group_is_not_left_out(tmp_path: Path) -> None:
    """The records behind the checkpoint need what cannot be read: the store does not open without them."""
    root = tmp_path / "store"
    for change in ("ack", "setid"):
        shutil.rmtree(root, ignore_errors=True)
        with tidelog.open(root, **QUIET) as db:
            db.xadd("s", {"n": 1})
            db.xgroup_create("s", "lost", id="0")
            ((id, _),) = db.xreadgroup("lost", "anna", {"s": ">"})[0][1]
            db.checkpoint()
            if change == "ack":
                db.xack("s", "lost", id)
            else:
                db.xgroup_setid("s", "lost", "0")
        damage(root, GROUP)
        for read_only in (False, True):
            with pytest.raises(tidelog.StoreDamaged, match="group 1"):
                tidelog.open(root, read_only=read_only)


def test_who_waits_is_told(tmp_path: Path) -> None:
    """The row is damaged while a consumer waits, and the stream is not in memory."""
    root = tmp_path / "store"
    with tidelog.open(root, **QUIET) as db:
        db.xgroup_create("s", "lost", id="$", mkstream=True)
        told: list[object] = []

        def wait() -> None:
            try:
                told.append(db.xreadgroup("lost", "anna", {"s": ">"}, block=60_000))
            except tidelog.TidelogError as error:
                told.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        while not inside.waiting(db).groups:
            time.sleep(0.01)
        db.checkpoint()
        damage_in_place(root, tmp_path / "copy")
        Residence(1).relieve(inside.core(db))
        id = db.xadd("s", {"n": 1})
        thread.join(60)
        assert isinstance(told[0], tidelog.StoreDamaged), told
        assert [each for each, _ in db.xrange("s")] == [id]
        assert not inside.reloads(db)
