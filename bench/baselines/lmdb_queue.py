"""A typical queue on lmdb: messages by number in one table, claimed ones in a second.

Durable: every commit is synced. Relaxed: sync=False, the kernel decides when to write. No groups, no counters.
"""

from __future__ import annotations

import struct
from pathlib import Path

import lmdb

from bench.baselines.peer import Peer
from bench.messages import BATCH

NUMBER = struct.Struct(">Q")


class LmdbQueue(Peer):
    def __init__(self, directory: str, messages: str, durable: bool) -> None:
        super().__init__(messages)
        self._env = lmdb.open(
            str(Path(directory) / "queue.mdb"),
            subdir=False,
            map_size=1 << 36,
            max_dbs=2,
            sync=durable,
            metasync=durable,
        )
        self._ready = self._env.open_db(b"ready")
        self._claimed = self._env.open_db(b"claimed")
        self._next = 0

    def _keys(self, count: int) -> list[bytes]:
        first = self._next
        self._next += count
        return [NUMBER.pack(number) for number in range(first, first + count)]

    def add(self, count: int) -> None:
        begin, ready = self._env.begin, self._ready
        for key, body in zip(self._keys(count), self.messages.some_blobs(count), strict=True):
            with begin(db=ready, write=True) as transaction:
                transaction.put(key, body, append=True)

    def add_batches(self, count: int) -> None:
        pairs = list(zip(self._keys(count), self.messages.some_blobs(count), strict=True))
        for start in range(0, count, BATCH):
            with self._env.begin(db=self._ready, write=True) as transaction:
                transaction.cursor().putmulti(pairs[start : start + BATCH], append=True)

    def take(self, count: int, at_once: int) -> None:
        begin, ready, claimed = self._env.begin, self._ready, self._claimed
        for _ in range(count // at_once):
            taken: list[tuple[bytes, bytes]] = []
            with begin(write=True) as transaction:
                cursor = transaction.cursor(ready)
                cursor.first()
                while len(taken) < at_once:
                    pair = cursor.item()
                    taken.append(pair)
                    transaction.put(pair[0], pair[1], db=claimed)
                    cursor.delete()
            with begin(write=True) as transaction:
                for key, _ in taken:
                    transaction.delete(key, db=claimed)

    def close(self) -> None:
        self._env.close()
