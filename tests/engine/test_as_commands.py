"""Every effect in its form as Redis commands, and what a real Redis makes of them."""

from collections.abc import Iterable

import pytest

from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.as_commands import commands, database, keys
from tidelog.engine.effects.effect import END, Effect
from tidelog.engine.streams.block import encode_run

ROW = (b"f", b"v", b"g", b"w")


def ids(*pairs: tuple[int, int]) -> idlist.IdList:
    return idlist.pack([ms << 64 | seq for ms, seq in pairs])


def lines(effect: Effect) -> list[str]:
    return [" ".join(map(word, command)) for command in commands(effect)]


def word(arg: bytes) -> str:
    return arg.decode("latin-1") if arg.isascii() and arg.isalnum() else str(arg)[2:-1]


# fmt: off
FORMS: list[tuple[Effect, list[str]]] = [
    ((e.EPOCH, 3, 12345), []),
    ((e.XADD, 0, b"k", 5, 1, ROW), ["XADD k 5-1 f v g w"]),
    ((e.XADD_NODE, 0, b"k", 5, 1, ROW), ["XADD k 5-1 f v g w"]),
    ((e.XADD_IDMP, 0, b"k", 5, 1, ROW, 1, b"p", b"i"), ["XADD k 5-1 f v g w", "XIDMPRECORD k p i 5-1"]),
    ((e.XADD_IDMP, 0, b"k", 5, 1, ROW, 1, b"p", b"i", 4), ["XADD k 5-1 f v g w", "XIDMPRECORD k p i 5-1"]),
    ((e.XADD_MANY, 0, b"k", 5, 7, [ROW, (b"a", b"b")], (), [(b"c", b"d")]),
        ["XADD k 5-7 f v g w", "XADD k 5-8 a b", "XADD k 5-9 c d"]),
    ((e.XREOPEN, 0, b"k", ids((5, 1)), [ROW], 0), []),
    ((e.XTRIM, 0, b"k", 8, 3, 0, 3, (), b""), ["XTRIM k MAXLEN = 8"]),
    ((e.XTRIM, 0, b"k", 8, 2, 0, 0, (1, 0, 1, 3), ids((5, 1), (5, 4))), ["XTRIM k MINID = 5-5 ACKED"]),
    ((e.XTRIM, 0, b"k", 8, 1, 0, 0, (1, 0), ids((2**64 - 1, 2**64 - 1))), ["XTRIM k MAXLEN = 8 ACKED"]),
    ((e.XDEL, 0, b"k", ids((5, 1), (6, 0)), (1, 0, 1, 1)), ["XDEL k 5-1 6-0"]),
    ((e.XSETID, 0, b"k", 9, 2, 100, 5, 1), ["XSETID k 9-2 ENTRIESADDED 100 MAXDELETEDID 5-1"]),
    ((e.XCFGSET, 0, b"k", 60, 10), ["XCFGSET k IDMP-DURATION 60 IDMP-MAXSIZE 10"]),
    ((e.XIDMPRECORD, 0, b"k", b"p", b"i", 5, 1), ["XIDMPRECORD k p i 5-1"]),
    ((e.XIDMPRECORD, 0, b"k", b"p", b"i", 5, 1, 4), ["XIDMPRECORD k p i 5-1"]),
    ((e.XIDMPRECORD, 0, b"k", b"p", b"i", 5, 1, 1), []),
    ((e.XIDMPRECORD, 0, b"k", b"p", b"i", 5, 1, (1 << 48) - 1), []),
    ((e.IDMP_DUPLICATE, 0, b"k", b"p", b"i"), []),
    ((e.STREAM_CREATE, 0, b"k"),
        ["XADD k MAXLEN 0 0-1 x y", "XSETID k 0-0 ENTRIESADDED 0 MAXDELETEDID 0-0"]),
    ((e.XGROUP_CREATE, 0, b"k", b"g", 5, 1, -1), ["XGROUP CREATE k g 5-1 ENTRIESREAD -1"]),
    ((e.XGROUP_SETID, 0, b"k", b"g", 5, 1, 7), ["XGROUP SETID k g 5-1 ENTRIESREAD 7"]),
    ((e.XGROUP_DESTROY, 0, b"k", b"g"), ["XGROUP DESTROY k g"]),
    ((e.XGROUP_CREATECONSUMER, 0, b"k", b"g", b"c", 1000), ["XGROUP CREATECONSUMER k g c"]),
    ((e.XGROUP_DELCONSUMER, 0, b"k", b"g", b"c"), ["XGROUP DELCONSUMER k g c"]),
    ((e.DELIVER, 0, b"k", b"g", b"c", ids((5, 1), (5, 2)), 1000, 1, 1000, 5, 2, 2),
        ["XCLAIM k g c 0 5-1 TIME 1000 RETRYCOUNT 1 FORCE JUSTID LASTID 5-2",
         "XCLAIM k g c 0 5-2 TIME 1000 RETRYCOUNT 1 FORCE JUSTID LASTID 5-2",
         "XGROUP SETID k g 5-2 ENTRIESREAD 2"]),
    ((e.DELIVER, 0, b"k", b"g", b"c", ids((5, 1), (5, 2)), 1000, (3, 9), -1),
        ["XCLAIM k g c 0 5-1 TIME 1000 RETRYCOUNT 3 FORCE JUSTID",
         "XCLAIM k g c 0 5-2 TIME 1000 RETRYCOUNT 9 FORCE JUSTID"]),
    ((e.DELIVER, 0, b"k", b"g", b"c", b"", 1000, 1, 1000, 5, 2, 2),
        ["XGROUP CREATECONSUMER k g c", "XGROUP SETID k g 5-2 ENTRIESREAD 2"]),
    ((e.XACK, 0, b"k", b"g", ids((5, 1), (5, 2))), ["XACK k g 5-1 5-2"]),
    ((e.XNACK, 0, b"k", b"g", ids((5, 1), (5, 2)), 4), ["XNACK k g FAIL IDS 2 5-1 5-2 RETRYCOUNT 4 FORCE"]),
    ((e.XNACK, 0, b"k", b"g", ids((5, 1), (5, 2), (5, 3)), (4, 4, 0)),
        ["XNACK k g FAIL IDS 2 5-1 5-2 RETRYCOUNT 4 FORCE", "XNACK k g FAIL IDS 1 5-3 RETRYCOUNT 0 FORCE"]),
    ((e.XACKDEL, 0, b"k", b"g", ids((5, 1), (6, 0)), (1, 0, 1, 1)), ["XACK k g 5-1 6-0", "XDEL k 5-1 6-0"]),
    ((e.DEL, 0, (b"k", b"l")), ["DEL k l"]),
    ((e.SET, 0, b"k", b"v", -1), ["SET k v"]),
    ((e.SET, 0, b"k", b"v", 1700), ["SET k v PXAT 1700"]),
    ((e.PEXPIREAT, 0, b"k", 1700), ["PEXPIREAT k 1700"]),
    ((e.PERSIST, 0, b"k"), ["PERSIST k"]),
    ((e.RENAME, 0, b"k", b"l"), ["RENAME k l"]),
    ((e.COPY, 0, b"k", 3, b"l"), ["COPY k l DB 3 REPLACE"]),
    ((e.MOVE, 0, b"k", 3), ["MOVE k 3"]),
    ((e.SWAPDB, 0, 1), ["SWAPDB 0 1"]),
    ((e.FLUSHDB, 2), ["FLUSHDB"]),
    ((e.FLUSHALL,), ["FLUSHALL"]),
    ((e.APPEND, 0, b"k", b"v"), ["APPEND k v"]),
    ((e.RESTORE, 0, b"k", 0, b"\x01x", -1),
        [r"RESTORE k 0 \x00\x01x\t\x00\xf2r\xd7\x93\xe9n+a REPLACE ABSTTL"]),
    ((e.RESTORE, 0, b"k", 0, b"\x01x", 1700),
        [r"RESTORE k 1700 \x00\x01x\t\x00\xf2r\xd7\x93\xe9n+a REPLACE ABSTTL"]),
    ((e.SEEN, 0, b"k", b"g", b"c", 1000), []),
]
# fmt: on


