"""Tests that pending entries add up for whole columns just where they add up entry by entry."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest
from tests.engine.rows_in_memory import RowsInMemory
from tests.rounds import rest_slow

from tidelog.engine import rowkeys
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.groups.group import Group, load_group
from tidelog.engine.idlist import pack
from tidelog.snapshot.walk_pending import pending_adds_up

STREAM, GROUP = 3, 2


def made(rng: random.Random, wide: bool = False) -> RowsInMemory:
    """The rows of a group with a history."""
    group = Group(b"g", 0, 0, GROUP)
    first = ((1 << 60) if wide else 1000) << 64
    for n in range(rng.choice((0, 1, 3, 10))):
        run = [(first + (n << 64)) + i for i in range(rng.choice((1, 5, 100)))]
        group.deliver(b"c%d" % rng.randrange(3), pack(run), 5000 + n, 1, 5000 + n)
    held = [row[0] for row in group.pending.entries()]
    for _ in range(rng.randrange(4)):
        some = sorted(rng.sample(held, len(held) // 7))
        match rng.randrange(3):
            case 0:
                group.pending.remove(pack(some))
                held = [entry_id for entry_id in held if entry_id not in some]
            case 1:
                group.pending.nack(pack(some), 2)
            case _:
                group.deliver(b"c1", pack(some), rng.choice((4000, 5003, 6000)), 3, 7000)
    if rng.random() < 0.3 and group.consumers:
        group.drop_consumer(rng.choice(list(group.consumers)))
    rows = RowsInMemory()
    rows.write(group.freeze().rows(STREAM))
    return rows


def directory_of(rows: RowsInMemory) -> tuple[list[Any], list[Any]]:
    row = rows.get(rowkeys.group_row(STREAM, GROUP))
    assert row is not None
    unpacked = msgpack.unpackb(row)
    return unpacked, unpacked[4]


def both(rows: RowsInMemory) -> tuple[bool, bool]:
    """The result for the columns, and the result for the entries."""
    fast = pending_adds_up(rows, STREAM, GROUP, directory_of(rows)[1])
    try:
        load_group(rows, STREAM, GROUP).pending.check()
    except (AssertionError, CorruptBlock, ValueError, IndexError, OverflowError):
        return fast, False
    return fast, True


def changed(value: Any, rng: random.Random) -> Any:
    if isinstance(value, int):
        return max(value + rng.choice((-1, 1, 7)), 0)
    at = rng.randrange(len(value)) if value else 0
    match rng.randrange(3):
        case 0:
            return (
                value[:at]
                + bytes([(value[at] if value else 0) ^ 1 << rng.randrange(8)])
                + value[at + 1 :]
            )
        case 1:
            return value[:-8]
        case _:  # two values change places
            return value[8:16] + value[:8] + value[16:]


@pytest.mark.parametrize("seed", rest_slow(range(60), 10))
def test_columns_and_entries_agree(seed: int) -> None:
    rng = random.Random(seed)
    whole = made(rng)
    assert both(whole) == (True, True)
    chunks = [key for key, _ in whole.rows(rowkeys.chunk_prefix(STREAM, GROUP))]
    for _ in range(30):
        rows = whole.copy()
        if chunks and rng.random() < 0.7:
            key = rng.choice(chunks)
            row = msgpack.unpackb(rows.get(key) or b"")
            at = rng.randrange(len(row))
            row[at] = changed(row[at], rng)
            rows.put(key, None if rng.random() < 0.1 else msgpack.packb(row))
        else:
            group, directory = directory_of(rows)
            at = rng.choice((0, 2, 3, 5, 6, 7))
            if at < 5:
                directory[at] += rng.choice((-1, 1)) if at else 1
            else:
                order = directory[at] if at < 7 else rng.choice(directory[7])
                if order is not None:
                    within = rng.randrange(len(order))
                    order[within] = changed(order[within], rng)
            rows.put(rowkeys.group_row(STREAM, GROUP), msgpack.packb(group))
        fast, slow = both(rows)
        assert not fast or slow


def test_what_it_cannot_tell_does_not_add_up() -> None:
    rng = random.Random(1)
    rows = made(rng, wide=True)
    while not directory_of(rows)[1][0]:
        rows = made(rng, wide=True)
    assert both(rows) == (False, True)
