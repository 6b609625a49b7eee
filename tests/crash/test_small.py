"""Small workloads: their numbers are all sequences around a sync, the shares have all of them, and faults are found."""

from __future__ import annotations

import random
from itertools import islice, product

import pytest
from tests.crash.counts import plan
from tests.turns import SHARES

from tidelog.crash import small
from tidelog.crash.explore import Report
from tidelog.crash.record import RecordingFile
from tidelog.crash.served import be_quiet
from tidelog.crash.small import (
    ALL,
    CHUNKS,
    DRAWN,
    SMALL,
    WHOLE,
    explore_small,
    many,
    numbers,
    told,
    workload,
)
from tidelog.crash.workloads import OPERATIONS, POLICIES, PREPARED

TWELVE = 12


def test_the_numbers_are_all_sequences_around_a_sync() -> None:
    assert len(OPERATIONS) == TWELVE
    found = {str(workload(number)) for number in range(1, ALL + 1)}
    expected = {
        str([*PREPARED, *sequence[:at], ["sync"], *sequence[at:]])
        for length in range(1, WHOLE + 1)
        for sequence in product(OPERATIONS, repeat=length)
        for at in range(1, length + 1)
    }
    assert found == expected
    assert len(found) == ALL == TWELVE + 2 * TWELVE**2 + 3 * TWELVE**3


def test_the_shares_have_every_workload() -> None:
    for policy in POLICIES:
        chunks = [
            task.number
            for share in range(1, SHARES + 1)
            for task in plan(share, policy)
            if task.layer == SMALL
        ]
        rng = random.Random(1)
        found = [number for chunk in chunks if chunk < CHUNKS for number in numbers(chunk, rng)]
        assert found == [*range(1, ALL + 1)]
        assert chunks.count(CHUNKS) == SHARES


def test_behind_all_of_them_longer_ones_are_drawn() -> None:
    drawn = [*numbers(CHUNKS, random.Random(1))]
    assert len(set(drawn)) == len(drawn) == small.CHUNK
    for number in drawn:
        assert ALL < number <= ALL + many(DRAWN)
        assert len(workload(number)) == len(PREPARED) + DRAWN + 1


def test_the_report_says_which_of_how_many() -> None:
    report, other = Report(), Report()
    report.small = {"no": {1, 2, 3, 66}}
    other.small = {"no": {4, 67, ALL + 1}}
    report.add(other)
    assert told(report) == [
        "small, fsync no: 1..4, 66..67 of 5,484 workloads of 1 to 3 operations around a sync; "
        "1 of 82,944 (0.0 %) of 4"
    ]
    report.small = {"no": set()}
    assert "none of 5,484" in told(report)[0]


@pytest.mark.parametrize("policy", POLICIES)
def test_small_workloads_keep_their_promises(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    be_quiet()
    monkeypatch.setattr(small, "CHUNK", 6)
    rng = random.Random(1)
    report = explore_small(30, policy, "1", rng, lambda: False)
    assert [finding.words for finding in report.findings] == []
    assert report.small == {policy: {*islice(range(181, 1000), 6)}}
    assert report.of(SMALL).distinct > 50


def test_a_log_without_syncs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    be_quiet()
    monkeypatch.setattr(RecordingFile, "fdatasync", lambda self: None)
    report = explore_small(0, "no", "1", random.Random(1), lambda: False)
    assert {finding.layer for finding in report.findings} == {SMALL}
    assert report.small == {"no": set()}
