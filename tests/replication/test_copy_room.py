"""A follower whose disk is full while it gets a copy: it serves on, says one reason, and goes on when there is room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.replication.conftest import Pair
from tests.replication.copies import Offered, fetch, follow, offered
from tests.replication.stores import caught_up
from tests.rounds import rest_slow, some_and_all
from tests.small_disk import resize, small_disk
from tests.until import until

import tidelog
from tidelog.replication.errors import NoRoom
from tidelog.replication.resync import CHECKING, FETCHING, SWAPPING, WAITING
from tidelog.store.errors import OutOfSpace
from tidelog.store.roles import Roles

PLENTY = 64 << 20
PAGE = 4096


@pytest.fixture(scope="module")
def offer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Offered, str]]:
    """The snapshot that a leader offers, and its digest."""
    with tidelog.open(tmp_path_factory.mktemp("leader") / "db", fsync="no") as db:
        db.xadd("large", {"random": os.urandom(600_000)})
        yield offered(db), db.digest()


def room(at: Path) -> int:
    found = os.statvfs(at)
    return found.f_bavail * found.f_frsize


def leave(at: Path, nbytes: int) -> None:
    """Leave so much room on the small disk."""
    found = os.statvfs(at)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    resize(at, str(used + nbytes))


def filled(at: Path, offer: Offered, left: int) -> tuple[str, str]:
    """Resync a follower on a small disk with `left` bytes of room. Returns the phase that failed, or "" if none did,
    and the digest of what is served then."""
    with tidelog.open(at / "db", fsync="always") as copy:
        for number in range(30):
            copy.xadd("own", {"n": number})
        copy.checkpoint()
        follow(copy)
        before = copy.digest()
        leave(at, left)
        phase = ""
        try:
            fetch(copy, offer)
        except NoRoom as error:
            text = str(error)
            assert (
                text.startswith(f"{at / 'db'}: the disk has no room for a copy")
                and "\n" not in text
            )
            assert "No space left" in text
            (phase,) = (p for p in (WAITING, FETCHING, CHECKING, SWAPPING) if f"({p}: " in text)
            assert copy.digest() == before and copy.xlen("own") == 30
        resize(at, str(PLENTY))
        if phase:
            fetch(copy, offer)
        state = copy.digest()
    with tidelog.open(at / "db") as again:
        assert again.digest() == state
    return phase, state


@pytest.mark.parametrize("step", some_and_all(384 << 10, 96 << 10))
def test_every_amount_of_room(tmp_path: Path, offer: tuple[Offered, str], step: int) -> None:
    seen = set()
    for number, left in enumerate(range(PAGE, 6 << 20, step)):
        with small_disk(tmp_path / str(number), "64m") as at:
            phase, state = filled(at, offer[0], left)
        assert state == offer[1], f"{left} bytes of room"
        seen.add(phase)
        if not phase:
            break
    assert {FETCHING, CHECKING, ""} <= seen


@pytest.mark.parametrize("left", rest_slow(range(0, 10 * PAGE, PAGE), 3))
def test_no_room_for_the_swap(
    tmp_path: Path, offer: tuple[Offered, str], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up when the copy is whole. The old store is served, or the copy; a call never finds neither."""
    with small_disk(tmp_path / "small", "64m") as at:
        with tidelog.open(at / "db", fsync="always") as copy:
            copy.xadd("own", {"n": 1})
            follow(copy)
            before = copy.digest()
            real = Roles.swap

            def full(self: Roles, *args: object) -> None:
                leave(at, left)
                real(self, *args)  # type: ignore[arg-type]

            monkeypatch.setattr(Roles, "swap", full)
            failed = ""
            try:
                fetch(copy, offer[0])
            except NoRoom as error:
                failed = str(error)
            try:
                served = copy.digest()
            except OutOfSpace as error:
                served = str(error)
            print(left, failed)
            assert served in (before, offer[1])
            resize(at, str(PLENTY))
            monkeypatch.undo()
            if copy.digest() == before:
                fetch(copy, offer[0])
            assert copy.digest() == offer[1]
        with tidelog.open(at / "db") as again:
            assert again.digest() == offer[1]


def test_a_link_says_so_and_goes_on(tmp_path: Path) -> None:
    with ExitStack() as stack:
        at = stack.enter_context(small_disk(tmp_path / "small", "64m"))
        pair = Pair(tmp_path, stack, segment_bytes=8192, retain_bytes=0)
        pair.db.xadd("large", {"random": os.urandom(600_000)})
        pair.db.checkpoint()
        pair.db.xadd("large", {"small": 1})
        pair.db.checkpoint()
        leave(at, 400_000)
        url = f"tidelog://127.0.0.1:{pair.port}"
        db = stack.enter_context(tidelog.follow(at / "db", url))

        def failure() -> str:
            return str(db.info()["replication"].get("link_failure", ""))

        until(lambda: "has no room for a copy" in failure(), "it does not say so")
        assert failure().count("no room") == 1 and db.xlen("large") == 0
        resize(at, str(PLENTY))
        until(lambda: db.info()["replication"]["link"] == "connected", "it does not go on")
        caught_up(pair.db, db)
        assert db.digest() == pair.db.digest()
