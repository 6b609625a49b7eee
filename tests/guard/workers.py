"""Scripts of workers: the arguments of `consume`, each way to end a delivery, results and dead jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.guard.queues import settled
from tests.guard.tape import Tape, script
from tests.guard.world import START


@script
async def consume_worker_2(t: Tape) -> None:
    """After a restart a worker of the same name gets its jobs at once, in the order of priorities; others wait."""
    mails = t.queue("mails", retry_after=10)
    await mails.put_many(["a", "b", "c", "d"])
    await mails.put("e", priority=3)
    for worker in ("anna", "anna", "ben", "anna"):
        await mails.get(worker, 0)
    await t.reopen()
    await t.work(mails, worker="anna", count=2)
    await mails.get("carl", 0)
    await t.work(mails, worker="anna")
    await t.wait(11)
    await t.work(mails, worker="carl")
    await mails.get("", 0)
    await t.look(mails)


@script
async def consume_batch(t: Tape) -> None:
    """Jobs are fetched and acknowledged together; those that were fetched and not handed out go back uncounted."""
    mails = t.queue("mails", retry_after=10)
    await mails.put_many(list(range(20)))
    await t.work(mails, "anna", 3, batch=5)
    await t.work(mails, "ben", 2, batch=100)
    await mails.peek(3)
    await t.work(mails, "ben", 5, batch=3, error=ValueError("broken"))
    await t.look(mails)
    await t.reopen()
    await t.work(mails, "anna", 4, batch=4)
    await t.wait(15)
    await t.work(mails, "anna", batch=100)
    await t.work(mails, "anna", batch=0)
    await t.look(mails)


@script
async def consume_block(t: Tape) -> None:
    """A fetch that would wait is answered at once where there is a job."""
    mails = t.queue("mails")
    await mails.put("a")
    await mails.put("b", delay=1)
    await t.work(mails, "anna", 1, block=5)
    await mails.get("anna", block=0)
    await t.wait(2)
    await mails.get("ben", block=5)
    await t.reopen()
    await mails.put("c")
    await t.work(mails, "anna", 1, block=5)
    await mails.get("anna", block=-1)
    await t.look(mails)


@script
async def consume_time_limit(t: Tape) -> None:
    """A job's lease is renewed no longer than the limit; then another worker gets it."""
    mails = t.queue("mails", retry_after=3)
    await mails.put_many(["a", "b"])
    job = t.job(await t.next_of(mails.target().consume("anna", block=0, time_limit=8)))
    for _ in range(6):
        await t.wait(2)
        await mails.get("ben", 0)
    await job.ack()
    await t.look(mails)
    await t.reopen()
    await t.work(mails, "anna", time_limit=1)
    await t.wait(4)
    await t.work(mails, "anna", time_limit=1)
    await t.look(mails)


@script
async def consume_reraise(t: Tape) -> None:
    """The error of a block is recorded either way; it is raised only if the worker wants it."""
    mails = t.queue("mails", retry_after=3)
    await mails.put_many(["a", "b", "c"])
    await t.work(mails, "anna", 1, error=ValueError("broken"), reraise=True)
    await t.work(mails, "anna", 1, error=ValueError("broken"), reraise=False)
    await t.work(mails, "anna", 1, error=SystemExit(3))
    await t.reopen()
    await t.wait(5)
    await t.work(mails, "ben", 2, error=KeyboardInterrupt())
    await t.work(mails, "ben")
    await t.look(mails)


@script
async def consume_on_retry(t: Tape) -> None:
    """The worker is told of each retry, with the pause that is stored, and of no death."""
    mails = t.queue("mails", retry="max=2 base=3 jitter=no")
    await mails.put_many(["a", "b"])

    def again(job: Any, error: BaseException, delay: float) -> None:
        t.world.told("on_retry", [job.id, repr(error), delay])

    for _ in range(2):
        jobs = mails.target().consume("anna", block=0, on_retry=again)
        await t.job(await t.next_of(jobs)).nack("broken", delay=1)
        await t.block(t.job(await t.next_of(jobs)), ValueError("broken"))
        await settled(jobs.close())
        await t.look(mails)
        await t.wait(4)
    await t.reopen()
    await t.look(mails)


@script
async def job_ack(t: Tape) -> None:
    """An acknowledged job is done; twice, too late, and by the one who lost the lease."""
    mails = t.queue("mails", retry_after=2)
    await mails.put_many(["a", "b"])
    job = await mails.get("anna", 0)
    await job.ack()
    await job.ack()
    await job.nack("late")
    held = await mails.get("anna", 0)
    await t.reopen()
    await t.wait(3)
    again = await mails.get("ben", 0)
    await held.ack()
    await again.ack()
    await t.block(again)
    await t.look(mails)


@script
async def job_lost(t: Tape) -> None:
    """A worker that lost the lease of a job can end it in no way, and leaves nothing."""
    mails = t.queue("mails", retry_after=2)
    await mails.put_many(list(range(6)))
    lost = [
        t.job(await t.next_of(mails.target().consume("anna", 1, 0, time_limit=1))) for _ in range(6)
    ]
    await t.wait(3)
    await t.wait(3)
    held = [await mails.get("ben", 0) for _ in range(6)]
    await lost[0].ack()
    await lost[1].ack(result="late")
    await lost[2].nack("late")
    await lost[3].fail("late")
    await lost[4].release()
    await lost[5].extend(60)
    await lost[5].done_and(mails.new("late"))
    for job in held[1:4]:
        await job.ack()
    for job in lost:
        await mails.result(job.about, 0)
    await t.look(mails)
    await t.reopen()
    await t.wait(3)
    await t.work(mails, "carl")


