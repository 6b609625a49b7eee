"""tidelog why: jobs that were delayed, ticks of schedules, results, and what else a job's row says."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Run

import tidelog
from tidelog.testing import Clock

OPTIONS: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}


def told(run: Run, root: Path, key: str, entry: str) -> list[tuple[str, str]]:
    """(kind, text) of the events."""
    done = run("why", root, key, entry, "--json")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["lsn"] for row in rows] == sorted(row["lsn"] for row in rows)
    return [(row["event"], row["text"]) for row in rows]


def fill(db: tidelog.Store, count: int) -> None:
    for n in range(count):
        db.xadd("fill", {"n": n, "text": "x" * 100})


def kinds(run: Run, root: Path, key: str, entry: str) -> list[str]:
    return [kind for kind, _ in told(run, root, key, entry)]


def test_the_whole_life_of_a_delayed_job_by_either_id(run: Run, tmp_path: Path) -> None:
    root, clock = tmp_path / "db", Clock()
    with tidelog.open(root, clock=clock, **OPTIONS) as db:
        queue = db.queue("mails")
        first = str(queue.put("hello", delay=60))
        due = datetime.fromtimestamp(clock.time_ns() / 1e9, UTC) + timedelta(seconds=60)
        assert queue.move(first, delay=120)
        for _ in range(3):
            queue.put("other", delay=119)
        clock.advance(121)
        for _ in range(4):
            job = queue.get("anna", block=0)
            assert job is not None
            if job.origin == first:
                second = job.id
                job.ack(result="sent")
            else:
                job.ack()
    events = told(run, root, "mails", first)
    assert [kind for kind, _ in events] == [
        *("added", "delayed", "rescheduled", "due", "delivered", "acked", "result"),
    ]
    texts = [text for _, text in events]
    assert texts[0] == "put by XADD"
    assert texts[1] == f"delayed until {due.isoformat(timespec='milliseconds')[:23]}Z"
    assert texts[2].startswith("moved: due at ")
    assert texts[3] == f"due: became job {second}"
    assert texts[4] == "delivered to anna of group workers, delivery 1"
    assert texts[6].startswith("result stored, 6 bytes, kept until ")
    assert told(run, root, "mails", second) == events
    assert told(run, root, "mails:later", first) == events


def test_a_delayed_job_that_was_cancelled(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    with tidelog.open(root, **OPTIONS) as db:
        queue = db.queue("mails")
        gone = str(queue.put("hello", at=datetime.now(UTC) + timedelta(days=1)))
        assert queue.cancel(gone)
    assert kinds(run, root, "mails", gone) == ["added", "delayed", "cancelled"]


def test_a_job_that_was_cancelled_while_it_ran(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    with tidelog.open(root, **OPTIONS) as db:
        queue: Any = db.queue("mails")
        unseen, running, other = queue.put("a"), queue.put("b"), queue.put("c")
        assert queue.cancel(unseen)
        job = queue.get("anna", block=0)
        assert job.id == running and queue.cancel(running) and not job.ack()
        queue.get("anna", block=0).ack()
    events = told(run, root, "mails", running)
    assert [text for kind, text in events if kind == "cancelled"] == [
        "cancelled in group workers after 1 delivery, the last one to worker anna"
    ]
    assert [kind for kind, _ in events][:3] == ["added", "delivered", "cancelled"]
    (text,) = [text for kind, text in told(run, root, "mails", unseen) if kind == "cancelled"]
    assert text == "cancelled in group workers before a worker had it"
    assert "cancelled" not in kinds(run, root, "mails", other)


def test_a_thousand_delayed_jobs_of_one_put(run: Run, tmp_path: Path) -> None:
    """One batch puts them, one moves them, one fetch takes them."""
    root, clock = tmp_path / "db", Clock()
    with tidelog.open(root, clock=clock, **OPTIONS) as db:
        queue = db.queue("mails")
        queue.put_many([{"n": n} for n in range(1000)], delay=5)
        firsts = [job.id for job in queue.peek(1000, scheduled=True)]
        clock.advance(6)
        seconds = {}
        for job in queue.consume("anna", batch=1000, block=0):
            with job:
                seconds[job.origin] = job.id
    for first in (firsts[0], firsts[137], firsts[-1]):
        events = told(run, root, "mails", first)
        assert [kind for kind, _ in events] == ["added", "delayed", "due", "delivered", "acked"]
        assert events[2][1] == f"due: became job {seconds[first]}"
        assert told(run, root, "mails", seconds[first]) == events


def test_a_delayed_job_that_dies_and_comes_back(run: Run, tmp_path: Path) -> None:
    """The redriven job has the delayed one's ID as its origin, too. It was not delayed."""
    root, clock = tmp_path / "db", Clock()
    with tidelog.open(root, clock=clock, **OPTIONS) as db:
        queue = db.queue("mails")
        first = str(queue.put("hello", delay=5, ttl=50))
        clock.advance(6)
        job = queue.get("anna", block=0)
        assert job is not None
        second = job.id
        job.fail("no such address")
        queue.dead.redrive()
        job = queue.get("ben", block=0)
        assert job is not None and job.origin == first
        third = job.id
        job.ack(result=1)
    events = told(run, root, "mails", first)
    assert [kind for kind, _ in events] == [
        *("added", "delayed", "due", "delivered", "failed", "dead", "acked", "redriven", "result"),
    ]
    assert events[0][1].startswith("put by XADD, expires ")
    assert events[7][1] == f"redriven as {third}"
    assert told(run, root, "mails", second) == events
    last = told(run, root, "mails", third)
    assert [kind for kind, _ in last] == ["added", "delivered", "acked", "result"]
    assert last[0][1] == f"put by XADD, redriven from the dead job {first}"


