"""Keyspace events of each effect, row by row; tests/oracle/test_events.py compares them with a real server."""

from __future__ import annotations

import pytest
from tests.engine.driver import Engine

from tidelog.engine.commands.execute import decide, expire_due
from tidelog.engine.commands.streams.add import decide_xadd_many
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.effect import END, Effect
from tidelog.engine.effects.events import _EVENTS, Event, Notifications, events


class Told(Engine):
    """An engine with the events of its last command, as `class event key` (`key@db` outside of database 0)."""

    def run(self, line: str) -> list[str]:
        self.ctx.now, self.ctx.effects = self.now, []
        decide(self.ctx, line.encode().split())
        return self.applied(self.ctx.effects)

    def applied(self, effects: list[Effect]) -> list[str]:
        seen: list[Event] = []
        for effect in effects:
            seen += events(effect, self.state, self.now)
            apply(self.state, effect)
        return [
            f"{letter} {name.decode()} {key.decode()}" + (f"@{db}" if db else "")
            for letter, name, db, key in seen
        ]


# Each line in a store of its own, after the lines before the last `;`: what the last one tells.
# fmt: off
ROWS = [
    ("XADD s 1-1 f v",                                        ["n new s", "t xadd s"]),
    ("XADD s 1-1 f v; XADD s 2-1 f v",                        ["t xadd s"]),
    ("XADD s MAXLEN 0 1-1 f v",                               ["n new s", "t xadd s", "t xtrim s"]),
    ("XADD s NOMKSTREAM 1-1 f v",                             []),
    ("XADD s IDMP p i * f v",                                 ["n new s", "t xadd s"]),
    ("XADD s IDMP p i * f v; XADD s IDMP p i * f v",          []),
    ("XADD s 1-1 f v; XTRIM s MAXLEN 0",                      ["t xtrim s"]),
    ("XADD s 1-1 f v; XTRIM s MAXLEN 5",                      []),
    ("XADD s 1-1 f v; XDEL s 1-1 1-1 7-7",                    ["t xdel s"]),
    ("XADD s 1-1 f v; XDEL s 7-7",                            []),
    ("XADD s 1-1 f v; XDELEX s IDS 1 1-1",                    ["t xdel s"]),
    ("XADD s 1-1 f v; XSETID s 5-5",                          ["t xsetid s"]),
    ("XADD s 1-1 f v; XCFGSET s IDMP-DURATION 5",             []),
    ("XGROUP CREATE s g $ MKSTREAM",                          ["n new s", "t xgroup-create s"]),
    ("XADD s 1-1 f v; XGROUP CREATE s g 0",                   ["t xgroup-create s"]),
    ("XGROUP CREATE s g $ MKSTREAM; XGROUP SETID s g 0",      ["t xgroup-setid s"]),
    ("XGROUP CREATE s g $ MKSTREAM; XGROUP DESTROY s g",      ["t xgroup-destroy s"]),
    ("XGROUP CREATE s g $ MKSTREAM; XGROUP DESTROY s h",      []),
    ("XGROUP CREATE s g $ MKSTREAM; XGROUP CREATECONSUMER s g c", ["t xgroup-createconsumer s"]),
    ("XGROUP CREATE s g $ MKSTREAM; XGROUP CREATECONSUMER s g c; XGROUP CREATECONSUMER s g c", []),
    ("XGROUP CREATE s g $ MKSTREAM; XGROUP CREATECONSUMER s g c; XGROUP DELCONSUMER s g c",
     ["t xgroup-delconsumer s"]),
    ("XGROUP CREATE s g $ MKSTREAM; XREADGROUP GROUP g c STREAMS s >", ["t xgroup-createconsumer s"]),
    ("XGROUP CREATE s g 0 MKSTREAM; XADD s 1-1 f v; XREADGROUP GROUP g c STREAMS s >",
     ["t xgroup-createconsumer s"]),
    ("XGROUP CREATE s g 0 MKSTREAM; XADD s 1-1 f v; XREADGROUP GROUP g c STREAMS s >; XADD s 1-2 f v;"
     "XREADGROUP GROUP g c STREAMS s >", []),
    ("XGROUP CREATE s g 0 MKSTREAM; XADD s 1-1 f v; XREADGROUP GROUP g c STREAMS s >; XCLAIM s g d 0 1-1",
     ["t xgroup-createconsumer s"]),
    ("XGROUP CREATE s g 0 MKSTREAM; XADD s 1-1 f v; XREADGROUP GROUP g c STREAMS s >; XCLAIM s g c 0 1-1", []),
    ("XGROUP CREATE s g 0 MKSTREAM; XADD s 1-1 f v; XREADGROUP GROUP g c STREAMS s >; XACK s g 1-1", []),
    ("XGROUP CREATE s g 0 MKSTREAM; XADD s 1-1 f v; XREADGROUP GROUP g c STREAMS s >; XNACK s g FAIL IDS 1 1-1", []),
    ("XGROUP CREATE s g 0 MKSTREAM; XADD s 1-1 f v; XREADGROUP GROUP g c STREAMS s >; XACKDEL s g IDS 1 1-1",
     ["t xdel s"]),
    ("SET a 1",                                               ["n new a", "$ set a"]),
    ("SET a 1; SET a 2",                                      ["o overwritten a", "$ set a"]),
    ("XADD a 1-1 f v; SET a 2",                               ["o overwritten a", "c type_changed a", "$ set a"]),
    ("SET a 1 EX 5",                                          ["n new a", "$ set a", "g expire a"]),
    ("SET a 1 EX 5; SET a 2 KEEPTTL",                         ["o overwritten a", "$ set a"]),
    ("SET a 1 EX 5; SET a 2 EX 6",                            ["o overwritten a", "$ set a", "g expire a"]),
    ("SET a 1 NX; SET a 2 NX",                                []),
    ("MSET a 1 b 2",                                          ["n new a", "$ set a", "n new b", "$ set b"]),
    ("APPEND a x",                                            ["n new a", "$ append a"]),
    ("APPEND a x; APPEND a x",                                ["$ append a"]),
    ("SET a 1; GETDEL a",                                     ["g del a"]),
    ("SET a 1; GETEX a EX 5",                                 ["g expire a"]),
    ("SET a 1 EX 5; GETEX a PERSIST",                         ["g persist a"]),
    ("SET a 1; SET b 1; DEL a c b",                           ["g del a", "g del b"]),
    ("SET a 1; UNLINK a",                                     ["g del a"]),
    ("SET a 1; EXPIRE a 5",                                   ["g expire a"]),
    ("SET a 1; EXPIRE a -5",                                  ["g del a"]),
    ("SET a 1 EX 5; PERSIST a",                               ["g persist a"]),
    ("SET a 1; RENAME a b",                                   ["n new b", "g rename_from a", "g rename_to b"]),
    ("SET a 1; SET b 1; RENAME a b",
     ["n new b", "g rename_from a", "g rename_to b", "o overwritten b"]),
    ("SET a 1; XADD b 1-1 f v; RENAME a b",
     ["n new b", "g rename_from a", "g rename_to b", "o overwritten b", "c type_changed b"]),
    ("SET a 1; COPY a b",                                     ["n new b", "g copy_to b"]),
    ("XADD a 1-1 f v; COPY a b DB 3",                         ["n new b@3", "g copy_to b@3"]),
    ("SET a 1; XADD b 1-1 f v; COPY a b REPLACE",
     ["n new b", "g copy_to b", "o overwritten b", "c type_changed b"]),
    ("SET a 1; MOVE a 2",                                     ["n new a@2", "g move_from a", "g move_to a@2"]),
    ("SET a 1; FLUSHALL",                                     []),
    ("SET a 1; FLUSHDB",                                      []),
    ("SET a 1; SWAPDB 0 1",                                   []),
]
# fmt: on


