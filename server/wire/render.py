"""Render: encodes replies as RESP2 or RESP3. No I/O.

`engine.reply` and `server.wire.replies` define the types of replies, spec 1 and 18 their encoding. The two protocols
differ almost only in the null and in the type bytes of maps and the like:

    None `$-1` / `_`      NULL_ARRAY `*-1` / `_`      Map, Streams `*` / `%`      Push `*` / `>`
    Verbatim `$` / `=`    Double `$` / `,`            SetReply `*` / `~`          all others are the same

Entries are the hot path. Blocks yield them column by column: the IDs, then the values of each field. Slice assignments
interleave the columns with headers into one list, which is then joined; no Python code runs per entry. A header
includes all bytes since the previous value, so an entry of n fields is 2 + 2n pieces:

    CR LF *2 CR LF $15 CR LF    1700000000000-0    CR LF *4 CR LF $4 CR LF item CR LF $3 CR LF    tea    ...

Entries of two fields, XRANGE of 1,000: 0.35 to 0.5 us each, where `%` on a template per entry takes 0.6 to 0.7; the
reply of XREADGROUP with 10 entries 5 to 7 us.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from types import NoneType
from typing import Final

from tidelog.engine.api import ClaimedEntries, Columns, Entries, RawString, RowsPart
from tidelog.engine.errors import CommandError
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.reply import Map, NullArray, Reply, Status, Streams
from tidelog.server.wire.replies import Double, Jobs, Push, SetReply, Verbatim

Out = list[bytes]
Writer = Callable[[Reply, int, Out], None]

_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")


def rendered(reply: Reply, protocol: int) -> bytes:
    """Encode a reply. Raises as `render`."""
    if reply.__class__ is Streams and len(reply) == 1:
        data = _only_entry(reply, protocol)
        if data is not None:
            return data
    if reply.__class__ is bytes:
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if reply.__class__ is int:
        return b":%d\r\n" % reply
    out: Out = []
    render(reply, protocol, out)
    return b"".join(out)


def render(reply: Reply, protocol: int, out: Out) -> None:
    """Append the encoding of a reply to `out`, in pieces; `protocol` is 2 or 3.

    Raises CorruptBlock if entries cannot be read, and TypeError for a value that is not a reply; then discard `out`.
    """
    kind = reply.__class__
    if kind is bytes:
        out.append(b"$%d\r\n%b\r\n" % (len(reply), reply))
    elif kind is int:
        out.append(b":%d\r\n" % reply)
    else:
        writer = _WRITERS.get(kind)
        if writer is None:
            raise TypeError(f"a command cannot reply with a value of type {kind.__name__}")
        writer(reply, protocol, out)


# --- single values


def _bulk(reply: bytes, protocol: int, out: Out) -> None:
    out.append(b"$%d\r\n%b\r\n" % (len(reply), reply))


def _null(reply: None, protocol: int, out: Out) -> None:
    out.append(b"$-1\r\n" if protocol == 2 else b"_\r\n")


def _null_array(reply: NullArray, protocol: int, out: Out) -> None:
    out.append(b"*-1\r\n" if protocol == 2 else b"_\r\n")


def _status(reply: Status, protocol: int, out: Out) -> None:
    out.append(b"+%b\r\n" % reply)


def _error(reply: CommandError, protocol: int, out: Out) -> None:
    # Replace line ends, because a line end would end the error and begin another reply.
    out.append(b"-%b\r\n" % reply.line.translate(_LINE_ENDS))


def _verbatim(reply: Verbatim, protocol: int, out: Out) -> None:
    if protocol == 2:
        out.append(b"$%d\r\n%b\r\n" % (len(reply), reply))
    else:
        out.append(b"=%d\r\ntxt:%b\r\n" % (len(reply) + 4, reply))


def _double(reply: Double, protocol: int, out: Out) -> None:
    digits = _digits(reply)
    out.append(b"$%d\r\n%b\r\n" % (len(digits), digits) if protocol == 2 else b",%b\r\n" % digits)


def _digits(number: float) -> bytes:
    """The shortest exact decimal form; integers without a point, as in Redis since 7.2."""
    if math.isfinite(number) and number == int(number) and abs(number) < 1 << 52:
        return b"%d" % number if number or math.copysign(1, number) > 0 else b"-0"
    return float.__repr__(number).encode()


# --- containers


def _array(reply: list[Reply], protocol: int, out: Out) -> None:
    _items(b"*%d\r\n" % len(reply), reply, protocol, out)


def _map(reply: Map, protocol: int, out: Out) -> None:
    header = b"*%d\r\n" % len(reply) if protocol == 2 else b"%%%d\r\n" % (len(reply) >> 1)
    _items(header, reply, protocol, out)


def _set(reply: SetReply, protocol: int, out: Out) -> None:
    _items(
        b"*%d\r\n" % len(reply) if protocol == 2 else b"~%d\r\n" % len(reply), reply, protocol, out
    )


def _push(reply: Push, protocol: int, out: Out) -> None:
    _items(
        b"*%d\r\n" % len(reply) if protocol == 2 else b">%d\r\n" % len(reply), reply, protocol, out
    )


def _items(header: bytes, items: list[Reply], protocol: int, out: Out) -> None:
    out.append(header)
    kinds = set(map(type, items))
    if kinds == _ALL_BYTES:  # the IDs of JUSTID, keys: format all at once
        pairs = zip(map(len, items), items)
        out.append(b"$%d\r\n%b\r\n" * len(items) % tuple(chain.from_iterable(pairs)))
    elif kinds == _ALL_INTS:
        out.append(b":%d\r\n" * len(items) % tuple(items))
    else:
        for item in items:
            render(item, protocol, out)


def _jobs(reply: Jobs, protocol: int, out: Out) -> None:
    out.append(b"*%d\r\n" % len(reply))
    for job, deliveries, row in reply:
        head = b"*3\r\n$%d\r\n%b\r\n:%d\r\n*%d\r\n" % (len(job), job, deliveries, len(row))
        out.append(head)
        pairs = zip(map(len, row), row)
        out.append(b"$%d\r\n%b\r\n" * len(row) % tuple(chain.from_iterable(pairs)))


_FEW: Final = 4
_ALL_BYTES: Final = {bytes}
_ALL_INTS: Final = {int}


def _streams(reply: Streams, protocol: int, out: Out) -> None:
    out.append(b"*%d\r\n" % len(reply) if protocol == 2 else b"%%%d\r\n" % len(reply))
    pair = b"*2\r\n" if protocol == 2 else b""
    for key, entries in reply:
        out.append(b"%b$%d\r\n%b\r\n" % (pair, len(key), key))
        render(entries, protocol, out)


def _only_entry(reply: Streams, protocol: int) -> bytes | None:
    """Encode `Streams` of one key with one entry, the usual reply to a blocked read. None if it is anything else."""
    key, entries = reply[0]
    if entries.__class__ is not Entries or len(entries.parts) != 1:
        return None
    part = entries.parts[0]
    if part.__class__ is not RowsPart:
        return None
    ids, rows = part.ids(), part.rows()
    if len(ids) != 1:
        return None
    entry_id, row = ids[0], rows[0]
    if row is None or len(row) > _ONLY_WORDS_MAX:
        return None
    text = b"%d-%d" % (entry_id >> 64, entry_id & SEQ_MAX)
    words = (key, text, *row)
    return _only_template(protocol, len(row)) % (*chain.from_iterable(zip(map(len, words), words)),)


_ONLY_WORDS_MAX: Final = 64


@lru_cache(maxsize=2 * _ONLY_WORDS_MAX)
def _only_template(protocol: int, width: int) -> bytes:
    """The template of `_only_entry` for `width` fields and values: length and bytes of key, ID and each of them."""
    bulk = b"$%d\r\n%b\r\n"
    pair = b"*1\r\n*2\r\n" if protocol == 2 else b"%%1\r\n"
    return b"%b%b*1\r\n*2\r\n%b*%d\r\n%b" % (pair, bulk, bulk, width, bulk * width)


# --- entries


class _Headers(dict[int, bytes]):
    """Bulk string headers by length, each including the bytes since the previous string (`before`)."""

    __slots__ = ("before",)
    kept = 0  # headers cached in all instances

    def __init__(self, before: bytes) -> None:
        self.before = before

    def __missing__(self, length: int) -> bytes:
        header = b"%b\r\n$%d\r\n" % (self.before, length)
        if _Headers.kept < _HEADERS_MAX:
            _Headers.kept += 1
            self[length] = header
        return header


# Clients choose field names and their lengths, so these limits bound the caches.
_HEADERS_MAX: Final = 1 << 14
_NAMES_BYTES_MAX: Final = 512  # field names of one entry
_fields: dict[tuple[bytes, ...], list[_Headers]] = {}

_id_headers: Final = _Headers(b"\r\n*2")
_claimed_id_headers: Final = _Headers(b"\r\n*4")
_bulk_headers: Final = _Headers(b"")


def _headers_of(names: tuple[bytes, ...]) -> list[_Headers]:
    """Return for each field the headers of its values; each includes the field's name and the value's length."""
    headers = _fields.get(names)
    if headers is None or _Headers.kept >= _HEADERS_MAX:
        before = [b"\r\n$%d\r\n%b" % (len(name), name) for name in names]
        before[0] = b"\r\n*%d%b" % (2 * len(names), before[0])
        headers = [_Headers(text) for text in before]
        if _Headers.kept >= _HEADERS_MAX:
            _forget()
        if sum(map(len, names)) <= _NAMES_BYTES_MAX:
            _fields[names] = headers
    return headers


def _forget() -> None:
    for headers in (_id_headers, _claimed_id_headers, _bulk_headers):
        headers.clear()
    _fields.clear()
    _Headers.kept = 0


def _entries(reply: Entries, protocol: int, out: Out) -> None:
    out.append(b"*%d" % len(reply))
    for part in reply.parts:
        # For a few rows, do not set up columns, because that costs more than the rows.
        columns = None if part.__class__ is RowsPart and len(reply) < _FEW else part.columns()
        if columns is not None:
            out.append(_interleaved(columns, reply.reverse))
            continue
        both = list(zip(part.ids(), part.rows()))
        for entry_id, row in reversed(both) if reply.reverse else both:
            text = b"%d-%d" % (entry_id >> 64, entry_id & SEQ_MAX)
            out.append(_id_headers[len(text)] + text)
            out.append(_row(row, protocol))
    out.append(b"\r\n")


def _claimed_entries(reply: ClaimedEntries, protocol: int, out: Out) -> None:
    """Entries of four elements; the last two are the idle time in ms and the delivery count."""
    out.append(b"*%d" % len(reply))
    for (entry_id, row), idle, deliveries in zip(reply, reply.idle, reply.deliveries, strict=True):
        text = b"%d-%d" % (entry_id >> 64, entry_id & SEQ_MAX)
        out.append(_claimed_id_headers[len(text)] + text)
        out.append(_row(row, protocol))
        out.append(b"\r\n:%d\r\n:%d" % (idle, deliveries))
    out.append(b"\r\n")


def _interleaved(columns: Columns, reverse: bool) -> bytes:
    """Encode entries with the same field names. Each piece begins with the previous one's line end."""
    texts, names, values = columns
    if len(texts) < _FEW and not reverse:
        return _one_by_one(columns)
    width = len(names)
    if reverse:
        texts = texts[::-1]
    step = 2 + 2 * width
    pieces = [b""] * (step * len(texts))
    pieces[0::step] = map(_id_headers.__getitem__, map(len, texts))
    pieces[1::step] = texts
    for field, headers in enumerate(_headers_of(names)):
        column = values[field::width]
        if reverse:
            column.reverse()
        pieces[2 + 2 * field :: step] = map(headers.__getitem__, map(len, column))
        pieces[3 + 2 * field :: step] = column
    return b"".join(pieces)


