"""Filters: which keys of the source are imported."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.engine.glob import matcher


class Filter:
    """Databases and globs of keys; an empty list lets all through."""

    def __init__(self, dbs: Sequence[int] = (), globs: Sequence[bytes] = ()) -> None:
        self._dbs = frozenset(dbs)
        self._matches = [matcher(glob) for glob in globs]

    def has_db(self, db: int) -> bool:
        """Whether to look at the keys of the database."""
        return not self._dbs or db in self._dbs

    def takes(self, db: int, key: bytes) -> bool:
        """Whether to import the key."""
        if self._dbs and db not in self._dbs:
            return False
        return not self._matches or any(matches(key) for matches in self._matches)


def filter_of(dbs: Sequence[int], globs: Sequence[str]) -> Filter:
    """The filter of the options --db and --key."""
    return Filter(dbs, [glob.encode("utf-8", "surrogateescape") for glob in globs])
