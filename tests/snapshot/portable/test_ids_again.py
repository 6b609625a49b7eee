"""After XSETID to a smaller ID the IDs of deleted entries are given again. The checkpoint of such a stream is sound."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import inside
from tests.snapshot.histories import World
from tests.snapshot.portable.portable_store import DISK, opened
from tests.snapshot.world import without_sums

import tidelog
from tidelog.engine import rowkeys
from tidelog.engine.streams.pages import unpack_page
from tidelog.engine.streams.stream import Stream
from tidelog.snapshot.walk import walk

SLOTS = (100, 8, 3, 1)  # of a node: the IDs meet in the open node, or in sealed ones


def ids(low: int, high: int) -> list[str]:
    return [f"{n}-0" for n in range(low, high + 1)]


def given_again(db: tidelog.Store, slots: int, stored: bool) -> None:
    """IDs 46 to 50 are deleted, and given again; a checkpoint holds their nodes before, if `stored`."""
    inside.core(db).settings.stream_node_max_entries = slots
    for n, entry_id in enumerate(ids(1, 50)):
        db.xadd("s", {"n": n}, id=entry_id)
    if stored:
        db.checkpoint()
    db.xdel("s", *ids(46, 50))
    db.execute_command("XSETID", "s", "50-0", "MAXDELETEDID", "0-1")
    db.execute_command("XSETID", "s", "45-0")
    for entry_id in ids(46, 70):
        db.xadd("s", {"again": entry_id}, id=entry_id)


@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("stored", (False, True))
def test_such_a_store_is_sound_and_can_be_snapshotted(
    tmp_path: Path, slots: int, stored: bool
) -> None:
    with opened(tmp_path / "store") as db:
        given_again(db, slots, stored)
        before = db.digest()
        snapshot = db.snapshot()
        assert db.verify() == []
        value = inside.databases(db)[0].keys[b"s"]
        assert isinstance(value, Stream)
        value.check()
    with opened(tmp_path / "store") as db:
        assert db.digest() == before
        assert [entry_id.decode() for entry_id, _ in db.xrange("s")] == ids(1, 70)
        back = [entry_id.decode() for entry_id, _ in db.xrevrange("s", "48", "44")]
        assert back == ids(44, 48)[::-1]
        assert len(db.xrange("s", "46-0", "50-0")) == 5
    assert DISK.exists(snapshot.path)


def test_live_entries_whose_ids_do_not_ascend_are_found(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.engine.ctx.settings.stream_node_max_entries = 10
    for entry_id in ids(1, 20):
        world.engine(f"XADD s {entry_id} f v")
    world.engine(f"XDEL s {' '.join(ids(16, 20))}")
    world.engine("XSETID s 20-0 MAXDELETEDID 0-1")
    world.engine("XSETID s 15-0")
    for entry_id in ids(16, 40):
        world.engine(f"XADD s {entry_id} f v")
    world.checkpoint()
    key, row = next(world.rows.rows(rowkeys.page_prefix(1)))
    world.close()
    assert list(walk(DISK, tmp_path)) == []

    page = unpack_page(rowkeys.page_first(key), row)
    assert page.masks[1].bit_count() == 5
    page.masks[1] = 0  # as if nothing were deleted: IDs 16 to 20 are there twice
    without_sums(tmp_path, put={key: page.pack()})
    texts = [finding.text for finding in walk(DISK, tmp_path)]
    assert any("block 2" in text and "IDs are not in ascending order" in text for text in texts), (
        texts
    )


def test_an_error_names_the_ids_that_were_given_again(tmp_path: Path) -> None:
    """The page behind the one whose last slots are deleted is gone: the lost IDs begin with those given again."""
    world = World(tmp_path)
    world.engine.ctx.settings.stream_node_max_entries = 10
    for entry_id in ids(1, 160):
        world.engine(f"XADD s {entry_id} f v")
    world.engine(f"XDEL s {' '.join(ids(156, 160))}")
    world.engine("XSETID s 160-0 MAXDELETEDID 0-1")
    world.engine("XSETID s 155-0")
    for entry_id in ids(156, 400):
        world.engine(f"XADD s {entry_id} f v")
    world.checkpoint()
    keys = [key for key, _ in world.rows.rows(rowkeys.page_prefix(1))]
    world.close()
    without_sums(tmp_path, keys[1])
    texts = [finding.text for finding in walk(DISK, tmp_path)]
    lost = [text for text in texts if "they are missing" in text]
    assert lost and int(lost[0].partition("(IDs ")[2].partition("-")[0]) <= 156, texts
