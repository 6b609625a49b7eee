"""Events: the keyspace notifications of an effect, and the option that selects them (spec 15).

    events(effect, state, now)   (class, name, database, key) of each, in Redis's order
    Notifications(flags)         the option notify-keyspace-events: which classes, on which channels

`events` is called like `engine.effects.observe`: under the store's lock, for every effect BEFORE it is applied. An
effect holds the outcome of a command and not its name, so commands with the same outcome make the same event: INCR
and its relatives are `set`, while Redis says `incrby`. A SET whose EX gives the key the expiry it already has makes no
`expire`.

Classes are the letters of the option: t streams, g keys of any type, $ strings, x expired, n new keys, and as in Redis
8.2 o keys overwritten and c overwritten keys that changed their type. The option accepts Redis's other letters
(l s h z e d m), but no event here has one of these classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.keys.state import State
from tidelog.engine.rdb.skip import STRING
from tidelog.engine.streams.stream import Stream

Event = tuple[str, bytes, int, bytes]  # class, name, database, key


def events(effect: Effect, state: State, now: int) -> list[Event]:
    """The events of an effect that is about to be applied at `now` (unix ms)."""
    find = _EVENTS.get(effect[0] & OPCODE)
    return [] if find is None else find(effect, state, now)


# --- the option


class Notifications:
    """Which events are published on which channels, parsed from the flags of notify-keyspace-events.

    classes      the letters of the selected classes
    keyspace     publish the name of the event to `__keyspace@<db>__:<key>`
    keyevent     publish the key to `__keyevent@<db>__:<event>`

    Raises ValueError, with the text of Redis's CONFIG SET, for an unknown letter.
    """

    __slots__ = ("classes", "keyspace", "keyevent")

    def __init__(self, flags: str = "") -> None:
        if not set(flags) <= _KNOWN:
            raise ValueError(f"Invalid event class character. Use '{_LETTERS}'.")
        wanted = set(flags)
        if "A" in wanted:
            wanted |= _ALL
        self.classes = frozenset(wanted & _CLASSES)
        self.keyspace = "K" in wanted
        self.keyevent = "E" in wanted

    @property
    def wanted(self) -> bool:
        """Whether any event can be published."""
        return bool(self.classes) and (self.keyspace or self.keyevent)

    def __str__(self) -> str:
        """The flags in the order of CONFIG GET.

        Redis omits n, o and c next to A. Here they are shown, so that the text, when parsed again, means the same.
        """
        wanted = self.classes
        shown = "A" if wanted >= _ALL else "".join([c for c in _SHOWN_FIRST if c in wanted])
        shown += "".join([c for c in "noc" if c in wanted])
        return shown + "K" * self.keyspace + "E" * self.keyevent + "m" * ("m" in wanted)

    def messages(self, event: Event) -> list[tuple[bytes, bytes]]:
        """(channel, message) of each message to publish for an event."""
        letter, name, db, key = event
        found: list[tuple[bytes, bytes]] = []
        if letter in self.classes:
            if self.keyspace:
                found.append((b"__keyspace@%d__:%b" % (db, key), name))
            if self.keyevent:
                found.append((b"__keyevent@%d__:%b" % (db, name), key))
        return found


_LETTERS: Final = "Ag$lshzxeKEtmdnoc"  # as the error names them
_KNOWN: Final = frozenset(_LETTERS)
_CLASSES: Final = _KNOWN - set("AKE")
_SHOWN_FIRST: Final = "g$lshzxetd"
_ALL: Final = frozenset("g$lshzxetd")  # the classes that A stands for


# --- streams


def _stream(name: bytes) -> Callable[[Effect, State, int], list[Event]]:
    def find(effect: Effect, state: State, now: int) -> list[Event]:
        return [("t", name, effect[1], effect[2])]

    return find


def _group_set(effect: Effect, state: State, now: int) -> list[Event]:
    _, db, key, name, *_ = effect
    stream = state.databases[db].keys[key]
    assert isinstance(stream, Stream)
    if stream.groups[name].entries_read > stream.entries_added:
        return []  # the end of an XSETID, which has told
    return [("t", b"xgroup-setid", db, key)]


def _added(effect: Effect, state: State, now: int) -> list[Event]:
    _, db, key, *_ = effect
    return [*_new(state, db, key), ("t", b"xadd", db, key)]


def _added_many(effect: Effect, state: State, now: int) -> list[Event]:
    """One `xadd` per entry."""
    _, db, key, _, _, head, blocks, tail = effect
    count = len(head) + sum([count for count, _ in blocks]) + len(tail)
    event: Event = ("t", b"xadd", db, key)
    return [*_new(state, db, key), *([event] * count)]


def _delivered(effect: Effect, state: State, now: int) -> list[Event]:
    """The creation of the consumer, if it does not exist yet; the delivery itself is no event."""
    _, db, key, group, consumer, *_ = effect
    stream = state.databases[db].keys[key]
    assert isinstance(stream, Stream)
    if consumer in stream.groups[group].consumers:
        return []
    return [("t", b"xgroup-createconsumer", db, key)]


def _created(effect: Effect, state: State, now: int) -> list[Event]:
    return _new(state, effect[1], effect[2])


# --- keys


def _deleted(effect: Effect, state: State, now: int) -> list[Event]:
    """`expired` for a key whose time has passed, `del` for any other. No command deletes an expired key."""
    _, db, keys = effect
    expires = state.databases[db].expires
    return [
        ("x", b"expired", db, key) if expires.get(key, now) < now else ("g", b"del", db, key)
        for key in keys
    ]


def _set(effect: Effect, state: State, now: int) -> list[Event]:
    _, db, key, _, expire_at = effect
    database = state.databases[db]
    found: list[Event] = [
        *_new(state, db, key),
        *_overwritten(database.keys.get(key), True, db, key),
    ]
    found.append(("$", b"set", db, key))
    if expire_at not in (-1, database.expires.get(key)):  # an equal one was kept (KEEPTTL)
        found.append(("g", b"expire", db, key))
    return found


def _appended(effect: Effect, state: State, now: int) -> list[Event]:
    _, db, key, _ = effect
    return [*_new(state, db, key), ("$", b"append", db, key)]


def _key(name: bytes) -> Callable[[Effect, State, int], list[Event]]:
    def find(effect: Effect, state: State, now: int) -> list[Event]:
        return [("g", name, effect[1], effect[2])]

    return find


def _renamed(effect: Effect, state: State, now: int) -> list[Event]:
    _, db, source, target = effect
    keys = state.databases[db].keys
    # Report `new` even if the target existed: Redis's RENAME deletes an existing target first, so there the target is
    # always new.
    return [
        ("n", b"new", db, target),
        ("g", b"rename_from", db, source),
        ("g", b"rename_to", db, target),
        *_overwritten(keys.get(target), isinstance(keys[source], bytes), db, target),
    ]


def _copied(effect: Effect, state: State, now: int) -> list[Event]:
    _, db, source, target_db, target = effect
    value = state.databases[db].keys[source]
    before = state.databases[target_db].keys.get(target)
    return [
        ("n", b"new", target_db, target),
        ("g", b"copy_to", target_db, target),
        *_overwritten(before, isinstance(value, bytes), target_db, target),
    ]


def _moved(effect: Effect, state: State, now: int) -> list[Event]:
    _, db, key, target_db = effect
    return [
        ("n", b"new", target_db, key),
        ("g", b"move_from", db, key),
        ("g", b"move_to", target_db, key),
    ]


def _restored(effect: Effect, state: State, now: int) -> list[Event]:
    _, db, key, kind, *_ = effect
    before = state.databases[db].keys.get(key)
    # `new` even if the key existed, as in `_renamed`: Redis's RESTORE deletes it first.
    return [
        ("n", b"new", db, key),
        ("g", b"restore", db, key),
        *_overwritten(before, kind == STRING, db, key),
    ]


# The code that decided the effects has looked up their keys, so the keys are in memory and these lookups cannot fail.


def _new(state: State, db: int, key: bytes) -> list[Event]:
    return [] if key in state.databases[db].keys else [("n", b"new", db, key)]


def _overwritten(before: Stream | bytes | None, string: bool, db: int, key: bytes) -> list[Event]:
    """The events of a key that held `before` and will hold a string (`string` true) or a stream."""
    if before is None:
        return []
    found: list[Event] = [("o", b"overwritten", db, key)]
    if isinstance(before, bytes) is not string:
        found.append(("c", b"type_changed", db, key))
    return found


# fmt: off
_EVENTS: Final[dict[int, Callable[[Effect, State, int], list[Event]]]] = {
    e.XADD:                  _stream(b"xadd"),
    e.XADD_NODE:             _added,
    e.XADD_IDMP:             _added,
    e.XADD_MANY:             _added_many,
    e.XTRIM:                 _stream(b"xtrim"),
    e.XDEL:                  _stream(b"xdel"),
    e.XSETID:                _stream(b"xsetid"),
    e.STREAM_CREATE:         _created,
    e.XGROUP_CREATE:         _stream(b"xgroup-create"),
    e.XGROUP_SETID:          _group_set,
    e.XGROUP_DESTROY:        _stream(b"xgroup-destroy"),
    e.XGROUP_CREATECONSUMER: _stream(b"xgroup-createconsumer"),
    e.XGROUP_DELCONSUMER:    _stream(b"xgroup-delconsumer"),
    e.DELIVER:                _delivered,
    e.XACKDEL:               _stream(b"xdel"),
    e.DEL:                   _deleted,
    e.SET:                   _set,
    e.APPEND:                _appended,
    e.PEXPIREAT:             _key(b"expire"),
    e.PERSIST:               _key(b"persist"),
    e.RENAME:                _renamed,
    e.COPY:                  _copied,
    e.MOVE:                  _moved,
    e.RESTORE:               _restored,
}
# fmt: on
