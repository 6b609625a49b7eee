"""Each row of differences_8_2.TABLE: the shortest way to see it, what tidelog answers and what 8.2 answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.oracle import differences_8_2
from tests.oracle.bench import pairs, plain, words
from tests.oracle.conftest import Oracle
from tests.oracle.driver import Pair
from tests.oracle.export import assert_export_agrees, assert_replay_agrees
from tests.oracle.test_differences import FIVE, GROUP, READ_2, Case, full_group, play

# A group whose last ID is the smallest, after a trim has asked for it.
SMALLEST = [
    *GROUP,
    "XREADGROUP GROUP g c NOACK COUNT 5 STREAMS s >",
    "XGROUP CREATE s h 1-0",
    "XTRIM s MAXLEN 4 ACKED",
]
DESTROY = "XGROUP DESTROY s h"

CASES = [
    Case("xinfo-idmp", FIVE, "XINFO STREAM s", 16, 10, lambda reply: len(pairs(reply))),
    Case("nacked-count", GROUP, "XINFO STREAM s FULL", True, False,
         lambda reply: "nacked-count" in full_group(reply)),
    Case("radix-tree-nodes", [f"XADD s {i}-0 f v" for i in range(1, 302)],
         "XINFO STREAM s", True, True, lambda reply: pairs(reply)["radix-tree-nodes"] >= 3),
    Case("approximate-policy", FIVE, "XTRIM s MAXLEN ~ 0 DELREF", 5, 0),
    Case("approximate-policy", [*GROUP, READ_2, "XACK s g 1-0"], "XTRIM s MINID ~ 2-0 ACKED", 1, 0),
    Case("delref-deleted", [*GROUP, READ_2, "XDEL s 1-0"], "XTRIM s MAXLEN 2 DELREF", 2, 2),
    Case("delref-deleted", [*GROUP, READ_2, "XDEL s 1-0"], "XADD s DELREF MAXLEN 1 6-0 f v", "6-0", "6-0"),
    Case("destroyed-minimum", SMALLEST, DESTROY, 1, 1),
    Case("xsetid-lowers", [*GROUP, READ_2, "XTRIM s MAXLEN 1"], "XSETID s 5-0 ENTRIESADDED 1", "OK", "OK"),
    Case("entries-added-max", [*FIVE, f"XSETID s 5-0 ENTRIESADDED {2**63 - 1}", "XADD s 6-0 f v"],
         "XINFO STREAM s", 2**63 - 1, 2**63 - 1, lambda reply: pairs(reply)["entries-added"]),
    Case("memory-usage", FIVE, "MEMORY USAGE s", True, True, lambda reply: reply > 50),
    Case("empty-node", ["CONFIG SET stream-node-max-entries 3", "XADD s 4-1 f v", "XADD s 5-0 f v", "XADD s 12-0 f v",
                        "XDEL s 12-0", "XADD s 23-0 f v", "XTRIM s MINID = 11-1"],
         "XINFO STREAM s", 1, 1, lambda reply: pairs(reply)["radix-tree-keys"]),
    Case("dbsize", ["SET x v PX 5", "@+10", "@+10"], "DBSIZE", True, True, lambda reply: reply <= 1),
]  # fmt: skip


@pytest.fixture
def pair(oracle_8_2: Oracle) -> Iterator[Pair]:
    made = Pair(oracle_8_2)
    try:
        yield made
        assert_replay_agrees(made.tidelog)
    finally:
        made.close()


@pytest.mark.parametrize("case", CASES, ids=[f"{case.row}: {case.ask}" for case in CASES])
def test_row(pair: Pair, oracle_8_2: Oracle, case: Case) -> None:
    needed = differences_8_2.used[case.row]
    play(pair, case.before)
    once = case.row in ("destroyed-minimum", "delref-deleted")  # the mend sees the difference
    theirs = case.theirs if once else pair.link.call(*words(case.ask))
    play(pair, [case.ask])
    assert differences_8_2.used[case.row] > needed, "the row was not needed"
    ours = pair.tidelog.look(pair.now, 0, words(case.ask)).form
    pick = case.pick or (lambda reply: reply)
    if not case.ask.startswith(("XTRIM", "XGROUP", "XADD")):  # a second one changes nothing
        assert pick(plain(ours)) == case.ours
    assert once or pick(plain(theirs)) == case.theirs
    if case.row != "entries-added-max":
        assert_export_agrees(pair, oracle_8_2)


def test_every_row_has_a_case() -> None:
    assert {case.row for case in CASES} == set(differences_8_2.TABLE)


def test_a_destroyed_group_holds_entries_back_in_8_2(oracle_8_2: Oracle) -> None:
    """The mend of that row is needed: without it the server keeps what tidelog removes."""
    link = oracle_8_2.server.connect()
    link.call(b"FLUSHALL")
    for line in (*SMALLEST, DESTROY):
        link.call(*words(line))
    assert link.call(*words("XTRIM s MAXLEN 1 ACKED")) == 0
    for command, reply in differences_8_2.FORGOTTEN:
        assert link.call(b"XGROUP", command[0], b"s", b"mended", *command[1:]) == reply
    assert link.call(*words("XTRIM s MAXLEN 1 ACKED")) == 3
    link.close()
