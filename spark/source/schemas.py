"""The tables and their columns, as Arrow types, and the same as Spark's DDL.

Names and values of a store are bytes, so their columns are binary; IDs are strings. Times are UTC timestamps in
microseconds, null where there is none and beyond Spark's range, the year 9999; beside a time that a user chose is a
column with its milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

BYTES: Final = pa.binary()
TEXT: Final = pa.string()
LONG: Final = pa.int64()
INT: Final = pa.int32()
FLAG: Final = pa.bool_()
TIME: Final = pa.timestamp("us", tz="UTC")
TIME_MS_MIN: Final = -62_135_596_800_000  # the beginning of the year 1
TIME_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999; Python has no later datetime for Spark's collect()


def pairs_of(text: pa.DataType) -> pa.DataType:
    """The type of `fields` as an array of (name, value)."""
    return pa.list_(pa.field("element", pa.struct([("name", text), ("value", text)])))


PAIRS: Final = pairs_of(BYTES)

# Every table also has these columns if a read asks for them or covers several snapshots.
WHERE: Final[Mapping[str, pa.DataType]] = {"snapshot": TEXT, "snapshot_lsn": LONG}

ENTRIES: Final[Mapping[str, pa.DataType]] = {
    "db": INT,
    "stream": BYTES,
    "id": TEXT,
    "ms": LONG,
    "seq": LONG,
    "ts": TIME,
    "fields": PAIRS,
}
ENTRIES_ON_REQUEST: Final[Mapping[str, pa.DataType]] = {
    "stream_number": LONG,
    "id_key": BYTES,
    "ordinal": LONG,
}
TABLES: Final[Mapping[str, Mapping[str, pa.DataType]]] = {
    "entries": ENTRIES,
    "streams": {
        "db": INT,
        "stream": BYTES,
        "stream_number": LONG,
        "length": LONG,
        "first_id": TEXT,
        "last_id": TEXT,
        "recorded_first_id": TEXT,
        "max_deleted_id": TEXT,
        "entries_added": LONG,
        "nodes": LONG,
        "groups": LONG,
        "expires_at": TIME,
        "idmp_duration": LONG,
        "idmp_maxsize": LONG,
        "pids_tracked": LONG,
        "iids_tracked": LONG,
        "iids_added": LONG,
        "iids_duplicates": LONG,
        "expires_at_ms": LONG,
    },
    "groups": {
        "db": INT,
        "stream": BYTES,
        "group": BYTES,
        "last_delivered_id": TEXT,
        "entries_read": LONG,
        "lag": LONG,
        "pending": LONG,
        "nacked": LONG,
        "consumers": LONG,
    },
    "consumers": {
        "db": INT,
        "stream": BYTES,
        "group": BYTES,
        "consumer": BYTES,
        "pending": LONG,
        "seen_time": TIME,
        "active_time": TIME,
    },
    "pending": {
        "db": INT,
        "stream": BYTES,
        "group": BYTES,
        "id": TEXT,
        "consumer": BYTES,
        "delivered_at": TIME,
        "delivery_count": LONG,
        "exists": FLAG,
    },
    "keys": {
        "db": INT,
        "key": BYTES,
        "type": TEXT,
        "expires_at": TIME,
        "bytes": LONG,
        "expires_at_ms": LONG,
    },
}


def columns_of(table: str) -> dict[str, pa.DataType]:
    """All columns of a table, those on request too."""
    on_request = ENTRIES_ON_REQUEST if table == "entries" else {}
    return {**TABLES[table], **on_request, **WHERE}


_DDL: Final = {
    BYTES: "BINARY",
    TEXT: "STRING",
    LONG: "BIGINT",
    INT: "INT",
    FLAG: "BOOLEAN",
    TIME: "TIMESTAMP",
}


def ddl_of(kind: pa.DataType) -> str:
    """A column's type in Spark's DDL."""
    if pa.types.is_map(kind):
        return f"MAP<{ddl_of(kind.key_type)}, {ddl_of(kind.item_type)}>"
    if pa.types.is_list(kind):
        parts = ", ".join(f"{field.name}: {ddl_of(field.type)}" for field in kind.value_type)
        return f"ARRAY<STRUCT<{parts}>>"
    return _DDL[kind]


def ddl(columns: Mapping[str, pa.DataType]) -> str:
    """A schema in Spark's DDL."""
    return ", ".join(f"`{name}` {ddl_of(kind)}" for name, kind in columns.items())