def _one_by_one(columns: Columns) -> bytes:
    """As `_interleaved`, for a few entries, where setting up the slices costs more."""
    texts, names, values = columns
    headers = _headers_of(names)
    pieces: list[bytes] = []
    following = iter(values)
    for text in texts:
        pieces += (_id_headers[len(text)], text)
        for field, value in zip(headers, following):
            pieces += (field[len(value)], value)
    return b"".join(pieces)


def _row(row: Sequence[bytes] | None, protocol: int) -> bytes:
    """Encode the fields and values of one entry, beginning with the previous line end."""
    if row is None:
        return b"\r\n*-1" if protocol == 2 else b"\r\n_"
    headers = map(_bulk_headers.__getitem__, map(len, row))
    return b"\r\n*%d%b" % (len(row), b"".join(chain.from_iterable(zip(headers, row))))


_WRITERS: Final[dict[type, Writer]] = {
    RawString: _bulk,
    NoneType: _null,
    NullArray: _null_array,
    Status: _status,
    CommandError: _error,
    Verbatim: _verbatim,
    Double: _double,
    list: _array,
    Map: _map,
    SetReply: _set,
    Push: _push,
    Jobs: _jobs,
    Streams: _streams,
    Entries: _entries,
    ClaimedEntries: _claimed_entries,
}
