"""Catalog: the keys of a snapshot, without their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys import keyrow
from tidelog.engine.keys.keyrow import NO_EXPIRY, KeyRow
from tidelog.engine.rowkeys import KIND_STREAM, key_prefix, key_row
from tidelog.snapshot.rows.meta import Meta


class Key(NamedTuple):
    """A key of a snapshot.

    expire_at   unix ms, or NO_EXPIRY
    number      of its stream; None for a string
    string      its value; None for a stream
    """

    db: int
    key: bytes
    expire_at: int
    number: int | None
    string: bytes | None


def keys(
    cold: ColdStore,
    meta: Meta,
    moment_ms: int,
    *,
    dbs: Collection[int] | None = None,
    names: Collection[bytes] | None = None,
    matches: Callable[[bytes], object] | None = None,
    rows: tuple[bytes, bytes | None] = (b"", None),
    expected: int | None = None,
) -> Iterator[Key]:
    """Yield the keys that had not expired when the snapshot was taken, by database; the order of names is arbitrary.

    moment_ms   the snapshot's own time
    dbs      only these databases          names    only these keys, each looked up
    matches  only names for which it is true
    rows     only KEY rows from this row key up to but without the other; not with `names`
    expected how many KEY rows lie there. None: those of the whole table, which META counts
    Raises CorruptBlock.
    """
    for db, (table, count, _) in enumerate(meta.tables["tables"]):
        if not count or (dbs is not None and db not in dbs):
            continue
        if names is not None:
            found = _named(cold, table, names)
        else:
            found = _all(cold, table, *rows, count if expected is None else expected)
        for key, (expire_at, kind, held) in found:
            if expire_at != NO_EXPIRY and expire_at < moment_ms:
                continue
            if matches is None or matches(key):
                is_stream = kind == KIND_STREAM
                yield Key(db, key, expire_at, held if is_stream else None, None if is_stream else held)  # fmt: skip


def _all(
    cold: ColdStore, table: int, start: bytes, stop: bytes | None, expected: int
) -> Iterator[tuple[bytes, KeyRow]]:
    found = 0
    for row, payload in cold.rows(key_prefix(table), start):
        if stop is not None and row >= stop:
            break
        found += 1
        yield keyrow.unpack(payload)
    check_count(table, found, expected)


def check_count(table: int, found: int, expected: int) -> None:
    """Raise CorruptBlock unless a scan found all KEY rows. It misses a row whose damaged key lies out of the range."""
    if found != expected:
        raise CorruptBlock(
            f"the rows of {expected} keys should be here, but {found} were found (table {table})"
        )


def _named(cold: ColdStore, table: int, names: Collection[bytes]) -> Iterator[tuple[bytes, KeyRow]]:
    for name in sorted(set(names)):
        payload = cold.get(key_row(table, name))
        if payload is not None:
            key, row = keyrow.unpack(payload)
            if key != name:
                raise CorruptBlock(f"the row of key {name!r} holds key {key!r}")
            yield key, row
