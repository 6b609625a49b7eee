"""The commands of consumer groups, each rule of spec 7.

Answers that a real 7.0 server can give are compared with one elsewhere; here are the rules that came after it, the
texts and orders of checks, and what is logged.
"""

from __future__ import annotations

import pytest
from tests.engine.driver import Engine

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import OPCODE


@pytest.fixture
def engine() -> Engine:
    """Stream s: 1-0 .. 5-0; group g at 0; string str; empty stream z with group g."""
    engine = Engine()
    for n in range(1, 6):
        engine(f"XADD s {n}-0 f {n}")
    engine("XGROUP CREATE s g 0")
    engine("XGROUP CREATE z g $ MKSTREAM")
    engine("SET str x")
    return engine


def opcodes(engine: Engine) -> list[int]:
    """The effects of the last command, as logged."""
    return [effect[0] & OPCODE for effect in engine.effects]


def ids(reply: object) -> list[str]:
    """The IDs of the first key of a read."""
    assert isinstance(reply, list)
    return [entry[0] for entry in reply[0][1]]


def pending(engine: Engine, group: str = "g") -> list[list[object]]:
    """Every pending entry: id, owner, idle, deliveries."""
    reply = engine(f"XPENDING s {group} - + 100")
    assert isinstance(reply, list)
    return reply


NO_KEY = (
    "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the"
    " MKSTREAM option to create an empty stream automatically."
)
WRONGTYPE = "-WRONGTYPE Operation against a key holding the wrong kind of value"
INVALID_ID = "-ERR Invalid stream ID specified as stream command argument"
NOT_INTEGER = "-ERR value is not an integer or out of range"
SYNTAX = "-ERR syntax error"


def wrong(container: str, typed: str) -> str:
    return (
        f"-ERR unknown subcommand or wrong number of arguments for '{typed}'. Try {container} HELP."
    )


def no_group(key: str, group: str, read: bool = False) -> str:
    tail = " in XREADGROUP with GROUP option" if read else ""
    return f"-NOGROUP No such key '{key}' or consumer group '{group}'{tail}"


def group_only(option: str) -> str:
    return f"-ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."


def unbalanced(name: str, forms: str) -> str:
    return f"-ERR Unbalanced '{name}' list of streams: for each stream key an ID{forms} must be specified."


def meaningless(id: str) -> str:
    return (
        f"-ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of"
        " this consumer by specifying a proper ID, or use the > ID to get new messages. The"
        f" {id} ID would just return an empty result set."
    )


NEW_IN_XREAD = "-ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."


