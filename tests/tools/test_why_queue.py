"""tidelog why: the life of every job of random queues, against a ledger that knows nothing of the log."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog.engine.ids import parse
from tidelog.testing import Clock
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.why import Unknown, story

MAX_DELIVERIES = 3
GAVE_BACK = ["failed", "paused", "nacked"]
DIED = ["failed", "dead", "acked"]
OPTIONS: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}


class Ledger:
    """Random operations on a queue, and what they did to each job according to their results."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.told: dict[str, list[str]] = {}  # job -> kinds of its events
        self.texts: dict[str, list[str]] = {}  # job -> parts of its story
        self.dead: dict[str, str] = {}  # dead job -> the job that died
        self.first: dict[str, str] = {}  # redriven job -> the very first one
        self.redriven: set[str] = set()
        self.number = 0

    def tell(self, job: str, *kinds: str, text: str = "") -> None:
        self.told.setdefault(job, []).extend(kinds)
        if text:
            self.texts.setdefault(job, []).append(text)

    def step(
        self, db: tidelog.Store, queue: tidelog.Queue, sent: tidelog.Queue, clock: Clock
    ) -> None:
        pick = self.pick
        clock.advance(pick.choice((0, 0, 0.001, 2)))
        match pick.randrange(9):
            case 0 | 1 | 2:
                self.number += 1
                self.tell(queue.put({"n": self.number}), "added", text="put by XADD")
            case 3 | 4 | 5 | 6:
                worker = pick.choice("xyz")
                job = queue.get(worker, block=0)
                if job is not None:
                    text = f"to {worker} of group workers, delivery {job.deliveries}"
                    self.tell(job.id, "delivered", text=text)
                    self.end(queue, sent, job)
            case 7:
                self.redrive(queue)
            case _:
                self.meddle(db)

    def meddle(self, db: tidelog.Store) -> None:
        """What others may do to the queue's stream: rename it and back, and trim jobs that no worker has had."""
        jobs = [entry.decode() for entry, _ in db.xrange("mails")]
        if not jobs:
            return
        if self.pick.random() < 0.5:
            db.rename("mails", "aside")
            db.rename("aside", "mails")
            for job in jobs:
                self.tell(job, "moved", "moved", text="renamed to aside")
            return
        pending = db.xpending_range("mails", "workers", "-", "+", len(jobs))
        given_back = {row["message_id"].decode() for row in pending}
        new = [job not in given_back for job in jobs]
        most = new.index(False) if False in new else len(jobs)
        count = self.pick.randrange(most + 1)
        assert db.xtrim("mails", maxlen=len(jobs) - count, approximate=False) == count
        for job in jobs[:count]:
            self.tell(job, "trimmed")

    def end(self, queue: tidelog.Queue, sent: tidelog.Queue, job: tidelog.Job) -> None:
        self.number += 1
        error = f"error {self.number}"
        match self.pick.randrange(6):
            case 0 | 1:
                job.ack()
                self.tell(job.id, "acked")
            case 2:
                job.done_and(sent.new({"n": self.number}))
                self.tell(job.id, "acked")
            case 3 | 4:
                last = job.deliveries >= MAX_DELIVERIES
                job.nack(RuntimeError(error), delay=self.pick.choice((0, 1)))
                self.tell(job.id, *(DIED if last else GAVE_BACK), text=error)
            case _:
                job.fail(error)
                self.tell(job.id, *DIED, text=error)
        for each in queue.dead:
            self.dead.setdefault(each.id, job.id)

    def redrive(self, queue: tidelog.Queue) -> None:
        dead = [each.id for each in queue.dead]
        if not dead:
            return
        if self.pick.random() < 0.2:
            purged = self.pick.choice(dead)
            assert queue.dead.purge(purged) == 1
            self.tell(self.dead[purged], "purged")
            return
        before = {job.id for job in queue.peek(1000)}
        chosen = dead if self.pick.random() < 0.3 else [self.pick.choice(dead)]
        assert queue.dead.redrive(chosen) == len(chosen)
        put = [job.id for job in queue.peek(1000) if job.id not in before]
        for each, new in zip(chosen, put, strict=True):
            self.redriven_as(self.dead[each], new)

    def redriven_as(self, died: str, new: str) -> None:
        first = self.first.get(died, died)
        self.first[new] = first
        for each in dict.fromkeys((died, first)):
            again = "once more " if each in self.redriven else ""
            self.tell(each, "redriven", text=f"redriven {again}as {new}")
            self.redriven.add(each)
        self.tell(new, "added", text=f"redriven from the dead job {first}")


