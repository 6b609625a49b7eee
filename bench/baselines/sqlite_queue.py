"""A typical queue on sqlite3: one table in WAL mode.

Durable: synchronous=FULL, every commit is synced. Relaxed: synchronous=NORMAL, the WAL is synced at checkpoints.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from bench.baselines.peer import Peer
from bench.messages import BATCH

CLAIM = (
    "UPDATE queue SET claimed = 1 WHERE id IN"
    " (SELECT id FROM queue WHERE claimed = 0 ORDER BY id LIMIT ?) RETURNING id, body"
)


class SqliteQueue(Peer):
    def __init__(self, directory: str, messages: str, durable: bool) -> None:
        super().__init__(messages)
        self._db = db = sqlite3.connect(Path(directory) / "queue.db", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        db.execute(
            "CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB, claimed INTEGER DEFAULT 0)"
        )

    def add(self, count: int) -> None:
        execute = self._db.execute
        for body in self.messages.some_blobs(count):
            execute("INSERT INTO queue (body) VALUES (?)", (body,))

    def add_batches(self, count: int) -> None:
        bodies = [(body,) for body in self.messages.some_blobs(count)]
        for start in range(0, count, BATCH):
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT INTO queue (body) VALUES (?)", bodies[start : start + BATCH]
            )
            self._db.execute("COMMIT")

    def take(self, count: int, at_once: int) -> None:
        db = self._db
        for _ in range(count // at_once):
            claimed = db.execute(CLAIM, (at_once,)).fetchall()
            if at_once == 1:
                db.execute("DELETE FROM queue WHERE id = ?", (claimed[0][0],))
                continue
            db.execute("BEGIN")
            db.executemany("DELETE FROM queue WHERE id = ?", [(id,) for id, _ in claimed])
            db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()
