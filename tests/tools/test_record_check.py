"""The quick look at many records finds exactly the faults that the look at each record finds."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest
from tests.rounds import rest_slow

from tidelog.aof.reading.reader import unpacker
from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.tools.aof.fields import KINDS
from tidelog.tools.aof.record_check import fault, opcodes_if_sound

SOUND: dict[str, Any] = {
    "d": 3,
    "b": b"orders",
    "u": 1 << 63,
    "n": -5,
    "r": (b"n", b"1"),
    "R": ((b"n", b"1"), ()),
    "B": ((2, b"sealed"),),
    "i": b"12345678",
    "s": (1, 2),
    "c": (1, 2, 3),
    "k": (b"a", b"b"),
}
STRANGE: tuple[Any, ...] = (
    None, True, False, {}, 0, 1, 15, 16, -1, 1 << 40, 1.5, b"", b"x", (), (b"a",), (b"a", b"b"), ((),), (1,), (b"a", 1),
)  # fmt: skip


def sound(opcode: int, kinds: str) -> Effect:
    return (opcode, *(SOUND[kind] for kind in kinds))


def read_back(records: list[Any]) -> list[Effect]:
    """The records as the log gives them."""
    unpack = unpacker()
    unpack.feed(b"".join(msgpack.packb(record, use_bin_type=False) for record in records))
    return list(unpack)


@pytest.mark.parametrize("opcode", KINDS)
def test_sound_records_of_each_kind(opcode: int) -> None:
    for kinds in KINDS[opcode]:
        records = read_back([sound(opcode, kinds)] * 20 + [sound(opcode | END, kinds)] * 20)
        assert opcodes_if_sound(records) == {opcode, opcode | END}
        assert not any(map(fault, records))


@pytest.mark.parametrize("seed", rest_slow(range(40), 8))
def test_both_looks_agree(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [(opcode, each) for opcode, found in KINDS.items() for each in found]
    for _ in range(60):
        chosen = [rng.choice(kinds) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
        records: list[Any] = [
            sound(opcode | rng.choice((0, END)), each)
            for opcode, each in (rng.choice(chosen) for _ in range(rng.choice((1, 7, 9, 40))))
        ]
        for _ in range(rng.choice((0, 1, 1, 2))):
            at = rng.randrange(len(records))
            record = [*records[at]]
            way = rng.randrange(6) if record else 0
            if way == 0:
                record.append(rng.choice(STRANGE))
            elif way == 1:
                record.pop()
            elif way == 2:
                record[0] = rng.choice((0, 1, True, 2.0, 63, OPCODE, 127, -3, b"x", None))
            else:
                record[rng.randrange(len(record))] = rng.choice(STRANGE)
            if way == 5 and type(record[0]) is int and 0 <= record[0] < 256:
                # Its bytes are what the numbers of a record would be.
                records[at] = bytes((record[0], *(rng.randrange(3) for _ in record[1:])))
            else:
                records[at] = tuple(record)
        found = read_back(records)
        opcodes = None if any(map(_fault, found)) else {record[0] for record in found}
        assert opcodes_if_sound(found) == opcodes, found


@pytest.mark.parametrize("count", [1, 20])
def test_byte_strings_are_no_records(count: int) -> None:
    """Also if the numbers of their bytes would be one."""
    for opcode, kinds in KINDS.items():
        for fields in kinds:
            told = read_back([bytes((opcode, *(1 for _ in fields)))] * count)
            assert opcodes_if_sound(told) is None, opcode


def _fault(record: Any) -> str:
    """As `fault`, for records that `records_of` refuses before they get there."""
    if type(record) is not tuple or not record or type(record[0]) is not int:
        return "no opcode"
    return fault(record)
