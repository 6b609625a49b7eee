"""Power cuts of a server: what a client has read stays, and a reply that leaves before its sync is found."""

from __future__ import annotations

import random

import pytest

from tidelog.crash import replies
from tidelog.crash.explore import Effort, Explorer, Report
from tidelog.crash.oracle import Kind
from tidelog.crash.replies import REPLIES
from tidelog.crash.served import Memory
from tidelog.crash.trace import Promised
from tidelog.crash.workloads import POLICIES
from tidelog.store.commit.durability import Durability

EFFORT = Effort(drawn=2, exhaustive=4, double=0, killed=0)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "PIPELINES", 6)


def explored(policy: str) -> Report:
    rng = random.Random(3)
    stage = Memory()
    trace = replies.record(stage, policy, "3", rng)
    promised = [each for each in trace.operations if isinstance(each, Promised)]
    assert promised[-1] == Promised(promised[-1].fsynced, len(trace.units), len(trace.units))
    assert promised[-1].fsynced > 0  # by the policy, or by WAITAOF
    explorer = Explorer(stage, rng, EFFORT, REPLIES)
    explorer.explore(trace)
    return explorer.report


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_client_has_read_stays(policy: str) -> None:
    report = explored(policy)
    assert [finding.words for finding in report.findings] == []
    assert report.of(REPLIES).distinct > 30


def test_a_reply_that_leaves_before_its_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "MOMENT_S", 30.0)  # a reply that is on its way comes
    monkeypatch.setattr(Durability, "through", lambda self, log, level=0: log.written_lsn)
    report = explored("always")
    assert [finding.kind for finding in report.findings] == [Kind.LOST.value]
