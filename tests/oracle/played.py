"""Histories of commands, played on the engine alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.oracle.engine_side import Tidelog
from tests.oracle.grammar import CONSUMERS, Grammar8

from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.effect import XSETID, Effect
from tidelog.engine.groups.group import Group
from tidelog.engine.ids import SEQ_MAX, text
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
        for key, stream in streams_of(tidelog.state.databases[db]):
            if r.random() < 0.1:
                apply(tidelog.state, older_setid(db, key, stream))
    return tidelog, now


def streams_of(database: Database) -> list[tuple[bytes, Stream]]:
    return [(key, value) for key, value in database.keys.items() if isinstance(value, Stream)]


def older_setid(db: int, key: bytes, stream: Stream) -> Effect:
    """An XSETID as logs of version 0.1 may have it: it lowers no entries-read of a group."""
    last, deleted = stream.last_id, stream.max_deleted_id
    return (
        *(XSETID, db, key, last >> 64, last & SEQ_MAX, stream.length),
        *(deleted >> 64, deleted & SEQ_MAX),
    )


def stirred(database: Database, r: random.Random) -> Iterator[list[bytes]]:
    """Steps that chance alone seldom takes: entries delivered, released, and deleted while they are pending."""
    for key, stream in streams_of(database):
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


def some(group: Group, r: random.Random) -> list[bytes]:
    """A few pending IDs in no order; one that never is if there are none."""
    ids = [text(entry_id) for entry_id, *_ in group.pending.entries()]
    return r.sample(ids, r.randint(1, min(4, len(ids)))) if ids else [b"0-0"]
