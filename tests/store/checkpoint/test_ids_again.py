"""Streams in a checkpoint whose IDs were given again: XSETID set the last ID back behind deleted entries."""

from __future__ import annotations

from pathlib import Path

from tests import inside

import tidelog


def test_entries_behind_a_page_that_ends_deleted_are_found(tmp_path: Path) -> None:
    """The first page ends with the deleted entry 100-0, whose ID is greater than those in the second page."""
    with tidelog.open(tmp_path) as db:
        inside.core(db).settings.stream_node_max_entries = 2
        for ms in (*range(1, 32), 100):  # a page has 16 nodes
            db.xadd("s", {"f": ms}, id=f"{ms}-0")
        db.xdel("s", "100-0")
        db.execute_command("XSETID", "s", "100-0", "ENTRIESADDED", 32, "MAXDELETEDID", "0-1")
        db.execute_command("XSETID", "s", "31-0")
        for ms in range(32, 41):
            db.xadd("s", {"f": ms}, id=f"{ms}-0")
        db.checkpoint()
    with tidelog.open(tmp_path) as db:
        for ms in range(1, 41):
            db.xrange("s", "30-0", "30-0")  # the first page was used last
            assert db.xrange("s", f"{ms}-0", f"{ms}-0") == [(b"%d-0" % ms, {b"f": b"%d" % ms})]
            assert db.xrevrange("s", f"{ms}-0", "-", count=1)[0][0] == b"%d-0" % ms
        for ms in range(1, 41):
            db.xrange("s", "30-0", "30-0")
            assert db.xdel("s", f"{ms}-0") == 1
        assert db.xlen("s") == 0
