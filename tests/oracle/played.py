"""Histories of commands, played on the engine alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.oracle.engine_side import Tidelog
from tests.oracle.grammar import CONSUMERS, Grammar8

from tidelog.engine.groups.group import Group
from tidelog.engine.ids import text
from tidelog.engine.keys.state import Database
from tidelog.engine.streams.stream import Stream


def played(r: random.Random, commands: int) -> tuple[Tidelog, int]:
    """An engine after a random history, and the time it has become."""
    tidelog = Tidelog(compared=False)
    now = 0
    for turn in Grammar8(r).sequence(commands):
        now = turn.now
        for args in turn.commands:
            tidelog.run(now, args)
    if tidelog.queueing:
        tidelog.run(now, [b"DISCARD"])
    for db in range(3):
        tidelog.run(now, [b"SELECT", b"%d" % db])
        for args in stirred(tidelog.state.databases[db], r):
            tidelog.run(now, args)
    return tidelog, now


def stirred(database: Database, r: random.Random) -> Iterator[list[bytes]]:
    """Steps that chance alone seldom takes: entries delivered, released, and deleted while they are pending."""
    for key, stream in list(database.keys.items()):
        if not isinstance(stream, Stream):
            continue
        for name, group in list(stream.groups.items()):
            read = [
                b"XREADGROUP",
                b"GROUP",
                name,
                r.choice(CONSUMERS),
                b"COUNT",
                b"%d" % r.randint(1, 9),
            ]
            yield [*read, b"STREAMS", key, b">"]
            for mode in (b"FAIL", b"FATAL", b"SILENT"):
                ids = some(group, r)
                yield [b"XNACK", key, name, mode, b"IDS", b"%d" % len(ids), *ids]
            yield [b"XDEL", key, *some(group, r)]
        if r.random() < 0.1:
            yield [b"XTRIM", key, b"MAXLEN", b"%d" % r.randint(0, 3)]
        if r.random() < 0.1:
            yield [b"XSETID", key, text(stream.last_id), b"ENTRIESADDED", b"%d" % stream.length]


def some(group: Group, r: random.Random) -> list[bytes]:
    """A few pending IDs in no order; one that never is if there are none."""
    ids = [text(entry_id) for entry_id, *_ in group.pending.entries()]
    return r.sample(ids, r.randint(1, min(4, len(ids)))) if ids else [b"0-0"]
