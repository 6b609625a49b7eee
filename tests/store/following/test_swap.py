"""A copy of the leader's data takes the place of an open follower: readers, waiting calls, errors, later frames."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests import inside
from tests.store.following.leader import (
    REAL,
    flush,
    follower,
    following,
    frames_of,
    pull,
    roles,
    root_of,
)
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.aof import identity
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.snapshot import swap
from tidelog.snapshot.restore import restore
from tidelog.snapshot.swap import Swap
from tidelog.store.errors import NotStored, TidelogError


def write(leader: tidelog.Store, count: int) -> int:
    for number in range(count):
        leader.xadd("orders", {"n": number, "text": "x" * 200})
    last: int = leader.info()["next_lsn"] - 1
    return last


def fetched(db: tidelog.Store, leader: tidelog.Store, aside: str = swap.OLD) -> Swap:
    """Put a copy of the leader's newest data into the follower's resync/store."""
    made = leader.snapshot()
    recipe.make_directory(REAL, root_of(db) / identity.RESYNC)
    restore(REAL, made.path, root_of(db) / swap.NEW)
    return Swap(roles(leader).uuid, made.lsn + 1, aside)


def swapped(db: tidelog.Store, new: Swap) -> None:
    roles(db).swap(new, roles(db).role, following(db).last[0])


def goes_on(db: tidelog.Store, leader: tidelog.Store) -> None:
    """The follower takes the leader's frames, writes checkpoints, and opens again."""
    write(leader, 30)
    pull(db, leader)
    assert db.digest() == leader.digest()
    db.checkpoint()
    write(leader, 30)
    pull(db, leader)
    assert db.digest() == leader.digest()
    path, state = root_of(db), db.digest()
    own = dict(frames_of(path))
    flush(leader)
    theirs = dict(frames_of(root_of(leader)))
    assert own and own.items() <= theirs.items()
    assert not db.verify()
    db.close()
    with tidelog.open(path) as again:
        assert again.digest() == state and again.role().kind == "follower"


def test_a_follower_that_is_behind(copy: tidelog.Store, leader: tidelog.Store) -> None:
    write(leader, 20)
    pull(copy, leader)
    copy.checkpoint()
    mine = copy.snapshot().path
    write(leader, 200)
    state = leader.digest()
    swapped(copy, fetched(copy, leader))
    assert copy.digest() == state and following(copy).last[0] == leader.info()["next_lsn"] - 1
    assert mine.exists() and not (root_of(copy) / identity.QUARANTINE).exists()
    assert not (root_of(copy) / identity.RESYNC).exists()
    goes_on(copy, leader)


def test_an_empty_follower_takes_the_uuid(tmp_path: Path, leader: tidelog.Store) -> None:
    write(leader, 20)
    with tidelog.open(tmp_path / "new") as db:
        roles(db).follow("leader", 1)
        swapped(db, fetched(db, leader))
        assert roles(db).uuid == roles(leader).uuid and db.digest() == leader.digest()
        goes_on(db, leader)


def test_another_store_is_kept_and_opens(tmp_path: Path, leader: tidelog.Store) -> None:
    write(leader, 20)
    with tidelog.open(tmp_path / "other") as db:
        write(db, 50)
        made = db.snapshot()
        write(db, 5)
        state = db.digest()
        roles(db).follow("leader", 1)
        last, _ = following(db).last
        aside = swap.kept(last, 0xA1)
        swapped(db, fetched(db, leader, aside))
        assert db.digest() == leader.digest()
        with tidelog.open(root_of(db) / aside, read_only=True) as old:
            assert old.digest() == state
        assert (root_of(db) / aside / identity.SNAPSHOTS / made.path.name).exists()
        goes_on(db, leader)
    with tidelog.open(tmp_path / "other" / aside) as old:
        assert old.digest() == state and old.role().kind == "leader"


def test_rows_that_had_left_memory(tmp_path: Path, leader: tidelog.Store) -> None:
    with follower(tmp_path / "c", leader, memory_budget=1 << 20, segment_bytes=8192) as db:
        write(leader, 3000)
        pull(db, leader, 1 << 20)
        db.checkpoint()
        write(leader, 3000)
        new = fetched(db, leader)
        assert db.xlen("orders") == 3000
        swapped(db, new)
        assert len(db.xrange("orders")) == 6000 and db.digest() == leader.digest()
        goes_on(db, leader)


def test_a_blocked_reader_gets_the_new_entries(copy: tidelog.Store, leader: tidelog.Store) -> None:
    write(leader, 3)
    pull(copy, leader)
    found: list[object] = []
    reader = threading.Thread(
        target=lambda: found.append(copy.xread({"orders": "$"}, block=60_000, count=1))
    )
    reader.start()
    until(lambda: bool(inside.core(copy).waiting.keys), "nobody waits")
    write(leader, 3)
    swapped(copy, fetched(copy, leader))
    reader.join(60)
    assert found and found[0]


def test_a_watched_transaction_fails(copy: tidelog.Store, leader: tidelog.Store) -> None:
    write(leader, 3)
    pull(copy, leader)
    with copy.pipeline() as pipe:
        pipe.watch("orders")
        pipe.multi()
        pipe.xlen("orders")
        swapped(copy, fetched(copy, leader))
        with pytest.raises(tidelog.WatchError):
            pipe.execute()


