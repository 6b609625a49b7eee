"""Effects as Redis commands, for `tidelog aof dump` to print and `tidelog aof export --resp` to send.

`commands(effect)` is a pure function of the effect. It returns Redis's own propagated form (spec 11.2, and 12.2 for
the result of a rewrite): concrete IDs, absolute times, resulting counters. Sent in order to an empty Redis, the
commands build the same state there. Redis 7.0 understands all of them except XNACK, XCFGSET, XIDMPRECORD and
XTRIM ... ACKED, which only effects of 8.x commands need, and RESTORE of a stream that a newer Redis has dumped.

Four kinds of facts have no command, so a Redis that replays the export does not get them:

* EPOCH, XREOPEN, SEEN: no data (a life of the writer, a node boundary Redis decides itself, an attempt's time).
* IDMP_DUPLICATE: it increments iids-duplicates. Sending `XADD key IDMP pid iid *` again would append an entry
  if the receiver has already forgotten the iid (spec 11.3), and a lost counter is the smaller harm.
* XIDMPRECORD with the time FREED or HELD: Redis can neither forget an iid nor keep it until it is freed.
* The active-time of a consumer: Redis sets it to its own clock when it replays an XCLAIM.

The commands do not name the database: the caller sends SELECT when `database(effect)` changes, and MULTI/EXEC
around a unit of several commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, groupby
from typing import Final

from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.ids import MAX
from tidelog.engine.ids import text as id_text
from tidelog.engine.rdb.file import payload_of
from tidelog.engine.rdb.stream import FIVE, VERSIONS
from tidelog.engine.streams.block import rows_of
from tidelog.engine.streams.idmp import FREED, HELD

Command = list[bytes]


def commands(effect: Effect) -> list[Command]:
    """The Redis commands that make the same change, each a list of bytes; [] if there are none.

    Raises CorruptBlock if the sealed bytes of an XADD_MANY do not match their checksum.
    """
    return _FORMS[effect[0] & OPCODE](effect)


def database(effect: Effect) -> int | None:
    """The number of the database to run the commands in; None if it does not matter."""
    return None if effect[0] & OPCODE in _ANYWHERE else int(effect[1])


def keys(effect: Effect) -> tuple[bytes, ...]:
    """The keys that an effect names, for filters; () for EPOCH, a flush or a swap."""
    opcode = effect[0] & OPCODE
    if opcode in _ANYWHERE or opcode == e.FLUSHDB:
        return ()
    if opcode == e.DEL:
        return tuple(effect[2])
    if opcode == e.RENAME:
        return (effect[2], effect[3])
    if opcode == e.COPY:
        return (effect[2], effect[4])
    return (effect[2],)


def added(effect: Effect) -> Iterator[tuple[int, tuple[bytes, ...]]]:
    """(ID, row) of every entry that an XADD, XADD_NODE, XADD_IDMP or XADD_MANY adds, in ID order.

    Raises CorruptBlock if sealed bytes do not match their checksum.
    """
    first = effect[3] << 64 | effect[4]
    if effect[0] & OPCODE != e.XADD_MANY:
        yield first, tuple(effect[5])
        return
    _, _, _, _, _, head, blocks, tail = effect
    sealed = chain.from_iterable(rows_of(data) for _, data in blocks)
    for id, row in enumerate(chain(head, sealed, tail), first):
        yield id, tuple(row)


def _number(value: int) -> bytes:
    return b"%d" % value


def _id(ms: int, seq: int) -> bytes:
    return b"%d-%d" % (ms, seq)


def _nothing(effect: Effect) -> list[Command]:
    return []


def _plain(name: bytes) -> Callable[[Effect], list[Command]]:
    """The form of an effect whose fields after the database are the arguments, unchanged."""

    def form(effect: Effect) -> list[Command]:
        return [[name, *(_text(field) for field in effect[2:])]]

    return form


def _text(field: bytes | int) -> bytes:
    return field if isinstance(field, bytes) else _number(field)


def _xadd(effect: Effect) -> list[Command]:
    _, _, key, ms, seq, row = effect
    return [[b"XADD", key, _id(ms, seq), *row]]


def _xadd_idmp(effect: Effect) -> list[Command]:
    # Do not use `XADD key IDMP pid iid <id>`: outside of replication, Redis accepts IDMP only with `*`.
    _, _, key, ms, seq, row, _, pid, iid, *_ = effect
    id = _id(ms, seq)
    return [[b"XADD", key, id, *row], [b"XIDMPRECORD", key, pid, iid, id]]


def _xadd_many(effect: Effect) -> list[Command]:
    key = effect[2]
    return [[b"XADD", key, id_text(id), *row] for id, row in added(effect)]


def _xtrim(effect: Effect) -> list[Command]:
    _, _, key, length, _, _, _, _, ids = effect
    if not ids:
        return [[b"XTRIM", key, b"MAXLEN", b"=", _number(length)]]
    # A trim with ACKED removed single entries, perhaps behind older ones that a group still needs. Of the entries up to
    # the last of them, it removed every one that no group needs. So the same trim up to that ID removes the same
    # entries. A length would not do: with MAXLEN, Redis stops at the first node that it would keep in part.
    last = idlist.last_id(ids)
    if last == MAX:  # no ID is above it
        return [[b"XTRIM", key, b"MAXLEN", b"=", _number(length), b"ACKED"]]
    return [[b"XTRIM", key, b"MINID", b"=", id_text(last + 1), b"ACKED"]]


def _xdel(effect: Effect) -> list[Command]:
    return [[b"XDEL", effect[2], *idlist.texts(effect[3])]]


def _xsetid(effect: Effect) -> list[Command]:
    _, _, key, ms, seq, added, deleted_ms, deleted_seq = effect
    return [
        [b"XSETID", key, _id(ms, seq)]
        + [b"ENTRIESADDED", _number(added), b"MAXDELETEDID", _id(deleted_ms, deleted_seq)]
    ]


def _xcfgset(effect: Effect) -> list[Command]:
    _, _, key, duration_s, maxsize = effect
    return [
        [b"XCFGSET", key]
        + [b"IDMP-DURATION", _number(duration_s), b"IDMP-MAXSIZE", _number(maxsize)]
    ]


def _xidmprecord(effect: Effect) -> list[Command]:
    _, _, key, pid, iid, ms, seq, *time = effect
    if time and time[0] in (FREED, HELD):
        return []
    return [[b"XIDMPRECORD", key, pid, iid, _id(ms, seq)]]


def _stream_create(effect: Effect) -> list[Command]:
    # The XADD trims its own entry, so the stream is empty, as in Redis's own rewrite. The XSETID resets the counters
    # that the XADD changed.
    key = effect[2]
    return [
        [b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"],
        [b"XSETID", key, b"0-0", b"ENTRIESADDED", b"0", b"MAXDELETEDID", b"0-0"],
    ]


def _xgroup_position(subcommand: bytes) -> Callable[[Effect], list[Command]]:
    def form(effect: Effect) -> list[Command]:
        _, _, key, group, ms, seq, entries_read = effect
        id = _id(ms, seq)
        return [[b"XGROUP", subcommand, key, group, id, b"ENTRIESREAD", _number(entries_read)]]

    return form


def _xgroup(subcommand: bytes) -> Callable[[Effect], list[Command]]:
    def form(effect: Effect) -> list[Command]:
        # The last field of a CREATECONSUMER effect is the time. Leave it out, because Redis uses its own clock.
        return [[b"XGROUP", subcommand, *effect[2:5]]]

    return form


def _xclaim(effect: Effect) -> list[Command]:
    _, _, key, group, consumer, ids, time, counts, _, *position = effect
    texts = idlist.texts(ids)
    each_count = counts if isinstance(counts, (tuple, list)) else [counts] * len(texts)
    moved = _id(position[0], position[1]) if position else b""
    last_id = [b"LASTID", moved] if position else []
    at = _number(time)
    out: list[Command] = [
        [b"XCLAIM", key, group, consumer, b"0", id]
        + [b"TIME", at, b"RETRYCOUNT", _number(count), b"FORCE", b"JUSTID", *last_id]
        for id, count in zip(texts, each_count, strict=True)
    ]
    if not out:  # a read with NOACK makes no entry pending, but creates the consumer
        out.append([b"XGROUP", b"CREATECONSUMER", key, group, consumer])
    if position:
        entries_read = _number(position[2])
        out.append([b"XGROUP", b"SETID", key, group, moved, b"ENTRIESREAD", entries_read])
    return out


def _xack(effect: Effect) -> list[Command]:
    _, _, key, group, ids = effect
    return [[b"XACK", key, group, *idlist.texts(ids)]]


def _xackdel(effect: Effect) -> list[Command]:
    _, _, key, group, ids, _ = effect
    texts = idlist.texts(ids)
    return [[b"XACK", key, group, *texts], [b"XDEL", key, *texts]]


def _xnack(effect: Effect) -> list[Command]:
    _, _, key, group, ids, counts = effect
    texts = idlist.texts(ids)
    each_count = counts if isinstance(counts, (tuple, list)) else [counts] * len(texts)
    runs = groupby(zip(each_count, texts, strict=True), key=lambda pair: pair[0])
    out: list[Command] = []
    for count, run in runs:
        nacked = [id for _, id in run]
        command = [b"XNACK", key, group, b"FAIL", b"IDS", _number(len(nacked)), *nacked]
        out.append([*command, b"RETRYCOUNT", _number(count), b"FORCE"])
    return out


def _del(effect: Effect) -> list[Command]:
    return [[b"DEL", *effect[2]]]


def _set(effect: Effect) -> list[Command]:
    _, _, key, value, expire_at = effect
    command = [b"SET", key, value]
    return [command if expire_at == -1 else [*command, b"PXAT", _number(expire_at)]]


def _copy(effect: Effect) -> list[Command]:
    _, _, source, target_db, target = effect
    return [[b"COPY", source, target, b"DB", _number(target_db), b"REPLACE"]]


def _restore(effect: Effect) -> list[Command]:
    _, _, key, kind, data, expire_at = effect
    payload = payload_of(kind, data, VERSIONS.get(kind, VERSIONS[FIVE]))
    return [[b"RESTORE", key, _number(max(expire_at, 0)), payload, b"REPLACE", b"ABSTTL"]]


def _swapdb(effect: Effect) -> list[Command]:
    return [[b"SWAPDB", _number(effect[1]), _number(effect[2])]]


_ANYWHERE: Final = frozenset((e.EPOCH, e.SWAPDB, e.FLUSHALL))

_FORMS: Final[dict[int, Callable[[Effect], list[Command]]]] = {
    e.EPOCH: _nothing,
    e.XADD: _xadd,
    e.XADD_NODE: _xadd,
    e.XADD_IDMP: _xadd_idmp,
    e.XADD_MANY: _xadd_many,
    e.XREOPEN: _nothing,
    e.XTRIM: _xtrim,
    e.XDEL: _xdel,
    e.XSETID: _xsetid,
    e.XCFGSET: _xcfgset,
    e.XIDMPRECORD: _xidmprecord,
    e.IDMP_DUPLICATE: _nothing,
    e.STREAM_CREATE: _stream_create,
    e.XGROUP_CREATE: _xgroup_position(b"CREATE"),
    e.XGROUP_SETID: _xgroup_position(b"SETID"),
    e.XGROUP_DESTROY: _xgroup(b"DESTROY"),
    e.XGROUP_CREATECONSUMER: _xgroup(b"CREATECONSUMER"),
    e.XGROUP_DELCONSUMER: _xgroup(b"DELCONSUMER"),
    e.DELIVER: _xclaim,
    e.XACK: _xack,
    e.XNACK: _xnack,
    e.XACKDEL: _xackdel,
    e.DEL: _del,
    e.SET: _set,
    e.PEXPIREAT: _plain(b"PEXPIREAT"),
    e.PERSIST: _plain(b"PERSIST"),
    e.RENAME: _plain(b"RENAME"),
    e.COPY: _copy,
    e.MOVE: _plain(b"MOVE"),
    e.SWAPDB: _swapdb,
    e.FLUSHDB: _plain(b"FLUSHDB"),
    e.FLUSHALL: _plain(b"FLUSHALL"),
    e.APPEND: _plain(b"APPEND"),
    e.RESTORE: _restore,
    e.SEEN: _nothing,
}
