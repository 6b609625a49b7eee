"""States written as RDB and read back, through the codec alone."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.engine.commands.rewrite import Lost
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import applier
from tidelog.engine.keys.state import DATABASES, State
from tidelog.engine.rdb.file import NO_EXPIRY, RdbFile, dumped
from tidelog.engine.rdb.load import Loading
from tidelog.engine.rdb.skip import STRING, skip_value
from tidelog.engine.rdb.source import Source
from tidelog.engine.rdb.stream import KINDS, read_stream
from tidelog.engine.rdb.write import RdbTarget, rdb_file
from tidelog.engine.streams.stream import Stream


def written(state: State, target: RdbTarget) -> tuple[bytes, Lost]:
    lost = Lost()
    return b"".join(rdb_file(state, lost, target)), lost


def in_pieces(data: bytes, size: int) -> Source:
    """A source that gets `size` bytes at a time."""
    pieces: Iterator[bytes] = (data[at : at + size] for at in range(0, len(data), size))
    return Source(lambda: next(pieces, b""), len(data))


def read(source: Source) -> State:
    """The state that an image holds; values of other types are stepped over."""
    state = State()
    file = RdbFile(source)
    for key in file.keys():
        if key.kind in KINDS or key.kind == STRING:
            if key.name in state.databases[key.db % DATABASES].keys:
                source.damaged("the key comes twice", key.offset)
            put(state, key.db % DATABASES, key.name, key.kind, source, key.expire_at)
        else:
            skip_value(file.source, key.kind)
    if not source.at_end():
        source.damaged("there is more data behind the end")
    return state


def put(
    state: State, db: int, name: bytes, kind: int, source: Source, expire_at: int = NO_EXPIRY
) -> None:
    apply = applier(state)
    if kind == STRING:
        apply([(e.SET, db, name, source.string(), expire_at)])
        return
    apply([(e.STREAM_CREATE, db, name)])
    stream = state.databases[db].keys[name]
    assert isinstance(stream, Stream)
    loading = Loading(stream)
    for fact in read_stream(source, kind):
        loading.take(fact)
    loading.end()
    if expire_at != NO_EXPIRY:
        apply([(e.PEXPIREAT, db, name, expire_at)])


def put_dump(state: State, db: int, name: bytes, payload: bytes) -> None:
    """RESTORE."""
    kind, source = dumped(payload)
    put(state, db, name, kind, source)
    assert source.at_end()


def check(state: State) -> None:
    for database in state.databases:
        for value in database.keys.values():
            if isinstance(value, Stream):
                value.check()
                for group in value.groups.values():
                    group.pending.check()


def stream(state: State, key: bytes = b"s", db: int = 0) -> Stream:
    found = state.databases[db].keys[key]
    assert isinstance(found, Stream)
    return found