def test_a_result_that_expired_is_gone(run: Run, tmp_path: Path) -> None:
    root, clock = tmp_path / "db", Clock()
    with tidelog.open(root, clock=clock, **OPTIONS) as db:
        queue = db.queue("mails")
        first = str(queue.put("hello"))
        job = queue.get("anna", block=0)
        assert job is not None
        job.ack(result="sent", ttl=10)
        clock.advance(11)
        db.delete(f"mails:result:{first}")
        db.set(f"mails:result:{first}", "again")
        db.delete(f"mails:result:{first}")
    assert kinds(run, root, "mails", first)[-4:] == ["result"] * 4


def test_a_tick_says_which_schedule_made_it(run: Run, tmp_path: Path) -> None:
    root, clock = tmp_path / "db", Clock()
    with tidelog.open(root, clock=clock, **OPTIONS) as db:
        queue = db.queue("mails")
        db.schedule("nightly", every=60, queue="mails", value="report")
        clock.advance(61)
        job = queue.get("anna", block=0)
        assert job is not None
        tick = job.headers["tick"]
        entry = job.id
        job.ack()
        rule = db.xrange("tidelog:schedules")[0][0].decode()
    events = told(run, root, "mails", entry)
    assert [kind for kind, _ in events] == ["added", "delivered", "acked"]
    assert events[0][1].endswith(f", by the schedule nightly for its tick {tick}")
    made = told(run, root, "tidelog:schedules", rule)
    assert [kind for kind, _ in made] == ["added", "scheduled", "scheduled"]
    assert made[1][1].endswith(", 0 made so far") and made[2][1].endswith(", 1 made so far")


@pytest.mark.parametrize("key", ["mails", "mails:priority:7"])
def test_a_job_of_a_lane(run: Run, tmp_path: Path, key: str) -> None:
    """A lane is a stream of its own with its own pauses; it shares what is noted of the dead, and the delayed jobs."""
    root = tmp_path / "db"
    ms = 1_700_000_000_000
    job, delayed, second = f"{ms}-{7 << 17}", f"{ms}-{1 << 21}", f"{ms + 9}-{7 << 17}"
    lane = "mails:priority:7"
    rows = {"value": "1", "priority": "7", "key": "customer-7"}
    with tidelog.open(root, **OPTIONS) as db:
        db.xgroup_create(lane, "workers", id="0", mkstream=True)
        db.xadd(lane, rows, id=job)
        db.xreadgroup("workers", "anna", {lane: ">"})
        db.xadd(lane + ":holds", {"group": "workers", "job": job, "until": str(ms + 5000)})
        db.xadd("mails:failures", {"group": "workers", "job": job, "worker": "anna", "error": "x"})
        db.xadd("mails:dead", {**rows, "id": job, "group": "workers", "reason": "given up"})
        with db.pipeline(transaction=True) as unit:
            unit.xadd("mails:later", rows, id=delayed)
            unit.execute_command(
                *("XGROUP", "CREATE", "mails:later", "due", "0"),
            )
            unit.execute_command(
                *(
                    "XCLAIM",
                    "mails:later",
                    "due",
                    "later",
                    0,
                    delayed,
                    "TIME",
                    ms - 500_000_000_000,
                ),
                *("RETRYCOUNT", 1, "FORCE", "JUSTID", "LASTID", delayed),
            )
            unit.execute()
        with db.pipeline(transaction=True) as unit:
            unit.xadd(lane, {**rows, "origin": delayed}, id=second)
            unit.execute_command("XACKDEL", "mails:later", "due", "ACKED", "IDS", 1, delayed)
            unit.execute()
    events = told(run, root, key, job)
    assert [kind for kind, _ in events] == ["added", "delivered", "paused", "failed", "dead"]
    assert events[0][1] == "put by XADD, priority 7, key customer-7"
    events = told(run, root, key, delayed)
    assert [kind for kind, _ in events] == ["added", "delayed", "due"]
    assert events[2][1] == f"due: became job {second}"
    assert told(run, root, key, second) == events


