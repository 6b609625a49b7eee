"""Scripts of the options of a queue, one for each."""

from __future__ import annotations

from datetime import timedelta

from tests.guard.tape import Tape, script

import tidelog


@script
async def queue_group(t: Tape) -> None:
    """Two groups get every job, each at its own pace; a late one gets what is still there."""
    mails, audit = t.queue("mails"), t.queue("mails", group="audit")
    await mails.subscribe()
    await audit.subscribe()
    await mails.put("urgent", priority=3)
    await mails.put_many(["a", "b", "c"])
    await t.work(mails, "anna")
    job = await audit.get("otto", 0)
    await job.nack("later", 60)
    await mails.put("d")
    await t.look(mails)
    await t.reopen()
    await t.look(audit)
    await t.work(audit, "otto", batch=10)
    await t.wait(61)
    await t.work(audit, "otto")
    await mails.put("soon", priority=1)
    await t.look(audit)
    late = t.queue("mails", group="late")
    await t.work(late, "lea")
    await t.work(mails, "anna")
    await audit.purge()


@script
async def queue_codec(t: Tape) -> None:
    """The bytes of values with each codec, a value that a codec refuses, and one that another codec cannot read."""
    values: dict[str, list[object]] = {
        "json": [{"n": 1}, None],
        "msgpack": [{"n": 1}, b"\x00"],
        "str": ["é"],
        "bytes": [b"\xff"],
    }
    for codec, some in values.items():
        queue = t.queue(codec, codec=codec)
        for value in some:
            await queue.put(value)
        await queue.put_many([*some, object(), *some])
    await t.reopen()
    for codec in values:
        await t.work(t.queue(codec, codec=codec), "anna", 1)
    await t.queue(
        "bytes", codec="str"
    ).peek()  # a fetch would record a traceback, which names files
    await t.work(t.queue("bytes", codec="bytes"), "ben")


@script
async def queue_max_deliveries_2(t: Tape) -> None:
    """A job that fails becomes dead after its last delivery; deliveries count on after a restart."""
    mails = t.queue("mails", max_deliveries=3, retry_after=10)
    await mails.put_many(["a", "b"])
    for _ in range(2):
        job = await mails.get("anna", 0)
        await job.nack("no", 0)
    lost = await mails.get("ben", 0)
    await t.reopen()
    await t.look(mails)
    await t.wait(11)
    for _ in range(6):
        job = await mails.get("anna", 0)
        if job is not None:
            await job.nack(ValueError("broken"), 0)
    await lost.ack()
    await t.look(mails)
    await t.work(t.queue("mails", max_deliveries=1), "carl", error=ValueError("once"))
    await t.dead(mails).redrive()
    await t.look(mails)


@script
async def queue_retry_after_2(t: Tape) -> None:
    """The pauses between retries grow from it, a worker that is gone loses its jobs after it, a living one does not."""
    mails = t.queue("mails", retry_after=4)
    await mails.put_many(["a", "b", "c"])
    for _ in range(3):
        job = await mails.get("anna", 0)
        if job is not None:
            await job.nack("not now")
        await t.look(mails)
        await t.wait(3)
    held = await mails.get("ben", 0)
    for _ in range(4):
        await t.wait(2)
        await mails.get("carl", 0)
    await held.extend(100)
    await t.reopen()
    for _ in range(4):
        await t.wait(2)
        await mails.get("dora", 0)
    await t.wait(100)
    await t.work(mails, "dora")
    await t.look(mails)


@script
async def queue_keep_count(t: Tape) -> None:
    """The last done jobs stay; the next sweep deletes older ones."""
    mails = t.queue("mails", keep=3)
    await mails.put_many(list(range(8)))
    await t.work(mails, "anna", 5)
    await mails.stats()
    (waits,) = await mails.peek(1)
    kept = await mails.put("kept")
    await t.reopen()
    await mails.result(waits.id, 0)
    await t.work(mails, "anna", batch=2)
    await mails.result(kept, 0)
    await mails.get("anna", 0)
    await mails.stats()
    await t.work(t.queue("mails", keep=1), "ben")
    await mails.stats()
    await mails.purge()


