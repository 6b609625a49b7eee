"""`tidelog queue` beside a server of the store: by the path, through the socket in its directory, and by a URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.conftest import Run

import tidelog

REASON = "boom"


@pytest.fixture(params=["path", "url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A served store with a dead job, a waiting one and one in flight."""
    root = tmp_path / "store"
    with tidelog.open(root, fsync="no") as db, tidelog.serve(db, port=0) as serving:
        queue = db.queue("mails")
        queue.put_many(["dead", "held", "waiting"])
        for job in queue.consume("w", block=0):
            if job.value == "held":
                break
            job.fail(REASON)
        yield str(root) if request.param == "path" else f"redis://127.0.0.1:{serving.port}"
        assert job.ack()


def test_changing(run: Run, place: str) -> None:
    assert (
        "1 dead job would be redriven"
        in run(*("queue", "dead", "redrive", place, "mails", "--dry-run")).out
    )
    done = run("queue", "dead", "redrive", place, "mails")
    assert done.code == 0 and "1 dead job redriven" in done.out
    done = run("queue", "purge", place, "mails", "--yes")
    assert done.code == 0 and "2 jobs purged (1 in flight left)" in done.out
    assert run("queue", "dead", "purge", place, "mails", "--yes").code == 0


def test_reading(run: Run, place: str) -> None:
    (line,) = run("queue", "ls", place, "--json").out.splitlines()
    assert json.loads(line)["depth"] == 2
    stats = json.loads(run("queue", "stats", place, "mails", "--json").out)
    assert (stats["waiting"], stats["in_flight"], stats["dead"]) == (1, {"w": 1}, 1)
    assert "waiting" in run("queue", "peek", place, "mails").out
    assert REASON in run("queue", "failures", place, "mails").out
    assert REASON in run("queue", "dead", "ls", place, "mails").out
    done = run("queue", "stats", place, "nothing")
    assert done.code and "there is no queue nothing" in done.err


def test_a_url_that_nobody_serves(run: Run) -> None:
    done = run("queue", "ls", "nonsense://x")
    assert done.code and "scheme" in done.err
