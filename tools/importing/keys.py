"""Put the keys of RDB images into a state that is folded now and then, so that memory stays bounded.

A large stream is folded between two of its nodes. It is then loaded back with nothing but its counters, and goes on.
"""

from __future__ import annotations

from typing import Final, Protocol

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import applier
from tidelog.engine.keys.state import DATABASES, State
from tidelog.engine.rdb.facts import Counters, GroupFact, Node
from tidelog.engine.rdb.file import NO_EXPIRY
from tidelog.engine.rdb.load import Loading
from tidelog.engine.rdb.skip import STRING, skip_value, type_name
from tidelog.engine.rdb.source import Source
from tidelog.engine.rdb.stream import KINDS, read_stream
from tidelog.engine.streams.stream import Stream
from tidelog.tools.failed import Refused
from tidelog.tools.importing.report import Report
from tidelog.tools.text import argument

FOLD_BYTES: Final = 24 << 20  # approximate memory of what was put since the last fold
_KEY_BYTES: Final = 400
_NODE_BYTES: Final = 700
_PENDING_BYTES: Final = 100
_GROUP_BYTES: Final = 3000


class Folding(Protocol):
    """A state that can be folded: snapshot.filling.Filling, or nothing for a dry run."""

    state: State

    def fold(self) -> None: ...


class Keys:
    """Takes keys one by one. Raises RdbError; Refused for a key that a store cannot hold.

    folding   None for a dry run: everything is read and counted, nothing is kept
    """

    def __init__(self, folding: Folding | None, report: Report) -> None:
        self.folding = folding
        self.report = report
        self._weight = 0

    def value(self, db: int, key: bytes, kind: int, expire_at: int, source: Source) -> None:
        """Take a key whose value comes next in the source."""
        start = source.offset
        if kind not in KINDS and kind != STRING:
            skip_value(source, kind)
            self.report.leave(type_name(kind), db, key, source.offset - start)
            return
        self._check(db, key, source)
        if kind == STRING:
            self._string(db, key, source.string(), expire_at)
        else:
            self._stream(db, key, kind, source)
            if expire_at != NO_EXPIRY and self.folding is not None:
                applier(self.folding.state)([(e.PEXPIREAT, db, key, expire_at)])
        self.report.expires += expire_at != NO_EXPIRY

    def has(self, db: int, key: bytes) -> bool:
        """Whether the key was put already. False in a dry run."""
        if self.folding is None or db >= DATABASES:
            return False
        return key in self.folding.state.databases[db].keys

    def _check(self, db: int, key: bytes, source: Source) -> None:
        if db >= DATABASES:
            raise Refused(
                f"the key {argument(key)} is in database {db}, and a store has the databases 0 to {DATABASES - 1}; "
                "name the databases to import with --db"
            )
        if self.folding is not None and key in self.folding.state.databases[db].keys:
            source.damaged(f"the key {argument(key)} comes twice in database {db}")

    def _string(self, db: int, key: bytes, value: bytes, expire_at: int) -> None:
        self.report.strings += 1
        if self.folding is not None:
            applier(self.folding.state)([(e.SET, db, key, value, expire_at)])
            self.add(_KEY_BYTES + len(key) + len(value))

    def _stream(self, db: int, key: bytes, kind: int, source: Source) -> None:
        report = self.report
        report.streams += 1
        loading = None
        if self.folding is not None:
            applier(self.folding.state)([(e.STREAM_CREATE, db, key)])
            self.add(_KEY_BYTES + len(key))
            loading = Loading(self._of(db, key))
        before = source.offset
        for fact in read_stream(source, kind):
            if isinstance(fact, Counters):
                report.entries += fact.length
            elif isinstance(fact, GroupFact):
                report.groups += 1
                report.pending += len(fact.ids)
            if loading is None:
                continue
            loading.take(fact)
            weight = source.offset - before
            before = source.offset
            if isinstance(fact, Node):
                weight = 2 * weight + _NODE_BYTES
            elif isinstance(fact, GroupFact):
                weight = _GROUP_BYTES + _PENDING_BYTES * len(fact.ids)
            if self.add(weight):
                loading.stream = self._of(db, key)
        if loading is not None:
            loading.end()
            report.ahead += loading.ahead

    def _of(self, db: int, key: bytes) -> Stream:
        """The stream, marked as changed."""
        assert self.folding is not None
        state = self.folding.state
        stream = state.databases[db].keys[key]
        assert isinstance(stream, Stream)
        if stream.mark != state.changes.generation:
            state.changes.touch(stream)
        return stream

    def add(self, weight: int) -> bool:
        """Count the memory of something that was put; fold if it is enough. Returns whether it was."""
        self._weight += weight
        if self._weight < FOLD_BYTES:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Fold what was put."""
        self._weight = 0
        if self.folding is not None:
            self.folding.fold()
