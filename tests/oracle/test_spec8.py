"""Behaviour newer than 7.0, from docs/reference/streams.md.

No server here can be asked, so each rule and each row of errors is a test.

The section is named above each group of tests. Every test also replays its log (the fixture does).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.oracle.bench import NIL, START_MS, Bench, answer, pairs
from tests.oracle.engine_side import Unit, unpacked

from tidelog.engine.effects import as_commands
from tidelog.engine.effects import effect as op

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
SYNTAX = "ERR syntax error"
NOT_INTEGER = "ERR value is not an integer or out of range"
INVALID_ID = "ERR Invalid stream ID specified as stream command argument"
NO_KEY = "ERR no such key"
MANY = 2**63 - 1
MAX_ID = f"{2**64 - 1}-{2**64 - 1}"


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.check_replay()


def fill(bench: Bench, count: int, key: str = "s", groups: str = "g") -> None:
    """Entries 1-0 .. count-0, and groups from the start."""
    for i in range(1, count + 1):
        assert bench.do(f"XADD {key} {i}-0 f v{i}") == f"{i}-0"
    for group in groups:
        assert bench.do(f"XGROUP CREATE {key} {group} 0") == "OK"


def read(bench: Bench, count: int = 100, group: str = "g", consumer: str = "alice") -> Any:
    return bench.do(f"XREADGROUP GROUP {group} {consumer} COUNT {count} STREAMS s >")


def only(reply: Any) -> list[Any]:
    """The entries of a reply that serves one key."""
    [[_, entries]] = reply
    return list(entries)


# --- 5.2: reference policies


def test_keepref_leaves_dangling_references(bench: Bench) -> None:
    fill(bench, 4)
    read(bench, 2)
    assert bench.do("XTRIM s MAXLEN 2 KEEPREF") == 2
    assert bench.pending() == [("1-0", "alice", 1), ("2-0", "alice", 1)]


def test_delref_trims_and_cleans_every_group(bench: Bench) -> None:
    fill(bench, 4, groups="gh")
    read(bench, 3)
    read(bench, 1, "h")
    assert bench.do("XTRIM s DELREF MAXLEN 2") == 2
    assert bench.pending() == [("3-0", "alice", 1)]
    assert bench.pending("h") == []
    assert bench.ids() == ["3-0", "4-0"]


def test_acked_trims_only_what_every_group_is_done_with(bench: Bench) -> None:
    fill(bench, 5, groups="gh")
    read(bench, 4)
    read(bench, 3, "h")
    bench.do("XACK s g 1-0 2-0 3-0 4-0")
    bench.do("XACK s h 1-0 3-0")
    # 2-0 is pending in h, 4-0 was not read by h
    assert bench.do("XTRIM s MAXLEN = 0 ACKED") == 2
    assert bench.ids() == ["2-0", "4-0", "5-0"]
    assert bench.do("XLEN s") == 3


def test_acked_without_groups_trims_all(bench: Bench) -> None:
    fill(bench, 5, groups="")
    assert bench.do("XTRIM s ACKED MINID 4") == 3
    assert bench.ids() == ["4-0", "5-0"]


def test_acked_may_end_above_the_threshold_in_xadd(bench: Bench) -> None:
    fill(bench, 3)
    assert bench.do("XADD s ACKED MAXLEN 1 4-0 f v") == "4-0"
    assert bench.do("XLEN s") == 4
    read(bench)
    bench.do("XACK s g 1-0 2-0 3-0")
    assert bench.do("XADD s MAXLEN 1 ACKED 5-0 f v") == "5-0"
    assert bench.ids() == ["4-0", "5-0"]


def test_approximate_trimming_works_with_policies(bench: Bench) -> None:
    bench.tidelog.ctx.settings.stream_node_max_entries = 3
    fill(bench, 7)
    read(bench, 4)
    assert bench.do("XTRIM s MAXLEN ~ 2 DELREF") == 5
    assert bench.ids() == ["6-0", "7-0"]
    assert bench.pending() == []


def test_delref_walks_whole_nodes_and_the_last_one_in_part(bench: Bench) -> None:
    bench.tidelog.ctx.settings.stream_node_max_entries = 2
    fill(bench, 7)
    assert bench.do("XTRIM s MAXLEN 2 DELREF") == 5
    assert bench.ids() == ["6-0", "7-0"]
    assert bench.info()["max-deleted-entry-id"] == "0-0"


DELETED_EARLIER = [
    # deleted by XDEL, the trim, the pending entries that are left
    ("1-0", "MAXLEN 4", ["3-0", "4-0", "5-0", "6-0"], 1),  # it removes 2-0
    ("3-0", "MAXLEN 3", ["4-0", "5-0", "6-0"], 2),
    ("1-0 2-0", "MAXLEN 2", ["5-0", "6-0"], 2),  # their node is gone
    ("5-0 6-0", "MAXLEN 0", [], 4),
    # it removes nothing
    ("1-0 2-0 3-0 4-0 5-0 6-0", "MAXLEN 0", ["1-0", "2-0", "3-0", "4-0", "5-0", "6-0"], 0),
    ("1-0", "MAXLEN 5", ["1-0", "2-0", "3-0", "4-0", "5-0", "6-0"], 0),
    ("1-0 2-0", "MINID 3", ["3-0", "4-0", "5-0", "6-0"], 0),
    ("1-0 2-0 3-0 4-0 5-0 6-0", "MINID 4", ["4-0", "5-0", "6-0"], 0),
    ("4-0", "MINID 4", ["4-0", "5-0", "6-0"], 3),
    ("4-0", "MINID 99", [], 5),
    ("1-0", "MINID ~ 4", ["4-0", "5-0", "6-0"], 2),
    ("6-0", "MINID 0", ["1-0", "2-0", "3-0", "4-0", "5-0", "6-0"], 0),
]


@pytest.mark.parametrize(("deleted", "trim", "left", "removed"), DELETED_EARLIER)
def test_delref_drops_the_references_of_entries_deleted_earlier(
    bench: Bench, deleted: str, trim: str, left: list[str], removed: int
) -> None:
    bench.tidelog.ctx.settings.stream_node_max_entries = 2
    fill(bench, 6)
    for group in "gh":
        bench.do(f"XGROUP CREATE s {group} 0")
        bench.do(f"XREADGROUP GROUP {group} c STREAMS s >")
    bench.do(f"XDEL s {deleted}")
    assert bench.do(f"XTRIM s {trim} DELREF") == removed
    for group in "gh":
        assert [id for id, *_ in bench.pending(group)] == left
    bench.check_replay()


def test_limit_counts_whole_nodes_with_policies_too(bench: Bench) -> None:
    bench.tidelog.ctx.settings.stream_node_max_entries = 3
    fill(bench, 9)
    assert bench.do("XTRIM s MAXLEN ~ 0 LIMIT 2 DELREF") == 0
    assert bench.do("XTRIM s MAXLEN ~ 0 LIMIT 4 DELREF") == 3


@pytest.mark.parametrize("words", ["KEEPREF DELREF", "ACKED ACKED"])
def test_a_second_policy_word_is_the_id_in_xadd(bench: Bench, words: str) -> None:
    assert bench.do(f"XADD s {words} 1-0 f v") == INVALID_ID
    assert bench.do(f"XTRIM s MAXLEN 1 {words}") == SYNTAX
    assert bench.do("EXISTS s") == 0


def test_numbers_the_stock_tests_expect(bench: Bench) -> None:
    settings = bench.tidelog.ctx.settings
    for i in range(1, 1001):
        bench.do(f"XADD a {i}-0 f v")
    assert bench.all("XTRIM a MAXLEN 666", "XTRIM a MAXLEN = 555") == [334, 111]
    assert bench.all("XTRIM a MAXLEN ~ 444", "XTRIM a MAXLEN ~ 400") == [55, 100]
    for i in range(1, 1001):
        bench.do(f"XADD b MAXLEN ~ 555 {i}-0 f v")
    assert bench.do("XLEN b") == 600
    settings.stream_node_max_entries = 10
    for i in range(1, 101):
        bench.do(f"XADD c {i}-0 f v")
    assert bench.all("XADD c MAXLEN ~ 55 LIMIT 30 101-0 f v", "XLEN c") == ["101-0", 71]
    assert bench.all("XADD c MAXLEN ~ 55 LIMIT 30 102-0 f v", "XLEN c") == ["102-0", 62]
    settings.stream_node_max_entries = 1
    for i in range(1, 103):
        bench.do(f"XADD d {i}-0 f v")
    assert bench.all("XTRIM d MAXLEN ~ 1", "XLEN d") == [101, 1] or bench.do("XLEN d") == 2
    settings.stream_node_max_entries = 2
    for i in range(1, 4):
        bench.do(f"XADD e {i}-0 f v")
    assert bench.all("XTRIM e MAXLEN ~ 0 LIMIT 1", "XTRIM e MAXLEN ~ 0 LIMIT 2") == [0, 2]


# --- 5.1.1: idempotent production


def test_a_duplicate_answers_the_first_id_and_appends_nothing(bench: Bench) -> None:
    first = bench.do("XADD s IDMP p i * f v")
    assert first == f"{START_MS}-0"
    bench.pass_ms(5)
    assert bench.do("XADD s IDMP p i * other fields") == first
    assert bench.do("XADD s IDMP q i * f v") == f"{START_MS + 5}-0"
    assert bench.do("XADD s IDMP p j * f v") == f"{START_MS + 5}-1"
    assert bench.do("XLEN s") == 3
    info = bench.info()
    assert (info["pids-tracked"], info["iids-tracked"]) == (2, 3)
    assert (info["iids-added"], info["iids-duplicates"]) == (3, 1)


def test_a_duplicate_does_not_trim_and_wakes_nobody(bench: Bench) -> None:
    bench.do("XADD s IDMP p i * f v")
    bench.do("XADD s * f v")
    waiting = bench.block("XREAD BLOCK 0 STREAMS s $")
    bench.do("XADD s IDMP p i MAXLEN 1 * f v")
    assert bench.do("XLEN s") == 2
    assert answer(waiting) is None


def test_idmpauto_is_blind_to_the_order_of_pairs_only(bench: Bench) -> None:
    first = bench.do("XADD s IDMPAUTO p * a 1 b 2")
    assert bench.do("XADD s IDMPAUTO p * b 2 a 1") == first
    others = ["a 2 b 1", "a 1", "a 1 b 2 b 2", "a1 '' b 2", "a b 1 2", "A 1 b 2", "a 1 b 2 a 1"]
    for fields in others:
        assert bench.do(f"XADD s IDMPAUTO p * {fields}") != first
    assert bench.do("XLEN s") == 1 + len(others)


def test_the_oldest_iid_gives_way_beyond_maxsize(bench: Bench) -> None:
    bench.do("XADD s * f v")
    assert bench.do("XCFGSET s IDMP-MAXSIZE 2") == "OK"
    ids = [bench.do(f"XADD s IDMP p {i} * f v") for i in "abc"]
    assert bench.do("XADD s IDMP p c * f v") == ids[2]
    assert bench.do("XADD s IDMP p b * f v") == ids[1]
    assert bench.do("XADD s IDMP p a * f v") not in ids
    assert bench.info()["iids-tracked"] == 2


def test_an_iid_expires_by_the_ms_of_its_entry(bench: Bench) -> None:
    first = bench.do("XADD s IDMP p i * f v")
    bench.pass_ms(100_000 - 1)
    assert bench.do("XADD s IDMP p i * f v") == first
    bench.pass_ms(1)
    assert bench.do("XADD s IDMP p i * f v") == f"{bench.now}-0"
    assert bench.do("XLEN s") == 2


def test_iids_travel_with_copy_and_rename_and_go_with_del(bench: Bench) -> None:
    first = bench.do("XADD s IDMP p i * f v")
    bench.do("COPY s t")
    bench.do("RENAME s u")
    assert bench.do("XADD t IDMP p i * f v") == first
    assert bench.do("XADD u IDMP p i * f v") == first
    bench.do("DEL u")
    bench.do("XADD u IDMP p i * f v")
    assert bench.info("u")["iids-added"] == 1


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XADD s IDMP p i IDMP p j * f v", "ERR syntax error, IDMP/IDMPAUTO specified multiple times"),
        ("XADD s IDMPAUTO p IDMP p j * f v", "ERR syntax error, IDMP/IDMPAUTO specified multiple times"),
        ("XADD s IDMPAUTO p IDMPAUTO p * f v", "ERR syntax error, IDMP/IDMPAUTO specified multiple times"),
        ("XADD s IDMPAUTO '' * f v", "ERR syntax error, IDMPAUTO requires a non-empty producer ID"),
        ("XADD s IDMP '' i * f v", "ERR syntax error, IDMP requires a non-empty producer ID"),
        ("XADD s IDMP p '' * f v", "ERR syntax error, IDMP requires a non-empty idempotent ID"),
        ("XADD s IDMP p i 1-1 f v", "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"),
        ("XADD s IDMPAUTO p 5-* f v", "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"),
        ("XADD s IDMP p i LIMIT 3 * f v",
         "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
        ("XADD s IDMP p i * f", "ERR wrong number of arguments for 'xadd' command"),
    ],
)  # fmt: skip
def test_idmp_errors_create_nothing(bench: Bench, line: str, error: str) -> None:
    assert bench.do(line) == error
    assert bench.do("EXISTS s") == 0


def test_idmp_on_another_type(bench: Bench) -> None:
    bench.do("SET s v")
    assert bench.do("XADD s IDMP p i * f v") == WRONGTYPE


# --- 5.5: XDELEX


def test_xdelex_policies(bench: Bench) -> None:
    fill(bench, 6, groups="gh")
    read(bench, 3)
    read(bench, 3, "h")
    bench.do("XACK s g 1-0")
    bench.do("XACK s h 1-0")
    assert bench.do("XDELEX s ACKED IDS 5 1-0 2-0 4-0 7-0 1-0") == [1, 2, 2, 2, -1]
    assert bench.do("XDELEX s DELREF IDS 2 2-0 2-0") == [1, -1]
    assert bench.pending() == [("3-0", "alice", 1)]
    assert bench.do("XDELEX s IDS 2 3-0 9-0") == [1, -1]
    assert bench.pending() == [("3-0", "alice", 1)]
    assert bench.do("XDELEX s IDS 1 3-0 DELREF") == [-1]
    assert bench.pending() == []
    assert bench.info()["max-deleted-entry-id"] == "3-0"


def test_xdelex_of_a_missing_key(bench: Bench) -> None:
    assert bench.do("XDELEX s IDS 2 nonsense 1-0") == [-1, -1]


XDELEX_ERRORS = [
    ("IDS 0 1-0", "ERR Number of IDs must be a positive integer"),
    ("IDS -1 1-0", "ERR Number of IDs must be a positive integer"),
    ("IDS x 1-0", "ERR Number of IDs must be a positive integer"),
    ("IDS 3 1-0 2-0", "ERR The `numids` parameter must match the number of arguments"),
    ("IDS 1 1-0 2-0", SYNTAX),
    ("KEEPREF ACKED IDS 1 1-0", SYNTAX),
    ("NONSENSE IDS 1 1-0", SYNTAX),
    ("KEEPREF IDS 1 1-0 DELREF", SYNTAX),
]


@pytest.mark.parametrize(("options", "error"), XDELEX_ERRORS)
@pytest.mark.parametrize("command", ["XDELEX s", "XACKDEL s g"])
@pytest.mark.parametrize("exists", [True, False])
def test_xdelex_and_xackdel_errors(
    bench: Bench, command: str, options: str, error: str, exists: bool
) -> None:
    if exists:
        fill(bench, 2)
    assert bench.do(f"{command} {options}") == error


def test_xdelex_and_xackdel_more_errors(bench: Bench) -> None:
    fill(bench, 2)
    assert bench.do("XDELEX s KEEPREF KEEPREF 1-0") == SYNTAX
    assert bench.do("XDELEX s IDS 2 1-0 nonsense") == INVALID_ID
    assert bench.do("XACKDEL s g IDS 2 1-0 nonsense") == INVALID_ID
    assert bench.ids() == ["1-0", "2-0"]
    assert bench.do("XDELEX s IDS 1") == "ERR wrong number of arguments for 'xdelex' command"
    assert bench.do("XACKDEL s g IDS 1") == "ERR wrong number of arguments for 'xackdel' command"
    bench.do("SET x v")
    assert bench.do("XDELEX x NONSENSE IDS 0") == WRONGTYPE
    assert bench.do("XACKDEL x g NONSENSE IDS 0") == WRONGTYPE


# --- 7.4: XACKDEL


def test_xackdel_policies(bench: Bench) -> None:
    fill(bench, 5, groups="gh")
    read(bench, 4)
    read(bench, 4, "h")
    assert bench.do("XACKDEL s g IDS 2 1-0 1-0") == [1, -1]
    assert bench.pending("h")[0] == ("1-0", "alice", 1)  # dangling
    assert bench.do("XACKDEL s g DELREF IDS 1 2-0") == [1]
    assert bench.pending("h") == [("1-0", "alice", 1), ("3-0", "alice", 1), ("4-0", "alice", 1)]
    assert bench.do("XACKDEL s g ACKED IDS 2 3-0 5-0") == [2, -1]
    assert bench.do("XACKDEL s h ACKED IDS 2 3-0 1-0") == [1, 1]
    assert bench.ids() == ["4-0", "5-0"]
    assert bench.do("XACKDEL s none IDS 2 nonsense 4-0") == [-1, -1]
    assert bench.do("XACKDEL none g IDS 1 nonsense") == [-1]
    assert bench.info()["max-deleted-entry-id"] == "3-0"


def test_xackdel_acked_waits_for_a_group_that_has_not_read(bench: Bench) -> None:
    fill(bench, 2, groups="gh")
    read(bench)
    assert bench.do("XACKDEL s g ACKED IDS 1 1-0") == [2]
    assert bench.ids() == ["1-0", "2-0"]


def test_xackdel_takes_many_ids(bench: Bench) -> None:
    fill(bench, 20)
    read(bench)
    ids = " ".join(f"{i}-0" for i in range(1, 21))
    assert bench.do(f"XACKDEL s g IDS 20 {ids}") == [1] * 20
    assert bench.ids() == []


# --- 7.5: XNACK


@pytest.mark.parametrize(
    ("mode", "count"),
    [
        ("SILENT", 0),
        ("FAIL", 1),
        ("FATAL", MANY),
        ("SILENT RETRYCOUNT 7", 7),
        ("FATAL RETRYCOUNT 0", 0),
    ],
)
def test_xnack_modes(bench: Bench, mode: str, count: int) -> None:
    fill(bench, 1)
    read(bench)
    word, _, options = mode.partition(" ")
    assert bench.do(f"XNACK s g {word} IDS 1 1-0 {options}") == 1
    assert bench.do("XPENDING s g - + 10") == [["1-0", "", -1, count]]


def test_xnack_force_creates_an_unowned_entry_if_the_message_exists(bench: Bench) -> None:
    fill(bench, 4)
    assert bench.do("XNACK s g FAIL IDS 2 1-0 9-0") == 0
    assert bench.do("XNACK s g FAIL IDS 2 1-0 9-0 FORCE") == 1
    assert bench.do("XNACK s g FATAL FORCE IDS 1 2-0") == 1
    assert bench.do("XNACK s g SILENT RETRYCOUNT 3 IDS 1 3-0 FORCE") == 1
    assert bench.pending() == [("1-0", "", 0), ("2-0", "", MANY), ("3-0", "", 3)]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XNACK x g WHAT IDS 1 1-0", WRONGTYPE),
        ("XNACK none g WHAT IDS 1 1-0", "NOGROUP No such key 'none' or consumer group 'g'"),
        ("XNACK s none WHAT IDS 1 1-0", "NOGROUP No such key 's' or consumer group 'none'"),
        ("XNACK s g WHAT IDS 0 1-0", "ERR mode must be SILENT, FAIL, or FATAL"),
        ("XNACK s g FAIL IDS 0 1-0", "ERR numids must be a positive integer"),
        ("XNACK s g FAIL IDS x 1-0", "ERR numids must be a positive integer"),
        ("XNACK s g FAIL IDS 2147483648 1-0", "ERR numids must be a positive integer"),
        ("XNACK s g FAIL IDS 2 1-0", "ERR number of IDs doesn't match numids"),
        ("XNACK s g FAIL IDS 1 1-0 RETRYCOUNT x", NOT_INTEGER),
        ("XNACK s g FAIL IDS 1 1-0 RETRYCOUNT -1", "ERR Invalid RETRYCOUNT value, must be >= 0"),
        ("XNACK s g FAIL IDS 1 1-0 2-0", "ERR Unrecognized XNACK option '2-0'"),
        ("XNACK s g FAIL IDS 1 1-0 RETRYCOUNT", "ERR Unrecognized XNACK option 'RETRYCOUNT'"),
        ("XNACK s g FAIL RETRYCOUNT 1 FORCE", "ERR syntax error, expected IDS keyword"),
        ("XNACK s g FAIL IDS 2 1-0 nonsense", INVALID_ID),
        ("XNACK s g FAIL IDS 1", "ERR wrong number of arguments for 'xnack' command"),
    ],
)
def test_xnack_errors(bench: Bench, line: str, error: str) -> None:
    fill(bench, 2)
    read(bench)
    bench.do("SET x v")
    before = bench.pending()
    assert bench.do(line) == error
    assert bench.pending() == before


def test_a_nacked_entry_is_shown_without_owner_and_kept_from_its_history(bench: Bench) -> None:
    fill(bench, 3)
    read(bench)
    bench.do("XNACK s g FAIL IDS 1 2-0")
    assert bench.do("XPENDING s g") == [3, "1-0", "3-0", [["alice", "2"]]]
    assert bench.do("XPENDING s g - + 10 alice") == [["1-0", "alice", 0, 1], ["3-0", "alice", 0, 1]]
    assert bench.do("XPENDING s g IDLE 1000 - + 10") == [["2-0", "", -1, 1]]
    history = only(bench.do("XREADGROUP GROUP g alice STREAMS s 0"))
    assert [entry[0] for entry in history] == ["1-0", "3-0"]
    group = pairs(pairs(bench.do("XINFO STREAM s FULL"))["groups"][0])
    assert group["nacked-count"] == 1
    assert group["pending"][1] == ["2-0", "", 0, 1]
    assert group["pel-count"] == 3


def test_nacked_entries_stay_through_delconsumer_and_deletion(bench: Bench) -> None:
    fill(bench, 3)
    read(bench)
    bench.do("XNACK s g FAIL IDS 2 1-0 2-0")
    assert bench.do("XGROUP DELCONSUMER s g alice") == 1
    bench.do("XDEL s 1-0")
    assert bench.pending() == [("1-0", "", 1), ("2-0", "", 1)]
    assert bench.do("XACK s g 2-0") == 1
    assert bench.do("XAUTOCLAIM s g bob 1000000 0") == ["0-0", [], ["1-0"]]
    assert bench.pending() == []


def test_any_min_idle_is_satisfied_by_a_nacked_entry(bench: Bench) -> None:
    fill(bench, 3)
    read(bench)
    bench.do("XNACK s g FAIL IDS 3 3-0 1-0 2-0")
    assert bench.do("XCLAIM s g bob 1000000 1-0 JUSTID") == ["1-0"]
    assert bench.do("XAUTOCLAIM s g bob 1000000 0 COUNT 1") == ["3-0", [["2-0", ["f", "v2"]]], []]
    taken = only(bench.do("XREADGROUP GROUP g bob CLAIM 1000000 STREAMS s >"))
    assert [(entry[0], entry[3]) for entry in taken] == [("3-0", 1)]
    assert bench.pending() == [("1-0", "bob", 1), ("2-0", "bob", 2), ("3-0", "bob", 2)]


def test_the_nack_zone_is_first_in_first_out(bench: Bench) -> None:
    fill(bench, 4)
    read(bench)
    bench.do("XNACK s g FAIL IDS 2 3-0 1-0")
    bench.do("XNACK s g FAIL IDS 2 2-0 3-0")
    taken = only(bench.do("XREADGROUP GROUP g bob CLAIM 1 STREAMS s >"))
    assert [entry[0] for entry in taken] == ["1-0", "2-0", "3-0"]
    assert {entry[2] for entry in taken} == {bench.now}  # idle: the whole epoch


def test_copy_keeps_the_nack_zone(bench: Bench) -> None:
    fill(bench, 3)
    read(bench)
    bench.do("XNACK s g FAIL IDS 2 3-0 1-0")
    bench.do("COPY s t")
    taken = only(bench.do("XREADGROUP GROUP g bob CLAIM 1 STREAMS t >"))
    assert [entry[0] for entry in taken] == ["3-0", "1-0"]
    assert bench.pending()[0] == ("1-0", "", 1)


def test_xnack_wakes_a_blocked_claim(bench: Bench) -> None:
    fill(bench, 1)
    read(bench)
    waiting = bench.block("XREADGROUP GROUP g bob BLOCK 0 CLAIM 1000000 STREAMS s >")
    plain_read = bench.block("XREADGROUP GROUP g carol BLOCK 0 STREAMS s >")
    bench.do("XNACK s g FAIL IDS 1 1-0")
    assert answer(waiting) == [["s", [["1-0", ["f", "v1"], bench.now, 1]]]]
    assert answer(plain_read) is None


# --- 7.2.4 and 10.4: XREADGROUP CLAIM


def test_claim_takes_idle_entries_before_new_ones(bench: Bench) -> None:
    fill(bench, 4)
    read(bench, 2)
    bench.pass_ms(50)
    read(bench, 1)
    bench.pass_ms(10)
    taken = only(bench.do("XREADGROUP GROUP g bob CLAIM 60 STREAMS s >"))
    assert taken == [
        ["1-0", ["f", "v1"], 60, 1],
        ["2-0", ["f", "v2"], 60, 1],
        ["4-0", ["f", "v4"], 0, 0],
    ]
    assert bench.pending() == [
        ("1-0", "bob", 2),
        ("2-0", "bob", 2),
        ("3-0", "alice", 1),
        ("4-0", "bob", 1),
    ]


def test_claim_count_covers_claimed_and_new(bench: Bench) -> None:
    fill(bench, 4)
    read(bench, 2)
    bench.pass_ms(5)
    taken = only(bench.do("XREADGROUP GROUP g bob COUNT 3 CLAIM 5 STREAMS s >"))
    assert [entry[0] for entry in taken] == ["1-0", "2-0", "3-0"]
    bench.pass_ms(5)
    taken = only(bench.do("XREADGROUP GROUP g bob COUNT 1 CLAIM 5 STREAMS s >"))
    assert [entry[0] for entry in taken] == ["1-0"]


def test_claim_takes_the_oldest_delivery_first(bench: Bench) -> None:
    fill(bench, 3)
    read(bench, 3)
    bench.pass_ms(5)
    bench.do("XCLAIM s g alice 0 1-0")
    bench.pass_ms(5)
    taken = only(bench.do("XREADGROUP GROUP g bob CLAIM 0 STREAMS s >"))
    assert [(entry[0], entry[2]) for entry in taken] == [("2-0", 10), ("3-0", 10), ("1-0", 5)]


def test_claim_zero_takes_what_one_owns_already_once(bench: Bench) -> None:
    fill(bench, 2)
    read(bench)
    taken = only(bench.do("XREADGROUP GROUP g alice CLAIM 0 STREAMS s >"))
    assert taken == [["1-0", ["f", "v1"], 0, 1], ["2-0", ["f", "v2"], 0, 1]]


def test_noack_holds_for_the_new_entries_only(bench: Bench) -> None:
    fill(bench, 2)
    read(bench, 1)
    bench.do("XREADGROUP GROUP g bob NOACK CLAIM 0 STREAMS s >")
    assert bench.pending() == [("1-0", "bob", 2)]
    assert bench.group()["last-delivered-id"] == "2-0"


def test_claim_saturates_the_delivery_count(bench: Bench) -> None:
    fill(bench, 1)
    read(bench)
    bench.do("XNACK s g FATAL IDS 1 1-0")
    assert only(bench.do("XREADGROUP GROUP g bob CLAIM 0 STREAMS s >"))[0][3] == MANY
    assert bench.pending() == [("1-0", "bob", MANY)]


def test_a_history_id_switches_claim_off(bench: Bench) -> None:
    fill(bench, 2)
    read(bench, 1)
    assert only(bench.do("XREADGROUP GROUP g alice CLAIM 0 STREAMS s 0")) == [["1-0", ["f", "v1"]]]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("x", "ERR min-idle-time is not an integer or out of range"),
        ("1.5", "ERR min-idle-time is not an integer or out of range"),
        ("-1", "ERR min-idle-time must be a positive integer"),
    ],
)
def test_claim_errors(bench: Bench, value: str, error: str) -> None:
    fill(bench, 1)
    assert bench.do(f"XREADGROUP GROUP g bob CLAIM {value} STREAMS s >") == error


def test_xread_refuses_what_belongs_to_groups(bench: Bench) -> None:
    for option, words in (("CLAIM", "CLAIM 5"), ("GROUP", "GROUP g c"), ("NOACK", "NOACK")):
        text = f"ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
        assert bench.do(f"XREAD {words} STREAMS s 0") == text


def test_a_blocked_claim_is_served_when_an_entry_becomes_idle(bench: Bench) -> None:
    fill(bench, 1)
    read(bench)
    bench.pass_ms(10)
    waiting = bench.block("XREADGROUP GROUP g bob BLOCK 0 CLAIM 100 STREAMS s >")
    at = bench.tidelog.next_claim_at
    assert at is not None and START_MS + 100 <= at <= START_MS + 101
    bench.pass_ms(80)
    assert answer(waiting) is None
    bench.pass_ms(20)
    assert answer(waiting) == [["s", [["1-0", ["f", "v1"], 110, 1]]]]


# --- 5.7: XCFGSET


def test_xcfgset_stores_and_clears_only_on_change(bench: Bench) -> None:
    first = bench.do("XADD s IDMP p i * f v")
    assert bench.do("XCFGSET s IDMP-DURATION 100 IDMP-MAXSIZE 100") == "OK"
    assert bench.do("XADD s IDMP p i * f v") == first
    assert bench.do("XCFGSET s IDMP-DURATION 300") == "OK"
    info = bench.info()
    assert (info["idmp-duration"], info["idmp-maxsize"]) == (300, 100)
    assert (info["pids-tracked"], info["iids-tracked"]) == (0, 0)
    assert (info["iids-added"], info["iids-duplicates"]) == (1, 1)
    assert bench.do("XADD s IDMP p i * f v") != first


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("IDMP-DURATION 5 IDMP-DURATION 5", "ERR IDMP-DURATION specified multiple times"),
        ("IDMP-MAXSIZE 5 IDMP-MAXSIZE 5", "ERR IDMP-MAXSIZE specified multiple times"),
        ("IDMP-DURATION 0", "ERR IDMP-DURATION must be between 1 and 86400 seconds"),
        ("IDMP-DURATION 86401", "ERR IDMP-DURATION must be between 1 and 86400 seconds"),
        ("IDMP-MAXSIZE 0", "ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
        ("IDMP-MAXSIZE 10001", "ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
        ("IDMP-MAXSIZE x", NOT_INTEGER),
        ("IDMP-DURATION 1.5", NOT_INTEGER),
        ("NONSENSE 5", SYNTAX),
        ("IDMP-DURATION", SYNTAX),
        ("", "ERR At least one parameter must be specified"),
    ],
)
def test_xcfgset_errors(bench: Bench, options: str, error: str) -> None:
    bench.do("XADD s 1-0 f v")
    assert bench.do(f"XCFGSET s {options}") == error
    assert bench.do(f"XCFGSET none {options}") == NO_KEY
    bench.do("SET x v")
    assert bench.do(f"XCFGSET x {options}") == WRONGTYPE
    assert bench.info()["idmp-duration"] == 100


@pytest.mark.parametrize(
    "options", ["IDMP-DURATION 1", "IDMP-DURATION 86400", "idmp-maxsize 10000 IDMP-MAXSIZE 1"]
)
def test_xcfgset_bounds(bench: Bench, options: str) -> None:
    bench.do("XADD s 1-0 f v")
    wanted = (
        "ERR IDMP-MAXSIZE specified multiple times"
        if options.count("SIZE") + options.count("size") > 1
        else "OK"
    )
    assert bench.do(f"XCFGSET s {options}") == wanted


# --- 5.8: XIDMPRECORD


def test_xidmprecord_restores_a_record(bench: Bench) -> None:
    bench.do(f"XADD s {START_MS}-0 f v")
    bench.do(f"XADD s {START_MS}-1 f v")
    assert bench.do(f"XIDMPRECORD s p i {START_MS}-0") == "OK"
    assert bench.do(f"XIDMPRECORD s p i {START_MS}-0") == "OK"
    info = bench.info()
    assert (info["iids-tracked"], info["iids-added"]) == (1, 1)
    error = "ERR IID already exists for this producer with a different stream ID"
    assert bench.do(f"XIDMPRECORD s p i {START_MS}-1") == error
    assert bench.do("XADD s IDMP p i * f v") == f"{START_MS}-0"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XIDMPRECORD none '' '' nonsense", INVALID_ID),
        ("XIDMPRECORD none '' '' 5-0", "ERR producer ID must be non-empty"),
        ("XIDMPRECORD none p '' 5-0", "ERR idempotent ID must be non-empty"),
        ("XIDMPRECORD none p i 5-0", NO_KEY),
        ("XIDMPRECORD x p i 5-0", WRONGTYPE),
        ("XIDMPRECORD s p i 6-0", "ERR No such message in stream"),
        ("XIDMPRECORD s p i", "ERR wrong number of arguments for 'xidmprecord' command"),
    ],
)
def test_xidmprecord_errors(bench: Bench, line: str, error: str) -> None:
    bench.do("XADD s 5-0 f v")
    bench.do("SET x v")
    assert bench.do(line) == error


def test_xidmprecord_evicts_beyond_maxsize(bench: Bench) -> None:
    for i in range(1, 4):
        bench.do(f"XADD s {bench.now}-{i} f v")
    bench.do("XCFGSET s IDMP-MAXSIZE 2")
    for i in range(1, 4):
        assert bench.do(f"XIDMPRECORD s p i{i} {bench.now}-{i}") == "OK"
    assert bench.info()["iids-tracked"] == 2
    assert bench.do("XADD s IDMP p i3 * f v") == f"{bench.now}-3"


# --- 19: MAXCOUNT and MAXSIZE of 8.10


def test_maxcount_caps_all_keys_together(bench: Bench) -> None:
    fill(bench, 3)
    fill(bench, 3, "t")
    fill(bench, 3, "u")
    reply = bench.do("XREAD MAXCOUNT 4 STREAMS s t u 0 0 0")
    assert [(key, len(entries)) for key, entries in reply] == [("s", 3), ("t", 1)]
    reply = bench.do("XREAD COUNT 2 MAXCOUNT 5 STREAMS s t u 0 0 0")
    assert [(key, len(entries)) for key, entries in reply] == [("s", 2), ("t", 2), ("u", 1)]


def test_keys_after_the_cap_are_not_evaluated(bench: Bench) -> None:
    fill(bench, 3)
    fill(bench, 3, "t")
    reply = bench.do("XREADGROUP GROUP g alice MAXCOUNT 3 STREAMS s t > >")
    assert [(key, len(entries)) for key, entries in reply] == [("s", 3)]
    assert bench.group(key="t")["consumers"] == 0
    assert bench.group(key="t")["last-delivered-id"] == "0-0"
    reply = bench.do("XREADGROUP GROUP g alice MAXCOUNT 2 STREAMS s t 0 0")
    assert [(key, len(entries)) for key, entries in reply] == [("s", 2)]
    assert bench.pending()[2] == ("3-0", "alice", 1)


def test_caps_hold_for_claims(bench: Bench) -> None:
    fill(bench, 3)
    read(bench, 2)
    reply = bench.do("XREADGROUP GROUP g bob MAXCOUNT 1 CLAIM 0 STREAMS s >")
    assert [entry[0] for entry in only(reply)] == ["1-0"]
    assert bench.pending() == [("1-0", "bob", 2), ("2-0", "alice", 1)]


def test_maxsize_sends_at_least_one_entry(bench: Bench) -> None:
    for i in range(1, 6):
        bench.do(f"XADD s {i}-0 f {'v' * 100}")
    assert len(only(bench.do("XREAD MAXSIZE 1 STREAMS s 0"))) == 1
    some = len(only(bench.do("XREAD MAXSIZE 250 STREAMS s 0")))
    assert 2 <= some <= 3
    assert len(only(bench.do("XREAD MAXSIZE 100000 STREAMS s 0"))) == 5
    bench.do("XGROUP CREATE s g 0")
    assert len(only(bench.do("XREADGROUP GROUP g c MAXSIZE 1 STREAMS s >"))) == 1
    assert bench.group()["last-delivered-id"] == "1-0"


@pytest.mark.parametrize("command", ["XREAD", "XREADGROUP GROUP g c"])
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("MAXCOUNT 0", "ERR MAXCOUNT must be a positive integer"),
        ("MAXCOUNT -1", "ERR MAXCOUNT must be a positive integer"),
        ("MAXSIZE 0", "ERR MAXSIZE must be a positive integer"),
        ("COUNT 5 MAXCOUNT 4", "ERR MAXCOUNT must be greater than or equal to COUNT"),
        ("MAXCOUNT 4 COUNT 5", "ERR MAXCOUNT must be greater than or equal to COUNT"),
    ],
)
def test_cap_errors(bench: Bench, command: str, options: str, error: str) -> None:
    fill(bench, 1)
    assert bench.do(f"{command} {options} STREAMS s 0") == error


# --- 6.3, 7.2, 7.1, 5.6, 4: what 7.2 to 8.2 changed in older commands


def test_xread_plus_is_the_last_entry(bench: Bench) -> None:
    fill(bench, 3)
    fill(bench, 2, "t")
    assert bench.do("XREAD STREAMS s t none + + +") == [
        ["s", [["3-0", ["f", "v3"]]]],
        ["t", [["2-0", ["f", "v2"]]]],
    ]
    assert bench.do("XREAD COUNT 0 STREAMS none +") == NIL
    bench.do("XDEL s 3-0")
    assert only(bench.do("XREAD STREAMS s +")) == [["2-0", ["f", "v2"]]]
    waiting = bench.block("XREAD BLOCK 0 STREAMS none +")
    bench.do("XADD none 7-7 f v")
    assert answer(waiting) == [["none", [["7-7", ["f", "v"]]]]]


def test_unbalanced_texts(bench: Bench) -> None:
    text = "ERR Unbalanced '%s' list of streams: for each stream key an ID%s must be specified."
    assert bench.do("XREAD STREAMS s t 0") == text % ("xread", ", '+', or '$'")
    assert bench.do("XREADGROUP GROUP g c STREAMS s t 0") == text % ("xreadgroup", " or '>'")


def test_ids_that_mean_nothing_to_xreadgroup(bench: Bench) -> None:
    fill(bench, 1)
    for id in "$+":
        assert bench.do(f"XREADGROUP GROUP g c STREAMS s {id}") == (
            f"ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of this "
            f"consumer by specifying a proper ID, or use the > ID to get new messages. The {id} ID would just "
            "return an empty result set."
        )


def test_consumers_are_created_by_every_attempt(bench: Bench) -> None:
    fill(bench, 1)
    bench.do("XREADGROUP GROUP g a STREAMS s 0")
    bench.do("XCLAIM s g b 0 9-9")
    bench.do("XAUTOCLAIM s g c 0 0")
    bench.do("XREADGROUP GROUP g d NOACK STREAMS s >")
    bench.do("XREADGROUP GROUP g e STREAMS s >")
    bench.block("XREADGROUP GROUP g f BLOCK 0 STREAMS s >")
    consumers = bench.consumers()
    assert sorted(consumers) == list("abcdef")
    assert {each["inactive"] for each in consumers.values()} == {-1}
    bench.do("XREADGROUP GROUP g x STREAMS s $")
    assert "x" not in bench.consumers()


def test_seen_time_is_the_attempt_and_active_time_the_success(bench: Bench) -> None:
    fill(bench, 2)
    read(bench, 1)
    bench.pass_ms(10)
    bench.do("XREADGROUP GROUP g alice STREAMS s 0")
    assert bench.consumers()["alice"] == {"name": "alice", "pending": 1, "idle": 0, "inactive": 10}
    bench.pass_ms(10)
    bench.do("XPENDING s g - + 10 alice")
    bench.do("XACK s g 1-0")
    assert bench.consumers()["alice"] == {"name": "alice", "pending": 0, "idle": 10, "inactive": 20}
    bench.do("XREADGROUP GROUP g alice NOACK STREAMS s >")
    assert bench.consumers()["alice"] == {"name": "alice", "pending": 0, "idle": 0, "inactive": 20}
    bench.do("XCLAIM s g alice 0 2-0 FORCE")
    assert bench.consumers()["alice"] == {"name": "alice", "pending": 1, "idle": 0, "inactive": 0}


def test_xsetid_below_max_deleted_is_refused(bench: Bench) -> None:
    fill(bench, 5)
    bench.do("XDEL s 5-0 4-0 3-0 2-0 1-0")
    error = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
    assert bench.do("XSETID s 4-9") == error
    assert bench.do("XSETID s 5-0 ENTRIESADDED 0") == "OK"


def test_entriesread_is_capped(bench: Bench) -> None:
    fill(bench, 5, groups="")
    bench.do("XGROUP CREATE s g 0 ENTRIESREAD 99")
    assert (bench.group()["entries-read"], bench.group()["lag"]) == (5, 5)
    bench.do("XGROUP SETID s g 3 ENTRIESREAD 3")
    assert bench.group()["entries-read"] == 3
    bench.do("XGROUP SETID s g 3 ENTRIESREAD 6")
    assert bench.group()["entries-read"] == 5


def test_block_beyond_the_end_of_time(bench: Bench) -> None:
    assert bench.do(f"XREAD BLOCK {MANY} STREAMS s $") == "ERR timeout is out of range"
    assert bench.do("XREAD BLOCK -1 STREAMS s $") == "ERR timeout is negative"
    assert bench.do("XREAD BLOCK x STREAMS s $") == "ERR timeout is not an integer or out of range"


# --- 8: XINFO


def test_xinfo_stream_pairs_in_order(bench: Bench) -> None:
    fill(bench, 1)
    common = [
        "length", "radix-tree-keys", "radix-tree-nodes", "last-generated-id", "max-deleted-entry-id", "entries-added",
        "recorded-first-entry-id", "idmp-duration", "idmp-maxsize", "pids-tracked", "iids-tracked", "iids-added",
        "iids-duplicates",
    ]  # fmt: skip
    assert list(bench.info()) == [*common, "groups", "first-entry", "last-entry"]
    full = pairs(bench.do("XINFO STREAM s FULL"))
    assert list(full) == [*common, "entries", "groups"]
    read(bench)
    group = pairs(pairs(bench.do("XINFO STREAM s FULL"))["groups"][0])
    assert list(group) == [
        "name", "last-delivered-id", "entries-read", "lag", "pel-count", "nacked-count", "pending", "consumers",
    ]  # fmt: skip
    consumer = pairs(group["consumers"][0])
    assert list(consumer) == ["name", "seen-time", "active-time", "pel-count", "pending"]
    assert list(bench.group()) == [
        "name", "consumers", "pending", "last-delivered-id", "entries-read", "lag",
    ]  # fmt: skip


# --- 9: the check table, column 8.2+

COUNTERS: list[tuple[str, list[str], tuple[int | None, int | None]]] = [
    ("new stream, group at $", ["XGROUP CREATE n g $ MKSTREAM"], (None, 0)),
    ("group at 0", ["XGROUP CREATE s g 0"], (None, 5)),
    ("group at $", ["XGROUP CREATE s g $"], (None, 0)),
    ("group at 1-0", ["XGROUP CREATE s g 1-0"], (None, 4)),
    ("group at 3-0", ["XGROUP CREATE s g 3-0"], (None, None)),
    ("group at 3-0 ENTRIESREAD 3", ["XGROUP CREATE s g 3-0 ENTRIESREAD 3"], (3, 2)),
    ("group at 9-0", ["XGROUP CREATE s g 9-0"], (None, None)),
    ("read 2", ["XGROUP CREATE s g 0", "READ 2"], (2, 3)),
    ("group at 2-0, read 1", ["XGROUP CREATE s g 2-0", "READ 1"], (None, None)),
    ("group at 2-0, read rest", ["XGROUP CREATE s g 2-0", "READ 9"], (5, 0)),
    ("read 2, XDEL 1-0", ["XGROUP CREATE s g 0", "READ 2", "XDEL s 1-0"], (2, 3)),
    ("read 2, XDEL 4-0", ["XGROUP CREATE s g 0", "READ 2", "XDEL s 4-0"], (2, None)),
    (
        "read 2, XDEL 4-0, read 1",
        ["XGROUP CREATE s g 0", "READ 2", "XDEL s 4-0", "READ 1"],
        (None, None),
    ),
    (
        "read 2, XDEL 4-0, read rest",
        ["XGROUP CREATE s g 0", "READ 2", "XDEL s 4-0", "READ 9"],
        (5, 0),
    ),
    ("read 2, XDEL 1..3", ["XGROUP CREATE s g 0", "READ 2", "XDEL s 1-0 2-0 3-0"], (2, 2)),
    ("group at 0, XDEL 1-0", ["XGROUP CREATE s g 0", "XDEL s 1-0"], (None, 4)),
    ("group at 0, XDEL 3-0", ["XGROUP CREATE s g 0", "XDEL s 3-0"], (None, None)),
    ("read 1, XTRIM 2", ["XGROUP CREATE s g 0", "READ 1", "XTRIM s MAXLEN 2"], (1, 2)),
    (
        "read 1, XTRIM 2, read 1",
        ["XGROUP CREATE s g 0", "READ 1", "XTRIM s MAXLEN 2", "READ 1"],
        (4, 1),
    ),
    ("read 1, XTRIM 0", ["XGROUP CREATE s g 0", "READ 1", "XTRIM s MAXLEN 0"], (1, 0)),
    ("read 1, XDEL all", ["XGROUP CREATE s g 0", "READ 1", "XDEL s 1-0 2-0 3-0 4-0 5-0"], (1, 0)),
    ("ENTRIESREAD 99", ["XGROUP CREATE s g 0 ENTRIESREAD 99"], (5, 5)),
    ("XCLAIM LASTID", ["XGROUP CREATE s g 0", "XCLAIM s g c 0 1-0 FORCE LASTID 3-0"], (None, None)),
    ("read all, SETID 0", ["XGROUP CREATE s g 0", "READ 9", "XGROUP SETID s g 0"], (None, 5)),
]


@pytest.mark.parametrize(
    ("case", "lines", "wanted"), COUNTERS, ids=[case for case, _, _ in COUNTERS]
)
def test_entries_read_and_lag(
    bench: Bench, case: str, lines: list[str], wanted: tuple[int | None, int | None]
) -> None:
    fill(bench, 5, groups="")
    for line in lines:
        if line.startswith("READ"):
            line = f"XREADGROUP GROUP g c COUNT {line[5:]} STREAMS s >"
        assert not str(bench.do(line)).startswith("ERR")
    group = bench.group(key="n" if lines[0].startswith("XGROUP CREATE n") else "s")
    assert (group["entries-read"], group["lag"]) == wanted


# --- 10: blocking by re-execution


def test_two_consumers_one_entry(bench: Bench) -> None:
    bench.do("XGROUP CREATE s g 0 MKSTREAM")
    first = bench.block("XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    second = bench.block("XREADGROUP GROUP g b BLOCK 0 STREAMS s >")
    bench.do("XADD s 1-0 f v")
    assert answer(first) == [["s", [["1-0", ["f", "v"]]]]]
    assert answer(second) is None
    bench.do("XADD s 2-0 f v")
    assert answer(second) == [["s", [["2-0", ["f", "v"]]]]]


def test_a_transaction_serves_the_first_up_to_its_count_and_the_next_the_rest(bench: Bench) -> None:
    bench.do("XGROUP CREATE s g 0 MKSTREAM")
    first = bench.block("XREADGROUP GROUP g a COUNT 2 BLOCK 0 STREAMS s >")
    second = bench.block("XREADGROUP GROUP g b BLOCK 0 STREAMS s >")
    bench.all("MULTI", "XADD s 1-0 f v", "XADD s 2-0 f v", "XADD s 3-0 f v", "EXEC")
    assert [entry[0] for entry in only(answer(first))] == ["1-0", "2-0"]
    assert [entry[0] for entry in only(answer(second))] == ["3-0"]


def test_a_woken_read_serves_every_key_that_has_data(bench: Bench) -> None:
    waiting = bench.block("XREAD BLOCK 0 STREAMS t s $ 0")
    bench.all("MULTI", "XADD s 1-0 f v", "XADD t 2-0 f v", "EXEC")
    assert [key for key, _ in answer(waiting)] == ["t", "s"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("DEL s", "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option"),
        (
            "XGROUP DESTROY s g",
            "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
        (
            "RENAME s other",
            "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
        (
            "FLUSHALL",
            "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
        (
            "PEXPIRE s -1",
            "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option",
        ),
        ("SET s v", WRONGTYPE),
    ],
)
def test_what_ends_a_blocked_xreadgroup(bench: Bench, line: str, text: str) -> None:
    bench.do("XGROUP CREATE s g 0 MKSTREAM")
    bench.do("XGROUP CREATE t g 0 MKSTREAM")
    waiting = bench.block("XREADGROUP GROUP g a BLOCK 0 STREAMS t s > >")
    reader = bench.block("XREAD BLOCK 0 STREAMS s $")
    bench.do(line)
    wanted = text.replace("'s'", "'t'") if line == "FLUSHALL" else text
    assert answer(waiting) == wanted
    assert answer(reader) is None


def test_what_does_not_signal(bench: Bench) -> None:
    fill(bench, 3)
    read(bench)
    bench.do("XGROUP CREATE s h $")
    waiting = bench.block("XREADGROUP GROUP h a BLOCK 0 STREAMS s >")
    bench.all(
        "XGROUP SETID s h 0", "XACK s g 1-0", "XDEL s 1-0", "XTRIM s MAXLEN 1", "XSETID s 9-0"
    )
    bench.do("XCLAIM s g bob 0 3-0")
    assert answer(waiting) is None


# --- 20.1: the traps


def test_trap_1_count_zero(bench: Bench) -> None:
    assert bench.do("XRANGE s - + COUNT 0") == []
    bench.do("XADD s 1-0 f v")
    assert bench.all("XRANGE s - + COUNT 0", "XREVRANGE s + - COUNT -1") == [NIL, NIL]


def test_trap_2_an_approximate_trim_is_logged_exactly(bench: Bench) -> None:
    bench.tidelog.ctx.settings.stream_node_max_entries = 2
    fill(bench, 5, groups="")
    bench.do("XADD s MAXLEN ~ 3 LIMIT 5 6-0 f v")
    last = bench.tidelog.history[-1]
    assert isinstance(last, Unit)
    effects = [unpacked(record) for record in last.records]
    assert [effect[0] for effect in effects] == [op.XADD, op.XTRIM]
    assert as_commands.commands(effects[1]) == [[b"XTRIM", b"s", b"MAXLEN", b"=", b"4"]]


def test_trap_3_only_star_advances_ms(bench: Bench) -> None:
    bench.do(f"XADD s 6-{2**64 - 1} f v")
    error = "ERR The ID specified in XADD is equal or smaller than the target stream top item"
    assert bench.do("XADD s 6-* f v") == error
    assert bench.do("XADD s 7-* f v") == "7-0"
    bench.do(f"XADD t {bench.now}-{2**64 - 1} f v")
    assert bench.do("XADD t * f v") == f"{bench.now + 1}-0"


def test_trap_4_trimming_never_moves_max_deleted(bench: Bench) -> None:
    fill(bench, 5)
    bench.do("XTRIM s MAXLEN 3")
    bench.do("XADD s MAXLEN 2 6-0 f v")
    assert bench.info()["max-deleted-entry-id"] == "0-0"
    bench.do("XDEL s 5-0")
    assert bench.info()["max-deleted-entry-id"] == "5-0"


def test_trap_5_an_empty_stream_exists(bench: Bench) -> None:
    fill(bench, 2, groups="")
    bench.do("XDEL s 1-0 2-0")
    assert bench.all("EXISTS s", "TYPE s", "XLEN s") == [1, "stream", 0]
    assert bench.info()["last-generated-id"] == "2-0"
    assert bench.info()["radix-tree-nodes"] == 1


def test_trap_6_a_deleted_tail_serves_nothing(bench: Bench) -> None:
    fill(bench, 2)
    read(bench, 1)
    bench.do("XDEL s 2-0")
    assert bench.do("XREADGROUP GROUP g alice STREAMS s >") == NIL
    waiting = bench.block("XREADGROUP GROUP g alice BLOCK 0 STREAMS s >")
    assert answer(waiting) is None


def test_trap_7_setid_backwards_moves_pending_messages(bench: Bench) -> None:
    fill(bench, 2)
    read(bench)
    bench.do("XCLAIM s g alice 0 1-0")
    bench.do("XGROUP SETID s g 0")
    read(bench, consumer="bob")
    assert bench.pending() == [("1-0", "bob", 1), ("2-0", "bob", 1)]
    assert bench.consumers()["alice"]["pending"] == 0


def test_trap_8_history_of_a_deleted_message(bench: Bench) -> None:
    fill(bench, 2)
    read(bench)
    bench.do("XDEL s 1-0")
    bench.pass_ms(5)
    reply = only(bench.do("XREADGROUP GROUP g alice STREAMS s 0"))
    assert reply == [["1-0", NIL], ["2-0", ["f", "v2"]]]
    assert bench.pending() == [("1-0", "alice", 1), ("2-0", "alice", 2)]
    taken = only(bench.do("XREADGROUP GROUP g bob CLAIM 0 STREAMS s >"))
    assert [entry[0] for entry in taken] == ["2-0"]
    assert bench.pending()[0] == ("1-0", "alice", 1)
    assert bench.do("XAUTOCLAIM s g bob 1000000 0") == ["0-0", [], ["1-0"]]
    assert bench.pending() == [("2-0", "bob", 3)]


def test_trap_9_ids_end_where_one_does_not_parse(bench: Bench) -> None:
    fill(bench, 2)
    read(bench)
    assert bench.do("XCLAIM s g bob 0 1-0 foo 2-0") == "ERR Unrecognized XCLAIM option 'foo'"
    assert bench.pending()[0] == ("1-0", "alice", 1)


def test_trap_10_summary_counts_are_strings(bench: Bench) -> None:
    fill(bench, 2)
    assert bench.do("XPENDING s g") == [0, None, None, NIL]
    read(bench)
    assert bench.do("XPENDING s g") == [2, "1-0", "2-0", [["alice", "2"]]]


def test_trap_11_xpending_tolerates_surplus(bench: Bench) -> None:
    fill(bench, 1)
    read(bench)
    wanted = [["1-0", "alice", 0, 1]]
    assert bench.do("XPENDING s g - + 10 alice x") == wanted
    assert bench.do("XPENDING s g - + 10 alice x y") == wanted
    assert bench.do("XPENDING s g - + 10 alice x y z") == SYNTAX
    assert bench.do("XPENDING s g -") == SYNTAX
    assert bench.do("XPENDING s g IDLE 0 - +") == SYNTAX


def test_trap_12_missing_keys(bench: Bench) -> None:
    assert (
        bench.do("XINFO STREAM s")
        == bench.do("XINFO GROUPS s")
        == bench.do("XINFO CONSUMERS s g")
        == NO_KEY
    )
    assert bench.all("XLEN s", "XRANGE s - +", "XACK s g 1-0") == [0, [], 0]


def test_trap_13_xgroup_on_a_missing_key(bench: Bench) -> None:
    text = (
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM "
        "option to create an empty stream automatically."
    )
    for rest in (
        "CREATE s g 0",
        "SETID s g 0",
        "DESTROY s g",
        "CREATECONSUMER s g c",
        "DELCONSUMER s g c",
    ):
        assert bench.do(f"XGROUP {rest}") == text


def test_trap_14_delconsumer_discards(bench: Bench) -> None:
    fill(bench, 2)
    read(bench)
    assert bench.do("XGROUP DELCONSUMER s g alice") == 2
    assert bench.pending() == []
    assert read(bench, consumer="bob") == NIL


def test_trap_15_watch_is_blind_to_groups(bench: Bench) -> None:
    fill(bench, 3)
    read(bench, 1)
    bench.do("WATCH s")
    read(bench, 1)
    bench.all(
        "XACK s g 1-0",
        "XCLAIM s g bob 0 2-0",
        "XAUTOCLAIM s g alice 0 0",
        "XNACK s g FAIL IDS 1 2-0",
    )
    bench.all(
        "XGROUP SETID s g 0",
        "XGROUP CREATE s h 0",
        "XGROUP DESTROY s h",
        "XSETID s 9-0",
        "XCFGSET s IDMP-MAXSIZE 5",
    )
    assert bench.all("MULTI", "XLEN s", "EXEC") == ["OK", "QUEUED", [3]]
    for line in (
        "XADD s 10-0 f v",
        "XDEL s 10-0",
        "XTRIM s MAXLEN 1",
        "XDELEX s IDS 1 3-0",
        "PEXPIRE s 9999",
    ):
        bench.do("WATCH s")
        bench.do(line)
        assert bench.all("MULTI", "XLEN s", "EXEC") == ["OK", "QUEUED", NIL], line


def test_trap_16_a_blocked_xread_survives_del(bench: Bench) -> None:
    bench.do("XADD s 5-0 f v")
    waiting = bench.block("XREAD BLOCK 0 STREAMS s $")
    bench.do("DEL s")
    bench.do("XADD s 4-0 f v")
    assert answer(waiting) is None
    bench.do("XADD s 6-0 f v")
    assert answer(waiting) == [["s", [["6-0", ["f", "v"]]]]]


def test_trap_17_only_the_final_state_of_a_transaction_counts(bench: Bench) -> None:
    bench.do("XGROUP CREATE s g 0 MKSTREAM")
    reader = bench.block("XREAD BLOCK 0 STREAMS s $")
    consumer = bench.block("XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    bench.all("MULTI", "XADD s 1-0 f v", "XDEL s 1-0", "EXEC")
    assert answer(reader) is None and answer(consumer) is None
    bench.all("MULTI", "XGROUP DESTROY s g", "XGROUP CREATE s g 0", "EXEC")
    assert answer(consumer) is None
    bench.all("MULTI", "DEL s", "XGROUP CREATE s g 0 MKSTREAM", "EXEC")
    assert answer(consumer) is None
    bench.all("MULTI", "XADD s 2-0 f v", "DEL s", "EXEC")
    assert answer(reader) is None
    assert str(answer(consumer)).startswith("NOGROUP")


def test_trap_18_history_never_blocks(bench: Bench) -> None:
    fill(bench, 1)
    assert bench.do("XREADGROUP GROUP g a BLOCK 0 STREAMS s 0") == [["s", []]]


def test_trap_19_noack_history_is_a_normal_history_read(bench: Bench) -> None:
    fill(bench, 1)
    read(bench)
    assert only(bench.do("XREADGROUP GROUP g alice NOACK STREAMS s 0")) == [["1-0", ["f", "v1"]]]
    assert bench.pending() == [("1-0", "alice", 2)]


def test_trap_20_errors_with_their_own_code(bench: Bench) -> None:
    fill(bench, 1)
    assert bench.do("XGROUP CREATE s g 0") == "BUSYGROUP Consumer Group name already exists"
    assert bench.do("XGROUP SETID s h 0") == "NOGROUP No such consumer group 'h' for key name 's'"


def test_trap_21_silent_twice_decrements_twice(bench: Bench) -> None:
    fill(bench, 1)
    read(bench)
    bench.do("XCLAIM s g alice 0 1-0 RETRYCOUNT 3")
    bench.do("XNACK s g SILENT IDS 2 1-0 1-0")
    assert bench.pending() == [("1-0", "", 1)]
    bench.all("XNACK s g SILENT IDS 1 1-0", "XNACK s g SILENT IDS 1 1-0")
    assert bench.pending() == [("1-0", "", 0)]


def test_trap_22_xdelex_acked_of_an_id_that_never_was(bench: Bench) -> None:
    fill(bench, 1)
    assert bench.do("XDELEX s ACKED IDS 1 99-0") == [2]
    assert bench.do("XDELEX s KEEPREF IDS 1 99-0") == [-1]


def test_trap_23_xackdel_of_another_groups_entry(bench: Bench) -> None:
    fill(bench, 1, groups="gh")
    read(bench, 1, "h")
    for policy in ("KEEPREF", "DELREF", "ACKED"):
        assert bench.do(f"XACKDEL s g {policy} IDS 1 1-0") == [-1]
    assert bench.ids() == ["1-0"]
    assert bench.pending("h") == [("1-0", "alice", 1)]


def test_trap_24_duplicates_outlive_their_message(bench: Bench) -> None:
    first = bench.do("XADD s IDMP p i * f v")
    bench.do(f"XDEL s {first}")
    assert bench.do("XADD s IDMP p i * f v") == first
    assert bench.do("XADD s NOMKSTREAM IDMP p i * f v") == first
    bench.do("DEL s")
    assert bench.do("XADD s NOMKSTREAM IDMP p i * f v") is None


def test_trap_25_four_elements_with_claim_only(bench: Bench) -> None:
    fill(bench, 2)
    assert only(bench.do("XREADGROUP GROUP g a COUNT 1 CLAIM 5 STREAMS s >")) == [
        ["1-0", ["f", "v1"], 0, 0]
    ]
    assert only(bench.do("XREADGROUP GROUP g a COUNT 1 STREAMS s >")) == [["2-0", ["f", "v2"]]]
