"""A leader whose data was imported: its log begins at LSN 2, so a new follower gets a copy of the checkpoint."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.engine.rdb.test_layouts import value
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up
from tests.tools.test_import import file_of, text

import tidelog
from tidelog.tools import cli


def test_a_follower_gets_what_was_imported(tmp_path: Path) -> None:
    dump = file_of(tmp_path / "dump.rdb", b"\xfe\x00" + b"\x15\x01s" + value(21), text(b"x", b"1"))
    root = tmp_path / "pair"
    root.mkdir()
    assert cli.run(["import", str(root / "leader"), str(dump)]) == 0
    with ExitStack() as stack:
        pair = Pair(root, stack)
        follower = pair.follow()
        pair.db.xadd("s", {"n": 1})
        caught_up(pair.db, follower)
        assert follower.digest() == pair.db.digest()
        assert follower.get("x") == b"1"
        assert follower.xlen("s") == 3
    with tidelog.open(root / "leader") as db:
        assert db.xlen("s") == 3