# fmt: off
ERRORS = [
    # --- XGROUP: arity, options, type, key, group, ID, existing group
    ("XGROUP CREATE s g",                      "-ERR wrong number of arguments for 'xgroup|create' command"),
    ("XGROUP CREATE str n 0 ENTRIESREAD x",    NOT_INTEGER),
    ("XGROUP CREATE str n 0 ENTRIESREAD -2",   "-ERR value for ENTRIESREAD must be positive or -1"),
    ("XGROUP CREATE str n 0 ENTRIESREAD",      wrong("XGROUP", "CREATE")),
    ("XGROUP create str n 0 foo",              wrong("XGROUP", "create")),
    ("XGROUP SETID s g 0 MKSTREAM",            wrong("XGROUP", "SETID")),
    ("XGROUP CREATE str n bad",                WRONGTYPE),
    ("XGROUP CREATE none n bad",               NO_KEY),
    ("XGROUP CREATE none n bad MKSTREAM",      INVALID_ID),
    ("XGROUP CREATE s g bad",                  INVALID_ID),
    ("XGROUP CREATE s g -",                    INVALID_ID),
    ("XGROUP CREATE s g 0",                    "-BUSYGROUP Consumer Group name already exists"),
    ("XGROUP CREATE s g 0 MKSTREAM",           "-BUSYGROUP Consumer Group name already exists"),
    ("XGROUP SETID none g 0",                  NO_KEY),
    ("XGROUP DESTROY none g",                  NO_KEY),
    ("XGROUP DESTROY str g",                   WRONGTYPE),
    ("XGROUP SETID s nog bad",                 "-NOGROUP No such consumer group 'nog' for key name 's'"),
    ("XGROUP CREATECONSUMER s nog c",          "-NOGROUP No such consumer group 'nog' for key name 's'"),
    ("XGROUP DELCONSUMER s nog c",             "-NOGROUP No such consumer group 'nog' for key name 's'"),
    ("XGROUP FOO",                             "-ERR unknown subcommand 'FOO'. Try XGROUP HELP."),
    # --- XREAD
    ("XREAD CLAIM 0 STREAMS s 0",              group_only("CLAIM")),
    ("XREAD GROUP g c STREAMS s 0",            group_only("GROUP")),
    ("XREAD NOACK STREAMS s 0",                group_only("NOACK")),
    ("XREAD STREAMS s s 0",                    unbalanced("xread", ", '+', or '$'")),
    ("XREAD COUNT x STREAMS s 0",              NOT_INTEGER),
    ("XREAD BLOCK x STREAMS s 0",              "-ERR timeout is not an integer or out of range"),
    ("XREAD BLOCK -1 STREAMS s 0",             "-ERR timeout is negative"),
    ("XREAD BLOCK 9223372036854775807 STREAMS s 0", "-ERR timeout is out of range"),
    ("XREAD COUNT 1 s 0",                      SYNTAX),
    ("XREAD FOO 1 STREAMS s 0",                SYNTAX),
    ("XREAD STREAMS str bad",                  WRONGTYPE),
    ("XREAD STREAMS s >",                      NEW_IN_XREAD),
    ("XREAD STREAMS s (1",                     INVALID_ID),
    ("XREAD MAXCOUNT 0 STREAMS s 0",           "-ERR MAXCOUNT must be a positive integer"),
    ("XREAD MAXSIZE -1 STREAMS s 0",           "-ERR MAXSIZE must be a positive integer"),
    ("XREAD MAXCOUNT 1 COUNT 2 STREAMS s 0",   "-ERR MAXCOUNT must be greater than or equal to COUNT"),
    # --- XREADGROUP
    ("XREADGROUP GROUP g c STREAMS s s >",     unbalanced("xreadgroup", " or '>'")),
    ("XREADGROUP COUNT 1 NOACK STREAMS s >",   "-ERR Missing GROUP option for XREADGROUP"),
    ("XREADGROUP GROUP g c COUNT 1 s >",       SYNTAX),
    ("XREADGROUP GROUP g c CLAIM x STREAMS s >",  "-ERR min-idle-time is not an integer or out of range"),
    ("XREADGROUP GROUP g c CLAIM -1 STREAMS s >", "-ERR min-idle-time must be a positive integer"),
    ("XREADGROUP GROUP g c COUNT 01 STREAMS none >", NOT_INTEGER),
    ("XREADGROUP GROUP g c STREAMS none bad",  no_group("none", "g", read=True)),
    ("XREADGROUP GROUP nog c STREAMS s bad",   no_group("s", "nog", read=True)),
    ("XREADGROUP GROUP g c STREAMS str bad",   WRONGTYPE),
    ("XREADGROUP GROUP g c STREAMS s none > >", no_group("none", "g", read=True)),
    ("XREADGROUP GROUP g c STREAMS s $",       meaningless("$")),
    ("XREADGROUP GROUP g c STREAMS s +",       meaningless("+")),
    # --- XACK, XACKDEL
    ("XACK s g 1-0 bad",                       INVALID_ID),
    ("XACK str g 1-0",                         WRONGTYPE),
    ("XACKDEL str g IDS x 1-0",                WRONGTYPE),
    ("XACKDEL none g IDS x 1-0",               "-ERR Number of IDs must be a positive integer"),
    ("XACKDEL none g IDS 2 1-0",               "-ERR The `numids` parameter must match the number of arguments"),
    ("XACKDEL none g KEEPREF KEEPREF IDS 1 1", SYNTAX),
    ("XACKDEL none g KEEPREF 1-0 2-0",         SYNTAX),
    ("XACKDEL s g IDS 1 bad",                  INVALID_ID),
    # --- XNACK
    ("XNACK str g foo IDS 1 1-0",              WRONGTYPE),
    ("XNACK none g foo IDS 1 1-0",             no_group("none", "g")),
    ("XNACK s nog foo IDS 1 1-0",              no_group("s", "nog")),
    ("XNACK s g foo IDS 1 1-0",                "-ERR mode must be SILENT, FAIL, or FATAL"),
    ("XNACK s g FAIL IDS 0 1-0",               "-ERR numids must be a positive integer"),
    ("XNACK s g FAIL IDS 2 1-0",               "-ERR number of IDs doesn't match numids"),
    ("XNACK s g FAIL IDS 1 1-0 RETRYCOUNT x",  NOT_INTEGER),
    ("XNACK s g FAIL IDS 1 1-0 RETRYCOUNT -1", "-ERR Invalid RETRYCOUNT value, must be >= 0"),
    ("XNACK s g FAIL IDS 1 1-0 2-0",           "-ERR Unrecognized XNACK option '2-0'"),
    ("XNACK s g FAIL FORCE FORCE FORCE",       "-ERR syntax error, expected IDS keyword"),
    ("XNACK s g FAIL IDS 2 1-0 bad",           INVALID_ID),
    # --- XCLAIM
    ("XCLAIM str g c x 1-0",                   WRONGTYPE),
    ("XCLAIM none g c x 1-0",                  no_group("none", "g")),
    ("XCLAIM s g c x bad",                     "-ERR Invalid min-idle-time argument for XCLAIM"),
    ("XCLAIM s g c 0 1-0 foo 2-0",             "-ERR Unrecognized XCLAIM option 'foo'"),
    ("XCLAIM s g c 0 1-0 IDLE",                "-ERR Unrecognized XCLAIM option 'IDLE'"),
    ("XCLAIM s g c 0 1-0 IDLE x",              "-ERR Invalid IDLE option argument for XCLAIM"),
    ("XCLAIM s g c 0 1-0 TIME x",              "-ERR Invalid TIME option argument for XCLAIM"),
    ("XCLAIM s g c 0 1-0 RETRYCOUNT x",        "-ERR Invalid RETRYCOUNT option argument for XCLAIM"),
    ("XCLAIM s g c 0 1-0 LASTID x",            INVALID_ID),
    # --- XAUTOCLAIM
    ("XAUTOCLAIM str g c x bad",               "-ERR Invalid min-idle-time argument for XAUTOCLAIM"),
    ("XAUTOCLAIM str g c 0 bad",               INVALID_ID),
    ("XAUTOCLAIM str g c 0 (18446744073709551615-18446744073709551615", "-ERR invalid start ID for the interval"),
    ("XAUTOCLAIM str g c 0 0 COUNT 0",         "-ERR COUNT must be > 0"),
    ("XAUTOCLAIM str g c 0 0 COUNT 576460752303423488", "-ERR COUNT must be > 0"),
    ("XAUTOCLAIM str g c 0 0 COUNT",           SYNTAX),
    ("XAUTOCLAIM str g c 0 0",                 WRONGTYPE),
    ("XAUTOCLAIM s nog c 0 0",                 no_group("s", "nog")),
    # --- XPENDING
    ("XPENDING s g -",                         SYNTAX),
    ("XPENDING none g bad + x",                NOT_INTEGER),
    ("XPENDING none g IDLE x - + 1",           NOT_INTEGER),
    ("XPENDING none g IDLE 1 - +",             SYNTAX),
    ("XPENDING none g bad + 1",                INVALID_ID),
    ("XPENDING str g - + 1",                   WRONGTYPE),
    ("XPENDING none g",                        no_group("none", "g")),
    # --- XINFO
    ("XINFO STREAM none foo",                  "-ERR no such key"),
    ("XINFO GROUPS none",                      "-ERR no such key"),
    ("XINFO CONSUMERS none g",                 "-ERR no such key"),
    ("XINFO STREAM str",                       WRONGTYPE),
    ("XINFO CONSUMERS s nog",                  "-NOGROUP No such consumer group 'nog' for key name 's'"),
    ("XINFO STREAM s FULL COUNT",              wrong("XINFO", "STREAM")),
    ("XINFO STREAM s foo",                     wrong("XINFO", "STREAM")),
    ("XINFO STREAM s FULL COUNT x",            NOT_INTEGER),
]
# fmt: on


