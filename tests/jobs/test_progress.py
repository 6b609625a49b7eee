"""Progress that is reported often: one record a second at most, and the newest in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.until import until

import tidelog
from tidelog import testing


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock()


@pytest.fixture
def mails(tmp_path: Path, clock: testing.Clock) -> Iterator[Any]:
    with tidelog.open(tmp_path / "store", fsync="no", clock=clock) as db:
        yield db.queue("mails")


def test_one_record_a_second(mails: Any, clock: testing.Clock) -> None:
    handle = mails.put("a")
    job = mails.get("anna", 0)
    assert handle.progress() is None
    written = []
    for number in range(100):
        assert job.progress(number / 100, f"{number} of 100")
        found = handle.progress()
        written.append(found.fraction)
        clock.advance(0.05)
    assert written[0] == 0 and 5 <= len(set(written)) <= 6
    clock.advance(1)
    assert handle.progress().text == "99 of 100", "a beat records the newest"


def test_what_was_not_recorded_stays_with_a_job_that_is_given_back(mails: Any) -> None:
    handle = mails.put("a")
    job = mails.get("anna", 0)
    job.progress(0.1)
    job.progress(0.9, "nearly")
    assert handle.progress().fraction == 0.1
    assert job.nack("again", delay=0)
    assert handle.progress().text == "nearly"
    with mails.get("anna", 0) as job:
        job.progress(0.5)
        job.progress(0.6)
    assert handle.progress() is None
    assert mails.store.execute_command("KEYS", "*:progress:*") == []


def test_a_record_of_another_client_is_no_progress(mails: Any) -> None:
    handle = mails.put("a")
    mails.get("anna", 0).progress(0.5)
    (key,) = mails.store.execute_command("KEYS", "*:progress:*")
    for value in (b"", b"[]", b"{}", b'{"fraction": 3, "text": "", "at": 1}', b"[" * 10_000):
        mails.store.execute_command("SET", key, value)
        assert handle.progress() is None


def test_the_keeper_of_a_shared_store_records_the_newest(tmp_path: Path) -> None:
    with ExitStack() as stack:
        db = stack.enter_context(tidelog.open(tmp_path / "store", fsync="no"))
        stack.callback(tidelog.serve(db, port=0).close)
        mails: Any = stack.enter_context(tidelog.connect(tmp_path / "store")).queue("mails")
        handle = mails.put("a")
        job = mails.get("anna", 0)
        assert job.progress(0.1) and job.progress(0.2) and job.progress(0.3, "third")
        until(lambda: handle.progress().text == "third", "a beat of the keeper")
        assert job.ack() and handle.progress() is None