def history(root: Path, seed: int) -> Ledger:
    """A queue of three lives with a checkpoint in each; all of the log is kept."""
    ledger, clock = Ledger(seed), Clock()
    for _ in range(3):
        with tidelog.open(root, clock=clock, retain_bytes=1 << 40, **OPTIONS) as db:
            queue = db.queue("mails", max_deliveries=MAX_DELIVERIES, retry_after=3600)
            sent = db.queue("sent")
            queue.subscribe()
            for step in range(40):
                ledger.step(db, queue, sent, clock)
                if step == 20:
                    db.checkpoint()
    return ledger


def wrong(root: Path, ledger: Ledger) -> list[str]:
    """The jobs of which `why` tells something else than the ledger."""
    files = LogFiles(root)
    found = []
    for job, kinds in ledger.told.items():
        ms, _, seq = job.partition("-")
        told = story(files, b"mails", int(ms) << 64 | int(seq), quiet=True)
        (life,) = told.lives
        events = sorted([*life.story(), *told.notes], key=lambda event: event.lsn)
        text = " | ".join(event.text for event in events)
        if [event.kind for event in events] != kinds or any(
            part not in text for part in ledger.texts[job]
        ):
            found.append(f"{job}: expected {kinds} {ledger.texts[job]}, told {events}")
    return found


def test_the_id_of_a_dead_job_leads_to_its_life(tmp_path: Path) -> None:
    """Also if the job was delayed before, and so has three IDs."""
    clock = Clock()
    with tidelog.open(tmp_path / "db", clock=clock, **OPTIONS) as db:
        queue = db.queue("mails")
        first = queue.put({"to": "ann"}, delay=5)
        clock.advance(6)
        job = queue.get("w", block=0)
        assert job is not None and job.id != first and job.fail("no address")
        (dead,) = queue.dead
        db.xadd("loops:dead", {"id": "5-1"}, id="5-1")
        db.xadd("loops", {"value": "1"}, id="7-1")
    files = LogFiles(tmp_path / "db")
    lives = []
    for id in (first, job.id, dead.id):
        told = story(files, b"mails", parse(id.encode()), quiet=True)
        (life,) = told.lives
        lives.append([event.text for event in (*life.story(), *told.notes)])
    assert lives[0] == lives[1] == lives[2] and "no address" in str(lives[0])
    with pytest.raises(Unknown, match="name each other"):
        story(files, b"loops", parse(b"5-1"), quiet=True)


def test_a_short_history_against_the_ledger(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    ledger = history(tmp_path / "db", seed)
    assert len(ledger.told) > 10
    differences = wrong(tmp_path / "db", ledger)
    assert not differences, differences[:3]


@pytest.mark.slow
def test_a_thousand_jobs_against_the_ledger(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    total = number = 0
    kinds: set[str] = set()
    while total < 1000:
        root = tmp_path / str(number)
        ledger = history(root, seed + number)
        differences = wrong(root, ledger)
        assert not differences, (number, differences[:3])
        total += len(ledger.told)
        kinds |= {kind for told in ledger.told.values() for kind in told}
        number += 1
    assert kinds == {
        *("added", "delivered", "redriven", "purged", "moved", "trimmed"),
        *GAVE_BACK,
        *DIED,
    }
