"""tidelog queue status, cancel and move: of a directory and through a server, in every state that a job has."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Run

import tidelog
from tidelog.tools import exits

Opened = tuple[Any, Any]  # the store, and PATH or URL


@pytest.fixture(params=["directory", "server"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    with tidelog.open(tmp_path / "data", fsync="no") as db, tidelog.serve(db, port=0) as serving:
        server = f"redis://127.0.0.1:{serving.port}"
        yield db, server if request.param == "server" else tmp_path / "data"


def told(run: Run, place: Any, job: str, *more: str) -> dict[str, Any]:
    done = run("queue", "status", place, "mails", job, "--json", *more)
    assert (done.code, done.err) == (0, "")
    facts: dict[str, Any] = json.loads(done.out)
    assert facts.pop("id") == job
    return facts


def test_progress_of_what_a_worker_holds(run: Run, opened: Opened) -> None:
    db, place = opened
    mails = db.queue("mails")
    first, other = mails.put("a", priority=3), mails.put("b")
    jobs = [mails.get("anna", block=0), mails.get("ben", block=0)]
    jobs[0].progress(0.4, "page 4\nof 10")
    assert told(run, place, first)["progress"] == "40% page 4\\nof 10"
    stats = run("queue", "stats", place, "mails").out.splitlines()
    assert f"               {first} 40% page 4\\nof 10" in stats
    assert not any(other in line for line in stats)
    row = json.loads(run("queue", "stats", place, "mails", "--json").out)
    anna, ben = row["workers"]
    assert (anna["name"], anna["jobs"], ben["progress"]) == ("anna", [first], {})
    assert anna["progress"][first]["fraction"] == 0.4
    watched = run("queue", "watch", place, "mails", "--looks", "1").out
    assert "PROGRESS" in watched and "40% page 4\\nof 10" in watched
    assert all(job.ack() for job in jobs)


def test_every_state(run: Run, opened: Opened) -> None:
    db, place = opened
    mails = db.queue("mails", max_deliveries=2, retry_after=3600)
    waiting, urgent = mails.put("a"), mails.put("b", priority=3)
    assert told(run, place, waiting) == {"state": "waiting"} == told(run, place, urgent)
    job = mails.get("anna", block=0)
    assert told(run, place, urgent) == {"state": "running", "worker": "anna", "deliveries": 1}
    job.nack("no answer")
    facts = told(run, place, urgent)
    assert facts["due_ms"] / 1000 > time.time() + 1800 and facts["deliveries"] == 1
    assert facts["state"] == "paused" and facts["failure"]["error"] == "no answer"
    with mails.get("bea", block=0) as job:
        job.ack({"sent": True})
    assert told(run, place, waiting) == {"state": "done", "result": {"sent": True}}
    doomed = mails.put("c")
    mails.get("bea", block=0).fail("no such mailbox")
    (dead,) = mails.dead
    facts = told(run, place, doomed)
    assert (facts["state"], facts["reason"], facts["now"]) == (
        "dead",
        "no such mailbox",
        dead.id,
    )
    mails.dead.redrive([dead.id])
    facts = told(run, place, doomed)
    assert facts["state"] == "waiting" and facts["now"] != doomed
    with mails.get("bea", block=0):
        pass
    assert told(run, place, doomed) == {"state": "gone"}
    text = run("queue", "status", place, "mails", urgent).out
    assert text.splitlines()[1].split() == ["state", "paused"] and "no answer" in text


def test_a_job_that_is_kept_is_done(run: Run, opened: Opened) -> None:
    db, place = opened
    mails = db.queue("mails", keep=5)
    first = mails.put(1)
    with mails.get(block=0):
        pass
    assert told(run, place, first) == {"state": "done"}


def test_a_delayed_job_is_moved_cancelled_and_found_under_its_next_id(
    run: Run, opened: Opened
) -> None:
    db, place = opened
    mails = db.queue("mails")
    moved, cancelled = mails.put("a", delay=3600), mails.put("b", delay=3600)
    due = told(run, place, moved)
    assert due["state"] == "delayed" and 0 <= due["due_ms"] / 1000 - time.time() - 3500 < 200
    done = run("queue", "cancel", place, "mails", cancelled, "--json")
    assert json.loads(done.out) == {"cancelled": cancelled}
    assert told(run, place, cancelled) == {"state": "cancelled", "reason": "cancelled"}
    again = run("queue", "cancel", place, "mails", cancelled)
    assert again.code == exits.NOT_A_STORE and "tidelog queue status" in again.err
    assert run("queue", "move", place, "mails", moved, "--delay", "1d12h").out == f"{moved} moved\n"
    assert told(run, place, moved)["due_ms"] / 1000 > time.time() + 86_400
    done = run("queue", "move", place, "mails", moved, "--at", "2026-01-01T10:00", "--json")
    assert json.loads(done.out) == {"moved": moved}
    assert told(run, place, moved)["state"] == "waiting"  # no fetch has seen it yet
    job = mails.get("anna", block=0)
    facts = told(run, place, moved)
    assert (facts["state"], facts["now"], facts["worker"]) == ("running", job.id, "anna")
    assert run("queue", "move", place, "mails", moved, "--delay", 5).code == exits.NOT_A_STORE


def test_a_running_job_is_cancelled(run: Run, opened: Opened) -> None:
    db, place = opened
    mails = db.queue("mails")
    db.queue("mails", "audit").subscribe()
    id = mails.put("a")
    job = mails.get("anna", block=0)
    only = run("queue", "cancel", place, "mails", id, "--only", "--group", "audit")
    assert only.code == exits.REFUSED and "cancel it for all groups" in only.err
    assert run("queue", "cancel", place, "mails", id, "--only").out == f"{id} cancelled\n"
    assert job.ack() is False and job.cancelled
    facts = told(run, place, id)
    assert (facts["state"], facts["worker"], facts["deliveries"]) == ("cancelled", "anna", 1)
    assert db.queue("mails", "audit").job(id).state == "waiting"
    assert json.loads(run("queue", "cancel", place, "mails", id, "--json").out) == {"cancelled": id}
    assert db.queue("mails", "audit").job(id).state == "cancelled"
    found = run("queue", "find", place, "mails", "--state", "cancelled", "--json").out
    assert json.loads(found.splitlines()[0])["id"] == id


def test_a_queue_is_paused_and_goes_on(run: Run, opened: Opened) -> None:
    db, place = opened
    mails = db.queue("mails")
    mails.put("a")
    said = [run("queue", verb, place, "mails").out for verb in ("pause", "pause")]
    assert said == ["mails is paused\n", "mails was paused already\n"]
    assert mails.get(block=0) is None
    assert json.loads(run("queue", "resume", place, "mails", "--json").out) == {"resumed": 1}
    assert run("queue", "resume", place, "mails").out == "mails was not paused\n"
    assert run("queue", "pause", place, "nails").code == exits.NOT_A_STORE


def test_an_empty_queue_is_removed(run: Run, opened: Opened) -> None:
    db, place = opened
    db.queue("mails").put("a")
    db.queue("bills").put("a")
    done = run("queue", "rm", place, "mails")
    assert done.code == exits.REFUSED and "jobs that are not done: 1" in done.err
    assert len(db.queue("mails")) == 1
    for name, more in (("mails", ()), ("bills", ("--json",))):
        assert run("queue", "purge", place, name, "--yes").code == 0
        done = run("queue", "rm", place, name, *more)
        assert done.out == ('{"removed": 1}\n' if more else f"{name} is removed\n")
    assert run("queue", "rm", place, "mails").code == exits.NOT_A_STORE
    assert db.keys("mails*") == db.keys("bills*") == []


def test_what_cannot_be_asked(run: Run, opened: Opened) -> None:
    db, place = opened
    job = db.queue("mails").put(1)
    for words in (
        ("status", place, "mails", "soon"), ("cancel", place, "mails", "soon"), ("move", place, "mails", job),
        ("move", place, "mails", job, "--delay", "5", "--at", "2026-01-01"),
        ("move", place, "mails", "x", "--delay", "5"),
        ("move", place, "mails", job, "--delay", "soon"),
    ):  # fmt: skip
        done = run("queue", *words)
        assert (done.code, done.out) == (exits.USAGE, ""), words
    for verb in (("status", job), ("cancel", job), ("move", job, "--delay", "5")):
        done = run("queue", verb[0], place, "nails", *verb[1:])
        assert done.code == exits.NOT_A_STORE and "it holds mails" in done.err
