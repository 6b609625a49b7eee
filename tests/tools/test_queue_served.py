"""`tidelog queue` beside a server of the store: by the path, through the socket in its directory, and by a URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.conftest import Run

import tidelog
from tidelog.tools import exits

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
    assert stats["cancelled"] == 0
    late = json.loads(run("queue", "put", place, "mails", "{}", "--delay", "60", "--json").out)
    assert run("queue", "cancel", place, "mails", late["ids"][0]).code == 0
    assert json.loads(run("queue", "stats", place, "mails", "--json").out)["cancelled"] == 1
    assert "cancelled    1" in run("queue", "stats", place, "mails").out
    assert "CANCELLED" in run("queue", "watch", place, "mails", "--looks", "1").out
    assert "waiting" in run("queue", "peek", place, "mails").out
    assert REASON in run("queue", "failures", place, "mails").out
    assert REASON in run("queue", "dead", "ls", place, "mails").out
    done = run("queue", "stats", place, "nothing")
    assert done.code and "there is no queue nothing" in done.err


def test_a_url_that_nobody_serves(run: Run) -> None:
    done = run("queue", "ls", "nonsense://x")
    assert done.code and "scheme" in done.err


def test_a_url_may_be_an_option(tmp_path: Path, run: Run) -> None:
    """`--url URL` is the same as the URL in place of PATH, wherever it stands."""
    with tidelog.open(tmp_path / "s", fsync="no") as db, tidelog.serve(db, port=0) as serving:
        db.queue("mails").put("one")
        url = f"redis://127.0.0.1:{serving.port}"
        plain = run("queue", "peek", url, "mails").out
        assert "one" in plain
        for words in (("--url", url, "mails"), ("mails", "--url", url), (f"--url={url}", "mails")):
            assert run("queue", "peek", *words).out == plain
        assert run("queue", "dead", "ls", "mails", "--url", url).code == 0
        assert run("queue", "ls", "--url", url).code == 0
        assert run("queue", "put", "--url", url, "mails", "--codec", "str", "--", "--url").code == 0
        assert len(db.queue("mails")) == 2
        assert run("queue", "peek", "mails", "--url").code == exits.USAGE
        assert run("queue", "peek", "path", "mails", "--url", url).code == exits.USAGE
