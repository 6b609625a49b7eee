"""A destination that is full: one error that names the file, and the export goes on when there is room."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.small_disk import resize, small_disk
from tests.spark.exports.test_export import exported, rows
from tests.spark.histories import Life
from tests.spark.test_tables import assert_same

from tidelog.spark.errors import TidelogSparkError


def test_full_then_room(tmp_path: Path) -> None:
    life = Life(tmp_path / "store", 31)
    try:
        for at in range(300):
            life.run(b"XADD", b"s%d" % (at % 3), b"*", b"f", life.r.randbytes(2000))
        told = life.told()
    finally:
        life.close()
    options = {"targetPartitionBytes": "100000"}
    with small_disk(tmp_path / "small", "400k") as disk:
        with pytest.raises(TidelogSparkError) as failed:
            exported(told, disk / "to", options=options)
        assert failed.value.code == "TIDELOG_IO"
        assert str(disk / "to") in str(failed.value)
        assert "No space left on device" in str(failed.value)
        assert not list(disk.rglob("*.new")), "what could not be finished takes no space"
        resize(disk, "4m")
        done = exported(told, disk / "to", options=options)
        assert done.kept
        assert_same(rows(done, "entries"), told.tables["entries"])
