"""Nodes beside a real redis-server 7.0: after every write both hold the same number of them.

Redis decides by the bytes of an encoded node, so with small limits a single byte miscounted anywhere
(an integer's encoding, a header, a diff, a counter) soon shows as a node more or less, and approximate trims cut
elsewhere. IDs are also read by both, in all the odd ways the C library allows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.driver import Engine
from tests.oracle.render import form
from tests.oracle.server import Clock, RedisServer, directory
from tests.oracle.wire import Connection, error
from tests.rounds import more

from tidelog.engine.errors import CommandError
from tidelog.engine.ids import SEQ_MAX, text
from tidelog.engine.streams.stream import Stream

KEY = b"k"
EXAMPLES = 120
STEPS_MAX = 60


@pytest.fixture(scope="module")
def redis() -> Iterator[Connection]:
    place = directory()
    clock = Clock(place)
    clock.set(Engine().now)
    server = RedisServer(place, clock)
    connection = server.connect()
    try:
        yield connection
    finally:
        connection.close()
        server.close()
        shutil.rmtree(place)


# fmt: off
numbers = st.one_of(
    st.sampled_from([
        0, 1, -1, 127, 128, 4095, 4096, -4096, -4097, 32767, 32768, -32768, -32769, 2**23 - 1, 2**23, -2**23 - 1,
        2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**63 - 1, 2**63, -2**63, -2**63 - 1,
    ]),
    st.integers(0, 19).flatmap(lambda digits: st.integers(-(10**digits), 10**digits)),
).map(lambda number: b"%d" % number)
texts = st.one_of(
    st.binary(max_size=8),
    st.sampled_from([b"007", b"-0", b"+1", b"1 ", b"9" * 20]),
    st.sampled_from([62, 63, 64, 65, 124, 125, 126, 127, 128, 500, 4095, 4096, 16382]).map(lambda n: b"x" * n),
)
steps_ms = st.sampled_from([0, 0, 0, 1, 100, 127, 5000, 40_000, 10**7, 2**33])
steps_seq = st.sampled_from([1, 1, 1, 2, 128, 5000, 10**6, 2**33])
usual = st.just((b"a", b"temp"))
shapes = st.one_of(usual, usual, st.lists(texts, min_size=1, max_size=4).map(tuple))
thresholds = st.integers(0, 40).map(lambda n: b"%d" % n)
# fmt: on


@st.composite
def adds(draw: st.DrawFn) -> tuple[str, Any]:
    shape = draw(shapes)
    row = [part for name in shape for part in (name, draw(numbers | texts))]
    return "add", (draw(steps_ms), draw(steps_seq), row, draw(st.none() | trims()))


@st.composite
def trims(draw: st.DrawFn) -> tuple[list[bytes], int | None]:
    """An exact or approximate trim; with a number, MINID of the so-manyth ID back."""
    exact = draw(st.sampled_from([b"=", b"~"]))
    limit = [b"LIMIT", draw(thresholds)] if exact == b"~" and draw(st.booleans()) else []
    if draw(st.booleans()):
        return [b"MAXLEN", exact, draw(thresholds), *limit], None
    return [b"MINID", exact, b"", *limit], draw(st.integers(0, 40))


operations = st.one_of(
    adds(),
    adds(),
    adds(),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 60), min_size=1, max_size=6)),
    st.tuples(st.just("delete last"), st.integers(1, 12)),
    st.tuples(st.just("trim"), trims()),
    st.tuples(st.just("range"), st.tuples(st.integers(0, 40), st.integers(0, 40), thresholds)),
)


class Both:
    """The two of them, and the IDs used so far, newest last."""

    def __init__(self, redis: Connection, slots: int, size: int) -> None:
        self.redis = redis
        self.engine = Engine()
        self.ids = [1 << 64]
        for name, value in ((b"entries", slots), (b"bytes", size)):
            redis.call(b"CONFIG", b"SET", b"stream-node-max-" + name, b"%d" % value)
        redis.call(b"FLUSHALL")
        self.engine.ctx.settings.stream_node_max_entries = slots
        self.engine.ctx.settings.stream_node_max_bytes = size

    def back(self, count: int) -> bytes:
        return text(self.ids[max(len(self.ids) - 1 - count, 0)])

    def trim(self, trim: tuple[list[bytes], int | None]) -> list[bytes]:
        words, back = trim
        return [*words[:2], self.back(back), *words[3:]] if back is not None else words

    def call(self, *args: bytes) -> None:
        theirs = self.redis.call(*args)
        try:
            ours = form(self.engine.raw(*args))
        except CommandError as refused:
            ours = error(refused.line)
        assert ours == theirs, args

    def step(self, name: str, how: Any) -> bool:
        """One operation. Whether it is one that may empty a node without deleting by ID."""
        trim = None
        if name == "add":
            step_ms, step_seq, row, trim = how
            last = self.ids[-1]
            new = (last >> 64) + step_ms << 64 if step_ms else 0
            self.ids.append(new | step_seq if step_ms else last + step_seq)
            words = self.trim(trim) if trim is not None else []
            self.call(b"XADD", KEY, *words, text(self.ids[-1]), *row)
        elif name == "delete":
            self.call(b"XDEL", KEY, *(self.back(back) for back in how))
        elif name == "delete last":
            self.call(b"XDEL", KEY, *map(text, self.ids[-how:]))
        elif name == "trim":
            trim = how
            self.call(b"XTRIM", KEY, *self.trim(trim))
        else:
            first, last, count = how
            self.call(b"XRANGE", KEY, self.back(first), self.back(last), b"COUNT", count)
            self.call(b"XREVRANGE", KEY, b"+", b"(" + self.back(first), b"COUNT", count)
        return trim is not None and trim[1] is not None

    def agree(self) -> bool:
        """Compare the counters. False after a trim that emptied a node: Redis 7.0 keeps such a node."""
        stream = self.engine.state.databases[0].keys.get(KEY)
        if not isinstance(stream, Stream):
            return True
        info = self.redis.call(b"XINFO", b"STREAM", KEY)
        assert isinstance(info, list)
        shown = dict(zip(info[::2], info[1::2]))
        assert shown[b"length"] == stream.length
        assert shown[b"recorded-first-entry-id"] == text(stream.first_id())
        assert shown[b"max-deleted-entry-id"] == text(stream.max_deleted_id)
        assert shown[b"entries-added"] == stream.entries_added
        last = shown[b"last-entry"]
        assert (last[0] if isinstance(last, list) else b"0-0") == text(stream.last_live_id())
        return bool(shown[b"radix-tree-keys"] == stream.nodes())


@st.composite
def ids_as_typed(draw: st.DrawFn) -> bytes:
    """Text that a person might type for an ID; half of it is none."""
    number = st.sampled_from(
        [
            b"0",
            b"1",
            b"7",
            b"007",
            b"+8",
            b" 9",
            b"-0",
            b"-5",
            b"-05",
            b"- 5",
            b"1 ",
            b"1_0",
            b"0x1",
            b"\t\n3",
        ]
        + [
            b"",
            b"*",
            b"+",
            b"-",
            b"18446744073709551615",
            b"18446744073709551616",
            b"\xb2",
            b"4\0",
            b"1e3",
        ]
        + [b"-9223372036854775808", b"-9223372036854775809", b"0" * 70 + b"2"]
    )
    return b"-".join(draw(st.lists(number, min_size=1, max_size=3)))


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    slots=st.sampled_from([0, 1, 2, 3, 5, 10, 130]),
    size=st.sampled_from([0, 60, 100, 200, 400, 1000, 4096]),
    steps=st.lists(operations, min_size=5, max_size=STEPS_MAX),
)
def test_nodes_agree(
    redis: Connection, slots: int, size: int, steps: list[tuple[str, Any]]
) -> None:
    both = Both(redis, slots, size)
    for name, how in steps:
        may_empty = both.step(name, how)
        if not both.agree():
            assert may_empty, (name, how)
            return
    both.engine.check()


test_more_nodes_agree = more(test_nodes_agree, 400)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(typed=ids_as_typed(), bound=ids_as_typed())
def test_ids_are_read_as_redis_reads_them(redis: Connection, typed: bytes, bound: bytes) -> None:
    both = Both(redis, 100, 4096)
    both.call(b"XADD", KEY, b"1-1", b"f", b"v")
    both.call(b"XADD", KEY, typed, b"f", b"v")
    for prefix in (b"", b"("):
        both.call(b"XRANGE", KEY, prefix + bound, b"+")
        both.call(b"XREVRANGE", KEY, prefix + bound, b"-")
    both.call(b"XDEL", KEY, typed)
    # Of a millisecond whose numbers are used up 7.0 tells whatever errno held before (the table of known differences).
    stream = both.engine.state.databases[0].keys[KEY]
    if stream.last_id & SEQ_MAX == SEQ_MAX:  # type: ignore[union-attr]
        return
    both.call(b"XADD", KEY, b"MINID", bound, b"9-*", b"f", b"v")


test_more_ids_are_read_as_redis_reads_them = more(test_ids_are_read_as_redis_reads_them, 300)