def opcodes() -> set[int]:
    masks = {"END", "OPCODE", "VOLATILE"}
    return {
        value
        for name, value in vars(e).items()
        if name.isupper() and name not in masks and isinstance(value, int)
    }


def test_the_table_has_every_opcode() -> None:
    assert {effect[0] for effect, _ in FORMS} == opcodes()


@pytest.mark.parametrize(("effect", "expected"), FORMS)
def test_form(effect: Effect, expected: list[str]) -> None:
    assert lines(effect) == expected


@pytest.mark.parametrize("effect", [effect for effect, _ in FORMS])
def test_the_end_of_a_unit_changes_nothing(effect: Effect) -> None:
    ended = (effect[0] | END, *effect[1:])
    assert commands(ended) == commands(effect)
    assert (database(ended), keys(ended)) == (database(effect), keys(effect))


# fmt: off
@pytest.mark.parametrize(("effect", "db", "named"), [
    ((e.EPOCH, 3, 12345), None, ()),
    ((e.XADD, 4, b"k", 5, 1, ROW), 4, (b"k",)),
    ((e.DEL, 1, (b"k", b"l")), 1, (b"k", b"l")),
    ((e.RENAME, 1, b"k", b"l"), 1, (b"k", b"l")),
    ((e.COPY, 1, b"k", 3, b"l"), 1, (b"k", b"l")),
    ((e.MOVE, 1, b"k", 3), 1, (b"k",)),
    ((e.SWAPDB, 0, 1), None, ()),
    ((e.FLUSHDB, 2), 2, ()),
    ((e.FLUSHALL,), None, ()),
])
# fmt: on
def test_database_and_keys(effect: Effect, db: int | None, named: Iterable[bytes]) -> None:
    assert database(effect) == db
    assert keys(effect) == named


def test_many_entries_with_sealed_nodes_come_in_id_order() -> None:
    sealed = encode_run(5, 1, 2, [b"f"], [b"b", b"c"])
    effect = (e.XADD_MANY, 0, b"k", 5, 0, [(b"f", b"a")], ((2, sealed),), [(b"f", b"d")])
    assert lines(effect) == ["XADD k 5-0 f a", "XADD k 5-1 f b", "XADD k 5-2 f c", "XADD k 5-3 f d"]


def test_wide_ids() -> None:
    top = (1 << 64) - 1
    effect = (e.XDEL, 0, b"k", ids((top, top)), (1, 0))
    assert lines(effect) == [f"XDEL k {top}-{top}"]
