"""Times after the year 9999: null as times, since Spark and Python have none, and whole as milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.spark.rows import rows

import tidelog
from tidelog.spark.source.log import stream

LAST = 253_402_300_799_999  # the end of the year 9999
TIMES = (LAST, LAST + 1, 9 * 10**15)
LAST_TIME = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def test_ids_and_expiries(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        for at, ms in enumerate(TIMES):
            db.xadd("s", {"a": 1}, id=f"{ms}-0")
            db.xadd(f"s{at}", {"a": 1}, id="1-0")
            db.set(f"t{at}", "x")
            for key in (f"s{at}", f"t{at}"):
                db.pexpireat(key, ms)
        db.snapshot()
        reader = stream.reader({"path": str(tmp_path / "store")})
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        logged = [
            row
            for part in reader.partitions(start, end)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]
    for found in (rows(tmp_path / "store", streams="s"), logged):
        far = [(row["ms"], row["ts"]) for row in found if row["stream"] == b"s"]
        assert far == [(ms, LAST_TIME if ms == LAST else None) for ms in TIMES]
    for table, name in (("keys", "key"), ("streams", "stream")):
        found = [row for row in rows(tmp_path / "store", table=table) if row[name] != b"s"]
        told = {(row["expires_at_ms"], row["expires_at"]) for row in found}
        assert told == {(ms, LAST_TIME if ms == LAST else None) for ms in TIMES}
        assert len(found) == (6 if table == "keys" else 3)