@script
async def job_nack(t: Tape) -> None:
    """A failed delivery is recorded and tried again, after the pause or the delay that was asked for."""
    mails = t.queue("mails", retry_after=2)
    await mails.put_many(["a", "b", "c", "d"])
    job = await mails.get("anna", 0)
    await job.nack()
    job = await mails.get("anna", 0)
    await job.nack(reason="no")
    job = await mails.get("anna", 0)
    await job.nack(reason=ValueError("broken"), delay=0)
    job = await mails.get("anna", 0)
    await job.nack(delay=30)
    await t.look(mails)
    await mails.get("ben", 0)
    await t.reopen()
    await t.wait(3)
    job = await mails.get("ben", 0)
    await job.nack("x" * 3000, delay=1)
    await t.wait(40)
    await t.work(mails, "ben")
    await t.look(mails)


@script
async def job_fail(t: Tape) -> None:
    """A job that is given up is dead at once, with its evidence."""
    mails = t.queue("mails")
    await mails.put_many(["a", "b", "c"])
    job = await mails.get("anna", 0)
    await job.nack("not now", 0)
    job = await mails.get("ben", 0)
    await job.fail(reason="no")
    job = await mails.get("ben", 0)
    await job.fail(reason=ValueError("broken"))
    await job.fail()
    await t.reopen()
    await t.look(mails)
    await t.work(mails, "ben")


@script
async def job_release_2(t: Tape) -> None:
    """A released job goes back uncounted and is due at once."""
    mails = t.queue("mails", max_deliveries=1)
    await mails.put_many(["a", "b"])
    await mails.put("c", priority=2)
    for _ in range(3):
        job = await mails.get("anna", 0)
        await job.release()
    await t.look(mails)
    held = await mails.get("anna", 0)
    await t.reopen()
    await held.release()
    job = await mails.get("anna", 0)
    await job.release()
    await t.work(mails, "ben")
    await t.look(mails)


@script
async def job_extend(t: Tape) -> None:
    """An extended lease lasts beyond the life of the store."""
    mails = t.queue("mails", retry_after=2)
    await mails.put_many(["a", "b"])
    job, other = await mails.get("anna", 0), await mails.get("anna", 0)
    await job.extend(seconds=30)
    await job.extend(5)
    await other.ack()
    await other.extend(5)
    await t.reopen()
    for _ in range(5):
        await t.wait(8)
        await mails.get("ben", 0)
    await t.look(mails)


@script
async def job_done_and(t: Tape) -> None:
    """A job is done and others are put, in one unit, into several queues, with every argument of a put."""
    mails, bills = t.queue("mails"), t.queue("bills", codec="bytes")
    await mails.put_many(["a", "b", "c"])
    job = await mails.get("anna", 0)
    await job.done_and(
        mails.new("d"), bills.new(b"e", headers={"x": "y"}), bills.new(b"f", delay=5)
    )
    await job.done_and(mails.new("again"))
    job = await mails.get("anna", 0)
    await job.done_and()
    await t.reopen()
    job = await mails.get("anna", 0)
    await job.done_and(
        mails.new("g", priority=3, ttl=9, key="k"), mails.new("h", priority=3), bills.new(b"i", dedup_id="x"),
        bills.new(b"j", dedup_id="x"), bills.new(b"k", at=START + timedelta(seconds=4)),
    )  # fmt: skip
    await t.wait(6)
    await t.work(bills, "ben")
    await t.look(mails)


@script
async def results(t: Tape) -> None:
    """The result of a job can be asked for until it expires; so can the death of a job, and a delayed job's result."""
    mails = t.queue("mails")
    one, two = await mails.put("a"), await mails.put("b")
    three, four = await mails.put("c", delay=1), await mails.put("d", priority=2)
    await mails.result(one, timeout=0)
    job = await mails.get("anna", 0)
    await job.ack(result={"pages": 12}, ttl=30)
    job = await mails.get("anna", 0)
    await job.ack(result=None)
    job = await mails.get("anna", 0)
    await job.fail("no")
    for each in (one, two, three, four, "5-5"):
        await mails.result(each, timeout=0)
    await t.reopen()
    await t.wait(2)
    job = await mails.get("anna", 0)
    await job.ack(result=[1, "é"], ttl=0)
    await job.ack(result=[1, "é"])
    await t.dead(mails).redrive()
    job = await mails.get("anna", 0)
    await job.ack(result=object())
    await job.ack(result="again")
    for each in (one, two, three, four):
        await mails.result(each, timeout=0)
    await t.wait(40)
    await mails.result(four, timeout=0)
    await t.wait(90_000)
    await mails.result(one, timeout=0)
    await t.look(mails)


@script
async def dead(t: Tape) -> None:
    """Dead jobs are listed, looked up, put back and deleted, by ID, by a function, by age, all or none."""
    mails = t.queue("mails")
    found = t.dead(mails)
    await mails.put_many(list(range(8)), key="k")
    for number in range(6):
        job = await mails.get("anna", 0)
        await job.fail(f"reason {number}")
        await t.wait(10)
    listed = await found.list(2)
    await found.count()
    await found.get(listed[0].id)
    await found.get("5-5")
    await found.list(where=lambda job: job.value % 2 == 0)
    await found.redrive(dry_run=True)
    await found.redrive([listed[0].id, "5-5"])
    await found.redrive(where=lambda job: job.value == 3)
    await t.reopen()
    await found.purge(listed[1].id)
    await found.purge(older_than=25)
    await found.purge(where=lambda job: job.value == 5)
    await t.look(mails)
    await found.redrive()
    await found.purge()
    await t.work(mails, "anna", error=ValueError("broken"))
    await t.look(mails)
