"""The guide of the console: the user for looking that it shows sees every page, and can change nothing."""

from __future__ import annotations

import re
from pathlib import Path

from tests.server.conftest import Start
from tests.server.console.browsing import Site, failing

from tidelog.jobs.search import SLICE_COST, STATUS_COST
from tidelog.server.config.options import OPTIONS
from tidelog.server.console import changes, jobs, looks, shown

GUIDE = (Path(__file__).parents[3] / "docs/guides/console.md").read_text()


def test_the_user_for_looking(start: Start) -> None:
    (rules,) = re.findall(r"^ACL SETUSER (viewer .+)$", GUIDE, re.MULTILINE)
    name, *words = rules.split()
    site = Site(start, console_write=True, requirepass="secret")
    with site.running.client(password="secret") as client:
        client.execute_command("ACL", "SETUSER", name, *words)
    failing(site.db, 1).put(1, delay=60)
    assert site.sign_in(name, words[1].removeprefix(">")).status == 200
    site.get("overview")
    assert site.get("workers")["workers"] and site.get("schedules")["schedules"] == []
    assert site.get("search", key="mails", group="workers", text="mailbox")["found"]
    assert len(site.get("queues")["queues"]) == 1
    told = site.get("queue", key="mails", group="workers")
    dead = told["dead_jobs"][0]["id"]
    assert site.get("job", key="mails", group="workers", id=dead)["state"] == "dead"
    assert told["dead"] == told["scheduled"] == 1
    assert site.get("streams")["streams"]
    assert site.get("stream", key="mails")["groups"]
    for action in ("redrive", "purge-dead", "purge"):
        asked = {"db": 0, "key": "mails", "group": "workers", "all": True}
        assert site.post(action, asked).status == 403
    assert len(site.db.queue("mails").dead) == 1


def test_the_options_and_limits_that_it_names() -> None:
    assert {"console", "console-write"} <= {*OPTIONS}
    assert f"{looks.STREAMS_MAX} streams among {looks.SCANS * looks.SCANNED:,} keys" in GUIDE
    assert f"{looks.JOBS} jobs of each kind, and {shown.CHARS_MAX:,} characters" in GUIDE
    assert f"{changes.JOBS_MAX:,} at a time" in GUIDE
    assert f"reads {jobs.SLICES * SLICE_COST // (1 + STATUS_COST):,} jobs" in GUIDE
