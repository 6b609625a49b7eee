"""Where two states differ: by key, counters, entries, groups, consumers and pending entries.

Both are merged in the order of the keys, and inside a stream in the order of the IDs, so memory holds one node and one
chunk of pending entries of each. Without a difference the digests of both states are equal: everything that a digest
covers is compared, and seen-times are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Any, NamedTuple

from tidelog.engine.groups.group import UNKNOWN, Group
from tidelog.engine.keys.keyrow import NO_EXPIRY
from tidelog.engine.keys.state import State
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.stream import Stream
from tidelog.tools.aof.wanted import Match
from tidelog.tools.diff.merge import merged
from tidelog.tools.state import entries, id_text, keys_of
from tidelog.tools.text import argument, json_value, time_text

Value = Stream | bytes


class Difference(NamedTuple):
    """One difference. `a` and `b` are in a form for JSON; None: it is not there on that side.

    kind    key, type, value, expires_ms, a counter of the stream, dedup, nodes, entry, group, a field of the group,
            consumer, pending, released
    name    the ID of an entry or a pending entry, or the name of a consumer; empty elsewhere
    """

    db: int
    key: bytes
    kind: str
    a: Any
    b: Any
    name: str = ""
    group: bytes | None = None


def differences(a: State, b: State, wanted: Match | None = None) -> Iterator[Difference]:
    """Every difference, in the order of the keys. Raises CorruptBlock."""
    for (db, key), left, right in merged(_keys(a, wanted), _keys(b, wanted)):
        if left is None or right is None:
            yield Difference(db, key, "key", *(_shown(side) for side in (left, right)))
            continue
        (value, expires), (other, others) = left, right
        if expires != others:
            yield Difference(db, key, "expires_ms", _expiry(expires), _expiry(others))
        if isinstance(value, Stream) and isinstance(other, Stream):
            yield from _of_streams(db, key, value, other)
        elif isinstance(value, Stream) or isinstance(other, Stream):
            yield Difference(db, key, "type", _shown(left), _shown(right))
        elif bytes(value) != bytes(other):
            yield Difference(db, key, "value", json_value(bytes(value)), json_value(bytes(other)))


def _keys(
    state: State, wanted: Match | None
) -> Iterator[tuple[tuple[int, bytes], tuple[Value, int]]]:
    for db, key, value, expire_at in keys_of(state, wanted):
        yield (db, key), (value, expire_at)


def _expiry(expire_at: int) -> int | None:
    return None if expire_at == NO_EXPIRY else expire_at


def _shown(side: tuple[Value, int] | None) -> Any:
    """A whole key in a few words."""
    if side is None:
        return None
    value, _ = side
    if isinstance(value, Stream):
        return {"type": "stream", "length": value.length, "last_id": id_text(value.last_id)}
    return {"type": "string", "length": len(value)}


def _of_streams(db: int, key: bytes, a: Stream, b: Stream) -> Iterator[Difference]:
    counters, others = _counters(a), _counters(b)
    for kind, value in counters.items():
        if value != others[kind]:
            yield Difference(db, key, kind, value, others[kind])
    for iid, left, right in merged(_dedup(a), _dedup(b)):
        if left != right:
            yield Difference(db, key, "dedup", left, right, argument(iid))
    same = True
    for entry_id, row, other in merged(entries(a), entries(b)):
        if row != other:
            same = False
            yield Difference(db, key, "entry", _row(row), _row(other), id_text(entry_id))
    if same:
        yield from _of_nodes(db, key, a, b)
    for name, group, other_group in merged(sorted(a.groups.items()), sorted(b.groups.items())):
        if group is None or other_group is None:
            shown = _group_shown(group), _group_shown(other_group)
            yield Difference(db, key, "group", shown[0], shown[1], "", name)
        else:
            for kind, item, left, right in _of_groups(group, other_group):
                yield Difference(db, key, kind, left, right, item, name)


def _counters(stream: Stream) -> dict[str, Any]:
    idmp = stream.idmp or Idmp()
    return {
        "length": stream.length,
        "last_id": id_text(stream.last_id),
        "max_deleted_id": id_text(stream.max_deleted_id),
        "entries_added": stream.entries_added,
        "dedup_duration_s": idmp.duration,
        "dedup_maxsize": idmp.maxsize,
        "dedup_added": idmp.added,
        "dedup_duplicates": idmp.duplicates,
    }


def _dedup(stream: Stream) -> list[tuple[bytes, str]]:
    """(producer and its ID, entry) of a table; it has at most the length that the stream's options allow."""
    records = () if stream.idmp is None else stream.idmp.records()
    return sorted((pid + b" " + iid, id_text(entry_id)) for pid, iid, entry_id, _ in records)


def _row(row: tuple[bytes, ...] | None) -> list[Any] | None:
    return None if row is None else [json_value(field) for field in row]


