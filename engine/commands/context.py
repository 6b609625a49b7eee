"""Context: the data that decide has for one command, besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.engine.effects.effect import DEL, Effect
from tidelog.engine.errors import WRONGTYPE, CommandError, CorruptBlock
from tidelog.engine.keys.keyspace import resident
from tidelog.engine.keys.state import Database, Settings, State
from tidelog.engine.streams.stream import Stream


class Context:
    """The arguments of decide besides the command itself. One object is reused for many commands.

    effects     decide appends to it; cleared as a whole when decide raises CommandError
    now         unix ms, sampled once per unit (spec 1)
    quiet       commands do not reset the idle time of the keys they name (CLIENT NO-TOUCH)
    may_block   False inside EXEC and in replay: Park becomes the null array (spec 10.5)
    """

    __slots__ = ("state", "settings", "db", "now", "may_block", "quiet", "effects")

    def __init__(self, state: State, settings: Settings) -> None:
        self.state = state
        self.settings = settings
        self.db = 0
        self.now = 0
        self.may_block = True
        self.quiet = False
        self.effects: list[Effect] = []

    @property
    def database(self) -> Database:
        return self.state.databases[self.db]

    def lookup(self, key: bytes) -> Stream | bytes | None:
        """The value of a key, or None. An expired key is missing, and its DEL becomes part of the unit.

        May raise CorruptBlock.
        """
        value = self.peek(key)
        if value is not None:
            if not self.quiet:
                self.state.databases[self.db].keys.accessed[key] = self.now
        return value

    def peek(self, key: bytes) -> Stream | bytes | None:
        """`lookup` that leaves the key's idle time alone, for commands that only inspect a key (OBJECT, TYPE, TTL)."""
        database = self.state.databases[self.db]
        value: Stream | bytes | None = resident(database.keys, key)
        if value is None:
            value = database.keys.load(key)
            if value is None:
                return None
        if database.expires.count and database.expires.get(key, self.now) < self.now:
            self.expire(self.db, key)
            return None
        return value

    def drops(self, key: bytes) -> bool:
        """`lookup` for a command that deletes or replaces the key. Return whether the key exists.

        A stream whose row cannot be read exists too, and can be deleted or replaced.
        """
        try:
            return self.lookup(key) is not None
        except CorruptBlock:
            keys = self.state.databases[self.db].keys
            if not keys.lose(key):
                raise
        if self.passed(key):
            self.expire(self.db, key)
            return False
        return True

    def present(
        self, keys: Iterable[bytes], find: Callable[[bytes], object] | None = None
    ) -> list[bytes]:
        """The keys that exist, in the given order, each as often as given.

        find: tells whether a key exists that may be expired or not in memory; default `peek`.
        """
        database = self.state.databases[self.db]
        here = database.keys
        if database.expires.count or not here.complete:
            if find is None:
                peek = self.peek
                return [key for key in keys if peek(key) is not None]
            return [key for key in keys if find(key)]
        return [key for key in keys if resident(here, key) is not None]

    def passed(self, key: bytes) -> bool:
        """Whether a key is expired. Adds no DEL, for walks over many keys; `expire_due` deletes these later."""
        return self.state.databases[self.db].keys.expire_at(key) < self.now

    def expire(self, db: int, key: bytes) -> None:
        """Add the DEL of an expired key to the effects, once per unit."""
        effect: Effect = (DEL, db, (key,))
        if effect not in self.effects:
            self.effects.append(effect)

    def stream(self, key: bytes) -> Stream | None:
        """The stream of a key, or None. Raises CommandError(WRONGTYPE) for another type. May raise CorruptBlock."""
        value = self.lookup(key)
        if value is None or value.__class__ is Stream:
            return value
        raise CommandError(WRONGTYPE)
