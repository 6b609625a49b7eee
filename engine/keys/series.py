"""Series: the keys in which a server remembers numbered writes (server/once.py). They outlive what empties a database.

A client repeats a write whose reply it never got, and its series says whether the write was done. So FLUSHALL, FLUSHDB
and SWAPDB set the series again in their own unit, with the value and the expiry that they had. Series are ordinary keys
for everything that applies effects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.engine.effects.effect import SET, Effect
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.state import Database

SERIES: Final = b"tidelog:once:"  # what the names of all series begin with
SERIES_MS: Final = 3_600_000  # a series expires so long after its last write


def series(database: Database, db: int, now: int) -> Iterator[Effect]:
    """[lock] The SET of each series that is there at `now` (unix ms), for the database of number `db`.

    A series whose row in the checkpoint cannot be read is left out: its database may be emptied because of that.
    """
    if not database.expires.count:
        return
    for key in database.expires.soon(SERIES, now + SERIES_MS + 1):
        try:
            value = database.keys.get(key)
            at = database.keys.expire_at(key)
        except CorruptBlock:
            continue
        if isinstance(value, bytes) and at >= now:
            yield SET, db, key, bytes(value), at
