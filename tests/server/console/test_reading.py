"""The views of the console: queues with their jobs, streams with their groups, the log and the checkpoint."""

from __future__ import annotations

import json
import time
from typing import Any

import msgpack
import pytest
from tests.jobs.names import names_of
from tests.server.conftest import Start
from tests.server.console.browsing import Site, failing, ref
from tests.server.loop import loop_held
from tests.until import until

from tidelog.server.console import link, looks, shown


def test_the_store(site: Site) -> None:
    site.db.xadd("orders", {"item": "tea"})
    site.db.checkpoint()
    info = site.get("overview")["info"]
    assert info["replication"]["role"] == "master"
    assert info["tidelog"]["path"] == str(site.running.root)
    assert int(info["tidelog"]["checkpoint_lsn"]) > 0
    assert {"server", "clients", "memory", "stats", "persistence", "keyspace"} <= info.keys()


def test_queues(site: Site) -> None:
    failing(site.db, 3)
    queue = site.db.queue("mails")
    queue.put_many([1, 2, 3])
    assert queue.get("worker-2") is not None
    site.db.xadd("orders", {"item": "tea"})
    site.db.set("text", "1")
    (row,) = site.get("queues")["queues"]
    assert (row["name"], row["group"], row["added"]) == ("mails", "workers", 6)
    assert (row["depth"], row["waiting"], row["dead"], row["paused"]) == (3, 2, 3, 0)
    assert row["in_flight"] == {"worker-2": 1}
    assert row["oldest_seconds"] >= 0
    until(lambda: site.get("queues")["queues"][0]["done_per_second"] is not None)


def test_a_queue_that_was_only_put_to(site: Site) -> None:
    site.db.queue("mails").put(1)
    (row,) = site.get("queues")["queues"]
    assert (row["group"], row["depth"], row["waiting"]) == ("workers", 1, 1)
    told = site.get("queue", key="mails", group="workers")
    assert told["held"] == [] and told["jobs"][0]["value"]["text"] == "1"


def test_jobs(site: Site) -> None:
    queue = failing(site.db, 2)
    queue.put({"to": "ann"}, headers={"trace": "4bf92f"})
    queue.put({"to": "bob"})
    job = queue.get("worker-2")
    assert job is not None
    told = site.get("queue", key="mails", group="workers")
    (waiting,) = told["jobs"]
    assert json.loads(waiting["value"]["text"]) == {"to": "bob"}
    (held,) = told["held"]
    assert (held["id"], held["consumer"], held["deliveries"]) == (job.id, "worker-2", 1)
    assert held["headers"] == {"trace": "4bf92f"}
    assert [failure["error"] for failure in told["latest_failures"]] == [
        "LookupError: no mailbox 1", "LookupError: no mailbox 0",
    ]  # fmt: skip
    newest, oldest = told["dead_jobs"]
    assert json.loads(newest["value"]["text"]) == {"to": 1} and newest["codec"] == "json"
    assert newest["workers"] == ["worker-1"] and newest["reason"] == "LookupError: no mailbox 1"
    (failure,) = oldest["failures"]
    assert failure["delivery"] == 1 and failure["traceback"].startswith("Traceback (most recent")
    assert "no mailbox 0" in failure["traceback"]


def test_delayed_jobs(site: Site) -> None:
    queue = site.db.queue("mails")
    queue.put({"to": "ann"}, delay=3600)
    (row,) = site.get("queues")["queues"]
    assert (row["name"], row["scheduled"], row["added"]) == ("mails", 1, 0)
    told = site.get("queue", key="mails", group="workers")
    (job,) = told["later"]
    assert (told["scheduled"], told["depth"], told["jobs"]) == (1, 0, [])
    assert json.loads(job["value"]["text"]) == {"to": "ann"}
    assert 0 < job["due_ms"] - time.time() * 1000 <= 3_600_000


def test_jobs_of_all_priorities(site: Site) -> None:
    queue = site.db.queue("mails")
    for priority in (0, 3, 9):
        queue.put({"priority": priority}, priority=priority)
    assert queue.get("ann", block=0) is not None
    (row,) = site.get("queues")["queues"]
    assert (row["name"], row["depth"], row["in_flight"], row["added"]) == (
        *("mails", 3, {"ann": 1}, 3),
    )
    told = site.get("queue", key="mails", group="workers")
    (held,) = told["held"]
    assert json.loads(held["value"]["text"]) == {"priority": 9} and held["consumer"] == "ann"
    waiting = [json.loads(job["value"]["text"])["priority"] for job in told["jobs"]]
    assert (waiting, told["added"]) == ([3, 0], 3)


def test_a_queue_with_urgent_jobs_only(site: Site) -> None:
    site.db.queue("mails").put("now", priority=9)
    (row,) = site.get("queues")["queues"]
    assert (row["name"], row["waiting"]) == ("mails", 1)
    assert len(site.get("queue", key="mails", group="workers")["jobs"]) == 1


def test_schedules_are_no_queue(site: Site) -> None:
    site.db.schedule("nightly", every=3600, queue="mails", value=1)
    assert site.get("queues")["queues"] == []


def test_the_queues_are_those_of_queue_list(site: Site) -> None:
    db = site.db
    for key in ("orders", "empty", "noted"):
        db.xgroup_create(key, "g", id="0", mkstream=True)
    for key in ("orders", "noted", "alone"):
        db.xadd(key, {"item": "tea"})
    db.queue("noted").put("later", delay=3600)
    db.queue("mails").put("new")
    listed = [name for name, _ in names_of(db)]
    assert listed == ["empty", "mails", "noted"]
    assert [row["name"] for row in site.get("queues")["queues"]] == listed


