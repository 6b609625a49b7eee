"""The fixed runs of `make crash`: they are the same each time, a drop is seen, and the document has their counts."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.crash import evidence
from tests.crash.counts import (
    ALL,
    COUNTED,
    PLAN,
    counts_of,
    drops,
    load,
    plan,
)
from tests.turns import SHARES, share_of

from tidelog.crash.explore import Counts, Report
from tidelog.crash.injected import ERRORS
from tidelog.crash.killed import KILL
from tidelog.crash.logs import LOG
from tidelog.crash.rot import ROT
from tidelog.crash.run import CHECKPOINTS, DOUBLE, POWER, STORE
from tidelog.crash.servers import SERVERS
from tidelog.crash.workloads import POLICIES
from tidelog.tools.crash.shutdowns import MACHINE

# The least that all shares together must have tried.
TOTALS = {
    LOG: ("distinct", 60_000),
    STORE: ("distinct", 20_000),
    CHECKPOINTS: ("distinct", 10_000),
    DOUBLE: ("distinct", 10_000),
    ROT: ("distinct", 15_000),
    ERRORS: ("distinct", 15_000),
    KILL: ("distinct", 3_000),
    SERVERS: ("distinct", 100),
    MACHINE: ("distinct", 200),
}


@pytest.mark.parametrize("share", range(1, SHARES + 1))
def test_a_share_has_every_layer(share: int) -> None:
    for policy in POLICIES:
        tasks = [*plan(share, policy)]
        assert tasks == [*plan(share, policy)]
        assert Counter(task.layer for task in tasks) == PLAN
        assert {task.policy for task in tasks} == {policy}


def test_no_two_shares_have_a_workload_in_common() -> None:
    seeds = [
        (task.seed, task.layer, task.policy)
        for share in range(1, SHARES + 1)
        for policy in POLICIES
        for task in plan(share, policy)
    ]
    assert len(seeds) == len(set(seeds))


def test_every_share_has_counts_that_are_kept() -> None:
    kept = load()
    assert list(kept) == [*range(1, SHARES + 1)]
    for counts in kept.values():
        assert [*counts] == [*POLICIES]
        for layers in counts.values():
            assert [*layers] == [*ALL]
            for layer, numbers in layers.items():
                assert [*numbers] == [*COUNTED], layer
                assert numbers["tried"] >= numbers["distinct"] > 0, layer


def test_all_shares_together_try_enough() -> None:
    total = Report()
    for counts in load().values():
        for layers in counts.values():
            for layer, numbers in layers.items():
                total.of(layer).add(Counts(**numbers))
    for layer, (name, least) in TOTALS.items():
        assert getattr(total.of(layer), name) >= least, layer
    assert sum(total.of(layer).distinct for layer in POWER) >= 100_000
    assert total.of(ROT).rows >= 3_000


def test_a_drop_is_seen_and_a_little_less_is_not() -> None:
    report = Report()
    report.of("rot").tried = 1000
    report.of("rot").distinct = 600
    counts = counts_of({"no": report})
    assert drops(counts, counts) == []
    assert drops(counts, {"no": {"rot": {"tried": 1240, "distinct": 740}}}) == []
    assert drops(counts, {"no": {"rot": {"tried": 1255, "distinct": 755}}}) == []
    assert drops(counts, {"no": {"rot": {"tried": 1300}, "new": {"tried": 1}}}) == [
        "rot, fsync no: tried is 1,000, and was 1,300",
        "new, fsync no: tried is 0, and was 1",
    ]
    assert drops(counts, {"no": {"new": {"tried": 1}}}, ("new",)) == []


def test_commits_take_turns() -> None:
    shares = [share_of(f"{n:012x}{'f' * 28}") for n in range(SHARES)]
    assert shares == [*range(1, SHARES + 1)]


def test_the_document_has_the_counts() -> None:
    text = evidence.DOCUMENT.read_text()
    assert evidence.table(load()) in text
    assert evidence.renewed(text, load()) == text
    assert {promise.layer for promise in evidence.PROMISES} == set(ALL)
