"""A state as Redis commands: each form, what is said to be lost, and that little is held at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.engine.driver import Engine
from tests.oracle.played import older_setid

from tidelog.engine.commands import rewrite as rewriting
from tidelog.engine.commands.rewrite import Kind, Lost, Target, commands_about, rewrite
from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.effect import XSETID
from tidelog.engine.errors import CommandError
from tidelog.engine.keys.state import State
from tidelog.engine.streams import block
from tidelog.engine.streams.block import Decoded
from tidelog.engine.streams.stream import Stream

ALWAYS = {Kind.SEEN_TIME, Kind.ACTIVE_TIME}  # lost wherever there is a consumer


@pytest.fixture
def engine() -> Engine:
    return Engine()


def lines(state: State, target: Target = Target.REDIS_8_8) -> list[str]:
    return [b" ".join(words).decode() for words in rewrite(state, Lost(), target)]


def lost(state: State, target: Target = Target.REDIS_8_8) -> dict[str, int]:
    found = Lost()
    for _ in rewrite(state, found, target):
        pass
    return {kind.value: n for (kind, _, _), n in found.counts.items() if kind not in ALWAYS}


def play(engine: Engine, text: str) -> None:
    for line in text.strip().split("\n"):
        reply = engine(line.strip())
        assert not str(reply).startswith("-"), reply


def test_an_empty_state_is_no_command() -> None:
    assert lines(State()) == []


def test_strings_and_databases(engine: Engine) -> None:
    play(engine, "SET b 1\nSET a two PXAT 2000000")
    engine.ctx.db = 3
    play(engine, "SET c x\nAPPEND c y")
    assert lines(engine.state) == [
        *("SELECT 0", "SET a two", "PEXPIREAT a 2000000", "SET b 1"),
        *("SELECT 3", "SET c xy"),
    ]
    assert not lost(engine.state)


def test_a_stream_with_all_there_is(engine: Engine) -> None:
    play(
        engine,
        """XADD s 1-0 f a
        XADD s 2-0 f b
        XADD s 2-1 f c
        XADD s 3-0 f d
        XDEL s 1-0
        XGROUP CREATE s h $ ENTRIESREAD 3
        XGROUP CREATE s g 0
        XGROUP CREATECONSUMER s g idle
        XREADGROUP GROUP g ben COUNT 1 STREAMS s >
        XREADGROUP GROUP g anna STREAMS s >
        XCLAIM s g anna 0 2-1 TIME 77 RETRYCOUNT 5
        XSETID s 9-9 ENTRIESADDED 40
        XCFGSET s IDMP-DURATION 60 IDMP-MAXSIZE 10
        XIDMPRECORD s p j 3-0
        XIDMPRECORD s p i 2-0
        XIDMPRECORD s a x 2-1
        PEXPIREAT s 2000000""",
    )
    assert lines(engine.state) == [
        "SELECT 0",
        "XADD s 2-0 f b",
        "XADD s 2-1 f c",
        "XADD s 3-0 f d",
        "XSETID s 9-9 ENTRIESADDED 40 MAXDELETEDID 1-0",
        "XGROUP CREATE s g 3-0 ENTRIESREAD 4",
        "XCLAIM s g anna 0 2-1 TIME 77 RETRYCOUNT 5 JUSTID FORCE",
        "XCLAIM s g anna 0 3-0 TIME 1000000 RETRYCOUNT 1 JUSTID FORCE",
        "XCLAIM s g ben 0 2-0 TIME 1000000 RETRYCOUNT 1 JUSTID FORCE",
        "XGROUP CREATECONSUMER s g idle",
        "XGROUP CREATE s h 3-0 ENTRIESREAD 3",
        "XCFGSET s IDMP-DURATION 60 IDMP-MAXSIZE 10",
        "XIDMPRECORD s a x 2-1",
        "XIDMPRECORD s p j 3-0",
        "XIDMPRECORD s p i 2-0",
        "PEXPIREAT s 2000000",
    ]
    assert lost(engine.state) == {"nodes": 1}  # the deleted slot of 1-0
    assert [line.split()[0] for line in lines(engine.state, Target.REDIS_7_0)][-2:] == [
        *("XGROUP", "PEXPIREAT"),
    ]
    assert lost(engine.state, Target.REDIS_7_0) == {"nodes": 1, "dedup": 4, "dedup-counters": 1}


def test_an_empty_stream_keeps_its_counters(engine: Engine) -> None:
    play(engine, "XADD s 5-5 f v\nXTRIM s MAXLEN 0")
    assert lines(engine.state) == [
        *("SELECT 0", "XADD s MAXLEN 0 0-1 x y"),
        "XSETID s 5-5 ENTRIESADDED 1 MAXDELETEDID 0-0",
    ]
    assert not lost(engine.state)


def test_released_entries_in_their_order_and_in_batches(engine: Engine) -> None:
    for n in range(1, 71):
        play(engine, f"XADD s {n} f v")
    play(engine, "XGROUP CREATE s g 0\nXREADGROUP GROUP g anna STREAMS s >")
    play(engine, "XNACK s g FAIL IDS 2 9 3")
    rest = [n for n in range(1, 71) if n not in (9, 3)]
    play(engine, f"XNACK s g FAIL IDS {len(rest)} {' '.join(map(str, rest))}")
    play(engine, "XNACK s g FATAL IDS 1 9")
    found = [line for line in lines(engine.state) if "NACK" in line]
    assert found[0].startswith("XNACK s g FAIL IDS 64 3-0 1-0 2-0 4-0 ")
    assert found[0].endswith(" 65-0 RETRYCOUNT 1 FORCE")
    assert found[1:] == [
        "XNACK s g FAIL IDS 5 66-0 67-0 68-0 69-0 70-0 RETRYCOUNT 1 FORCE",
        "XNACK s g FAIL IDS 1 9-0 RETRYCOUNT 9223372036854775807 FORCE",
    ]
    assert "XGROUP CREATECONSUMER s g anna" in lines(engine.state)
    old = lines(engine.state, Target.REDIS_7_0)
    assert "XCLAIM s g  0 9-0 TIME 0 RETRYCOUNT 9223372036854775807 JUSTID FORCE" in old
    assert lost(engine.state, Target.REDIS_7_0) == {"nacked": 70}


def test_iids_of_entries_ahead_of_the_clock_lose_their_times(engine: Engine) -> None:
    play(engine, "XADD s 9000000000000-0 f v\nXADD s IDMP p i * f v\nXADD s IDMP p j * f v")
    assert lost(engine.state) == {"dedup-times": 2}
    assert lost(engine.state, Target.REDIS_7_0) == {"dedup": 2, "dedup-counters": 1}


def test_what_is_gone_is_counted_by_kind_and_key(engine: Engine) -> None:
    play(
        engine,
        """XADD s IDMP p i * f v
        XADD s IDMP p i * f v
        XADD s IDMP p j * f v
        XGROUP CREATE s g 0
        XREADGROUP GROUP g anna STREAMS s >
        XNACK s g FAIL IDS 1 1000000-1
        XTRIM s MAXLEN 0
        XGROUP CREATE s h 0 ENTRIESREAD 2""",
    )
    (stream,) = engine.state.databases[0].keys.values()
    assert isinstance(stream, Stream)
    _, db, key, *last, _, deleted_ms, deleted_seq = older_setid(0, b"s", stream)
    apply(engine.state, (XSETID, db, key, *last, 1, deleted_ms, deleted_seq))
    assert lost(engine.state) == {
        "pending-gone": 2,
        "dedup-gone": 2,
        "dedup-counters": 1,
        "entries-read": 2,
    }
    assert lost(engine.state, Target.REDIS_7_0) == {
        "pending-gone": 2,
        "dedup": 2,
        "dedup-counters": 1,
    }
    # 7.0 would not make a consumer for a claim that takes nothing.
    assert lines(engine.state)[-3:-1] == [
        *("XGROUP CREATE s g 1000000-1 ENTRIESREAD 2", "XGROUP CREATECONSUMER s g anna"),
    ]
    found = Lost()
    assert not found
    list(rewrite(engine.state, found))
    assert found
    assert found.of(Kind.PENDING_GONE) == {(0, b"s"): 2}
    assert found.of(Kind.SEEN_TIME) == {(0, b"s"): 1}
    assert found.of(Kind.NODES) == {}


def test_every_kind_is_told_in_words() -> None:
    assert all(kind.told for kind in Kind)


@pytest.mark.parametrize("entries", [99, 100, 101, 350])
def test_nodes_of_the_default_limits_are_not_lost(engine: Engine, entries: int) -> None:
    for n in range(1, entries + 1):
        play(engine, f"XADD s {n} f {'w' * (n % 90 + 1)}")
    assert not lost(engine.state)
    play(engine, "XTRIM s MAXLEN ~ 120")
    assert not lost(engine.state)


def test_nodes_of_other_limits_are_lost(engine: Engine) -> None:
    engine.ctx.settings.stream_node_max_entries = 4
    for n in range(1, 11):
        play(engine, f"XADD s {n} f v")
    assert lost(engine.state) == {"nodes": 2}  # 1-4 becomes longer; 5-8 and 9-10 go into it


def test_a_large_stream_is_never_held_whole(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(1, 2001):
        play(engine, f"XADD s {n} f v")
    play(engine, "XGROUP CREATE s g 0\nXREADGROUP GROUP g anna STREAMS s >")
    block._cache.clear()
    decoded = 0
    real: Callable[[Decoded, bytes], None] = Decoded.__init__

    def counted(self: Decoded, data: bytes) -> None:
        nonlocal decoded
        decoded += 1
        real(self, data)

    monkeypatch.setattr(Decoded, "__init__", counted)
    made = rewrite(engine.state)
    for _ in range(250):
        next(made)
    assert 1 <= decoded <= 3
    pages: list[int] = []
    pending = engine.group().pending
    page = type(pending).page

    def watched(self: object, start: int, end: int, count: int, owner: int) -> object:
        found = page(pending, start, end, count, owner)
        pages.append(len(found))
        return found

    monkeypatch.setattr(type(pending), "page", watched)
    assert sum(1 for words in made if words[0] == b"XCLAIM") == 2000
    assert pages == [rewriting.PENDING_PER_PAGE, 2000 - rewriting.PENDING_PER_PAGE]


def test_pending_entries_at_the_end_of_a_page(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "PENDING_PER_PAGE", 2)
    top = (1 << 64) - 1
    for id in ("1", "2", "3", f"{top}-{top}"):
        play(engine, f"XADD s {id} f v")
    play(engine, "XGROUP CREATE s g 0\nXREADGROUP GROUP g anna STREAMS s >")
    claimed = [line.split()[5] for line in lines(engine.state) if line.startswith("XCLAIM")]
    assert claimed == ["1-0", "2-0", "3-0", f"{top}-{top}"]


def test_about_as_many_commands(engine: Engine) -> None:
    play(engine, "SET a 1\nXADD s 1 f v\nXADD s 2 f v\nXGROUP CREATE s g 0")
    play(engine, "XREADGROUP GROUP g anna COUNT 1 STREAMS s >")
    assert commands_about(engine.state) == 6
    assert len(lines(engine.state)) == 7


# --- as the log, and back


def fed(commands: Iterator[list[bytes]], now: int) -> Engine:
    """An engine that was sent these commands."""
    engine = Engine()
    engine.now = now
    for words in commands:
        if words[0] == b"SELECT":
            engine.ctx.db = int(words[1])
            continue
        try:
            engine.raw(*words)
        except CommandError as refused:
            pytest.fail(f"{words} is refused: {refused.line!r}")
    return engine


def test_what_was_rewritten_is_rewritten_the_same(engine: Engine) -> None:
    play(engine, "XADD s 1-0 f a\nXADD s 2-0 f b\nXADD s 3-0 f c\nXGROUP CREATE s g 0")
    play(engine, "XREADGROUP GROUP g anna STREAMS s >\nXNACK s g FAIL IDS 2 3-0 1-0\nXDEL s 2-0")
    play(engine, "XADD empty 7-7 f v\nXTRIM empty MAXLEN 0\nSET x 1 PXAT 2000000")
    again = fed(rewrite(engine.state), engine.now)
    again.check()
    assert lines(again.state) == lines(engine.state)