def test_pages_of_dead_jobs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "JOBS", 2)
    failing(site.db, 5)
    seen: list[int] = []
    before = ""
    while True:
        told = site.get("queue", key="mails", group="workers", before=before)
        seen += [json.loads(job["value"]["text"])["to"] for job in told["dead_jobs"]]
        if not told["dead_more"]:
            break
        before = told["dead_jobs"][-1]["id"]
    assert seen == [4, 3, 2, 1, 0]


def test_streams_and_groups(site: Site) -> None:
    for number in range(5):
        site.db.xadd("orders", {"item": f"tea {number}"}, id=f"{number + 1}-0")
    site.db.xgroup_create("orders", "packers", "0")
    site.db.xreadgroup("packers", "anna", {"orders": ">"}, count=2)
    (row,) = site.get("streams")["streams"]
    assert (row["key"], row["length"], row["last_id"]) == ("orders", 5, "5-0")
    (group,) = row["groups"]
    assert (group["lag"], group["pending"], group["last_id"]) == (3, 2, "2-0")
    told = site.get("stream", key="orders")
    assert [entry["id"] for entry in told["entries"]] == ["5-0", "4-0", "3-0", "2-0", "1-0"]
    (group,) = told["groups"]
    assert group["members"][0]["name"] == "anna"
    assert [(row["id"], row["deliveries"]) for row in group["oldest"]] == [("1-0", 1), ("2-0", 1)]


def test_another_database(site: Site) -> None:
    site.db.db(3).xadd("orders", {"item": "tea"})
    assert site.get("streams")["streams"] == []
    assert site.get("streams", db="3")["streams"][0]["key"] == "orders"
    assert site.look("streams", db="99").status == 409
    assert site.look("streams", db="x").status == site.look("streams", db="-1").status == 400


NAMES: list[bytes] = [b"\xff\x00", b"a b+c&d=e%2F#?", "ünï".encode(), b"", b"<b>"]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_comes_back(site: Site, name: bytes) -> None:
    site.db.xadd(name, {b"\xfe": b"\xfd"})
    (row,) = site.get("streams")["streams"]
    assert row["ref"] == ref(name)
    told = site.get("stream", key=row["ref"])
    ((field, value),) = told["entries"][0]["fields"]
    assert (field, value["text"], value["form"]) == ("\\xfe", "\\xfd", "bytes")


@pytest.mark.parametrize(
    ("raw", "codec", "form", "text"),
    [
        (b'{"a":[1]}', "json", "json", '{\n  "a": [\n    1\n  ]\n}'),
        (b"plain", "str", "text", "plain"),
        (b"\x00\xff", "bytes", "bytes", "\x00\\xff"),
        (msgpack.packb({"a": b"\xff"}), "msgpack", "msgpack", '{\n  "a": "b\'\\\\xff\'"\n}'),
        (b"\xc1", "msgpack", "bytes", "\\xc1"),
        (b"[" * 5000, "json", "text", "[" * 5000),
        (b"9" * 5000, "json", "text", "9" * 5000),
    ],
)
def test_values(raw: bytes, codec: str, form: str, text: str) -> None:
    assert shown.value(raw, codec) == {
        "text": text, "form": form, "bytes": len(raw), "cut": False,
    }  # fmt: skip


def test_long_values_are_cut(site: Site) -> None:
    site.db.queue("mails").put("x" * 200_000)
    (job,) = site.get("queue", key="mails", group="workers")["jobs"]
    assert job["value"]["cut"] and job["value"]["bytes"] == 200_002
    assert len(job["value"]["text"]) == shown.CHARS_MAX


def test_an_entry_that_is_no_job(site: Site) -> None:
    queue = site.db.queue("mails")
    queue.put(1)
    site.db.xadd("mails", {"to": "ann"})
    told = site.get("queue", key="mails", group="workers")
    assert told["jobs"][1]["value"] is None
    assert told["jobs"][1]["fields"][0][0] == "to"


def test_lists_are_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "STREAMS_MAX", 3)
    for number in range(5):
        site.db.xadd(f"s{number}", {"f": "v"})
    told = site.get("streams")
    assert [row["key"] for row in told["streams"]] == ["s0", "s1", "s2"] and not told["complete"]
    monkeypatch.setattr(looks, "SCANS", 1)
    monkeypatch.setattr(looks, "SCANNED", 1)
    assert not site.get("queues")["complete"]


def test_a_key_that_is_no_stream(site: Site) -> None:
    site.db.set("text", "1")
    answer = site.look("stream", key="text")
    assert answer.status == 409 and "WRONGTYPE" in answer.told["error"]
    assert site.look("stream", key="missing").status == 404
    assert site.look("queue", key="missing", group="workers").status == 404
    assert site.look("stream").status == 400


def test_a_follower_shows_its_copy(start: Start) -> None:
    leader = start()
    leader.db.queue("mails").put(1)
    site = Site(start, replicaof=f"127.0.0.1 {leader.port}")
    until(lambda: site.look("queues").status == 200)  # before, it loads
    until(lambda: [row["depth"] for row in site.get("queues")["queues"]] == [1])
    assert site.get("overview")["info"]["replication"]["role"] == "slave"


def test_a_loop_that_hangs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LINK_S", 0.2)
    with loop_held(site.running):
        answer = site.look("queues")
    assert (answer.status, answer.told["error"]) == (503, "the server does not answer")
    monkeypatch.undo()
    assert site.get("queues")["queues"] == []


def test_the_console_is_a_client(site: Site) -> None:
    """Its commands count, and no connection stays behind."""
    site.get("queues")
    with site.running.client() as client:
        stats: dict[str, Any] = client.info("commandstats")
        assert stats["cmdstat_scan"]["calls"] == 1
        until(lambda: len(client.client_list()) == 1)