def test_readers_in_this_process_and_in_others_go_on(
    tmp_path: Path, copy: tidelog.Store, leader: tidelog.Store
) -> None:
    write(leader, 20)
    pull(copy, leader)
    copy.checkpoint()
    program = (
        "import sys, tidelog\n"
        "db = tidelog.open(sys.argv[1], read_only=True)\n"
        "for _ in sys.stdin:\n"
        "    db.refresh()\n"
        "    print(db.digest(), flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(root_of(copy))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None

    def seen() -> str:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        return child.stdout.readline().strip()

    try:
        with tidelog.open(root_of(copy), read_only=True) as beside:
            assert beside.digest() == copy.digest() == seen()
            write(leader, 50)
            swapped(copy, fetched(copy, leader))
            beside.refresh()
            assert beside.digest() == leader.digest() == seen()
            write(leader, 5)
            pull(copy, leader)
            flush(copy)
            beside.refresh()
            assert beside.digest() == leader.digest() == seen()
    finally:
        child.stdin.close()
        child.wait(60)
        child.stdout.close()


def test_a_reader_that_opens_all_the_time(
    copy: tidelog.Store, leader: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees the old store or the new one, however its opens fall."""
    monkeypatch.setattr(swap, "WAIT_S", PATIENCE_S)
    write(leader, 20)
    pull(copy, leader)
    states, failures, stop = set(), [], threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                with tidelog.open(root_of(copy), read_only=True) as db:
                    states.add(db.digest())
            except TidelogError as error:
                failures.append(error)

    thread = threading.Thread(target=read)
    flush(copy)
    before = {copy.digest()}
    thread.start()
    try:
        until(lambda: states or failures, "it does not open")
        for _ in range(2):
            write(leader, 20)
            swapped(copy, fetched(copy, leader))
            before.add(copy.digest())
    finally:
        stop.set()
        thread.join(60)
    assert not failures and states and states <= before


class Moves(RealDisk):
    """A disk whose n-th move fails once."""

    left = -1

    def move(self, source: Path, target: Path) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.EIO, "broken")
        super().move(source, target)


@pytest.mark.parametrize("number", range(2, 6))
def test_a_reader_that_looks_between_two_moves(
    tmp_path: Path, leader: tidelog.Store, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds parts of both stores. It waits for the end of the swap, and calls nothing damaged.

    Before the first move it finds the old store, whole.
    """
    disk = Moves()
    write(leader, 20)
    with tidelog.open(tmp_path / "other", fsync="no", disk=disk) as db:
        write(db, 5)
        db.checkpoint()
        roles(db).follow("leader", 1)
        with tidelog.open(tmp_path / "other", read_only=True) as beside:
            assert beside.digest() == db.digest()
            new = fetched(db, leader)
            disk.left = number
            real = swap.wait

            def finished(*args: object) -> None:
                db.xlen("orders")
                real(*args)  # type: ignore[arg-type]

            monkeypatch.setattr(swap, "wait", finished)
            with pytest.raises(TidelogError):
                swapped(db, new)
                db.xlen("orders")
            beside.refresh()
            assert beside.digest() == leader.digest()


def test_the_role_changed_meanwhile(copy: tidelog.Store, leader: tidelog.Store) -> None:
    write(leader, 20)
    new = fetched(copy, leader)
    asked = roles(copy).role
    roles(copy).follow("elsewhere", 2)
    with pytest.raises(NotStored, match="another role"):
        roles(copy).swap(new, asked, 0)
    roles(copy).promote()
    with pytest.raises(NotStored, match="another role"):
        roles(copy).swap(new, roles(copy).role, following_lsn(copy))
    copy.xadd("still", {"open": 1})


def following_lsn(db: tidelog.Store) -> int:
    last: int = db.info()["next_lsn"] - 1
    return last


class Failing(RealDisk):
    """A disk whose n-th change of a name fails once."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.EIO, "broken")

    def move(self, source: Path, target: Path) -> None:
        self._count()
        super().move(source, target)

    def rename(self, source: Path, target: Path) -> None:
        if source.name.startswith(identity.SWAP):
            self._count()
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        if path.name != identity.SNAPSHOTS:
            self._count()
        super().sync_directory(path)


def test_the_next_call_finishes_a_swap_that_broke(tmp_path: Path, leader: tidelog.Store) -> None:
    write(leader, 5)
    with follower(tmp_path / "copy", leader) as db:
        pull(db, leader)
        old, last = db.digest(), following(db).last[0]
        write(leader, 5)
        new = fetched(db, leader, swap.kept(last, 1))
    outcomes: set[tuple[bool, bool]] = set()
    for number in range(2, 60, 2):
        disk, path = Failing(), tmp_path / str(number)
        shutil.copytree(tmp_path / "copy", path)
        with tidelog.open(path, disk=disk) as db:
            disk.left = number
            try:
                swapped(db, new)
                failed = False
            except (TidelogError, OSError):
                failed = True
            disk.left = -1
            state = db.digest()
            assert state in (old, leader.digest())
            outcomes.add((failed, state == old))
            pull(db, leader)
            assert db.digest() == leader.digest()
        if not failed:
            break
    assert outcomes == {(True, True), (True, False), (False, False)}
