"""From RDB: every key of a dump file, and the commands behind it if it is the beginning of an append-only file."""

from __future__ import annotations

from tidelog.engine.rdb.file import RdbFile
from tidelog.engine.rdb.skip import skip_value
from tidelog.engine.rdb.source import Source
from tidelog.engine.rdb.stream import KINDS, read_stream
from tidelog.tools.importing.filters import Filter
from tidelog.tools.importing.keys import Keys


def take_rdb(source: Source, keys: Keys, wanted: Filter) -> RdbFile:
    """Take the keys of an image up to its end, which need not be the end of the source. Raises RdbError, Refused."""
    file = RdbFile(source)
    report = keys.report
    for key in file.keys():
        if wanted.takes(key.db, key.name):
            keys.value(key.db, key.name, key.kind, key.expire_at, source)
            continue
        report.skipped += 1
        if key.kind in KINDS:
            for _ in read_stream(source, key.kind):
                pass
        else:
            skip_value(source, key.kind)
    for thing, count in file.skipped.items():
        report.beside[thing] = report.beside.get(thing, 0) + count
    return file
