"""tidelog queue schedule: ls, add, pause, resume and rm, on files and through a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.queue_made import START

import tidelog
from tidelog.testing import Clock
from tidelog.tools import exits
from tidelog.tools.queue import store as queue_store


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with the schedule `poll`; the command line has its clock."""
    clock = Clock(START)
    monkeypatch.setattr(queue_store, "CLOCK", clock)
    path = tmp_path / "data"
    with tidelog.open(path, clock=clock) as db:
        db.schedule("poll", queue="feeds", every=60, value={"n": 1})
    return path


def test_schedules_are_listed(run: Run, root: Path) -> None:
    done = run("queue", "schedule", "ls", root)
    assert [line.split() for line in done.out.splitlines()] == [
        ["SCHEDULE", "QUEUE", "WHEN", "NEXT", "TICKS", "VALUE"],
        ["poll", "feeds", "every", "60", "s", "2023-11-14T22:14:20.000Z", "0", '{"n":', "1}"],
    ]
    found = json.loads(run("queue", "schedule", "ls", root, "--json").out)
    assert found["every"] == 60 and not found["paused"] and found["value"] == {"n": 1}
    assert found["next_ms"] == round(START.timestamp() * 1000) + 60_000


def test_a_schedule_is_added_paused_resumed_and_removed(run: Run, root: Path) -> None:
    add = ("queue", "schedule", "add", root, "nightly", "reports", "--cron", "0 3 * * *")
    done = run(*add, "--tz", "Europe/Berlin", "--catch-up", "all")
    assert done.out == "nightly next puts a job into reports at 2023-11-15T02:00:00.000Z\n"
    assert run("queue", "schedule", "pause", root, "nightly").out == "nightly paused\n"
    assert "paused" in run("queue", "schedule", "ls", root).out
    resumed = run("queue", "schedule", "resume", root, "nightly", "--json")
    assert json.loads(resumed.out) == {"resumed": "nightly"}
    assert run("queue", "schedule", "rm", root, "poll").out == "poll removed\n"
    text = run("queue", "schedule", "add", root, "t", "q", "--every", "5", "--value", "x", "--text")
    assert text.code == 0
    with tidelog.open(root) as db:
        nightly, t = db.schedules.list()
        assert (nightly.name, nightly.tz, nightly.catch_up) == ("nightly", "Europe/Berlin", "all")
        assert (t.every, t.raw) == (5.0, b"x")


def test_a_schedule_is_changed_through_a_server(run: Run, root: Path) -> None:
    with tidelog.open(root) as db, tidelog.serve(db, port=0) as serving:
        assert run("queue", "schedule", "pause", root, "poll").code == 0
        assert db.schedules.list()[0].paused
        url = f"redis://127.0.0.1:{serving.port}"
        assert run("queue", "schedule", "resume", url, "poll").code == 0
        assert run("queue", "schedule", "add", url, "two", "feeds", "--every", "60").code == 0
        assert not db.schedules.list()[0].paused
        assert "two" in run("queue", "schedule", "ls", url).out
        assert run("queue", "schedule", "add", url, "x", "feeds", "--cron", "x").code == exits.USAGE


def test_a_store_that_another_process_writes_is_refused(run: Run, root: Path) -> None:
    with tidelog.open(root):
        done = run("queue", "schedule", "rm", root, "poll")
    assert done.code == exits.LOCKED and "db.schedules.remove()" in done.err


def test_bad_arguments(run: Run, root: Path) -> None:
    add = ("queue", "schedule", "add", root, "n", "q")
    for more in ((), ("--every", "0"), ("--every", "5", "--cron", "0 3 * * *"), ("--cron", "x"),
                 ("--every", "5", "--value", "{"), ("--cron", "0 3 * * *", "--tz", "Nowhere")):  # fmt: skip
        done = run(*add, *more)
        assert (done.code, done.out) == (exits.USAGE, ""), more
        assert "Traceback" not in done.err
    done = run("queue", "schedule", "pause", root, "none")
    assert done.code == exits.NOT_A_STORE and "it holds poll" in done.err
    assert run("queue", "schedule", "ls", root / "no").code == exits.NOT_A_STORE
