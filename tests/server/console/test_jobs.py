"""One job by its ID in each state that it can have, the search with its bounds, workers and schedules."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.conftest import Start
from tests.server.console.browsing import Site, failing, ref

from tidelog.jobs.hangs import Counts
from tidelog.jobs.verbs.hangs import TellHangs
from tidelog.server.console import jobs
from tidelog.testing import Clock

MAILS = {"key": "mails", "group": "workers"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(start: Start, clock: Clock) -> Site:
    found = Site(start, console_write=True, clock=clock)
    found.anna()
    return found


def job(site: Site, id: str) -> dict[str, Any]:
    return site.get("job", **MAILS, id=id)


def done(site: Site, name: str, **told: object) -> dict[str, Any]:
    answer = site.post(name, {"db": 0, "key": "mails", **told})
    assert answer.status == 200, answer
    return answer.told


def test_the_states_of_a_job(site: Site, clock: Clock) -> None:
    queue = site.db.queue("mails", max_deliveries=2, keep=10)
    id = queue.put({"to": "zoe"}, headers={"shop": "tea"}, key="customer-7", priority=3)
    found = job(site, id)
    assert (found["state"], found["key"], found["priority"]) == ("waiting", "customer-7", 3)
    assert found["value"]["form"] == "json" and found["headers"] == {"shop": "tea"}
    held = queue.get("worker-1")
    assert held is not None
    found = job(site, id)
    assert (found["state"], found["consumer"], found["deliveries"]) == ("running", "worker-1", 1)
    held.nack("no route", delay=60)
    found = job(site, id)
    assert found["state"] == "paused"
    assert [each["error"] for each in found["latest_failures"]] == ["no route"]
    clock.advance(61)
    held = queue.get("worker-2")
    assert held is not None
    held.nack("no route again")
    (dead,) = queue.dead
    for each in (id, dead.id):  # its own ID leads there, too
        found = job(site, each)
        assert (found["state"], found["original_id"], found["deliveries"]) == ("dead", id, 2)
    assert done(site, "redrive", ids=[dead.id])["done"] == 1
    held = queue.get("worker-2")
    assert held is not None and held.ack(result={"sent": True})
    found = job(site, held.id)
    assert found["state"] == "done" and '"sent": true' in found["result"]["text"]


def test_a_delayed_job_before_and_after_it_is_due(site: Site, clock: Clock) -> None:
    queue = site.db.queue("mails")
    id = queue.put("later", delay=60)
    found = job(site, id)
    assert found["state"] == "delayed" and found["due_ms"] == found["now_ms"] + 60_000
    clock.advance(61)
    held = queue.get("worker-1")
    assert held is not None and held.id != id
    found = job(site, id)
    assert (found["state"], found["id"], found["first"]) == ("running", held.id, id)


def test_a_job_that_is_not_there(site: Site) -> None:
    site.db.queue("mails").put(1)
    answer = site.look("job", **MAILS, id="1-0")
    assert answer.status == 404 and "there is no such job" in answer.told["error"]
    assert site.look("job", **MAILS, id="x").status == 400
    assert site.look("job", **MAILS).status == 400
    assert site.look("life", **MAILS, id="1-0").status == 404, "a server does not read its log"


def test_put_move_and_cancel(site: Site) -> None:
    queue = site.db.queue("mails")
    told = done(site, "put", value='{"to": "zoe"}', delay_ms=60_000, priority=2, job_key="k")
    (waiting,) = queue.peek(scheduled=True)
    assert (waiting.id, waiting.value, waiting.priority, waiting.key) == (
        *(told["id"], {"to": "zoe"}, 2, "k"),
    )
    assert done(site, "move", id=told["id"], delay_ms=0)["done"] == 1
    held = queue.get("worker-1")
    assert held is not None and held.value == {"to": "zoe"}
    assert done(site, "move", id=told["id"], delay_ms=0)["done"] == 0
    later = done(site, "put", value="1", delay_ms=60_000)["id"]
    assert done(site, "cancel", id=later)["done"] == 1 and not queue.peek(scheduled=True)
    assert done(site, "cancel", id=later)["done"] == 0
    for told in ({"delay_ms": -1}, {"delay_ms": "1"}, {"delay_ms": True}, {"value": 1}):
        assert site.post("put", {"key": "mails", "value": "1", **told}).status == 400
    assert site.post("cancel", {"key": "mails"}).status == 400
    assert site.post("put", {"key": "mails", "value": "1", "priority": 10}).status == 409


def test_only_users_with_the_rights_change(site: Site) -> None:
    id = site.db.queue("mails").put(1, delay=60)
    site.db.schedule("hourly", every=3600, queue="mails", value=1)
    site.user("reset", "on", ">secret", "~*", "+@read", name="bert")
    assert site.sign_in("bert", "secret").status == 200
    for name, told in {
        "put": {"key": "mails", "value": "1"}, "cancel": {"key": "mails", "id": id},
        "move": {"key": "mails", "id": id}, "pause": {"key": "hourly"}, "resume": {"key": "hourly"},
    }.items():  # fmt: skip
        assert site.post(name, told).status == 403, name
    assert len(site.db.queue("mails").peek(scheduled=True)) == 1


def test_search(site: Site, clock: Clock) -> None:
    queue = failing(site.db, 2)
    queue.put({"to": "Zoë"}, headers={"shop": "Tea"}, key="customer-7")
    late = queue.put({"to": "zoe"}, delay=60)

    def hits(text: str, part: str = "") -> list[tuple[str, str]]:
        found = site.get("search", **MAILS, text=text, part=part)
        assert found["next"] == ""
        return [(each["state"], each["part"]) for each in found["found"]]

    assert hits("zoë") == [("waiting", "value")], "the case does not count, nor how JSON writes it"
    assert hits("ZOE") == [("delayed", "value")]
    assert hits("customer") == [("waiting", "key")] and hits("shop: tea") == [("waiting", "header")]
    assert hits("no mailbox 1") == [("dead", "error")]
    assert hits("no mailbox 1", "value") == hits("") == hits("nowhere") == []
    (found,) = site.get("search", **MAILS, text="zoe")["found"]
    assert found["id"] == late
    assert site.look("search", **MAILS, text="zoe", after="x").status == 409


def test_a_search_finds_by_their_failures_jobs_that_are_done(site: Site) -> None:
    """Whether anything is left of the job, or it was put anew after its death."""
    gone, kept = (site.db.queue("mails", "workers", keep=keep) for keep in (0, 5))
    for queue in (gone, kept):
        queue.put(1)
        held = queue.get("worker-1")
        assert held is not None and held.nack("no mailbox", delay=0)
        held = queue.get("worker-1")
        assert held is not None and held.ack()
    again = kept.put(1)
    held = kept.get("worker-1")
    assert held is not None and held.nack("no mailbox", delay=0)
    held = kept.get("worker-1")
    assert held is not None and held.fail("no letter")
    kept.dead.redrive()
    told = site.get("search", **MAILS, text="MAILBOX")["found"]
    assert [each["state"] for each in told] == ["waiting", "done", "gone"]
    assert {each["part"] for each in told} == {"error"} and told[0]["id"] == again


def test_a_search_is_bounded_and_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SLICES", 1)
    queue = site.db.queue("mails")
    queue.put_many([{"number": number} for number in range(100)])
    queue.put("number", priority=5)
    found, after = [], ""
    while True:
        told = site.get("search", **MAILS, text="number", after=after)
        assert len(told["found"]) <= jobs.FOUND
        found += [each["id"] for each in told["found"]]
        after = told["next"]
        if not after:
            break
    assert len({*found}) == len(found) == 101
    queue.put_many(["x" * 100_000] * 30)  # long ones cost more
    assert site.get("search", **MAILS, text="nowhere")["next"]


def test_workers_and_what_they_hold(site: Site, clock: Clock) -> None:
    queue = site.db.queue("mails")
    queue.put("normal")
    queue.put("urgent", priority=9)
    queue.put("done", priority=9)
    first, second, third = (queue.get(f"worker-{number}") for number in (1, 2, 1))
    assert first is not None and second is not None and second.ack() and third is not None
    clock.advance(5)
    told = site.get("workers")
    one, two = told["workers"]
    assert (one["worker"], one["name"], one["pending"]) == ("worker-1", "mails", 2)
    assert {each["id"] for each in one["held"]} == {first.id, third.id}
    assert (two["worker"], two["pending"], two["held"]) == ("worker-2", 0, [])
    assert two["idle_ms"] == 5000 < told["alive_ms"] and told["complete"]
    assert third.progress(0.25, "page 1") and (one["hanging"], two["hanging"]) == (0, 0)
    queue._backend.ask(TellHangs(b"worker-2", b"run", Counts(3, 0)))
    one, two = site.get("workers")["workers"]
    come = {each["id"]: each.get("progress") for each in one["held"]}
    assert come == {first.id: None, third.id: {"fraction": 0.25, "text": "page 1"}}
    assert two["hanging"] == 3


def test_schedules_and_their_next_ticks(site: Site, clock: Clock) -> None:
    site.db.schedule("hourly", every=3600, queue="mails", value={"report": 1})
    site.db.schedule("nightly", "0 3 * * *", tz="Europe/Berlin", queue="mails")
    hourly, nightly = site.get("schedules")["schedules"]
    now = hourly["next_ms"] - 3_600_000
    assert hourly["ticks_ms"] == [now + n * 3_600_000 for n in (1, 2, 3)]
    assert hourly["place"]["ref"] == "mails" and '"report": 1' in hourly["value"]["text"]
    assert [b - a for a, b in zip(nightly["ticks_ms"], nightly["ticks_ms"][1:], strict=False)] == [
        *(86_400_000,) * 2
    ]
    assert done(site, "pause", key=ref("hourly"))["done"] == 1
    hourly, _ = site.get("schedules")["schedules"]
    assert hourly["paused"] and hourly["ticks_ms"] == []
    assert done(site, "resume", key=ref("hourly"))["done"] == 1
    assert not site.get("schedules")["schedules"][0]["paused"]
    assert done(site, "pause", key="nobody")["done"] == 0
