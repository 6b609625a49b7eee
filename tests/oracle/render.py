"""Replies of the engine in the form that `wire` gives to what a server sends in RESP2."""

from __future__ import annotations

from tests.oracle import wire
from tests.oracle.wire import Form

from tidelog.engine.reply import NULL_ARRAY, NullArray, Park, Reply, Status
from tidelog.engine.streams.entries import ClaimedEntries, Entries


def form(reply: Reply) -> Form:
    """A parked read is shown as what it answers at the end of its time."""
    if reply is None or reply.__class__ is bytes or reply.__class__ is int:
        return reply
    if isinstance(reply, NullArray | Park):
        return wire.NULL_ARRAY
    if isinstance(reply, Status):
        return ("+", bytes(reply))
    if isinstance(reply, ClaimedEntries):
        columns = zip(entries(reply), reply.idle, reply.deliveries, strict=True)
        return [[*entry, idle, count] for entry, idle, count in columns]
    if isinstance(reply, Entries):
        return entries(reply)
    if isinstance(reply, bytes):  # a string subclass that the keyspace keeps
        return bytes(reply)
    assert isinstance(reply, list), reply
    return [form(item) for item in reply]


def entries(reply: Entries) -> list[Form]:
    rows = list(reply)
    assert len(rows) == len(reply)
    assert [id for id, _ in rows] == reply.ids()
    out: list[Form] = []
    shown = reply.pairs()
    for (id, row), (text, fields) in zip(rows, shown, strict=True):
        assert text == id_text(id)
        assert fields == (None if row is None else dict(zip(row[::2], row[1::2], strict=True)))
        out.append([text, wire.NULL_ARRAY if row is None else list(row)])
    return out


def id_text(id: int) -> bytes:
    return b"%d-%d" % (id >> 64, id & (1 << 64) - 1)


assert form(NULL_ARRAY) == wire.NULL_ARRAY
