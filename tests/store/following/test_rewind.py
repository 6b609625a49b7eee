"""An open follower gives up the end of its log: checkpoints, readers, waiting calls, and what comes afterwards."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.store.following.leader import (
    REAL,
    batches,
    check,
    follower,
    following,
    pull,
    replayed,
    roles,
    root_of,
)
from tests.until import until

import tidelog
from tidelog.aof import identity
from tidelog.aof.seek import position_after
from tidelog.aof.segment import Position
from tidelog.store.errors import NotStored
from tidelog.tools import cli


def place(db: tidelog.Store, lsn: int) -> Position:
    found = position_after(REAL, root_of(db) / identity.AOF, roles(db).uuid, lsn)
    assert found is not None
    return found


def rewind(db: tidelog.Store, lsn: int, name: str = "surplus") -> str:
    """Give up what is behind the frame that ends with `lsn`."""
    last, _ = following(db).last
    aside = root_of(db) / identity.QUARANTINE / name
    return roles(db).rewind(place(db, lsn), aside, b"{}\n", roles(db).role, last)


def write(leader: tidelog.Store, count: int) -> int:
    for number in range(count):
        leader.xadd("orders", {"n": number, "text": "x" * 200})
    last: int = leader.info()["next_lsn"] - 1
    return last


def test_a_checkpoint_before_the_place_is_used(tmp_path: Path, leader: tidelog.Store) -> None:
    """Rows in the checkpoint are read from there, also those that had left memory."""
    with follower(tmp_path / "c", leader, memory_budget=1 << 20, segment_bytes=8192) as db:
        write(leader, 500)
        pull(db, leader)
        db.checkpoint()
        kept = write(leader, 100)
        pull(db, leader)
        state = db.digest()
        write(leader, 100)
        pull(db, leader)
        reloads = inside.reloads(db)
        assert rewind(db, kept) == ""
        assert following(db).last == (kept, place(db, kept).crc) and db.digest() == state
        assert inside.reloads(db) == reloads + 1
        pull(db, leader)
        check(db, leader)
        db.checkpoint()
        state = db.digest()
    with tidelog.open(tmp_path / "c") as db:
        assert db.digest() == state


def test_a_checkpoint_behind_the_place_forbids_it(
    copy: tidelog.Store, leader: tidelog.Store
) -> None:
    kept = write(leader, 10)
    write(leader, 10)
    pull(copy, leader)
    copy.checkpoint()
    state, last = copy.digest(), following(copy).last
    assert f"records through LSN {last[0]}" in rewind(copy, kept)
    assert (copy.digest(), following(copy).last) == (state, last)
    assert not (root_of(copy) / identity.QUARANTINE).exists()


def test_a_snapshot_behind_the_place_forbids_it(copy: tidelog.Store, leader: tidelog.Store) -> None:
    kept = write(leader, 10)
    last = write(leader, 10)
    pull(copy, leader)
    (root_of(copy) / identity.SNAPSHOTS / f"{last:020d}").mkdir(parents=True)
    assert "a snapshot holds" in rewind(copy, kept)
    assert following(copy).last[0] == last


def test_what_is_written_meanwhile_is_kept(copy: tidelog.Store, leader: tidelog.Store) -> None:
    kept = write(leader, 10)
    write(leader, 10)
    pull(copy, leader)
    last, _ = following(copy).last
    role, at = roles(copy).role, place(copy, kept)
    write(leader, 1)
    pull(copy, leader)
    aside = root_of(copy) / identity.QUARANTINE / "x"
    with pytest.raises(NotStored):
        roles(copy).rewind(at, aside, b"", role, last)
    check(copy, leader)


def test_checkpoints_go_on_beside_it(tmp_path: Path, leader: tidelog.Store) -> None:
    """One that was begun before the rewind is never committed behind it: the store would not open."""
    with follower(tmp_path / "c", leader, segment_bytes=8192, checkpoint_bytes=4096) as db:
        done = threading.Event()
        failures: list[BaseException] = []

        def fold() -> None:
            while not done.is_set():
                try:
                    db.checkpoint()
                except BaseException as error:
                    failures.append(error)

        thread = threading.Thread(target=fold)
        thread.start()
        try:
            rewound = 0
            for round_ in range(30):
                kept = write(leader, 5)
                pull(db, leader)
                write(leader, 5)
                pull(db, leader)
                rewound += rewind(db, kept, f"surplus{round_}") == ""
                pull(db, leader)
        finally:
            done.set()
            thread.join()
        assert not failures
        check_state = db.digest()
        assert check_state == replayed(tmp_path / "leader", roles(leader).uuid)
    with tidelog.open(tmp_path / "c") as db:
        assert db.digest() == check_state
    assert rewound


def test_readers_that_wait_get_what_comes_then(copy: tidelog.Store, leader: tidelog.Store) -> None:
    kept = write(leader, 5)
    pull(copy, leader)
    write(leader, 5)
    pull(copy, leader)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(copy.xread({"other": "$"}, block=60_000)))
    thread.start()
    until(lambda: inside.waiters(copy))
    assert rewind(copy, kept) == ""
    assert copy.xlen("orders") == 5
    leader.xadd("other", {"n": 1})
    pull(copy, leader)
    thread.join()
    ((_, entries),) = found[0]
    assert len(entries) == 1
    check(copy, leader)


def test_a_reader_beside_it_reads_anew(copy: tidelog.Store, leader: tidelog.Store) -> None:
    kept = write(leader, 5)
    write(leader, 5)
    pull(copy, leader)
    with tidelog.open(root_of(copy), read_only=True) as reader:
        assert reader.xlen("orders") == 10
        assert rewind(copy, kept) == ""
        leader.set("name", "new")
        pull(copy, leader)
        reader.refresh()
        assert reader.digest() == copy.digest()
    with tidelog.open(root_of(copy), read_only=True) as reader:
        assert reader.digest() == copy.digest()


def test_the_tools_read_what_was_set_aside(
    copy: tidelog.Store, leader: tidelog.Store, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    kept = write(leader, 5)
    write(leader, 300)  # several segments
    pull(copy, leader)
    assert rewind(copy, kept) == ""
    aside = root_of(copy) / identity.QUARANTINE / "surplus"
    assert cli.run(["aof", "dump", str(aside.parent)]) != 0  # a directory of such directories
    for tool in (["dump"], ["export", "--resp"], ["ls"]):
        assert cli.run(["aof", *tool, str(aside)]) == 0
        shown = capsysbinary.readouterr().out
        if tool != ["ls"]:
            assert shown.count(b"XADD") == 300


def test_a_leader_is_not_rewound(leader: tidelog.Store) -> None:
    last = write(leader, 5)
    with inside.lock(leader):
        inside.log(leader).flush()
    at = place(leader, last - 1)
    with pytest.raises(NotStored):
        roles(leader).rewind(at, root_of(leader) / "x", b"", roles(leader).role, last)
    assert next(iter(batches(leader, (0, 0)))).first == 1
