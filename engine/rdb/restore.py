"""Build the value in a payload of DUMP from its type and its bytes, for RESTORE and for its effect."""

from __future__ import annotations

from tidelog.engine.rdb.load import Loading
from tidelog.engine.rdb.skip import STRING
from tidelog.engine.rdb.source import Source
from tidelog.engine.rdb.stream import read_stream
from tidelog.engine.streams.stream import Stream


def restored(kind: int, data: bytes, number: int) -> tuple[Stream | bytes, int]:
    """Build a string, or a stream with the number `number`, from the bytes of a value.

    kind     type of the value: STRING, or one of engine.rdb.stream.KINDS

    Returns the value and how many bytes of `data` it takes. Raises RdbError.
    """
    source = Source.of(data)
    if kind == STRING:
        return source.string(), source.offset
    stream = Stream(number)
    loading = Loading(stream)
    for fact in read_stream(source, kind):
        loading.take(fact)
    loading.end()
    return stream, source.offset