@pytest.mark.parametrize(("lines", "told"), ROWS)
def test_what_a_command_tells(lines: str, told: list[str]) -> None:
    engine = Told()
    *before, last = lines.split(";")
    for line in before:
        engine.run(line)
    assert engine.run(last) == told


def test_entries_added_together_are_told_one_by_one() -> None:
    engine = Told()
    engine.ctx.now = engine.now
    engine.ctx.effects = []
    decide_xadd_many(engine.ctx, b"s", [{b"f": b"v"}] * 250)
    assert engine.applied(engine.ctx.effects) == ["n new s", *(["t xadd s"] * 250)]


def test_a_key_whose_time_has_passed_expires() -> None:
    engine = Told()
    for key in "abc":
        engine.run(f"SET {key} 1 PX 10")
    engine.now += 10
    assert engine.run("DEL a") == ["g del a"]  # in its last millisecond
    engine.now += 1
    assert engine.run("SET b 2") == ["x expired b", "n new b", "$ set b"]
    engine.ctx.now, engine.ctx.effects = engine.now, []
    expire_due(engine.ctx, 10)
    assert engine.applied(engine.ctx.effects) == ["x expired c"]


def test_an_xsetid_that_lowers_what_a_group_has_read_is_one_event() -> None:
    engine = Told()
    for line in ("XADD s 1-1 f v", "XADD s 1-2 f v", "XGROUP CREATE s g 0"):
        engine.run(line)
    engine.run("XREADGROUP GROUP g c STREAMS s >")
    engine.run("XTRIM s MAXLEN 0")
    assert engine.run("XSETID s 1-2 ENTRIESADDED 1") == ["t xsetid s"]
    assert engine.run("XGROUP SETID s g 1-2 ENTRIESREAD 1") == ["t xgroup-setid s"]


