"""The fixed runs of `make crash`: they are the same each time, a drop is seen, and the document has their counts."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.crash import evidence
from tests.crash.counts import (
    ALL,
    ALONE,
    COUNTED,
    FILE,
    HALVES,
    PLAN,
    TURNS,
    counted,
    counts_of,
    drops,
    load,
    of_layers,
    plan,
    save,
)
from tests.crash.evidence import Promise
from tests.turns import SHARES

from tidelog.crash.calls import CALLS
from tidelog.crash.explore import Counts, Report
from tidelog.crash.followers import FOLLOWERS
from tidelog.crash.full import FULL
from tidelog.crash.injected import ERRORS
from tidelog.crash.killed import KILL
from tidelog.crash.logs import LOG
from tidelog.crash.queues import QUEUES
from tidelog.crash.replies import REPLIES
from tidelog.crash.rot import ROT
from tidelog.crash.run import CHECKPOINTS, DOUBLE, POWER, STORE
from tidelog.crash.servers import SERVERS
from tidelog.crash.small import SMALL
from tidelog.crash.workloads import POLICIES
from tidelog.tools import exits
from tidelog.tools.crash.blocks import BLOCKS, XFS_BLOCKS
from tidelog.tools.crash.shutdowns import MACHINE, XFS

# The least that all shares together must have tried.
TOTALS = {
    LOG: ("distinct", 60_000),
    STORE: ("distinct", 20_000),
    CHECKPOINTS: ("distinct", 10_000),
    DOUBLE: ("distinct", 10_000),
    ROT: ("distinct", 15_000),
    ERRORS: ("distinct", 15_000),
    CALLS: ("distinct", 2_500),
    FULL: ("distinct", 500),
    # A process with two threads has not always as many operations, so a few end before they are killed.
    KILL: ("distinct", 2_950),
    SMALL: ("distinct", 150_000),
    SERVERS: ("distinct", 100),
    MACHINE: ("distinct", 200),
    XFS: ("distinct", 200),
    BLOCKS: ("distinct", 200),
    XFS_BLOCKS: ("distinct", 200),
    REPLIES: ("distinct", 5_000),
    QUEUES: ("distinct", 20_000),
    FOLLOWERS: ("distinct", 15_000),  # the network decides how many frames they get
}


@pytest.mark.parametrize("share", range(1, SHARES + 1))
def test_a_share_has_every_layer(share: int) -> None:
    for policy in POLICIES:
        tasks = [*plan(share, policy)]
        assert tasks == [*plan(share, policy)]
        assert Counter(task.layer for task in tasks) == PLAN
        assert {task.policy for task in tasks} == {policy}


def test_the_halves_have_all_layers_once_and_recoveries_with_all_that_they_come_from() -> None:
    assert Counter(layer for half in HALVES for layer in half) == Counter(ALONE)
    assert {DOUBLE} == {layer for half in HALVES for layer in counted(half)} - {*ALONE}
    assert Counter(TURNS) == Counter((half, (policy,)) for half in HALVES for policy in POLICIES)


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
    assert set(TOTALS) == set(ALL)
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


def test_the_counts_of_some_layers_are_accepted_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "counts.json"
    file.write_text(FILE.read_text())
    monkeypatch.setattr("tests.crash.counts.FILE", file)
    before = load()
    report = Report()
    report.of(ROT).tried = 7
    save(2, counts_of({policy: report for policy in POLICIES}, (ROT,)))
    after = load()
    assert {share: after[share] for share in after if share != 2} == {
        share: before[share] for share in before if share != 2
    }
    for policy in POLICIES:
        assert [*after[2][policy]] == [*before[2][policy]]
        assert after[2][policy].pop(ROT)["tried"] == 7 < before[2][policy].pop(ROT)["tried"]
    assert after == before or after[2] == before[2]
    assert of_layers(before[1], (LOG,)) == {
        policy: {LOG: before[1][policy][LOG]} for policy in POLICIES
    }
    assert of_layers(before[1], (LOG,), ("no",)) == {"no": {LOG: before[1]["no"][LOG]}}


def test_the_counts_of_one_policy_are_accepted_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "counts.json"
    file.write_text(FILE.read_text())
    monkeypatch.setattr("tests.crash.counts.FILE", file)
    before = load()
    report = Report()
    report.of(ROT).tried = 7
    save(2, counts_of({"everysec": report}, (ROT,)))
    after = load()
    assert [*after[2]] == [*POLICIES]
    assert after[2]["everysec"][ROT]["tried"] == 7
    after[2]["everysec"][ROT] = before[2]["everysec"][ROT]
    assert after == before


def test_double_crashes_count_only_with_all_that_they_come_from() -> None:
    assert counted((CHECKPOINTS, ROT)) == (CHECKPOINTS, ROT)
    assert set(counted((STORE, CHECKPOINTS))) == {STORE, CHECKPOINTS, DOUBLE}
    assert counted(ALONE) == ALL


def test_a_long_run_has_other_workloads() -> None:
    fixed = [task.seed for task in plan(1, "no")]
    drawn = [task.seed for task in plan(1, "no", "0a1b2c3d")]
    assert len(fixed) == len(drawn) and not {*fixed} & {*drawn}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--long", "--accept"), "--accept is for the fixed seeds"),
        (("--seed", "1"), "--seed is for --long"),
        (("--layers", "log,double"), "'double' is not one of log, small"),
    ],
)
def test_bad_arguments(args: tuple[str, ...], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash", *args],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == exits.USAGE
    assert words in done.stderr


def test_the_document_has_the_counts() -> None:
    text = evidence.DOCUMENT.read_text()
    assert evidence.table(load()) in text
    assert evidence.renewed(text, load()) == text
    assert {promise.layer for promise in evidence.PROMISES if promise.layer in ALL} == set(ALL)


@pytest.mark.parametrize("promise", evidence.PROMISES, ids=lambda promise: promise.fault)
def test_a_promise_is_tried_by_a_layer_or_by_tests_that_are_there(promise: Promise) -> None:
    if promise.layer in ALL:
        assert promise.tests == ()
        return
    assert promise.tests
    for test in promise.tests:
        file, _, name = test.partition("::")
        path = evidence.DOCUMENT.parents[1] / file
        assert path.is_file() and (not name or f"def {name}(" in path.read_text()), test
