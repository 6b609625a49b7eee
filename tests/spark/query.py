"""A query of the streaming source, run in this process as Spark would run it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

import tidelog
from tidelog.spark.source.log import stream

OPTIONS: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}


class Query:
    """A query: its reader, and what Spark keeps of it."""

    def __init__(self, path: Path, **options: str) -> None:
        self.options = {"path": str(path), **options}
        self.offset: Any = None
        self.rows: list[dict[str, Any]] = []
        self.planned: tuple[Any, Any] | None = None
        self.finished = 0
        self.begun: Any = None  # where its first batch begins
        self.restart()

    def restart(self) -> None:
        """Begin again as another process. Spark has stored the ends of batches, and not where the first one begins."""
        self.reader = stream.reader(self.options)
        if not self.finished:
            self.offset = json.loads(json.dumps(self.reader.initialOffset()))
            if self.planned is not None:
                self.planned = self.offset, self.planned[1]

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Plan a batch. False if there is nothing new."""
        if limit is None:
            limit = self.reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self.reader.latestOffset(self.offset, limit)))
        if end == self.offset:
            return False
        self.planned = self.offset, end
        return True

    def run(self) -> list[dict[str, Any]]:
        """Read the planned batch, in another process as it were."""
        assert self.planned is not None
        start, end = self.planned
        rows = []
        for partition in self.reader.partitions(start, end):
            partition = pickle.loads(pickle.dumps(partition))
            worker = pickle.loads(pickle.dumps(self.reader))
            for batch in worker.read(partition):
                rows += batch.to_pylist()
        return rows

    def finish(self) -> None:
        assert self.planned is not None
        self.rows += self.run()
        if not self.finished:
            self.begun = self.planned[1].get("begun", self.offset)
        self.finished += 1
        self.offset = self.planned[1]
        self.reader.commit(self.offset)
        self.planned = None

    def all(self, limit: ReadLimit | None = None) -> list[Any]:
        """Read until nothing is new. Returns the values of the field `n` of the entries that came."""
        before = len(self.rows)
        while self.plan(limit):
            self.finish()
        return values(self.rows[before:])


def values(rows: list[dict[str, Any]]) -> list[int]:
    return [int(f["value"]) for row in rows for f in row["fields"] or () if f["name"] == b"n"]


def gaps(query: Query) -> list[dict[str, Any]]:
    return [json.loads(row["detail"]) for row in query.rows if row.get("event") == "gap"]


def add(db: tidelog.Store, numbers: range) -> None:
    for n in numbers:
        db.xadd("s", {"n": n, "pad": "x" * 50})


def last_lsn(db: tidelog.Store) -> int:
    return int(db.info()["next_lsn"]) - 1
