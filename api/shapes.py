"""Shapes: convert a reply of the engine to the Python value that redis-py returns for it (protocol=2).

A shape is a function `(reply, decode) -> value`; `decode` is the store's `decode_responses`. A method names its shape.
`execute_command` finds it in `SHAPES` by the command's name, and the options that redis-py knows. Error replies are not
shaped, except inside the list of a transaction.

The type of a text is Any here: the method that names the shape declares it, as the type parameter of the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.api.types import StreamEntries
from tidelog.engine.api import ClaimedEntries, Entries, RowsPart
from tidelog.engine.errors import CommandError
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.reply import NULL_ARRAY, Reply
from tidelog.store.errors import from_command

T = TypeVar("T")
Shape = Callable[[Reply, bool], T]


def raw(reply: Reply, decode: bool) -> Any:
    """Any reply, uninterpreted: bulk strings, integers, None and lists of them."""
    kind = reply.__class__
    if kind is int or reply is None:
        return reply
    if isinstance(reply, bytes):
        return reply.decode() if decode else bytes(reply)
    if isinstance(reply, Entries):
        # A list of fields and values, as on the wire, because a field may occur twice.
        rows = [[text(b"%d-%d" % (id >> 64, id & SEQ_MAX), decode), row] for id, row in reply]
        return [[id, None if row is None else raw(list(row), decode)] for id, row in rows]
    if isinstance(reply, list):
        return [raw(item, decode) for item in reply]
    if isinstance(reply, CommandError):
        return from_command(reply)
    if reply is NULL_ARRAY:
        return None
    return reply


def integer(reply: Reply, decode: bool) -> int:
    return reply  # type: ignore[no-any-return]


def optional_integer(reply: Reply, decode: bool) -> int | None:
    return reply  # type: ignore[no-any-return]


def text(reply: Reply, decode: bool) -> Any:
    return reply.decode() if decode else bytes(reply)


def optional_text(reply: Reply, decode: bool) -> Any:
    if reply is None:
        return None
    return reply.decode() if decode else bytes(reply)


def payload(reply: Reply, decode: bool) -> bytes | None:
    """DUMP: bytes that are no text."""
    return None if reply is None else bytes(reply)


def texts(reply: Reply, decode: bool) -> list[Any]:
    return [r.decode() for r in reply] if decode else reply


def optional_texts(reply: Reply, decode: bool) -> list[Any]:
    if not decode:
        return reply  # type: ignore[no-any-return]
    return [None if r is None else r.decode() for r in reply]


def integers(reply: Reply, decode: bool) -> list[int]:
    return reply  # type: ignore[no-any-return]


def boolean(reply: Reply, decode: bool) -> bool:
    return bool(reply)


def ok(reply: Reply, decode: bool) -> bool:
    return bool(reply == b"OK")


def pong(reply: Reply, decode: bool) -> bool:
    return bool(reply == b"PONG")


def clock(reply: Reply, decode: bool) -> tuple[int, int]:
    return int(reply[0]), int(reply[1])


def cursor(reply: Reply, decode: bool) -> tuple[int, list[Any]]:
    return int(reply[0]), texts(reply[1], decode)


def set_result(reply: Reply, decode: bool) -> bool | None:
    """SET without GET: True, or None if a condition failed."""
    return None if reply is None else reply == b"OK"


def entries(reply: Reply, decode: bool) -> StreamEntries:
    """Entries as `(id, {field: value})`; of a read with CLAIM as `(id, {field: value}, idle, deliveries)`.

    A pending entry that was deleted from the stream has no fields, as in redis-py.
    """
    pairs: StreamEntries = reply.pairs()
    if reply.parts and reply.parts[0].__class__ is RowsPart:
        pairs = [(id, fields or {}) for id, fields in pairs]
    if decode:
        pairs = [
            (id.decode(), {f.decode(): v.decode() for f, v in fields.items()})
            for id, fields in pairs
        ]
    if reply.__class__ is ClaimedEntries:
        return [
            (*pair, idle, deliveries)
            for pair, idle, deliveries in zip(pairs, reply.idle, reply.deliveries, strict=True)
        ]
    return pairs


def optional_entries(reply: Reply, decode: bool) -> StreamEntries | None:
    """XRANGE and XREVRANGE given as words: `COUNT 0` replies a null array."""
    return None if reply is NULL_ARRAY else entries(reply, decode)


def _entry(item: Reply, decode: bool) -> Any:
    """One entry given as a list `[id, [f, v, ...]]`."""
    if item is None:
        return None, None
    flat = raw(item[1], decode) or []
    return text(item[0], decode), dict(zip(flat[::2], flat[1::2], strict=True)), *item[2:]


def streams(reply: Reply, decode: bool) -> list[Any]:
    """XREAD and XREADGROUP: `[[key, entries], ...]`, or `[]`."""
    if reply is NULL_ARRAY or reply is None:
        return []
    return [[key.decode() if decode else key, entries(run, decode)] for key, run in reply]


def claimed(reply: Reply, decode: bool) -> list[Any]:
    """XCLAIM given as words: entries, or IDs with JUSTID (redis-py needs `parse_justid` for that)."""
    return texts(reply, decode) if isinstance(reply, list) else entries(reply, decode)


def autoclaimed(reply: Reply, decode: bool) -> list[Any]:
    """XAUTOCLAIM given as words, likewise: `[next start, entries or IDs, deleted IDs]`."""
    return [text(reply[0], decode), claimed(reply[1], decode), raw(reply[2], decode)]


def autoclaim(reply: Reply, decode: bool) -> list[Any]:
    """XAUTOCLAIM: `[next start, entries, deleted IDs]`."""
    return [text(reply[0], decode), entries(reply[1], decode), raw(reply[2], decode)]


def autoclaim_justid(reply: Reply, decode: bool) -> list[Any]:
    """XAUTOCLAIM JUSTID: the claimed IDs alone."""
    return texts(reply[1], decode)


def pending(reply: Reply, decode: bool) -> dict[str, Any]:
    """XPENDING, summary form."""
    count, low, high, owners = reply
    return {
        "pending": count,
        "min": raw(low, decode),
        "max": raw(high, decode),
        "consumers": [
            {"name": raw(name, decode), "pending": int(held)}
            for name, held in ([] if owners is None or owners is NULL_ARRAY else owners)
        ],
    }


def pending_range(reply: Reply, decode: bool) -> list[dict[str, Any]]:
    """XPENDING, extended form."""
    keys = ("message_id", "consumer", "time_since_delivered", "times_delivered")
    return [dict(zip(keys, raw(row, decode), strict=True)) for row in reply]


def any_pending(reply: Reply, decode: bool) -> Any:
    """XPENDING given as words: the reply tells the form (redis-py needs `parse_detail` for the extended one)."""
    summary = reply[:1] and isinstance(reply[0], int)
    return (pending if summary else pending_range)(reply, decode)


def _mapping(reply: Reply, decode: bool) -> dict[str, Any]:
    """A flat list as a dict with str keys; the values are not shaped."""
    return {key.decode(): value for key, value in zip(reply[::2], reply[1::2], strict=True)}


def _plain_mapping(reply: Reply, decode: bool) -> dict[str, Any]:
    return {key: raw(value, decode) for key, value in _mapping(reply, decode).items()}


def mappings(reply: Reply, decode: bool) -> list[dict[str, Any]]:
    """XINFO GROUPS and XINFO CONSUMERS."""
    return [_plain_mapping(item, decode) for item in reply]


def _edge(item: Reply, decode: bool) -> Any:
    """first-entry, last-entry: one entry or None."""
    if item is None:
        return None
    if isinstance(item, Entries):
        found = entries(item, decode)
        return found[0] if found else None
    return _entry(item, decode)


def stream_info(reply: Reply, decode: bool) -> dict[str, Any]:
    """XINFO STREAM."""
    info = _mapping(reply, decode)
    return {
        key: _edge(value, decode) if key in ("first-entry", "last-entry") else raw(value, decode)
        for key, value in info.items()
    }


def stream_info_full(reply: Reply, decode: bool) -> dict[str, Any]:
    """XINFO STREAM FULL: entries as one dict by ID, groups and their consumers as dicts."""
    info = {
        key: value if key in ("entries", "groups") else raw(value, decode)
        for key, value in _mapping(reply, decode).items()
    }
    info["entries"] = {id: fields for id, fields, *_ in entries(info["entries"], decode)}
    groups = []
    for item in info["groups"]:
        group = _mapping(item, decode)
        consumers = [_plain_mapping(one, decode) for one in group.pop("consumers")]
        groups.append({key: raw(value, decode) for key, value in group.items()})
        groups[-1]["consumers"] = consumers
    info["groups"] = groups
    return info


def settings(reply: Reply, decode: bool) -> dict[str, str]:
    """CONFIG GET."""
    return {
        key.decode(): value.decode() for key, value in zip(reply[::2], reply[1::2], strict=True)
    }


# How redis-py's execute_command converts a reply, by command name (upper case, subcommand after a space).
# fmt: off
SHAPES: dict[str, Shape[Any]] = {
    **dict.fromkeys("COPY EXPIRE EXPIREAT MOVE PERSIST PEXPIRE PEXPIREAT RENAMENX SETNX".split(), boolean),
    **dict.fromkeys(["XGROUP DESTROY"], boolean),
    **dict.fromkeys("FLUSHALL FLUSHDB MSET RENAME SWAPDB".split(), ok),
    **dict.fromkeys(["XGROUP CREATE", "XGROUP SETID", "CONFIG SET"], ok),
    **dict.fromkeys("XREAD XREADGROUP".split(), streams),
    **dict.fromkeys("XRANGE XREVRANGE".split(), optional_entries),
    "XCLAIM": claimed,
    "XAUTOCLAIM": autoclaimed,
    "XPENDING": any_pending,
    "XINFO STREAM": stream_info,
    "XINFO GROUPS": mappings,
    "XINFO CONSUMERS": mappings,
    "CONFIG GET": settings,
    "SET": set_result,
    "SCAN": cursor,
    "PING": pong,
    "TIME": clock,
    "DUMP": payload,
}
# fmt: on
_OPTIONS: dict[tuple[str, str], Shape[Any]] = {
    ("XCLAIM", "parse_justid"): texts,
    ("XAUTOCLAIM", "parse_justid"): autoclaim_justid,
    ("XPENDING", "parse_detail"): pending_range,
    ("XINFO STREAM", "full"): stream_info_full,
    ("SET", "get"): optional_text,
}


def shape_of(command_name: bytes, options: dict[str, Any]) -> Shape[Any]:
    """The shape for `execute_command`, found by its first argument alone, as in redis-py.

    "XINFO STREAM" as one argument has a shape; as two, the reply is raw. Options that redis-py does not know are
    ignored.
    """
    name = command_name.upper().decode(errors="replace")
    for (command, option), shape in _OPTIONS.items():
        if command == name and options.get(option):
            return shape
    return SHAPES.get(name, raw)