@pytest.mark.parametrize(("line", "error"), ERRORS)
def test_errors_leave_everything_as_it_was(engine: Engine, line: str, error: str) -> None:
    before = len(engine.log)
    assert engine(line) == error
    assert len(engine.log) == before


# --- reading


def test_an_error_of_a_later_key_serves_nothing(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c STREAMS s none > >")
    assert engine.group().last_id == 0
    assert not engine.group().consumers


def test_an_undelivered_tail_that_was_deleted_is_nothing_new(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 3 STREAMS s >")
    engine("XDEL s 4-0 5-0")
    assert engine("XREADGROUP GROUP g c STREAMS s >") is None
    assert engine("XREADGROUP GROUP g c BLOCK 0 STREAMS s >") == "PARKED"
    assert engine("XREAD STREAMS s 3-0") is None


def test_the_greatest_id_means_new_messages(engine: Engine) -> None:
    greatest = "18446744073709551615-18446744073709551615"
    assert ids(engine(f"XREADGROUP GROUP g c COUNT 2 STREAMS s {greatest}")) == ["1-0", "2-0"]


def test_setid_backwards_moves_pending_messages_with_count_one(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c STREAMS s >")
    engine("XREADGROUP GROUP g c STREAMS s 0")
    engine("XGROUP SETID s g 2-0")
    engine("XACK s g 5-0")
    assert ids(engine("XREADGROUP GROUP g d STREAMS s >")) == ["3-0", "4-0", "5-0"]
    assert [row[:2] + row[3:] for row in pending(engine)] == [
        ["1-0", "c", 2],
        ["2-0", "c", 2],
        ["3-0", "d", 1],
        ["4-0", "d", 1],
        ["5-0", "d", 1],
    ]
    engine.check()


def test_noack_leaves_what_is_pending_and_the_active_time(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    engine("XGROUP SETID s g 0")
    assert len(ids(engine("XREADGROUP GROUP g d NOACK STREAMS s >"))) == 5
    assert [row[:2] for row in pending(engine)] == [["1-0", "c"], ["2-0", "c"]]
    consumers = engine("XINFO CONSUMERS s g")
    assert [(row["name"], row["inactive"]) for row in consumers] == [("c", 0), ("d", -1)]
    engine.check()


def test_history_counts_up_and_is_logged(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 3 STREAMS s >")
    active = engine.group().consumers[b"c"].active_time
    engine("XDEL s 2-0")
    engine.now += 100
    assert engine("XREADGROUP GROUP g c NOACK BLOCK 0 STREAMS s 0") == [
        ["s", [["1-0", ["f", "1"]], ["2-0", None], ["3-0", ["f", "3"]]]]
    ]
    assert [row[2:] for row in pending(engine)] == [[0, 2], [100, 1], [0, 2]]
    consumer = engine.group().consumers[b"c"]
    assert (consumer.active_time, consumer.seen_time) == (active, engine.now)
    assert engine("XREADGROUP GROUP g c COUNT 1 STREAMS s 1-0") == [["s", [["2-0", None]]]]
    assert engine("XREADGROUP GROUP g nobody STREAMS s 0") == [["s", []]]
    assert opcodes(engine) == [e.XGROUP_CREATECONSUMER]
    assert engine("XREADGROUP GROUP g nobody BLOCK 0 STREAMS z s 5 5") == [["z", []], ["s", []]]
    engine.check()


def test_consumers_are_created_for_every_key_evaluated(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c BLOCK 0 STREAMS z s > >")
    assert b"c" in engine.group("z").consumers
    assert engine("XINFO CONSUMERS z g") == [{"name": "c", "pending": 0, "idle": 0, "inactive": -1}]
    assert opcodes(engine) == []
    engine("XREADGROUP GROUP g d BLOCK 0 STREAMS z >")
    assert opcodes(engine) == [e.XGROUP_CREATECONSUMER]
    engine.now += 5
    engine("XREADGROUP GROUP g d BLOCK 0 STREAMS z >")
    assert opcodes(engine) == [e.SEEN]
    engine.check()


def test_one_record_per_delivery(engine: Engine) -> None:
    engine("XREADGROUP GROUP g new COUNT 3 STREAMS s >")
    assert opcodes(engine) == [e.DELIVER]
    engine("XREADGROUP GROUP g other NOACK STREAMS s >")
    assert opcodes(engine) == [e.DELIVER]
    engine.check()


def test_parking_freezes_the_dollar_alone(engine: Engine) -> None:
    park = engine.raw("XREAD", "BLOCK", 7, "STREAMS", "s", "none", "s", "z", "$", "$", 9, "+")
    assert park.keys == [(0, b"s"), (0, b"none"), (0, b"z")]
    assert park.args[-4:] == [b"5-0", b"0-0", b"9", b"+"]
    assert (park.timeout_ms, park.claim_at) == (7, None)
    engine.ctx.may_block = False
    assert engine("XREAD BLOCK 0 STREAMS s $") is None


def test_plus_is_the_last_entry(engine: Engine) -> None:
    engine("XDEL s 5-0")
    assert engine("XREAD COUNT 9 STREAMS s z + +") == [["s", [["4-0", ["f", "4"]]]]]
    assert engine("XREAD STREAMS z none + +") is None


def test_the_second_serving_of_a_key_sees_the_first(engine: Engine) -> None:
    reply = engine("XREADGROUP GROUP g c COUNT 2 STREAMS s s s > 0 >")
    assert [[entry[0] for entry in run] for _, run in reply] == [
        ["1-0", "2-0"],
        ["1-0", "2-0"],
        ["3-0", "4-0"],
    ]
    assert [row[3] for row in pending(engine)] == [2, 2, 1, 1]
    assert len(engine.group().pending) == 4
    engine.check()


# --- CLAIM


def test_claim_takes_idle_entries_first_and_shows_four_elements(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    engine.now += 50
    engine("XREADGROUP GROUP g c COUNT 1 STREAMS s >")
    engine("XCLAIM s g c 0 1-0 JUSTID RETRYCOUNT 9")
    engine.now += 50
    assert engine("XREADGROUP GROUP g d COUNT 3 CLAIM 50 STREAMS s >") == [
        [
            "s",
            [
                ["2-0", ["f", "2"], 100, 1],
                ["1-0", ["f", "1"], 50, 9],
                ["3-0", ["f", "3"], 50, 1],
            ],
        ]
    ]
    assert engine("XREADGROUP GROUP g d CLAIM 50 STREAMS s >") == [
        ["s", [["4-0", ["f", "4"], 0, 0], ["5-0", ["f", "5"], 0, 0]]]
    ]
    assert [row[1:] for row in pending(engine)] == [
        ["d", 0, 10],
        ["d", 0, 2],
        ["d", 0, 2],
        ["d", 0, 1],
        ["d", 0, 1],
    ]
    engine.check()


def test_claim_with_noack_keeps_what_it_claims(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    reply = engine("XREADGROUP GROUP g d NOACK CLAIM 0 STREAMS s >")
    assert [entry[0] for entry in reply[0][1]] == ["1-0", "2-0", "3-0", "4-0", "5-0"]
    assert [row[:2] for row in pending(engine)] == [["1-0", "d"], ["2-0", "d"]]
    engine.check()


def test_claim_skips_messages_that_are_gone_without_cleaning(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 3 STREAMS s >")
    engine("XDEL s 1-0")
    assert ids(engine("XREADGROUP GROUP g d COUNT 1 CLAIM 0 STREAMS s >")) == ["2-0"]
    assert [row[:2] for row in pending(engine)] == [["1-0", "c"], ["2-0", "d"], ["3-0", "c"]]


def test_nacked_entries_are_claimed_first_in_their_order(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 4 STREAMS s >")
    engine("XNACK s g FAIL IDS 2 4-0 2-0")
    reply = engine("XREADGROUP GROUP g d COUNT 3 CLAIM 99999999999999 STREAMS s >")
    assert reply == [
        [
            "s",
            [
                ["4-0", ["f", "4"], engine.now, 1],
                ["2-0", ["f", "2"], engine.now, 1],
                ["5-0", ["f", "5"], 0, 0],
            ],
        ]
    ]
    engine.check()


def test_a_claimed_entry_that_is_also_new_starts_over(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    engine("XGROUP SETID s g 0")
    reply = engine("XREADGROUP GROUP g d COUNT 3 CLAIM 0 STREAMS s >")
    assert [entry[0] for entry in reply[0][1]] == ["1-0", "2-0", "1-0"]
    assert [row[1::2] for row in pending(engine)] == [["d", 1], ["d", 2]]
    engine.check()


def test_a_history_id_ends_claim_for_the_keys_behind_it(engine: Engine) -> None:
    engine("XADD t 1-0 f v")
    engine("XGROUP CREATE t g 0")
    engine("XREADGROUP GROUP g c STREAMS s >")
    engine("XREADGROUP GROUP g c STREAMS t >")
    reply = engine("XREADGROUP GROUP g c CLAIM 0 STREAMS t s 0 >")
    assert reply == [["t", [["1-0", ["f", "v"]]]]]


def test_a_blocked_claim_says_when_to_look_again(engine: Engine) -> None:
    start = engine.now
    engine("XREADGROUP GROUP g c STREAMS s >")
    engine.now += 10
    engine("XCLAIM s g c 0 2-0 3-0")
    engine("XDEL s 1-0 4-0 5-0")
    engine.now += 10
    args = "XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s z > >".split()
    assert engine.raw(*args).claim_at == start + 10 + 100
    engine.now = start + 110
    assert ids(engine("XREADGROUP GROUP g d BLOCK 0 CLAIM 100 STREAMS s z > >")) == ["2-0", "3-0"]


# --- MAXCOUNT, MAXSIZE


def test_maxcount_caps_the_whole_reply(engine: Engine) -> None:
    engine("XADD t 1-0 f v")
    engine("XGROUP CREATE t g 0")
    reply = engine("XREAD MAXCOUNT 7 COUNT 4 STREAMS s s t 0 0 0")
    assert [len(run) for _, run in reply] == [4, 3]
    reply = engine("XREADGROUP GROUP g c MAXCOUNT 5 STREAMS s t > >")
    assert [key for key, _ in reply] == ["s"]
    assert not engine.group("t").consumers
    reply = engine("XREADGROUP GROUP g c MAXCOUNT 2 STREAMS s t 0 >")
    assert [entry[0] for entry in reply[0][1]] == ["1-0", "2-0"]
    assert [row[3] for row in pending(engine)] == [2, 2, 1, 1, 1]
    reply = engine("XREADGROUP GROUP g d MAXCOUNT 2 CLAIM 0 STREAMS s >")
    assert len(reply[0][1]) == 2
    engine.check()


def test_maxsize_stops_before_an_entry_but_not_before_the_first(engine: Engine) -> None:
    key = len(b"*2\r\n$1\r\ns\r\n")
    entry = len(b"*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nf\r\n$1\r\n1\r\n")
    for size, expected in ((1, 1), (key + entry, 1), (key + entry + 1, 2), (10_000, 5)):
        assert len(engine(f"XREAD MAXSIZE {size} STREAMS s 0")[0][1]) == expected
    reply = engine(f"XREADGROUP GROUP g c MAXSIZE {key + 2 * entry} STREAMS s >")
    assert ids(reply) == ["1-0", "2-0"]
    assert len(engine.group().pending) == 2
    assert ids(engine("XREADGROUP GROUP g c MAXSIZE 1 STREAMS s s 0 >")) == ["1-0"]
    assert len(engine.group().pending) == 2
    engine.check()


# --- XACK, XACKDEL


def test_ack_counts_each_id_once_and_looks_at_nothing_without_a_group(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c STREAMS s >")
    assert engine("XACK none g bad") == 0
    assert engine("XACK s nog bad") == 0
    assert engine("XACK s g 2-0 2-0 9-9 1") == 2
    assert engine("XACK s g 2-0") == 0
    assert opcodes(engine) == []
    assert engine("XACK s g 99999999999999999-1 5-99999999999 3-0") == 1
    engine.check()


@pytest.mark.parametrize(
    ("policy", "reply", "left", "other"),
    [
        ("KEEPREF", [1, 1, -1], ["2-0", "4-0", "5-0"], ["1-0", "2-0", "3-0"]),
        ("DELREF", [1, 1, -1], ["2-0", "4-0", "5-0"], ["2-0"]),
        ("ACKED", [2, 2, -1], ["1-0", "2-0", "3-0", "4-0", "5-0"], ["1-0", "2-0", "3-0"]),
    ],
)
def test_ackdel(
    engine: Engine, policy: str, reply: list[int], left: list[str], other: list[str]
) -> None:
    engine("XGROUP CREATE s h 0")
    engine("XREADGROUP GROUP g c STREAMS s >")
    engine("XREADGROUP GROUP h c COUNT 3 STREAMS s >")
    engine("XACK s g 2-0")
    assert engine(f"XACKDEL s g {policy} IDS 3 1-0 3-0 2-0") == reply
    assert [entry[0] for entry in engine("XRANGE s - +")] == left
    assert [row[0] for row in pending(engine, "h")] == other
    assert [row[0] for row in pending(engine)] == ["4-0", "5-0"]
    engine.check()


@pytest.mark.parametrize(
    ("before", "reply"),
    [
        ("PING", [1, 1]),
        ("XGROUP CREATE s h 0", [2, 2]),
        ("XGROUP CREATE s h 1-0", [1, 2]),
        ("XGROUP CREATE s h $", [1, 1]),
        ("XGROUP SETID s g 1-0", [1, 2]),  # the group itself will read the other once more
    ],
)
def test_ackdel_of_all_that_was_read_leaves_what_is_still_to_be_read(
    engine: Engine, before: str, reply: list[int]
) -> None:
    engine("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    engine(before)
    assert engine("XACKDEL s g ACKED IDS 2 1-0 2-0") == reply
    assert engine("XLEN s") == 5 - reply.count(1)
    assert pending(engine) == []
    engine.check()


def test_ackdel_of_all_that_was_read_drops_it_in_other_groups(engine: Engine) -> None:
    engine("XGROUP CREATE s h 0")
    engine("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    engine("XREADGROUP GROUP h c COUNT 3 STREAMS s >")
    assert engine("XACKDEL s g DELREF IDS 2 1-0 2-0") == [1, 1]
    assert [row[0] for row in pending(engine, "h")] == ["3-0"]
    engine.check()


def test_ackdel_of_the_last_group_deletes(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c STREAMS s >")
    engine("XDEL s 2-0")
    assert engine("XACKDEL s g ACKED IDS 3 1-0 1-0 2-0") == [1, -1, 1]
    assert engine("XACKDEL none g IDS 2 bad bad") == [-1, -1]
    assert engine("XLEN s") == 3
    engine.check()


# --- XNACK


def test_nack_modes(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 4 STREAMS s >")
    engine("XREADGROUP GROUP g c STREAMS s 0")
    assert engine("XNACK s g SILENT IDS 1 1-0") == 1
    assert engine("XNACK s g FAIL IDS 2 2-0 9-0") == 1
    assert engine("XNACK s g FATAL IDS 1 3-0") == 1
    assert engine("XNACK s g FATAL RETRYCOUNT 7 IDS 1 4-0") == 1
    assert engine("XNACK s g FAIL IDS 1 5-0") == 0
    assert opcodes(engine) == []
    assert engine("XNACK s g FAIL IDS 1 5-0 FORCE") == 1
    assert pending(engine) == [
        ["1-0", "", -1, 1],
        ["2-0", "", -1, 2],
        ["3-0", "", -1, 9223372036854775807],
        ["4-0", "", -1, 7],
        ["5-0", "", -1, 0],
    ]
    engine("XNACK s g SILENT IDS 1 1-0")
    engine("XNACK s g SILENT IDS 1 1-0")
    assert pending(engine)[0] == ["1-0", "", -1, 0]
    assert engine("XPENDING s g") == [5, "1-0", "5-0", []]
    assert engine("XNACK s g FAIL FORCE IDS 1 9-0") == 0
    engine.check()


def test_what_is_nacked_is_nobodys(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c STREAMS s >")
    engine("XNACK s g FAIL IDS 2 3-0 1-0")
    assert len(ids(engine("XREADGROUP GROUP g c STREAMS s 0"))) == 3
    assert len(engine("XPENDING s g - + 9 c")) == 3
    assert len(engine("XPENDING s g IDLE 99999999999999 - + 9")) == 2
    assert engine("XGROUP DELCONSUMER s g c") == 3
    assert [row[0] for row in pending(engine)] == ["1-0", "3-0"]
    full = engine("XINFO STREAM s FULL")["groups"][0]
    assert (full["pel-count"], full["nacked-count"]) == (2, 2)
    assert full["pending"] == [["1-0", "", 0, 1], ["3-0", "", 0, 1]]
    engine("XDEL s 1-0")
    assert engine("XACK s g 1-0") == 1
    assert engine("XCLAIM s g d 99999999999999 3-0 JUSTID") == ["3-0"]
    engine.check()


def test_a_deleted_nacked_entry_is_dropped_by_a_claim(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c STREAMS s >")
    engine("XNACK s g FAIL IDS 1 3-0")
    engine("XDEL s 3-0 4-0")
    assert engine("XAUTOCLAIM s g d 99999999 0") == ["0-0", [], ["3-0", "4-0"]]
    assert opcodes(engine) == [e.XACK, e.DELIVER]
    assert engine.group().consumers[b"d"].active_time == -1
    engine.check()


# --- XCLAIM, XAUTOCLAIM


def test_claim_options(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    engine.now += 100
    assert engine("XCLAIM s g d 101 1-0 2-0") == []
    assert opcodes(engine) == [e.XGROUP_CREATECONSUMER]
    assert engine("XCLAIM s g d 100 2-0 1-0 2-0 IDLE 500") == [
        ["2-0", ["f", "2"]],
        ["1-0", ["f", "1"]],
        ["2-0", ["f", "2"]],
    ]
    assert pending(engine) == [["1-0", "d", 500, 2], ["2-0", "d", 500, 3]]
    assert engine("XCLAIM s g d 0 1-0 JUSTID TIME 1") == ["1-0"]
    assert pending(engine)[0] == ["1-0", "d", engine.now - 1, 2]
    engine("XCLAIM s g c 0 1-0 TIME 99999999999999 RETRYCOUNT 0")
    assert pending(engine)[0] == ["1-0", "c", 0, 0]
    engine("XCLAIM s g c 0 1-0 RETRYCOUNT -5 LASTID 4-0 IDLE -9223372036854775808")
    assert pending(engine)[0] == ["1-0", "c", 0, 1]
    assert engine.group().last_id == 4 << 64
    assert engine("XCLAIM s g c 0 4-0") == []
    assert engine("XCLAIM s g c 99 4-0 FORCE") == [["4-0", ["f", "4"]]]
    assert engine("XCLAIM s g c 0 9-0 FORCE") == []
    assert pending(engine)[2] == ["4-0", "c", 0, 2]
    assert engine("XCLAIM s g c 0 JUSTID") == []
    assert engine("XCLAIM s g c 0 LASTID 3-0 JUSTID") == []
    assert engine.group().last_id == 4 << 64
    engine.check()


def test_claim_drops_messages_that_are_gone(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c STREAMS s >")
    engine("XTRIM s MAXLEN 3")
    engine.now += 7
    assert engine("XCLAIM s g d 1000 1-0 4-0 1-0 2-0 FORCE") == []
    assert [row[0] for row in pending(engine)] == ["3-0", "4-0", "5-0"]
    consumer = engine.group().consumers[b"d"]
    assert (consumer.seen_time, consumer.active_time) == (engine.now, -1)
    engine.check()


def test_lastid_alone_moves_the_group(engine: Engine) -> None:
    engine("XCLAIM s g d 0 LASTID 3-0")
    assert opcodes(engine) == [e.DELIVER]
    assert (engine.group().last_id, engine.group().entries_read) == (3 << 64, -1)
    assert b"d" in engine.group().consumers
    engine.check()


def test_autoclaim_walks_with_a_cursor(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c STREAMS s >")
    engine("XDEL s 2-0")
    engine.now += 10
    assert engine("XAUTOCLAIM s g d 10 0 COUNT 2") == ["3-0", [["1-0", ["f", "1"]]], ["2-0"]]
    assert engine("XAUTOCLAIM s g d 10 (3-0 COUNT 1 JUSTID") == ["5-0", ["4-0"], []]
    assert engine("XAUTOCLAIM s g d 11 - COUNT 1") == ["0-0", [], []]
    assert opcodes(engine) == []
    assert [row[1::2] for row in pending(engine)] == [["d", 2], ["c", 1], ["d", 1], ["c", 1]]
    engine.check()


def test_autoclaim_looks_at_ten_times_count(engine: Engine) -> None:
    for n in range(6, 206):
        engine(f"XADD s {n}-0 f v")
    engine("XREADGROUP GROUP g c STREAMS s >")
    engine.now += 10
    engine("XCLAIM s g c 0 30-0 IDLE 100")
    assert engine("XAUTOCLAIM s g d 50 0 COUNT 2") == ["21-0", [], []]
    assert engine("XAUTOCLAIM s g d 50 21-0 COUNT 2 JUSTID") == ["41-0", ["30-0"], []]
    assert engine("XAUTOCLAIM s g d 50 180-0 COUNT 3") == ["0-0", [], []]
    engine("XDEL s 100-0")
    assert engine("XAUTOCLAIM s g d 50 100-0 COUNT 1") == ["101-0", [], ["100-0"]]
    engine.check()


# --- the rest


def test_delconsumer_forgets_what_it_had(engine: Engine) -> None:
    engine("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    engine("XREADGROUP GROUP g d COUNT 1 STREAMS s >")
    assert engine("XGROUP DELCONSUMER s g c") == 2
    assert engine("XGROUP DELCONSUMER s g c") == 0
    assert engine("XPENDING s g") == [1, "3-0", "3-0", [["d", "1"]]]
    assert ids(engine("XREADGROUP GROUP g e STREAMS s >")) == ["4-0", "5-0"]
    assert [row["name"] for row in engine("XINFO CONSUMERS s g")] == ["d", "e"]
    engine.check()


def test_pending_forms(engine: Engine) -> None:
    assert engine("XPENDING s g") == [0, None, None, None]
    for name in ("zoe", "Abe", "bob"):
        engine(f"XREADGROUP GROUP g {name} COUNT 1 STREAMS s >")
        engine.now += 10
    assert engine("XPENDING s g") == [3, "1-0", "3-0", [["Abe", "1"], ["bob", "1"], ["zoe", "1"]]]
    assert engine("XPENDING s g - + 10 zoe surplus words") == [["1-0", "zoe", 30, 1]]
    assert engine("XPENDING s g IDLE 20 (0 + 10") == [["1-0", "zoe", 30, 1], ["2-0", "Abe", 20, 1]]
    assert engine("XPENDING s g - + 0") == []
    assert engine("XPENDING s g - + 5 nobody") == []
    assert len(engine("XPENDING s g 2 2 5")) == 1
    assert b"nobody" not in engine.group().consumers


def test_info_full(engine: Engine) -> None:
    engine("XGROUP CREATE s A 0")
    engine("XREADGROUP GROUP g c STREAMS s >")
    full = engine("XINFO STREAM s FULL COUNT 2")
    assert [entry[0] for entry in full["entries"]] == ["1-0", "2-0"]
    assert [group["name"] for group in full["groups"]] == ["A", "g"]
    assert full["groups"][1]["consumers"] == [
        {
            "name": "c",
            "seen-time": engine.now,
            "active-time": engine.now,
            "pel-count": 5,
            "pending": [["1-0", engine.now, 1], ["2-0", engine.now, 1]],
        }
    ]
    assert len(engine("XINFO STREAM s FULL COUNT 0")["entries"]) == 5
    assert list(engine("XINFO STREAM s"))[-3:] == ["groups", "first-entry", "last-entry"]
    assert len(engine("XINFO STREAM s")) == 16
    assert engine("XINFO STREAM z")["first-entry"] is None
    assert engine("XINFO GROUPS none") == "-ERR no such key"


@pytest.mark.parametrize(("container", "lines"), [("XGROUP", 17), ("XINFO", 9)])
def test_help(engine: Engine, container: str, lines: int) -> None:
    reply = engine(f"{container} HELP")
    assert len(reply) == lines
    assert reply[0] == f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert reply[-1] == "    Print this help."