@pytest.mark.parametrize("at", ["put", "due", "taken"])
def test_the_log_before_a_checkpoint_tells_it_too(run: Run, tmp_path: Path, at: str) -> None:
    """The log is retained in part, and the only state is that of the checkpoint behind it."""
    root, clock = tmp_path / "db", Clock()
    options = {**OPTIONS, "segment_bytes": 4096}
    with tidelog.open(root, clock=clock, **options) as db:
        fill(db, 100)
    with tidelog.open(root, clock=clock, retain_bytes=20_000, **options) as db:
        queue = db.queue("mails")
        other = db.queue("other")
        first = str(queue.put("hello", delay=5))
        if at == "put":
            fill(db, 60)
            db.checkpoint()
        clock.advance(6)
        assert queue.get("anna", block=0) if at == "taken" else other.get("anna", block=0) is None
        if at == "taken":
            second = db.xrange("mails")[0][0].decode()
            fill(db, 20)
            db.checkpoint()
        else:
            job = queue.get("anna", block=0)
            assert job is not None
            second = job.id
            if at == "due":
                fill(db, 20)
                db.checkpoint()
            job.ack(result=1)
    assert min(int(path.stem) for path in (root / "aof").glob("*.aof")) > 1
    events = told(run, root, "mails", first)
    found = [kind for kind, _ in events]
    begun = ["added", "delayed"]
    match at:
        case "put":
            assert found == [*begun, "present", "pending", "due", "delivered", "acked", "result"]
            assert events[3][1].startswith("is delayed until ")
        case "due":
            assert found == [*begun, "due", "delivered", "present", "pending", "acked", "result"]
            assert events[4][1].startswith(f"is there as {second} in the checkpoint")
        case _:
            assert found[:4] == [*begun, "due", "delivered"]
    assert told(run, root, "mails", second) == events


def test_a_delayed_job_whose_put_is_not_kept(run: Run, tmp_path: Path) -> None:
    """The checkpoint has it under its second ID, and the first one leads there."""
    root, clock = tmp_path / "db", Clock()
    with tidelog.open(root, clock=clock, segment_bytes=4096, retain_bytes=0, **OPTIONS) as db:
        queue = db.queue("mails")
        first = str(queue.put("hello", delay=5))
        clock.advance(6)
        job = queue.get("anna", block=0)
        assert job is not None
        second = job.id
        fill(db, 200)
        db.checkpoint()
        job.ack()
    assert min(int(path.stem) for path in (root / "aof").glob("*.aof")) > 1
    events = told(run, root, "mails", first)
    assert [kind for kind, _ in events] == ["present", "pending", "acked"]
    assert f"is there as {second} in the checkpoint" in events[0][1]


def history(root: Path, seed: int) -> dict[str, list[str]]:
    """A queue with random delays, in three lives with a checkpoint in each: first ID -> kinds of its events."""
    pick, clock = random.Random(seed), Clock()
    ledger: dict[str, list[str]] = {}
    for _ in range(3):
        with tidelog.open(root, clock=clock, retain_bytes=1 << 40, **OPTIONS) as db:
            queue = db.queue("mails", retry_after=3600, max_deliveries=2)
            for step in range(60):
                clock.advance(pick.choice((0, 0, 0.5, 3)))
                waiting = [job.id for job in queue.peek(1000, scheduled=True)]
                due = {job.id for job in queue.peek(1000)} & ledger.keys()
                match pick.randrange(8):
                    case 0 | 1 | 2:
                        delay = pick.choice((0, 1, 5, 20))
                        put = str(queue.put(step, delay=delay))
                        ledger[put] = ["added", "delayed"] if delay else ["added"]
                    case 3 if waiting:
                        job_id = pick.choice(waiting)
                        assert queue.cancel(job_id)
                        ledger[job_id].append("cancelled")
                    case 4 if waiting:
                        job_id = pick.choice(waiting)
                        assert queue.move(job_id, delay=pick.choice((1, 20)))
                        ledger[job_id].append("rescheduled")
                    case 5 | 6 | 7:
                        job = queue.get("w", block=0)
                        assert due or job is None or job.origin is not None or job.id in ledger
                        if job is not None:
                            events = ledger[job.origin or job.id]
                            events.append("delivered")
                            if pick.random() < 0.5:
                                job.ack(result=step)
                                events += ["acked", "result"]
                            else:
                                last = job.deliveries == 2
                                job.nack("no", delay=0)
                                events += [
                                    "failed",
                                    *(("dead", "acked") if last else ("paused", "nacked")),
                                ]
                    case _:
                        pass
                if step == 30:
                    db.checkpoint()
    return ledger


def test_random_delays_against_a_ledger(run: Run, tmp_path: Path) -> None:
    """Only the fetch that takes a job shows that it is due; `due` may stand in the log before that."""
    seed = random.randrange(1 << 32)
    root = tmp_path / "db"
    ledger = history(root, seed)
    assert len(ledger) > 20
    for first, expected in ledger.items():
        found = kinds(run, root, "mails", first)
        assert [kind for kind in found if kind != "due"] == expected, (seed, first)
        assert found.count("due") <= 1
        assert ("delivered" in expected and "delayed" in expected) <= ("due" in found)