def _of_nodes(db: int, key: bytes, a: Stream, b: Stream) -> Iterator[Difference]:
    """The first node whose bounds or deleted slots differ, though the entries are the same."""
    for left, right in zip_longest(_nodes(a), _nodes(b)):
        if left != right:
            yield Difference(db, key, "nodes", left, right)
            return


def _nodes(stream: Stream) -> Iterator[dict[str, Any]]:
    for node in stream.walk():
        yield {
            "first": id_text(node.first),
            "last": id_text(node.last),
            "slots": node.count,
            "deleted_slots": [slot for slot in range(node.count) if node.deleted >> slot & 1],
            "bytes": node.node_bytes(),
        }


def _group_shown(group: Group | None) -> Any:
    if group is None:
        return None
    return {"last_id": id_text(group.last_id), "pending": len(group.pending)}


def _of_groups(a: Group, b: Group) -> Iterator[tuple[str, str, Any, Any]]:
    """(kind, name, on A, on B) of each difference of a group."""
    if a.last_id != b.last_id:
        yield "group_last_id", "", id_text(a.last_id), id_text(b.last_id)
    if a.entries_read != b.entries_read:
        yield "entries_read", "", _read(a), _read(b)
    for name, left, right in merged(_consumers(a), _consumers(b)):
        if left != right:
            yield "consumer", argument(name), left, right
    same = True
    for entry_id, held, other in merged(_pending(a), _pending(b)):
        if held != other:
            same = False
            yield "pending", id_text(entry_id), held, other
    if same:
        for first, second in zip(_released(a), _released(b), strict=False):
            if first != second:
                yield "released", "", id_text(first), id_text(second)
                return


def _read(group: Group) -> int | None:
    return None if group.entries_read == UNKNOWN else group.entries_read


def _consumers(group: Group) -> list[tuple[bytes, dict[str, Any]]]:
    return sorted(
        (one.name, {"active_ms": None if one.active_time < 0 else one.active_time})
        for one in group.listed()
    )


def _pending(group: Group) -> Iterator[tuple[int, dict[str, Any]]]:
    for entry_id, time, owner, count in group.pending.entries():
        yield (
            entry_id,
            {
                "consumer": json_value(group.owner_name(owner)) if owner else None,
                "delivered_ms": max(time, 0) if owner else None,
                "count": count,
            },
        )


def _released(group: Group) -> Iterator[int]:
    """The entries that nobody holds, in the order of their release."""
    return (entry_id for _, entry_id in islice(group.pending.by_age(), group.pending.nacked()))


# --- the form for people


def text_of(difference: Difference) -> str:
    """One line about a difference, without its key."""
    _, _, kind, a, b, name, group = difference
    place = "" if group is None else f"group {argument(group)} "
    if kind == "released":
        return f"{place}order of release: {a} in A, {b} in B is next"
    head = f"{place}{kind.replace('_', ' ')}{f' {name}' if name else ''}"
    if kind == "group":
        head = place.rstrip()
    if a is None and kind != "expires_ms" and kind != "entries_read":
        return f"{head}: only in B{_detail(kind, b)}"
    if b is None and kind != "expires_ms" and kind != "entries_read":
        return f"{head}: only in A{_detail(kind, a)}"
    return f"{head}: {_words(kind, a)} in A, {_words(kind, b)} in B"


def _detail(kind: str, value: Any) -> str:
    words = _words(kind, value)
    return f", {words}" if words else ""


def _words(kind: str, value: Any) -> str:
    if value is None:
        return "unknown" if kind == "entries_read" else "never"
    if kind == "expires_ms":
        return time_text(value)
    if kind == "entry":
        return " ".join(map(_bytes_shown, value))
    if kind in ("value", "dedup"):
        return _bytes_shown(value)
    if kind == "key" or kind == "type":
        unit = "entries" if value["type"] == "stream" else "bytes"
        return f"a {value['type']} of {value['length']:,} {unit}"
    if kind == "group":
        return f"last {value['last_id']}, pending {value['pending']:,}"
    if kind == "consumer":
        active = value["active_ms"]
        return "active never" if active is None else f"active {time_text(active)}"
    if kind == "pending":
        if value["consumer"] is None:
            return f"with nobody, delivery {value['count']}"
        since = time_text(value["delivered_ms"])
        return f"with {_bytes_shown(value['consumer'])} since {since}, delivery {value['count']}"
    if kind == "nodes":
        slots = f"{value['slots']} slots, {len(value['deleted_slots'])} deleted"
        return f"{value['first']} to {value['last']}, {slots}, {value['bytes']} bytes"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _bytes_shown(value: Any) -> str:
    """A string of JSON, or bytes in base64, as redis-cli would show it."""
    return argument(value.encode()) if isinstance(value, str) else str(value["base64"])