@script
async def queue_keep(t: Tape) -> None:
    """Done jobs stay for a time."""
    mails = t.queue("mails", keep=timedelta(seconds=30))
    for value in range(4):
        await mails.put(value)
        await t.wait(10)
    await t.work(mails, "anna", 3)
    await mails.stats()
    await t.reopen()
    await t.wait(12)
    await t.work(mails, "anna")
    await mails.stats()
    await t.wait(60)
    await mails.get("anna", 0)
    await mails.stats()


@script
async def queue_max_depth(t: Tape) -> None:
    """A full queue refuses jobs, in part too; delayed jobs, retries and redriven jobs enter it all the same."""
    mails = t.queue("mails", max_depth=3)
    await mails.put_many(["a", "b", "c", "d"], timeout=0)
    await mails.put("e", timeout=0)
    await mails.put("e", timeout=0, priority=4)
    await mails.put("later", delay=5, timeout=0)
    await mails.put("once", dedup_id="x", timeout=0)
    job = await mails.get("anna", 0)
    await job.done_and(mails.new("f"), mails.new("g"))
    await job.done_and(mails.new("f"))
    job = await mails.get("anna", 0)
    await job.fail("no")
    await t.reopen()
    await mails.put_many(["h", "i"], timeout=0, priority=2)
    await t.dead(mails).redrive()
    await t.wait(6)
    await mails.put("j", timeout=0)
    await t.look(mails)
    await t.work(mails, "anna", 2)
    await t.queue("mails", max_depth=10).put("k", timeout=0)
    await t.look(mails)


@script
async def queue_max_failures(t: Tape) -> None:
    """The record of failures is as long as the option allows."""
    mails = t.queue("mails", max_failures=3, max_deliveries=9)
    await mails.put_many(["a", "b"])
    for number in range(5):
        job = await mails.get("anna", 0)
        await job.nack(f"failure {number}", 0)
        await t.wait(1)
    await mails.failures()
    await t.reopen()
    job = await mails.get("anna", 0)
    await job.fail("at last")
    await t.wait(1)
    await mails.failures()
    await mails.failures(job.about, count=1)
    await t.look(mails)


@script
async def queue_concurrency_2(t: Tape) -> None:
    """Workers hold at most that number of jobs at once; a retry needs a place, a paused job holds none."""
    mails = t.queue("mails", concurrency=2, retry_after=5)
    await mails.put_many(list(range(8)))
    await mails.put("first", priority=9)
    one, two = await mails.get("anna", 0), await mails.get("ben", 0)
    await mails.get("carl", 0)
    await one.nack("not now", 1)
    three = await mails.get("carl", 0)
    await t.wait(1.5)
    await mails.get("anna", 0)
    await two.ack()
    await t.work(mails, "anna", 1, batch=10)
    await three.release()
    await t.look(mails)
    await mails.get("dora", 0)
    await mails.get("dora", 0)
    await t.reopen()
    await mails.get("emil", 0)
    await t.wait(6)
    await mails.get("emil", 0)
    await mails.get("dora", 0)
    await t.queue("mails", concurrency=3).get("fritz", 0)
    await t.queue("mails").get("gerd", 0)
    await t.look(mails)


@script
async def queue_rate(t: Tape) -> None:
    """Any period has at most that number of deliveries; retries count, and the count survives a restart."""
    mails = t.queue("mails", rate="4/m", retry_after=2)
    await mails.put_many(list(range(12)))
    await mails.put("first", priority=3)
    job = await mails.get("anna", 0)
    await job.nack("again", 0)
    await mails.get("anna", 0)
    await t.work(mails, "ben", batch=10)
    await t.wait(20)
    await mails.get("anna", 0)
    await t.reopen()
    await mails.get("anna", 0)
    await t.wait(39.5)
    await mails.get("anna", 0)
    await t.wait(0.6)
    await mails.get("anna", 0)
    await t.wait(0.9)
    await t.work(mails, "ben", batch=3)
    await t.wait(30)
    await t.queue("mails", rate="1/s").get("anna", 0)
    await t.wait(61)
    await t.work(mails, "ben")
    await t.look(mails)


