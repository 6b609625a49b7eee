"""Replies as RESP: beside a real redis-server, the same bytes; random ones read back as what they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests import inside
from tests.oracle import wire
from tests.oracle.render import form
from tests.oracle.server import Clock, RedisServer
from tests.rounds import rest_slow
from tests.server.real_redis import Raw, real_redis

import tidelog
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.keys.values import RawString
from tidelog.engine.reply import NULL_ARRAY, OK, Map, Park, Reply, Streams
from tidelog.engine.streams.block import Block, EntryRow, encode
from tidelog.engine.streams.entries import BlockPart, ClaimedEntries, Entries, Part, RowsPart
from tidelog.server.wire import render as module
from tidelog.server.wire.render import render, rendered
from tidelog.server.wire.replies import Double, Push, SetReply, Verbatim
from tidelog.testing import Clock as ManualClock


def bytes_of(reply: Reply, protocol: int) -> bytes:
    """By the long way and the short one."""
    out: list[bytes] = []
    render(reply, protocol, out)
    assert rendered(reply, protocol) == b"".join(out)
    return b"".join(out)


# fmt: off
KINDS: list[tuple[Reply, bytes, bytes]] = [
    (None, b"$-1\r\n", b"_\r\n"),
    (NULL_ARRAY, b"*-1\r\n", b"_\r\n"),
    (OK, b"+OK\r\n", b"+OK\r\n"),
    (0, b":0\r\n", b":0\r\n"),
    (-(1 << 63), b":-9223372036854775808\r\n", b":-9223372036854775808\r\n"),
    (b"", b"$0\r\n\r\n", b"$0\r\n\r\n"),
    (b"a\r\nb", b"$4\r\na\r\nb\r\n", b"$4\r\na\r\nb\r\n"),
    (RawString(b"ab"), b"$2\r\nab\r\n", b"$2\r\nab\r\n"),
    (CommandError(b"ERR no"), b"-ERR no\r\n", b"-ERR no\r\n"),
    (CommandError(b"ERR a\r\n+OK"), b"-ERR a  +OK\r\n", b"-ERR a  +OK\r\n"),
    (Verbatim(b"hi"), b"$2\r\nhi\r\n", b"=6\r\ntxt:hi\r\n"),
    (Double(1.5), b"$3\r\n1.5\r\n", b",1.5\r\n"),
    (Double(3), b"$1\r\n3\r\n", b",3\r\n"),
    (Double("-0.0"), b"$2\r\n-0\r\n", b",-0\r\n"),
    (Double("inf"), b"$3\r\ninf\r\n", b",inf\r\n"),
    (Double("nan"), b"$3\r\nnan\r\n", b",nan\r\n"),
    (Double(0.1), b"$3\r\n0.1\r\n", b",0.1\r\n"),
    ([], b"*0\r\n", b"*0\r\n"),
    ([1, 2], b"*2\r\n:1\r\n:2\r\n", b"*2\r\n:1\r\n:2\r\n"),
    ([b"a%d", b""], b"*2\r\n$3\r\na%d\r\n$0\r\n\r\n", b"*2\r\n$3\r\na%d\r\n$0\r\n\r\n"),
    ([1, [None, b"x"], CommandError(b"ERR y")],
     b"*3\r\n:1\r\n*2\r\n$-1\r\n$1\r\nx\r\n-ERR y\r\n", b"*3\r\n:1\r\n*2\r\n_\r\n$1\r\nx\r\n-ERR y\r\n"),
    (Map([b"a", 1, b"b", None]),
     b"*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$-1\r\n", b"%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n_\r\n"),
    (Map(), b"*0\r\n", b"%0\r\n"),
    (SetReply([OK]), b"*1\r\n+OK\r\n", b"~1\r\n+OK\r\n"),
    (Push([b"message", None]), b"*2\r\n$7\r\nmessage\r\n$-1\r\n", b">2\r\n$7\r\nmessage\r\n_\r\n"),
    (Entries((), 0), b"*0\r\n", b"*0\r\n"),
    (Entries.of([(1 << 64 | 2, None)]), b"*1\r\n*2\r\n$3\r\n1-2\r\n*-1\r\n", b"*1\r\n*2\r\n$3\r\n1-2\r\n_\r\n"),
    (Streams([[b"s", Entries.of([(5, (b"f", b"v"))])]]),
     b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n0-5\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n",
     b"%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n0-5\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"),
    (ClaimedEntries((RowsPart([5], [(b"f", b"v")]),), 1, [7], [2]),
     b"*1\r\n*4\r\n$3\r\n0-5\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n:7\r\n:2\r\n",
     b"*1\r\n*4\r\n$3\r\n0-5\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n:7\r\n:2\r\n"),
]
# fmt: on


@pytest.mark.parametrize("reply, resp2, resp3", KINDS)
def test_each_kind(reply: Reply, resp2: bytes, resp3: bytes) -> None:
    assert bytes_of(reply, 2) == resp2
    assert bytes_of(reply, 3) == resp3


@pytest.mark.parametrize("reply", ["text", 1.5, True, (b"a",), Park([], [], 0, None)])
def test_what_is_no_reply_is_refused(reply: object) -> None:
    with pytest.raises(TypeError):
        bytes_of([reply], 2)


# --- entries


def random_entries(pick: random.Random) -> Entries:
    """A view as reads make them: sealed blocks, some with holes, and rows; forwards or backwards."""
    parts: list[Part] = []
    length = 0
    next_id = pick.choice((1, 1700000000000 << 64, (1 << 64) - 3))
    one_shape = pick.random() < 0.6
    names = [pick.choice((b"a", b"item", b"%d", b"\r\n", b"")) for _ in range(pick.randint(1, 4))]
    for _ in range(pick.randint(1, 3)):
        ids: list[int] = []
        rows: list[EntryRow] = []
        for _ in range(pick.choice((1, 2, 5, 30))):
            ids.append(next_id)
            next_id += pick.choice((1, 1, 1, 2, 1 << 64, (1 << 64) + 5))
            fields = names if one_shape else names[: pick.randint(1, len(names))]
            rows.append(
                tuple(x for f in fields for x in (f, pick.randbytes(pick.choice((0, 1, 9, 300)))))
            )
        if pick.random() < 0.3:
            gone: list[EntryRow | None] = [None if pick.random() < 0.1 else row for row in rows]
            parts.append(RowsPart(ids, gone))
            length += len(ids)
            continue
        block = Block(encode(ids, rows), len(ids), ids[-1])
        start = pick.randrange(len(ids))
        stop = pick.randint(start + 1, len(ids))
        slots = None
        if pick.random() < 0.4:
            slots = sorted(pick.sample(range(start, stop), pick.randint(1, stop - start)))
        parts.append(BlockPart(block, start, stop, slots))
        length += stop - start if slots is None else len(slots)
    reverse = pick.random() < 0.3
    return Entries(parts[::-1] if reverse else parts, length, reverse)


def rendered_slowly(reply: Entries, protocol: int) -> bytes:
    out = b"*%d\r\n" % len(reply)
    for entry_id, row in reply:
        out += b"*2\r\n" + bytes_of(b"%d-%d" % (entry_id >> 64, entry_id & (1 << 64) - 1), 2)
        out += bytes_of(NULL_ARRAY if row is None else list(row), protocol)
    return out


@pytest.mark.parametrize("protocol", (2, 3))
def test_entries_of_all_shapes(protocol: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    pick = random.Random(seed)
    for _ in range(400):
        entries = random_entries(pick)
        raw = bytes_of(entries, protocol)
        assert raw == rendered_slowly(entries, protocol)
        assert bytes_of(entries, protocol) == raw, "a second time"
        if protocol == 2:
            assert wire.decode(raw, 0) == (form(entries), len(raw))


@pytest.mark.parametrize("protocol", [2, 3])
def test_one_entry_of_one_stream(protocol: int) -> None:
    row = (b"f", b"", b"field\r\n", b"x" * 1000)
    for part in (RowsPart([5 << 64 | 7], [row]), RowsPart([1], [None])):
        for key in (b"", b"key"):
            reply = Streams([[key, Entries([part], 1)]])
            pair = b"*1\r\n*2\r\n" if protocol == 2 else b"%1\r\n"
            head = pair + b"$%d\r\n%b\r\n*1\r\n*2\r\n" % (len(key), key)
            assert bytes_of(reply, protocol).startswith(head)
            assert bytes_of(Streams([*reply, *reply]), protocol)


def test_columns_say_what_the_rows_say() -> None:
    pick = random.Random(5)
    for _ in range(300):
        for part in random_entries(pick).parts:
            columns = part.columns()
            if columns is None:
                rows = part.rows()
                assert (
                    None in rows
                    or len({row[::2] for row in rows if row}) > 1
                    or isinstance(part, BlockPart)
                )
                continue
            texts, names, values = columns
            width = len(names)
            assert texts == [b"%d-%d" % (id >> 64, id & (1 << 64) - 1) for id in part.ids()]
            assert list(part.rows()) == [
                tuple(x for pair in zip(names, values[at : at + width], strict=True) for x in pair)
                for at in range(0, len(values), width)
            ]


def test_damage_is_told() -> None:
    data = bytearray(encode([1, 2], [(b"f", b"v"), (b"f", b"w")]))
    data[3] ^= 1
    part = BlockPart(Block(bytes(data), 2, 2), 0, 2, None)
    with pytest.raises(CorruptBlock):
        bytes_of(Streams([[b"s", Entries((part,), 2)]]), 2)


def test_names_of_clients_do_not_gather() -> None:
    for number in range(3000):
        name = b"name-%d" % number * (1 + number % 3 * 100)
        for size in range(20):
            bytes_of(Entries.of([(1, (name, b"x" * size))]), 2)
    kept = sum(map(len, module._fields.values()))
    assert kept <= module._HEADERS_MAX
    headers = [one for each in module._fields.values() for one in each]
    assert sum(map(len, headers)) <= module._HEADERS_MAX
    assert all(sum(map(len, names)) <= module._NAMES_BYTES_MAX for names in module._fields)
    assert bytes_of(Entries.of([(1, (b"f", b"v"))]), 2).endswith(b"$1\r\nf\r\n$1\r\nv\r\n")


# --- beside the real one

# Fields that 8.x shows and 7.0 does not (tests/oracle/differences.py has the list); and a figure without a meaning.
# fmt: off
NEWER = {
    b"idmp-duration", b"idmp-maxsize", b"pids-tracked", b"iids-tracked", b"iids-added", b"iids-duplicates",
    b"nacked-count", b"active-time", b"inactive",
}
# fmt: on


def as_before(reply: Reply) -> Reply:
    """A reply without what 7.0 did not have yet."""
    if isinstance(reply, Map):
        pairs = zip(reply[::2], reply[1::2], strict=True)
        return Map(x for k, v in pairs if k not in NEWER for x in (k, as_before(v)))
    if reply.__class__ is list:
        return [as_before(item) for item in reply]
    return reply


SCRIPT = r"""
PING
PING hello
ECHO text
SET k v
GET k
GET none
APPEND k more
GET k
MGET k none k
STRLEN k
XADD s 1-1 item tea amount 2
XADD s 1-2 item rice amount 1
XADD s 1-3 item tea
XADD s 2-0 item tea amount 2
XADD s 2-0 too small
XADD none NOMKSTREAM 1-1 f v
XLEN s
XRANGE s - +
XRANGE s - + COUNT 0
XRANGE s - + COUNT 2
XRANGE none - +
XREVRANGE s + -
XREVRANGE s + - COUNT 1
XREAD STREAMS s t 0 0
XREAD COUNT 1 STREAMS s 1-1
XREAD STREAMS s 9
XRANGE wide - + COUNT 3
XRANGE wide 0-150 0-390
XRANGE wide - +
XREVRANGE wide + -
XDEL wide 0-5 0-120 0-121 0-122 0-398 0-400
XRANGE wide - +
XREVRANGE wide 0-200 0-100
XREAD COUNT 250 STREAMS wide s 0-77 0
XTRIM wide MAXLEN 250
XRANGE wide - +
XGROUP CREATE s g 0
XGROUP CREATE s g 0
XGROUP CREATE wide w 0
XGROUP CREATECONSUMER s g idle
XREADGROUP GROUP g anna COUNT 2 STREAMS s >
XREADGROUP GROUP g anna STREAMS s 0
XREADGROUP GROUP g ben STREAMS s >
XREADGROUP GROUP g ben STREAMS s >
XREADGROUP GROUP w anna COUNT 130 STREAMS wide >
XREADGROUP GROUP w ben COUNT 10 STREAMS wide >
XREADGROUP GROUP w ben COUNT 1 NOACK STREAMS wide >
XPENDING s g
XPENDING s g - + 10
XPENDING s g - + 10 ben
XPENDING wide w IDLE 0 - + 40
XPENDING none g
XDEL s 1-1
XREADGROUP GROUP g anna STREAMS s 0
XCLAIM s g ben 0 1-2
XCLAIM s g ben 0 1-3 2-0 JUSTID
XAUTOCLAIM s g anna 0 0 COUNT 2
XAUTOCLAIM wide w anna 0 0 COUNT 5 JUSTID
XAUTOCLAIM wide w anna 0 - COUNT 12
XINFO STREAM s
XINFO STREAM s FULL
XINFO STREAM s FULL COUNT 1
XINFO GROUPS s
XINFO CONSUMERS s g
XINFO STREAM none
XACK s g 1-2 1-3 9-9
XPENDING s g
XGROUP CREATE empty g $ MKSTREAM
XPENDING empty g
XINFO STREAM empty
XINFO STREAM empty FULL
XRANGE empty - +
XREADGROUP GROUP none anna STREAMS s >
XGROUP DELCONSUMER s g ben
XGROUP DESTROY s g
XDEL s 1-2 7-7
XADD k 1-1 f v
TYPE s
EXISTS s k none
NOSUCH a b
XRANGE s
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[tuple[RedisServer, Clock]]:
    with real_redis() as both:
        yield both


@pytest.mark.parametrize("protocol", rest_slow((3, 2), 1))
def test_the_same_bytes_as_a_real_server(
    protocol: int, redis: tuple[RedisServer, Clock], tmp_path: Path
) -> None:
    server, clock = redis
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    ours = ManualClock(moment)
    with Raw(server) as raw, tidelog.open(tmp_path / "store", clock=ours) as db:

        def same(*args: bytes) -> None:
            clock.set(int(ours.now().timestamp() * 1000))
            theirs = raw.ask(wire.encode(args))
            reply, _ = inside.core(db).command(0, list(args))
            assert bytes_of(as_before(reply), protocol) == theirs, args

        raw.ask(wire.encode([b"FLUSHALL"]) + wire.encode([b"HELLO", b"%d" % protocol]))
        pick = random.Random(11)
        for number in range(1, 451):
            value = pick.randbytes(pick.choice((1, 5, 1100 if number % 50 == 0 else 9)))
            same(b"XADD", b"wide", b"0-%d" % number, b"f", value, b"g\r\n", b"%d" % number)
        for line in SCRIPT.split("\n"):
            if line:
                same(*line.encode().split())
                ours.advance(timedelta(milliseconds=3).total_seconds() if "XADD" in line else 0)
