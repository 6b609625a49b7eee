"""Changes by the console: of dead and of waiting jobs, in pieces, with a line in the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.server.conftest import Start
from tests.server.console.browsing import Site, failing

import tidelog
from tidelog.server.console import changes


@pytest.fixture
def site(start: Start) -> Site:
    found = Site(start, console_write=True)
    found.anna()
    return found


def done(site: Site, name: str, **told: object) -> dict[str, Any]:
    answer = site.post(name, {"db": 0, "key": "mails", **told})
    assert answer.status == 200, answer
    return answer.told


def test_one_dead_job_is_put_back(site: Site) -> None:
    queue = failing(site.db, 3)
    first, *others = (job.id for job in queue.dead)
    assert done(site, "redrive", ids=[first]) == {"done": 1, "more": False, "last": ""}
    assert [job.id for job in queue.dead] == others
    (job,) = queue.peek()
    assert job.value == {"to": 0}
    assert done(site, "redrive", ids=[first])["done"] == 0


def test_one_dead_job_is_deleted(site: Site) -> None:
    queue = failing(site.db, 2)
    first, second = (job.id for job in queue.dead)
    assert done(site, "purge-dead", ids=[second])["done"] == 1
    assert [job.id for job in queue.dead] == [first] and not queue.peek()


@pytest.mark.parametrize("name", ["redrive", "purge-dead"])
def test_all_dead_jobs_in_pieces(site: Site, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(changes, "JOBS_MAX", 4)
    monkeypatch.setattr(changes, "PAGE", 2)
    queue = failing(site.db, 10)
    told = done(site, name, all=True)
    assert (told["done"], told["more"]) == (4, True)
    late = failing_later(queue)
    total = 4
    while told["more"]:
        told = done(site, name, all=True, last=told["last"])
        total += told["done"]
    assert total == 10
    assert [job.id for job in queue.dead] == [late], "a job that died meanwhile is left"
    assert len(queue.peek(100)) == (10 if name == "redrive" else 0)


def failing_later(queue: tidelog.Queue) -> str:
    """One more dead job; its ID."""
    queue.put("late")
    held = []
    for job in queue.consume("worker-1", block=0):
        if job.value == "late":
            assert job.fail("too late")
            break
        held.append(job)
    for job in held:
        job.release()
    return [job.id for job in queue.dead][-1]


def test_waiting_jobs_are_deleted_in_pieces(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "PURGES", 1)
    queue = site.db.queue("mails")
    queue.put_many(range(1500))
    assert queue.get("worker-1") is not None
    told = done(site, "purge", group="workers")
    total = told["done"]
    while told["more"]:
        told = done(site, "purge", group="workers")
        total += told["done"]
    assert total == 1499 and len(queue) == 1


def test_a_queue_that_is_not_there(site: Site) -> None:
    assert done(site, "redrive", all=True)["done"] == 0
    assert done(site, "purge-dead", ids=["1-0"])["done"] == 0


# fmt: off
BAD: tuple[dict[str, object], ...] = (
    {}, {"ids": []}, {"ids": "1-0"}, {"ids": ["x"]}, {"ids": [1]}, {"ids": [""]}, {"ids": ["1-0"] * 1001},
    {"all": "yes"}, {"all": True, "last": "x"}, {"all": True, "key": 1}, {"all": True, "db": "x"},
)
# fmt: on


def test_bad_requests(site: Site) -> None:
    failing(site.db, 1)
    for told in BAD:
        assert site.post("redrive", {"db": 0, "key": "mails", **told}).status == 400, told
        assert site.post("redrives", {"db": 0, "key": "mails", **told}).status == 404
    assert len(site.db.queue("mails").dead) == 1


def test_every_change_has_a_line_in_the_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    failing(site.db, 2)
    with caplog.at_level(logging.INFO, "tidelog.server"):
        done(site, "redrive", all=True)
    assert "console: user 'anna' at 127.0.0.1: redrive of 'mails': 2 jobs" in caplog.text


def test_what_the_page_did_is_in_the_log_of_the_store(site: Site) -> None:
    """`tidelog why` tells it as that of any client."""
    queue = failing(site.db, 1)
    done(site, "redrive", all=True)
    job = queue.get("worker-2")
    assert job is not None and job.origin is not None