@script
async def queue_concurrency_per_key_2(t: Tape) -> None:
    """One job of a key at once, in the order of their puts, through retries, priorities and a restart."""
    mails = t.queue("mails", concurrency_per_key=1, retry_after=5)
    await mails.put_many(["a1", "a2", "a3"], key="a")
    await mails.put("b1", key="b")
    await mails.put("plain")
    await mails.put("a9", key="a", priority=9)
    await mails.put("a-later", key="a", delay=3)
    one, two = await mails.get("anna", 0), await mails.get("ben", 0)
    three = await mails.get("carl", 0)
    await mails.get("dora", 0)
    await t.look(mails)
    await one.nack("not now", 2)
    await mails.get("dora", 0)
    await two.ack()
    await t.wait(3)
    again = await mails.get("dora", 0)
    await again.ack()
    held = await mails.get("anna", 0)
    await mails.get("ben", 0)
    await t.reopen()
    await mails.get("ben", 0)
    await t.look(mails)
    await t.wait(6)
    job = await mails.get("ben", 0)
    await job.fail("no")
    await t.dead(mails).redrive()
    await three.ack()
    await held.ack()
    await t.work(mails, "carl", batch=10)
    await mails.put_many(["c1", "c2", "c3"], key="c")
    await mails.put("d1", key="d")
    await t.work(mails, "carl", 2, batch=10)
    one = await mails.get("anna", 0)
    await mails.get("ben", 0)
    await mails.put("c4", key="c")
    await one.ack()
    await mails.get("ben", 0)
    await t.queue("mails", concurrency_per_key=2).get("dora", 0)
    await mails.purge()
    await t.look(mails)


@script
async def queue_lease(t: Tape) -> None:
    """A worker that is gone loses its jobs after the lease, a living one does not; the pauses are `retry_after`."""
    mails = t.queue("mails", lease=4, retry_after=20)
    await mails.put_many(["a", "b", "c"])
    failed = await mails.get("anna", 0)
    await failed.nack("not now")
    held = await mails.get("ben", 0)
    for _ in range(4):
        await t.wait(2)
        await mails.get("carl", 0)
    await held.extend(30)
    await t.reopen()
    for _ in range(6):
        await t.wait(2)
        await mails.get("dora", 0)
    await t.look(mails)
    await t.wait(30)
    await t.work(t.queue("mails", lease=timedelta(minutes=1), retry_after=2), "dora")
    await mails.put("d")
    await t.work(t.queue("mails", lease=0), "dora")
    await mails.get("dora", 0)
    await t.look(mails)


@script
async def queue_retry(t: Tape) -> None:
    """Jobs are tried again by the policy of the queue, after a restart too; another queue object has none."""
    policy = tidelog.RetryPolicy(max=3, backoff="linear", base=2, cap=3, jitter=False)
    mails = t.queue("mails", retry=policy, max_deliveries=1)
    await mails.put_many(["a", "b"])
    for _ in range(5):
        job = await mails.get("anna", 0)
        if job is not None:
            await job.nack("not now")
        await t.look(mails)
        await t.wait(1)
    await t.reopen()
    await t.wait(2)
    await t.work(t.queue("mails", retry="base=1 backoff=constant never=ValueError"), "ben", 1)
    await t.work(mails, "anna", error=TimeoutError("no answer"))
    await t.look(mails)
    await mails.put("c")
    job = await mails.get("carl", 0)
    await job.nack("jitter")
    await t.work(t.queue("mails", retry="max=never"), "dora")
    await t.work(t.queue("mails", max_deliveries=1), "dora")
    await t.look(mails)


@script
async def queue_time_limit(t: Tape) -> None:
    """Only a run of workers keeps the limit of a queue: a job that was fetched otherwise has its lease for longer."""
    mails = t.queue("mails", time_limit=3, retry_after=4, max_deliveries=1)
    await mails.put_many(["a", "b"])
    held = await mails.get("anna", 0)
    for _ in range(5):
        await t.wait(2)
        await mails.get("ben", 0)
    await held.ack()
    await t.work(t.queue("mails", time_limit=0), "carl")
    await t.work(t.queue("mails", time_limit=timedelta(hours=1)), "ben")
    await t.look(mails)