def test_the_mark_of_a_units_end_is_no_part_of_the_event() -> None:
    engine = Told()
    engine.run("XADD s 1-1 f v")
    for opcode in (e.XADD, e.XADD | END):
        assert events((opcode, 0, b"s", 1, 2, ()), engine.state, engine.now) == [
            ("t", b"xadd", 0, b"s")
        ]


def test_every_opcode_has_been_thought_of() -> None:
    silent = {
        e.EPOCH, e.XREOPEN, e.XCFGSET, e.XIDMPRECORD, e.IDMP_DUPLICATE, e.XACK, e.XNACK, e.SWAPDB, e.FLUSHDB,
        e.FLUSHALL, e.SEEN,
    }  # fmt: skip
    opcodes = {
        value
        for name, value in vars(e).items()
        if isinstance(value, int) and name not in ("END", "OPCODE", "VOLATILE")
    }
    assert not silent & _EVENTS.keys()
    assert silent | _EVENTS.keys() == opcodes


@pytest.mark.parametrize(
    ("flags", "shown"),
    [  # what redis-server 7.0 shows after CONFIG SET, but for AnKE: see there. o and c stand where 8.2 has them
        ("", ""), ("KEA", "AKE"), ("AKE", "AKE"), ("KEg", "gKE"), ("$lshzxetdmnKE", "$lshzxetdnKEm"),
        ("AKEn", "AnKE"), ("AKEm", "AKEm"), ("gxE", "gxE"), ("K", "K"), ("g$lshzxetd", "A"), ("nmd", "dnm"),
        ("cotKK", "tocK"),
    ],
)  # fmt: skip
def test_flags_are_shown_as_redis_shows_them(flags: str, shown: str) -> None:
    assert str(Notifications(flags)) == shown


@pytest.mark.parametrize("flags", ["q", "Kq", "KE A", "é", "k"])
def test_an_unknown_flag_is_refused(flags: str) -> None:
    with pytest.raises(
        ValueError, match=r"^Invalid event class character\. Use 'Ag\$lshzxeKEtmdnoc'\.$"
    ):
        Notifications(flags)


def test_what_is_published_where() -> None:
    event: Event = ("t", b"xadd", 3, b"s:1")
    space, keyevent = (b"__keyspace@3__:s:1", b"xadd"), (b"__keyevent@3__:xadd", b"s:1")
    assert Notifications("AKE").messages(event) == [space, keyevent]
    assert Notifications("Kt").messages(event) == [space]
    assert Notifications("EA").messages(event) == [keyevent]
    assert Notifications("Eg").messages(event) == []
    assert Notifications("At").messages(event) == []
    new: Event = ("n", b"new", 0, b"s")
    assert Notifications("AE").messages(new) == []  # A is not all
    assert Notifications("nE").messages(new) == [(b"__keyevent@0__:new", b"s")]


def test_whether_anything_is_wanted() -> None:
    wanted = {flags: Notifications(flags).wanted for flags in ("", "K", "A", "KA", "En", "KE")}
    assert wanted == {"": False, "K": False, "A": False, "KA": True, "En": True, "KE": False}
