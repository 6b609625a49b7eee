"""A unit survives whole or not at all: `done_and` at every operation of the disk, and acks of a batch."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import testing
from tidelog.disk.simulated import SimulatedDisk

ROOT = Path("/store")
JOBS = 5
RETRY_AFTER = 8.0


def numbers(db: tidelog.Store, name: str) -> Counter[int]:
    return Counter(json.loads(fields[b"value"])["n"] for _, fields in db.xrange(name))


def a_job_is_there_or_all_that_follows_from_it(image: SimulatedDisk, answered: list[int]) -> None:
    with tidelog.open(ROOT, disk=image) as db:
        put = {name: numbers(db, name) for name in ("jobs", "bills", "mails")}
        assert put["bills"] == put["mails"], "of two puts one is there"
        assert not put["jobs"] & put["bills"], "a job is there as well as what was put with its end"
        assert put["jobs"] + put["bills"] == Counter(range(JOBS)), "a job is neither here nor there"
        assert put["bills"] >= Counter(answered), "done_and returned, and the job is back"


@pytest.mark.parametrize("policy", ["always", "no"])
def test_done_and_is_one_unit_wherever_the_power_goes(policy: str) -> None:
    """Before each operation of the disk: what the next process finds after a power cut, and after a kill."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    disk = SimulatedDisk(seed)
    answered: list[int] = []
    with tidelog.open(ROOT, fsync=policy, disk=disk, segment_bytes=4096) as db:
        jobs: Any = db.queue("jobs")
        bills, mails = db.queue("bills"), db.queue("mails")
        jobs.put_many({"n": n, "what": "x" * 300} for n in range(JOBS))
        db.barrier()
        cuts = 0

        def cut(operation: str, path: Path) -> None:
            nonlocal cuts
            cuts += 1
            disk.before = None
            a_job_is_there_or_all_that_follows_from_it(disk.killed(), answered)
            sure = answered if policy == "always" else []
            for _ in range(5):
                a_job_is_there_or_all_that_follows_from_it(disk.power_loss(dice), sure)
            disk.before = cut

        disk.before = cut
        for job in jobs.consume("anna", block=0):
            job.done_and(bills.new(job.value), mails.new(job.value))
            answered.append(job.value["n"])
        disk.before = None
    assert answered == list(range(JOBS)) and cuts > JOBS
    print(f"{cuts} cuts")


def one_of_the_two_is_there(image: SimulatedDisk, number: int, sure: int) -> None:
    """Of the jobs that were put one in place of the other, up to `number`, exactly one is there, not older than `sure`.
    It has the dedup ID.
    """
    with tidelog.open(ROOT, disk=image) as db:
        queue: Any = db.queue("jobs")
        jobs = [*queue.peek(), *queue.peek(scheduled=True)]
        assert len(jobs) == 1 and sure <= jobs[0].value <= number, [job.value for job in jobs]
        assert queue.put("again", dedup_id="d", dedup="until-done") == jobs[0].id
        assert queue.put("again", dedup_id="e", dedup="until-done") not in (jobs[0].id, None)


@pytest.mark.parametrize("policy", ["always", "no"])
def test_a_replacement_is_one_unit_wherever_the_power_goes(policy: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    disk = SimulatedDisk(seed)
    number = answered = cuts = 0
    with tidelog.open(ROOT, fsync=policy, disk=disk, segment_bytes=4096) as db:
        jobs: Any = db.queue("jobs")
        jobs.put(0, dedup_id="d", dedup="replace")
        db.barrier()

        def cut(operation: str, path: Path) -> None:
            nonlocal cuts
            cuts += 1
            disk.before = None
            one_of_the_two_is_there(disk.killed(), number, answered)
            for _ in range(5):
                one_of_the_two_is_there(
                    disk.power_loss(dice), number, answered * (policy == "always")
                )
            disk.before = cut

        disk.before = cut
        for number, how in enumerate(({"delay": 60}, {}, {"priority": 3}, {"delay": 9}, {}), 1):
            jobs.put(number, dedup_id="d", dedup="replace", **how)
            answered = number
        disk.before = None
    assert cuts >= 5
    print(f"{cuts} cuts")


@pytest.mark.parametrize("end", ["beats", "fetches", "closes"])
def test_acks_of_a_batch_outlast_a_beat_on_a_full_disk(end: str) -> None:
    """The beat that was to write them failed. They are written by what comes next, when there is room."""
    clock, disk = testing.Clock(), SimulatedDisk()
    with tidelog.open(ROOT, fsync="no", disk=disk, clock=clock, segment_bytes=4096) as db:
        queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
        queue.put_many(range(6))
        consumer = queue.consume("anna", 3, block=0)
        for _ in range(2):
            with next(consumer):
                pass
        held = next(consumer)

        def full(operation: str, path: Path) -> None:
            if operation in ("create", "write", "extend", "fill", "rename"):
                raise OSError(28, "No space left on device", str(path))

        disk.before = full
        for size in (500, 50, 1):
            with pytest.raises(tidelog.OutOfSpace):
                while True:
                    db.set("x", b"x" * size)
        clock.advance(1)
        assert len(queue) == 6, "it was to fail"
        disk.before = None
        if end == "beats":
            clock.advance(1)
            assert len(queue) == 4
        elif end == "fetches":
            assert next(consumer).value == 3
            assert len(queue) == 4
        assert held.ack()
    with tidelog.open(ROOT, disk=disk) as db:
        assert len(db.queue("jobs")) == 3
