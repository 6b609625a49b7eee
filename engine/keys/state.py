"""State: sixteen databases of keys. Only `engine.effects.apply` changes it."""

from __future__ import annotations

from typing import Any

from tidelog.engine.cold import ColdStore
from tidelog.engine.keys.changes import Changes, Table
from tidelog.engine.keys.expiries import NEVER, Expiries
from tidelog.engine.keys.keyspace import Keyspace

DATABASES = 16


class Settings:
    """Limits for decide. Apply never reads them, so replay does not depend on them.

    CONFIG SET changes them at run time. The defaults are Redis's (spec 16.3).
    """

    __slots__ = (
        "stream_node_max_entries",
        "stream_node_max_bytes",
        "stream_idmp_duration",
        "stream_idmp_maxsize",
    )

    def __init__(self) -> None:
        self.stream_node_max_entries = 100  # 0 = no limit
        self.stream_node_max_bytes = 4096  # 0 = no limit; hard limit 1 GiB
        self.stream_idmp_duration = 100  # seconds
        self.stream_idmp_maxsize = 100  # idempotent IDs per producer


class Database:
    """One numbered database: key -> value, and key -> expiry in unix ms.

    A value is a `Stream`, or `bytes` for a string. `table` is the number in the keys of its rows in a checkpoint;
    `count` is the number of keys that the checkpoint has, `expiring` the number of those with an expiry.
    """

    __slots__ = ("table", "keys", "expires")

    def __init__(self, table: int, changes: Changes, count: int = 0, expiring: int = 0) -> None:
        self.table = table
        shared = Table(table, changes)
        self.expires = Expiries(shared, expiring)
        self.keys = Keyspace(shared, self.expires, count)


class State:
    """Everything a store holds. Two states with the same history of effects have the same digest.

    changes     what the next checkpoint has to write; not part of the state
    """

    __slots__ = (
        *("databases", "next_stream_number", "next_table", "next_expiry", "epoch"),
        "changes",
        # for those who must tell whether it is still the one that they read
        "__weakref__",
    )

    def __init__(self) -> None:
        self.changes = Changes()
        self.next_table = 1  # like `next_stream_number`
        self.databases = [self.new_database() for _ in range(DATABASES)]
        self.next_stream_number = 1  # assigned in apply, never reused
        # Lower bound of all expiries, in unix ms. If some keys are cold, it may be earlier than every expiry. While now
        # <= next_expiry, no key is expired.
        self.next_expiry = NEVER
        self.epoch = 0  # number of the newest EPOCH effect applied

    @classmethod
    def over(cls, cold: ColdStore, meta: dict[str, Any]) -> State:
        """The state of a checkpoint, all of it cold. meta: the result of `tables_meta` for that checkpoint."""
        state = cls()
        state.changes = changes = Changes(cold)
        changes.committed, changes.generation = 1, 2
        state.databases = [Database(table, changes, *counts) for table, *counts in meta["tables"]]
        state.next_stream_number = meta["next_stream_number"]
        state.next_table = meta["next_table"]
        state.next_expiry = meta["next_expiry"]
        state.epoch = meta["epoch"]
        return state

    def tables_meta(self) -> dict[str, Any]:
        """The facts that a checkpoint stores besides the rows of keys."""
        return {
            "tables": [
                [database.table, len(database.keys), len(database.expires)]
                for database in self.databases
            ],
            "next_stream_number": self.next_stream_number,
            "next_table": self.next_table,
            "next_expiry": self.next_expiry,
            "epoch": self.epoch,
        }

    @property
    def cold(self) -> ColdStore | None:
        """The checkpoint from which cold data is read; None if everything is resident."""
        return self.changes.cold

    @cold.setter
    def cold(self, cold: ColdStore | None) -> None:
        self.changes.cold = cold

    def new_database(self) -> Database:
        """Make an empty database with a new table number."""
        table = self.next_table
        self.next_table += 1
        return Database(table, self.changes)

    def find_next_expiry(self) -> None:
        """Recompute `next_expiry`."""
        self.next_expiry = min(database.expires.first() for database in self.databases)
