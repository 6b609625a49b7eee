"""XADD, XTRIM, XDEL, XDELEX, XSETID, XCFGSET, XIDMPRECORD, XRANGE: rules and error texts of spec 5 and 6.

The oracle compares answers that a 7.0 server can give. Here: later rules, the order of checks, and the traps of 20.1.
"""

from __future__ import annotations

import pytest
from tests.engine.driver import Engine

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.streams.add import decide_xadd_many, to_bytes
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.streams.idmp import auto_iid

TOP = "18446744073709551615"


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    engine.ctx.settings.stream_node_max_entries = 4
    return engine


def fill(engine: Engine, count: int) -> None:
    for seq in range(1, count + 1):
        assert engine(f"XADD s 1-{seq} f {seq}") == f"1-{seq}"


def left(engine: Engine) -> list[str]:
    return [entry_id.partition("-")[2] for entry_id, _ in engine("XRANGE s - +")]


# fmt: off
XADD_ERRORS = [
    ("XADD s MAXLEN 5 MINID 1 * f v",
     "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"),
    ("XADD s MAXLEN x * f v", "ERR value is not an integer or out of range"),
    ("XADD s MAXLEN -1 * f v", "ERR The MAXLEN argument must be >= 0."),
    ("XADD s MAXLEN ~ 5 LIMIT -1 * f v", "ERR The LIMIT argument must be >= 0."),
    ("XADD s MAXLEN ~ 5 LIMIT +1 * f v", "ERR value is not an integer or out of range"),
    ("XADD s IDMP p i IDMPAUTO p * f v", "ERR syntax error, IDMP/IDMPAUTO specified multiple times"),
    ("XADD s IDMP p i 1-1 f v", "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"),
    ("XADD s LIMIT 3 * f v", "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
    ("XADD s LIMIT 0 * f v", "ERR syntax error, LIMIT cannot be used without the special ~ option"),
    ("XADD s MAXLEN = 5 LIMIT 3 * f v", "ERR syntax error, LIMIT cannot be used without the special ~ option"),
    ("XADD s * f v g", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD s NOMKSTREAM 5-1 f", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD s 0-0 f v", "ERR The ID specified in XADD must be greater than 0-0"),
    ("XADD text 0-0 f v", "ERR The ID specified in XADD must be greater than 0-0"),
    ("XADD text * f v", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("XADD text NOMKSTREAM * f v", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("XADD s MAXLAN 5 * f v", "ERR Invalid stream ID specified as stream command argument"),
    ("XADD s KEEPREF ACKED * f v", "ERR Invalid stream ID specified as stream command argument"),
    ("XADD s MAXLEN ~ * f v", "ERR value is not an integer or out of range"),
]
# fmt: on


@pytest.mark.parametrize(("line", "error"), XADD_ERRORS)
def test_xadd_refuses(engine: Engine, line: str, error: str) -> None:
    engine("SET text x")
    assert engine(line) == f"-{error}"
    assert engine.ctx.effects == []
    assert engine("EXISTS s") == 0


@pytest.mark.parametrize("option", ["IDMPAUTO", "IDMP"])
def test_empty_producer(engine: Engine, option: str) -> None:
    more = [b"i"] if option == "IDMP" else []
    error = f"-ERR syntax error, {option} requires a non-empty producer ID"
    assert engine(f"XADD s {option}", b"", *more, "*", "f", "v") == error


def test_empty_iid(engine: Engine) -> None:
    error = "-ERR syntax error, IDMP requires a non-empty idempotent ID"
    assert engine("XADD s IDMP p", b"", "*", "f", "v") == error


def test_generated_ids(engine: Engine) -> None:
    engine.now = 100
    assert engine("XADD s * f v") == "100-0"
    assert engine("XADD s * f v") == "100-1"
    engine.now = 50
    assert engine("XADD s * f v") == "100-2"
    assert engine("XADD s 100-* f v") == "100-3"
    assert engine("XADD s 200-* f v") == "200-0"
    assert engine("XADD s 300 f v") == "300-0"
    assert engine("XADD other 0-* f v") == "0-1"
    small = "-ERR The ID specified in XADD is equal or smaller than the target stream top item"
    assert engine("XADD s 300-0 f v") == small
    assert engine("XADD s 299-* f v") == small
    engine(f"XADD s 300-{TOP} f v")
    assert engine("XADD s 300-* f v") == small
    assert engine("XADD s * f v") == "301-0"
    engine(f"XADD s {TOP}-{TOP} f v")
    full = "-ERR The stream has exhausted the last possible ID, unable to add more items"
    assert engine("XADD s * f v") == full
    assert engine("XADD s 1-1 f v") == full
    engine.check()


def test_nomkstream(engine: Engine) -> None:
    assert engine("XADD s NOMKSTREAM nomkstream MAXLEN 1 * f v") is None
    assert engine("EXISTS s") == 0
    assert engine("XADD s NOMKSTREAM IDMP p i * f v") is None


def test_the_new_entry_counts_and_may_go_at_once(engine: Engine) -> None:
    fill(engine, 6)
    assert engine("XADD s MAXLEN 3 1-7 f v") == "1-7"
    assert left(engine) == ["5", "6", "7"]
    assert engine("XADD s MAXLEN 0 1-8 f v") == "1-8"
    assert (engine("XLEN s"), engine("EXISTS s")) == (0, 1)
    assert engine("XADD s 1-8 f v").startswith("-ERR")
    assert engine("XADD fresh MAXLEN 0 7-7 f v") == "7-7"
    assert engine("XLEN fresh") == 0
    engine.check()


# fmt: off
@pytest.mark.parametrize(("node", "count", "line", "length"), [
    (100, 1000, "XADD s MAXLEN ~ 555 * f v", 601),
    (1, 102, "XTRIM s MAXLEN ~ 1", 2),
    (2, 3, "XTRIM s MAXLEN ~ 0 LIMIT 1", 3), (2, 3, "XTRIM s MAXLEN ~ 0 LIMIT 2", 1),
    (4, 9, "XTRIM s MAXLEN ~ 5 LIMIT 2", 9), (4, 9, "XTRIM s LIMIT 0 MAXLEN ~ 5", 5),
    (100, 1000, "XTRIM s MAXLEN 666", 666), (100, 1000, "XTRIM s MAXLEN = 555", 555),
    (100, 1000, "XTRIM s MAXLEN ~ 444", 500), (100, 1000, "XTRIM s KEEPREF MAXLEN ~ 400", 400),
    (4, 10, "XTRIM s MINID 1-6", 5), (4, 10, "XTRIM s MINID ~ 1-6", 6), (4, 10, "XTRIM s MINID 2", 0),
    (4, 10, "XTRIM s MAXLEN ~ 3 DELREF", 3), (4, 10, "XTRIM s MINID ~ 1-6 ACKED", 5),
])
# fmt: on
def test_trims(engine: Engine, node: int, count: int, line: str, length: int) -> None:
    engine.ctx.settings.stream_node_max_entries = node
    engine.ctx.settings.stream_node_max_bytes = 0
    fill(engine, count)
    engine(line)
    assert engine("XLEN s") == length
    engine.check()


# fmt: off
@pytest.mark.parametrize(("line", "error"), [
    ("XTRIM none BOGUS 5", "ERR syntax error"),
    ("XTRIM none MAXLEN 5 5", "ERR syntax error"),
    ("XTRIM none ACKED DELREF MAXLEN 5", "ERR syntax error"),
    ("XTRIM none LIMIT 0", "ERR syntax error, XTRIM must be called with a trimming strategy"),
    ("XTRIM none ACKED KEEPREF", "ERR syntax error"),
    ("XTRIM none LIMIT x MAXLEN", "ERR value is not an integer or out of range"),
    ("XTRIM none MAXLEN", "ERR wrong number of arguments for 'xtrim' command"),
    ("XTRIM none MINID +", "ERR Invalid stream ID specified as stream command argument"),
])
# fmt: on
def test_xtrim_checks_options_before_the_key(engine: Engine, line: str, error: str) -> None:
    assert engine(line) == f"-{error}"


def test_trims_never_move_max_deleted(engine: Engine) -> None:
    fill(engine, 9)
    engine("XTRIM s MAXLEN 2")
    assert engine("XINFO STREAM s")["max-deleted-entry-id"] == "0-0"
    engine("XDEL s 1-8")
    assert engine("XINFO STREAM s")["max-deleted-entry-id"] == "1-8"


def group_of_two_readers(engine: Engine) -> None:
    """1..10 of 10; `g` has read 1..6 and acknowledged 2 and 5, `h` has read and acknowledged 1..8."""
    fill(engine, 10)
    for name, count, acks in (("g", 6, (2, 5)), ("h", 8, range(1, 9))):
        engine(f"XGROUP CREATE s {name} 0")
        engine(f"XREADGROUP GROUP {name} c COUNT {count} STREAMS s >")
        engine(f"XACK s {name}", *(f"1-{seq}" for seq in acks))


def pending(engine: Engine, name: str) -> list[str]:
    return [row[0].partition("-")[2] for row in engine(f"XPENDING s {name} - + 100")]


@pytest.mark.parametrize("trim", ["MAXLEN 0", "MINID 9-9", "MAXLEN ~ 0"])
def test_acked_keeps_what_a_group_still_needs(engine: Engine, trim: str) -> None:
    group_of_two_readers(engine)
    assert engine(f"XTRIM s {trim} ACKED") == 2
    assert left(engine) == ["1", "3", "4", "6", "7", "8", "9", "10"]
    engine.check()


def test_acked_stops_at_the_threshold(engine: Engine) -> None:
    group_of_two_readers(engine)
    assert engine("XTRIM s MAXLEN 9 ACKED") == 1
    assert engine("XTRIM s MINID 1-5 ACKED") == 0
    assert engine("XTRIM s MINID 1-6 ACKED") == 1
    engine.check()


def test_delref_drops_references_of_what_it_removes(engine: Engine) -> None:
    group_of_two_readers(engine)
    assert engine("XTRIM s MAXLEN 6 DELREF") == 4
    assert pending(engine, "g") == ["6"]
    assert engine("XADD s DELREF MAXLEN 2 1-11 f v") == "1-11"
    assert left(engine) == ["10", "11"]
    assert pending(engine, "g") == []
    engine.check()


def test_keepref_leaves_dangling_references(engine: Engine) -> None:
    group_of_two_readers(engine)
    engine("XTRIM s MAXLEN 0")
    assert pending(engine, "g") == ["1", "3", "4", "6"]


def test_xdel(engine: Engine) -> None:
    assert engine("XDEL none not-an-id") == 0
    fill(engine, 3)
    assert engine("XDEL s 1-2 1-2 7-7") == 1
    assert engine("XDEL s 1-1 bad").startswith("-ERR Invalid stream ID")
    assert left(engine) == ["1", "3"]
    engine.check()


def test_xdelex_policies(engine: Engine) -> None:
    group_of_two_readers(engine)
    assert engine("XDELEX s ACKED IDS 4 1-1 1-2 1-9 5-5") == [2, 1, 2, 2]
    assert engine("XDELEX s IDS 2 1-3 1-3 DELREF") == [1, -1]
    assert engine("XDELEX s KEEPREF IDS 2 1-4 1-2") == [1, -1]
    assert pending(engine, "g") == ["1", "4", "6"]
    assert engine("XDELEX s DELREF IDS 1 1-4") == [-1]
    assert pending(engine, "g") == ["1", "6"]
    engine.check()


# fmt: off
@pytest.mark.parametrize(("line", "error"), [
    ("XDELEX s IDS 0 1-1", "ERR Number of IDs must be a positive integer"),
    ("XDELEX s IDS x 1-1", "ERR Number of IDs must be a positive integer"),
    ("XDELEX s IDS 2 1-1", "ERR The `numids` parameter must match the number of arguments"),
    ("XDELEX s IDS 1 1-1 1-2", "ERR syntax error"),
    ("XDELEX s ACKED IDS 1 1-1 DELREF", "ERR syntax error"),
    ("XDELEX s BOGUS IDS 1 1-1", "ERR syntax error"),
    ("XDELEX text IDS 0 1-1", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("XDELEX s IDS 1 bad", "ERR Invalid stream ID specified as stream command argument"),
])
# fmt: on
def test_xdelex_refuses(engine: Engine, line: str, error: str) -> None:
    engine("SET text x")
    fill(engine, 1)
    assert engine(line) == f"-{error}"


def test_xdelex_of_a_missing_key_reads_no_id(engine: Engine) -> None:
    assert engine("XDELEX s IDS 2 bad worse") == [-1, -1]


# fmt: off
@pytest.mark.parametrize(("line", "error"), [
    ("XSETID s bad", "ERR Invalid stream ID specified as stream command argument"),
    ("XSETID s 9 ENTRIESADDED x", "ERR value is not an integer or out of range"),
    ("XSETID s 9 ENTRIESADDED -1", "ERR entries_added must be positive"),
    ("XSETID none 9 MAXDELETEDID 10",
     "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"),
    ("XSETID s 9 BOGUS 1", "ERR syntax error"), ("XSETID s 9 ENTRIESADDED", "ERR syntax error"),
    ("XSETID none 9", "ERR no such key"),
    ("XSETID text 9", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("XSETID s 1-4", "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"),
    ("XSETID s 9 ENTRIESADDED 3", "ERR The entries_added specified in XSETID is smaller than the target stream length"),
])
# fmt: on
def test_xsetid_refuses(engine: Engine, line: str, error: str) -> None:
    engine("SET text x")
    fill(engine, 5)
    engine("XDEL s 1-5")
    assert engine(line) == f"-{error}"


def test_xsetid(engine: Engine) -> None:
    fill(engine, 3)
    assert engine("XSETID s 1-2") == (
        "-ERR The ID specified in XSETID is smaller than the target stream top item"
    )
    assert engine("XSETID s 7-7 ENTRIESADDED 50 MAXDELETEDID 5-5") == "OK"
    info = engine("XINFO STREAM s")
    assert (info["last-generated-id"], info["entries-added"]) == ("7-7", 50)
    assert info["max-deleted-entry-id"] == "5-5"
    assert engine("XSETID s 7-7 MAXDELETEDID 0-0") == "OK"
    assert engine("XINFO STREAM s")["max-deleted-entry-id"] == "5-5"
    engine.check()


def test_ids_below_deleted_slots_are_legal_again_after_xsetid(engine: Engine) -> None:
    fill(engine, 3)
    engine("XTRIM s MAXLEN 3")
    engine("XGROUP CREATE s g 0")
    engine("XADD s 1-9 f v")
    engine("XTRIM s MAXLEN 0")
    assert engine("XSETID s 1-1") == "OK"
    assert engine("XADD s * f v") == f"{engine.now}-0"
    engine.check()


def test_range_counts(engine: Engine) -> None:
    assert engine("XRANGE s - + COUNT 0") == []
    fill(engine, 3)
    assert engine("XRANGE s - + COUNT 0") is None
    assert engine("XREVRANGE s + - COUNT -5") is None
    assert engine("XRANGE s - + COUNT 0 count 1") == [["1-1", ["f", "1"]]]
    assert engine("XRANGE s - + COUNT x") == "-ERR value is not an integer or out of range"
    assert engine("XRANGE s - + COUNT") == "-ERR syntax error"
    assert engine("XRANGE s bad +").startswith("-ERR Invalid stream ID")
    engine("SET text x")
    assert engine("XRANGE text bad +").startswith("-ERR Invalid stream ID")
    assert engine("XREVRANGE text + -").startswith("-WRONGTYPE")


# --- idempotent production


def test_a_duplicate_answers_the_first_id(engine: Engine) -> None:
    first = engine("XADD s IDMP p i * f v")
    assert engine("XADD s IDMP p i MAXLEN 0 * other row") == first
    assert engine("XLEN s") == 1
    assert engine("XADD s IDMP q i * f v") != first
    engine("XDEL s", first)
    assert engine("XADD s IDMP p i * f v") == first
    info = engine("XINFO STREAM s")
    assert (info["iids-added"], info["iids-duplicates"], info["pids-tracked"]) == (2, 2, 2)
    engine.check()


def test_an_iid_expires_by_the_age_of_its_entry(engine: Engine) -> None:
    first = engine("XADD s IDMP p i * f v")
    engine.now += 100_000 - 1
    assert engine("XADD s IDMP p i * f v") == first
    engine.now += 1
    assert engine("XINFO STREAM s")["iids-tracked"] == 0
    assert engine("XADD s IDMP p i * f v") != first
    engine.check()


def test_the_oldest_iids_make_room(engine: Engine) -> None:
    engine("XADD s 1-1 f v")
    engine("XCFGSET s IDMP-MAXSIZE 2")
    ids = [engine(f"XADD s IDMP p {iid} * f v") for iid in "abc"]
    assert engine("XADD s IDMP p c * f v") == ids[2]
    assert engine("XADD s IDMP p a * f v") not in ids
    engine.check()


def test_idmpauto_ignores_the_order_of_pairs_alone(engine: Engine) -> None:
    first = engine("XADD s IDMPAUTO p * a 1 b 2")
    assert engine("XADD s IDMPAUTO p * b 2 a 1") == first
    assert engine("XADD s IDMPAUTO p * a 2 b 1") != first
    rows = [(b"a", b"1"), (b"a1", b""), (b"", b"a1"), (b"a", b"1", b"a", b"1"), (b"1", b"a")]
    assert len({auto_iid(row) for row in rows}) == len(rows)


def test_server_limits_hold_for_streams_that_have_none_of_their_own(engine: Engine) -> None:
    engine.ctx.settings.stream_idmp_duration = 1
    first = engine("XADD s IDMP p i * f v")
    engine.now += 1000
    assert engine("XADD s IDMP p i * f v") != first
    assert engine("XINFO STREAM s")["idmp-duration"] == 1
    engine.check()


# fmt: off
@pytest.mark.parametrize(("line", "error"), [
    ("XCFGSET none", "ERR no such key"),
    ("XCFGSET text", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("XCFGSET s", "ERR At least one parameter must be specified"),
    ("XCFGSET s IDMP-DURATION 1 IDMP-DURATION 1", "ERR IDMP-DURATION specified multiple times"),
    ("XCFGSET s IDMP-MAXSIZE 1 IDMP-MAXSIZE 1", "ERR IDMP-MAXSIZE specified multiple times"),
    ("XCFGSET s IDMP-DURATION 0", "ERR IDMP-DURATION must be between 1 and 86400 seconds"),
    ("XCFGSET s IDMP-DURATION 86401", "ERR IDMP-DURATION must be between 1 and 86400 seconds"),
    ("XCFGSET s IDMP-MAXSIZE 10001", "ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
    ("XCFGSET s IDMP-MAXSIZE x", "ERR value is not an integer or out of range"),
    ("XCFGSET s BOGUS 1", "ERR syntax error"), ("XCFGSET s IDMP-MAXSIZE", "ERR syntax error"),
])
# fmt: on
def test_xcfgset_refuses(engine: Engine, line: str, error: str) -> None:
    engine("SET text x")
    fill(engine, 1)
    assert engine(line) == f"-{error}"


def test_xcfgset_clears_only_when_something_changes(engine: Engine) -> None:
    first = engine("XADD s IDMP p i * f v")
    assert engine("XCFGSET s IDMP-DURATION 100") == "OK"
    assert engine("XADD s IDMP p i * f v") == first
    assert engine("XCFGSET s IDMP-DURATION 99") == "OK"
    assert engine("XADD s IDMP p i * f v") != first
    assert engine("XINFO STREAM s")["iids-added"] == 2
    engine.check()


def test_xsetid_lowers_what_groups_have_read(engine: Engine) -> None:
    """Else their lag would be negative."""
    fill(engine, 5)
    for name, count in (("all", 5), ("two", 2), ("none", 0)):
        engine(f"XGROUP CREATE s {name} 0")
        if count:
            engine(f"XREADGROUP GROUP {name} c COUNT {count} STREAMS s >")
    engine("XGROUP CREATE s unknown 1-3")
    engine("XTRIM s MAXLEN 1")
    before = {each["name"]: each for each in engine("XINFO GROUPS s")}
    assert engine("XSETID s 1-5 ENTRIESADDED 3") == "OK"
    for each in engine("XINFO GROUPS s"):
        was = before[each["name"]]
        assert each["last-delivered-id"] == was["last-delivered-id"]
        assert each["pending"] == was["pending"]
        assert each["entries-read"] == (3 if each["name"] == "all" else was["entries-read"])
        assert each["lag"] is None or each["lag"] >= 0
    engine.check()


def test_xidmprecord(engine: Engine) -> None:
    assert engine("XIDMPRECORD s p i bad").startswith("-ERR Invalid stream ID")
    assert engine("XIDMPRECORD s", b"", "i", "1-1") == "-ERR producer ID must be non-empty"
    assert engine("XIDMPRECORD s p", b"", "1-1") == "-ERR idempotent ID must be non-empty"
    assert engine("XIDMPRECORD s p i 1-1") == "-ERR no such key"
    engine.now = 2
    fill(engine, 2)
    assert engine("XIDMPRECORD s p i 7-7") == "-ERR No such message in stream"
    assert engine("XIDMPRECORD s p i 1-1") == "OK"
    assert engine("XIDMPRECORD s p i 1-1") == "OK"
    assert engine("XIDMPRECORD s p i 1-2") == (
        "-ERR IID already exists for this producer with a different stream ID"
    )
    assert engine("XADD s IDMP p i * f v") == "1-1"
    assert engine("XINFO STREAM s")["iids-added"] == 1
    engine.check()


# --- many


def test_many_takes_what_redis_py_takes() -> None:
    ctx = Context(State(), Settings())
    ctx.now = 9
    rows = [{"f": 1, b"g": 2.5}, [b"a", memoryview(b"b")], ("x", "\u00e9")]
    assert decide_xadd_many(ctx, b"s", rows) == (9, 0, 3)
    assert ctx.effects[0][-1] == ((b"f", b"1", b"g", b"2.5"), (b"a", b"b"), (b"x", b"\xc3\xa9"))
    assert decide_xadd_many(ctx, b"s", []) == (0, 0, 0)


@pytest.mark.parametrize("value", [None, True, [1], object()])
def test_values_of_other_types(value: object) -> None:
    with pytest.raises(TypeError, match="Invalid input of type"):
        to_bytes(value)
