"""`prepare` brings into memory the rows that apply then needs; it finds damage before anything changes."""

from __future__ import annotations

import pytest
from tests.engine.driver import Engine
from tests.engine.rows_in_memory import RowsInMemory

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import APPLY
from tidelog.engine.effects.effect import Effect
from tidelog.engine.effects.prepare import prepare
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.idlist import pack
from tidelog.engine.rowkeys import chunk_prefix
from tidelog.engine.streams.stream import Stream

WIDE = 5 << 64 | 1 << 22


@pytest.fixture
def cold() -> tuple[Engine, RowsInMemory]:
    """2,000 pending entries of two consumers, none of them in memory."""
    engine = Engine()
    for n in range(1, 2001):
        engine.raw("XADD", "s", f"{n}-0", "f", "v")
    engine.raw("XGROUP", "CREATE", "s", "g", "0")
    for n in range(20):
        engine.now += 1
        name = ("alice", "bob")[n % 2]
        engine.raw("XREADGROUP", "GROUP", "g", name, "COUNT", 100, "STREAMS", "s", ">")
    rows = RowsInMemory()
    group = engine.group()
    stream = engine.state.databases[0].keys[b"s"]
    assert isinstance(stream, Stream)
    number = stream.number
    rows.write(group.freeze().rows(number))
    group.evict(rows, number)
    assert group.pending.resident() == 0
    return engine, rows


def ids(*numbers: int) -> bytes | tuple[int, ...]:
    return pack([n << 64 for n in numbers])


NEW = 3000 << 64
UNITS: list[list[Effect]] = [
    [(e.XACK, 0, b"s", b"g", ids(5, 700, 701, 1999))],
    [(e.XACK, 0, b"s", b"g", ids(*range(101, 301)))],
    [(e.XACKDEL, 0, b"s", b"g", ids(5, 700, 701, 1999), (0, 4, 6, 99, 7, 0, 19, 98))],
    [(e.DELIVER, 0, b"s", b"g", b"bob", ids(5, 150, 1600), 1_000_005, 2, 1_000_030)],
    [(e.DELIVER, 0, b"s", b"g", b"carol", ids(*range(150, 350)), 5, 2, 1_000_030)],
    [(e.DELIVER, 0, b"s", b"g", b"bob", pack([NEW, NEW + 1]), 2_000_000, 1, 2_000_000)],
    [(e.DELIVER, 0, b"s", b"g", b"bob", pack([9 << 64, WIDE]), 2_000_000, 1, 2_000_000)],
    [(e.XNACK, 0, b"s", b"g", ids(1700, 3, 900), (1, 1, 1))],
    [(e.XGROUP_DELCONSUMER, 0, b"s", b"g", b"bob")],
    [
        (e.XACK, 0, b"s", b"g", ids(*range(64, 300))),
        (e.DELIVER, 0, b"s", b"g", b"bob", ids(*range(300, 400)), 1_000_002, 2, 1_000_030),
        (e.XNACK, 0, b"s", b"g", ids(401, 402), (1, 1)),
        (e.XGROUP_DELCONSUMER, 0, b"s", b"g", b"alice"),
    ],
    [(e.XACK, 0, b"s", b"none", ids(1)), (e.XACK, 0, b"none", b"g", ids(1))],
]


@pytest.mark.parametrize("unit", UNITS[:-1])
def test_apply_reads_nothing(cold: tuple[Engine, RowsInMemory], unit: list[Effect]) -> None:
    engine, rows = cold
    prepare(engine.state, unit)
    reads = rows.reads
    for effect in unit:
        APPLY[effect[0] & e.OPCODE](engine.state, effect)
    assert rows.reads == reads
    engine.group().pending.check()


@pytest.mark.parametrize(
    "unit", [UNITS[0], UNITS[1], UNITS[2], UNITS[3], UNITS[6], UNITS[7], UNITS[8]]
)
def test_damage_is_found_first(cold: tuple[Engine, RowsInMemory], unit: list[Effect]) -> None:
    engine, rows = cold
    stream = engine.state.databases[0].keys[b"s"]
    assert isinstance(stream, Stream)
    rows.delete_prefix(chunk_prefix(stream.number, engine.group().number))
    with pytest.raises(CorruptBlock, match="group 'g'"):
        prepare(engine.state, unit)
    assert len(engine.group().pending) == 2000


def test_what_is_not_there_is_passed_over(cold: tuple[Engine, RowsInMemory]) -> None:
    engine, rows = cold
    reads = rows.reads
    prepare(engine.state, UNITS[-1])
    assert rows.reads == reads


def test_what_is_new_and_what_follows_from_it_read_nothing(
    cold: tuple[Engine, RowsInMemory],
) -> None:
    engine, rows = cold
    reads = rows.reads
    for start in range(2001, 3001, 100):
        new = ids(*range(start, start + 100))
        unit: list[Effect] = [
            (e.DELIVER, 0, b"s", b"g", b"carol", new, 2_000_000 + start, 1, 2_000_000 + start),
            (e.XACK, 0, b"s", b"g", new),
        ]
        for effect in unit:
            prepare(engine.state, [effect])
            APPLY[effect[0]](engine.state, effect)
    assert rows.reads == reads
    assert engine.group().pending.orders.away


def test_nothing_is_away_once_all_of_it_is_acknowledged(cold: tuple[Engine, RowsInMemory]) -> None:
    engine, rows = cold
    assert engine.group().pending.orders.away
    for start in range(1, 2001, 80):
        unit: list[Effect] = [(e.XACK, 0, b"s", b"g", ids(*range(start, start + 80)))]
        prepare(engine.state, unit)
        APPLY[e.XACK](engine.state, unit[0])
    assert not engine.group().pending.orders.away
    assert rows.reads <= 3 * (2000 // 64 + 1 + 20)


@pytest.mark.parametrize("by_owner", [True, False])
def test_each_chunk_is_read_once(cold: tuple[Engine, RowsInMemory], by_owner: bool) -> None:
    engine, rows = cold
    prepare(engine.state, [(e.XACK, 0, b"s", b"g", ids(*range(1, 2001, 1 + by_owner)))])
    reads = rows.reads
    prepare(engine.state, [(e.XACK, 0, b"s", b"g", ids(*range(1, 2001)))])
    assert rows.reads == reads
    assert not engine.group().pending.orders.away
