"""A second opinion on what can be applied behind a gap: Redis's commands, played into plain dicts.

It knows the commands of the history in `broken.past`, and nothing of the engine's rules: entries are added, delivered
and acknowledged in dicts. A trim is no command here: its effect says how many entries it found and how many it left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tests.tools.broken import Past

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.as_commands import commands
from tidelog.engine.effects.effect import OPCODE, Effect

ID = tuple[int, int]


class Group:
    def __init__(self, last: ID) -> None:
        self.last = last
        self.pending: dict[ID, tuple[bytes, int]] = {}  # consumer, times delivered


class Stream:
    def __init__(self) -> None:
        self.entries: dict[ID, list[bytes]] = {}
        self.last = 0, 0
        self.groups: dict[bytes, Group] = {}


class Salvage(NamedTuple):
    """The streams that should be there, and the LSNs that should have been refused."""

    streams: dict[bytes, Stream]
    refused: list[int]


def salvage(story: Past, root: Path, lsn: int) -> Salvage:
    """Play the history up to `lsn`, and of the frames behind it those that are still in `root`, byte for byte."""
    streams: dict[bytes, Stream] = {}
    refused = []
    for name, offset, first, behind in story.frames:
        records, data = story.written[first]
        path = root / "aof" / name
        there = path.exists() and path.read_bytes()[offset:behind] == data
        if first > lsn and not there:
            continue
        for each, record in enumerate(records, first):
            if not play(streams, record):
                assert each > lsn, "the history itself was refused"
                refused.append(each)
    return Salvage(streams, refused)


def play(streams: dict[bytes, Stream], record: Effect) -> bool:
    """Play one record. Returns whether it could change anything."""
    opcode = record[0] & OPCODE
    if opcode == e.EPOCH:
        return True
    if opcode == e.XTRIM:
        return _trim(streams.get(record[2]), record[3], record[4])
    return any([_play(streams, *command) for command in commands(record)])


def _trim(stream: Stream | None, left: int, removed: int) -> bool:
    if stream is None or len(stream.entries) != left + removed:
        return False
    for id in sorted(stream.entries)[:removed]:
        del stream.entries[id]
    return True


def _play(streams: dict[bytes, Stream], name: bytes, *words: Any) -> bool:
    if name == b"XADD":
        key, *rest = words
        stream = streams.get(key) or Stream()
        is_empty = rest[:2] == [b"MAXLEN", b"0"]  # how a stream without entries is made
        id = _id(rest[2 if is_empty else 0])
        if id <= stream.last:
            return False
        streams[key] = stream
        if not is_empty:
            stream.last = id
            stream.entries[id] = rest[1:]
        return True
    if name == b"XSETID":
        return True  # of that stream, whose last ID stays 0-0
    if name == b"XGROUP":
        return _group(streams, *words)
    group = _group_of(streams, *words[:2])
    if group is None:
        return False
    if name == b"XACK":
        return any([group.pending.pop(_id(word), None) for word in words[2:]])
    assert name == b"XCLAIM", name
    consumer, _, word, *options = words[2:]
    last = _id(options[options.index(b"LASTID") + 1]) if b"LASTID" in options else group.last
    changed = last > group.last
    group.last = max(last, group.last)
    if _id(word) in streams[words[0]].entries:
        group.pending[_id(word)] = consumer, int(options[options.index(b"RETRYCOUNT") + 1])
        return True
    return changed


def _group(streams: dict[bytes, Stream], way: bytes, key: bytes, name: bytes, *words: Any) -> bool:
    group = _group_of(streams, key, name)
    if way == b"SETID" and group is not None:
        group.last = _id(words[0])
        return True
    if way != b"CREATE" or group is not None or key not in streams:
        return False
    streams[key].groups[name] = Group(_id(words[0]))
    return True


def _group_of(streams: dict[bytes, Stream], key: bytes, name: bytes) -> Group | None:
    stream = streams.get(key)
    return None if stream is None else stream.groups.get(name)


def _id(word: bytes) -> ID:
    ms, _, seq = word.partition(b"-")
    return int(ms), int(seq)


def differences(expected: dict[bytes, Stream], db: Any) -> list[str]:
    """Where an open store has something else, by its own replies."""
    found = []
    if set(db.keys("*")) != set(expected):
        found.append(f"keys {db.keys('*')}, not {set(expected)}")
    for key in set(expected) & set(db.keys("*")):
        stream = expected[key]
        entries = {
            _id(id): [word for pair in row.items() for word in pair] for id, row in db.xrange(key)
        }
        info = db.xinfo_stream(key)
        groups = {group["name"]: _id(group["last-delivered-id"]) for group in db.xinfo_groups(key)}
        pending = {
            name: {
                _id(row["message_id"]): (row["consumer"], row["times_delivered"])
                for row in db.xpending_range(key, name, min="-", max="+", count=1000)
            }
            for name in groups
        }
        for what, have, want in (
            ("entries", entries, stream.entries),
            ("last ID", _id(info["last-generated-id"]), stream.last),
            ("groups", groups, {name: group.last for name, group in stream.groups.items()}),
            ("pending", pending, {name: group.pending for name, group in stream.groups.items()}),
        ):
            if have != want:
                found.append(f"{what} of {key!r}: {have!r}, not {want!r}")
    return found
