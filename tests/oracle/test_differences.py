"""Each row of differences.TABLE: the shortest way to see it, what tidelog answers and what 7.0 answers.

The driver plays every case, so it also proves that the row explains the difference and nothing else is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from tests.oracle import differences
from tests.oracle.bench import START_MS, pairs, plain, words
from tests.oracle.conftest import Oracle
from tests.oracle.driver import Disagreement, Pair
from tests.oracle.export import assert_export_agrees, assert_replay_agrees
from tests.oracle.grammar import Turn

FIVE = [f"XADD s {i}-0 f v" for i in range(1, 6)]
GROUP = [*FIVE, "XGROUP CREATE s g 0"]
READ_2 = "XREADGROUP GROUP g c COUNT 2 STREAMS s >"


class Case(NamedTuple):
    row: str
    before: list[str]
    ask: str  # the command whose replies differ
    ours: Any
    theirs: Any
    pick: Any = None  # what to look at in both replies


def first(reply: Any) -> dict[str, Any]:
    return pairs(reply[0])


def full_group(reply: Any) -> dict[str, Any]:
    return pairs(pairs(reply)["groups"][0])


def full_consumer(reply: Any) -> dict[str, Any]:
    return pairs(full_group(reply)["consumers"][0])


UNBALANCED = "ERR Unbalanced %s list of streams: for each stream key an ID%s must be specified."
TOO_SMALL = "ERR The ID specified in XADD is equal or smaller than the target stream top item"

CASES = [
    Case("xinfo-idmp", FIVE, "XINFO STREAM s", 16, 10, lambda reply: len(pairs(reply))),
    Case("nacked-count", GROUP, "XINFO STREAM s FULL", True, False,
         lambda reply: "nacked-count" in full_group(reply)),
    Case("active-time", [*GROUP, READ_2], "XINFO CONSUMERS s g", True, False,
         lambda reply: "inactive" in first(reply)),
    Case("active-time", [*GROUP, READ_2], "XINFO STREAM s FULL", True, False,
         lambda reply: "active-time" in full_consumer(reply)),
    Case("seen-time", [*GROUP, READ_2, "@+50", "XREADGROUP GROUP g c COUNT 9 STREAMS s >", "@+50",
                       "XREADGROUP GROUP g c STREAMS s >"],
         "XINFO CONSUMERS s g", 0, 50, lambda reply: first(reply)["idle"]),
    Case("radix-tree-nodes", [f"XADD s {i}-0 f v" for i in range(1, 302)],
         "XINFO STREAM s", True, True, lambda reply: pairs(reply)["radix-tree-nodes"] >= 3),
    Case("entries-read", [*GROUP, "XREADGROUP GROUP g c COUNT 1 STREAMS s >", "XTRIM s MAXLEN 2",
                          "XREADGROUP GROUP g c COUNT 1 STREAMS s >"],
         "XINFO GROUPS s", 4, 4, lambda reply: first(reply)["entries-read"]),
    Case("lag", [*GROUP, READ_2, "XDEL s 1-0 2-0 3-0"], "XINFO GROUPS s", 2, 3,
         lambda reply: first(reply)["lag"]),
    Case("entries-read-cap", [*FIVE, "XGROUP CREATE s g 0 ENTRIESREAD 99"], "XINFO GROUPS s", 5, 5,
         lambda reply: first(reply)["entries-read"]),
    Case("consumer-created", [*GROUP, "XCLAIM s g c 0 9-9"], "XINFO CONSUMERS s g", 1, 1, len),
    Case("unbalanced", FIVE, "XREAD STREAMS s 0 1", UNBALANCED % ("'xread'", ", '+', or '$'"),
         UNBALANCED % ("XREAD", " or '$'")),
    Case("unbalanced", GROUP, "XREADGROUP GROUP g c STREAMS s > 1", UNBALANCED % ("'xreadgroup'", " or '>'"),
         UNBALANCED % ("XREAD", " or '$'")),
    Case("xread-plus", FIVE, "XREAD STREAMS s +", [["s", [["5-0", ["f", "v"]]]]],
         "ERR Invalid stream ID specified as stream command argument"),
    Case("xreadgroup-plus", GROUP, "XREADGROUP GROUP g c STREAMS s +", "ERR The + ID is meaningless",
         "ERR Invalid stream ID specif", lambda reply: reply[:27] if "+" in reply else reply[:28]),
    Case("xsetid-max-deleted", [*FIVE, "XDEL s 1-0 2-0 3-0 4-0 5-0"], "XSETID s 4-0",
         "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id", "OK"),
    Case("xadd-auto-seq", [f"XADD s 6-{2**64 - 1} f v"], "XADD s 6-* f v", TOO_SMALL,
         "ERR Elements are too large to be stored"),
    Case("block-overflow", [], f"XREAD COUNT 5 BLOCK {2**63 - 1}", "ERR timeout is out of range",
         "ERR syntax error"),
    Case("xsetid-lowers", [*GROUP, READ_2, "XTRIM s MAXLEN 1"], "XSETID s 5-0 ENTRIESADDED 1", "OK", "OK"),
    Case("entries-added-max", [*FIVE, f"XSETID s 5-0 ENTRIESADDED {2**63 - 1}", "XADD s 6-0 f v"],
         "XINFO STREAM s", 2**63 - 1, 2**63 - 1, lambda reply: pairs(reply)["entries-added"]),
    Case("memory-usage", FIVE, "MEMORY USAGE s", True, True, lambda reply: reply > 50),
    Case("refcount", ["SET x 7"], "OBJECT REFCOUNT x", 1, 2**31 - 1),
    Case("empty-node", ["CONFIG SET stream-node-max-entries 3", "XADD s 4-1 f v", "XADD s 5-0 f v", "XADD s 12-0 f v",
                        "XDEL s 12-0", "XADD s 23-0 f v", "XTRIM s MINID = 11-1"],
         "XINFO STREAM s", 1, 1, lambda reply: pairs(reply)["radix-tree-keys"]),
    Case("help", [], "XGROUP HELP", "    Print this help.", "    Prints this help.", lambda reply: reply[-1]),
    Case("dbsize", ["SET x v PX 5", "@+10", "@+10"], "DBSIZE", True, True, lambda reply: reply <= 1),
]  # fmt: skip


@pytest.fixture
def pair(oracle: Oracle) -> Iterator[Pair]:
    made = Pair(oracle)
    try:
        yield made
        assert_replay_agrees(made.tidelog)
    finally:
        made.close()


def play(pair: Pair, lines: list[str]) -> None:
    """Each line a turn of its own; `@+ms` lets time pass."""
    now = pair.now or START_MS
    for line in lines:
        if line.startswith("@+"):
            now += int(line[2:])
            pair.step(Turn(now, []))
        else:
            pair.step(Turn(now, [words(line)]))


@pytest.mark.parametrize("case", CASES, ids=[f"{case.row}: {case.ask}" for case in CASES])
def test_row(pair: Pair, oracle: Oracle, case: Case) -> None:
    needed = differences.used[case.row]
    play(pair, case.before)
    theirs = pair.link.call(*words(case.ask)) if case.row != "xsetid-max-deleted" else ("+", b"OK")
    play(pair, [case.ask])
    assert differences.used[case.row] > needed, "the row was not needed"
    ours = pair.tidelog.look(pair.now, 0, words(case.ask)).form
    pick = case.pick or (lambda reply: reply)
    assert pick(plain(ours)) == case.ours
    assert pick(plain(theirs)) == case.theirs
    # No command gives 7.0 that counter after the last XADD of a log.
    if case.row != "entries-added-max":
        assert_export_agrees(pair, oracle)


def test_every_row_has_a_case() -> None:
    assert {case.row for case in CASES} == set(differences.TABLE)


def test_what_no_row_explains_is_a_disagreement(pair: Pair) -> None:
    play(pair, GROUP)
    pair.onlooker.call(b"SELECT", b"0")
    pair.onlooker.call(b"XADD", b"s", b"6-0", b"f", b"v")
    with pytest.raises(Disagreement, match="XINFO STREAM s FULL"):
        play(pair, ["PING"])


# Section 9, the column of 7.0: the formulas in differences.py are those of the server.

COUNTERS_7_0: list[tuple[list[str], tuple[int | None, int | None]]] = [
    (["XGROUP CREATE s g 0"], (None, 5)),
    (["XGROUP CREATE s g $"], (None, 0)),
    (["XGROUP CREATE s g 1-0"], (None, 4)),
    (["XGROUP CREATE s g 3-0"], (None, None)),
    (["XGROUP CREATE s g 9-0"], (None, None)),
    (["XGROUP CREATE s g 0", READ_2, "XDEL s 1-0"], (2, 3)),
    (["XGROUP CREATE s g 0", READ_2, "XDEL s 4-0"], (2, None)),
    (["XGROUP CREATE s g 0", READ_2, "XDEL s 1-0 2-0 3-0"], (2, 3)),
    (["XGROUP CREATE s g 0", "XDEL s 3-0"], (None, None)),
    (
        ["XGROUP CREATE s g 0", "XREADGROUP GROUP g c COUNT 1 STREAMS s >", "XTRIM s MAXLEN 2"],
        (1, 4),
    ),
    (
        ["XGROUP CREATE s g 0", "XREADGROUP GROUP g c COUNT 1 STREAMS s >", "XTRIM s MAXLEN 0"],
        (1, 4),
    ),
    (["XGROUP CREATE s g 0", READ_2, "XDEL s 1-0 2-0 3-0 4-0 5-0"], (2, 3)),
]


@pytest.mark.parametrize(("lines", "wanted"), COUNTERS_7_0)
def test_counters_of_7_0(
    pair: Pair, lines: list[str], wanted: tuple[int | None, int | None]
) -> None:
    play(pair, [*FIVE, *lines])
    group = first(plain(pair.link.call(b"XINFO", b"GROUPS", b"s")))
    assert (group["entries-read"], group["lag"]) == wanted
