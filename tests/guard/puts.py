"""Scripts of the arguments of `put`, one for each, and of what is done to jobs before a worker has them."""

from __future__ import annotations

from datetime import timedelta

from tests.guard.tape import Tape, script
from tests.guard.world import START

import tidelog


@script
async def put_dedup_id(t: Tape) -> None:
    """A known ID adds no job: at once, delayed, with a priority, done long ago, after a restart, after a day."""
    mails = t.queue("mails")
    await mails.put("a", dedup_id="x")
    await mails.put("b", dedup_id="x")
    await mails.put("c", dedup_id="x", delay=5)
    await mails.put("d", dedup_id="y", delay=5)
    await mails.put("e", dedup_id="y")
    await mails.put("f", dedup_id="z", priority=3)
    await mails.put("g", dedup_id="z")
    await t.work(mails, "anna")
    await mails.put("h", dedup_id="x")
    await t.reopen()
    for name in ("x", "y", "z"):
        await mails.put("i", dedup_id=name)
    job_of = await mails.put("j")
    job = await mails.get("anna", 0)
    await job.done_and(
        mails.new("k", dedup_id="w"), mails.new("l", dedup_id="w"), mails.new("m", dedup_id="x")
    )
    await t.wait(86_401)
    for name in ("x", "y", "z", "w"):
        await mails.put("n", dedup_id=name)
    await mails.result(job_of, 0)
    await t.look(mails)


@script
async def put_dedup(t: Tape) -> None:
    """IDs that jobs hold until they are done, and replaced jobs: at once, delayed, in a lane, over a restart."""
    mails = t.queue("mails")
    for mode in ("until-done", "replace"):
        await mails.put("a", dedup_id=mode, dedup=mode)
        await mails.put("b", dedup_id=mode, dedup=mode, delay=5)
        await mails.put("c", dedup_id=mode, dedup=mode, priority=3)
        await mails.put("d", dedup_id=f"{mode}-later", dedup=mode, delay=5)
    await mails.put("e", dedup_id="x")
    await mails.put("f", dedup_id="x", dedup="replace", headers={"a": "b"})
    await mails.put("g", dedup_id="y", dedup="always")
    await mails.put("g", dedup="replace")
    await t.look(mails)
    await t.wait(6)
    first = await mails.get("anna", 0)
    await t.reopen()
    await mails.put("h", dedup_id="until-done", dedup="until-done")
    await mails.put("i", dedup_id="until-done-later", dedup="replace")
    await t.work(mails, "anna", count=2)
    job = await mails.get("anna", 0)
    await job.done_and(
        mails.new("j", dedup_id="replace", dedup="replace"),
        mails.new("k", dedup_id="replace", dedup="replace", delay=1),
        mails.new("l", dedup_id="x", dedup="until-done"),
    )
    await t.look(mails)
    await t.work(mails, "anna")
    await mails.put("m", dedup_id="until-done", dedup="until-done", ttl=1)
    await t.wait(4)
    await t.work(mails, "anna")
    await mails.put("n", dedup_id="until-done", dedup="until-done")
    await mails.put("o", dedup_id="replace", dedup="until-done", delay=1)
    await mails.purge()
    await mails.put("p", dedup_id="until-done", dedup="until-done")
    await first.fail("no")
    await t.look(mails)


@script
async def forget(t: Tape) -> None:
    """A forgotten ID is free, in each mode; one twice, and one that was not known. Dead jobs are purged."""
    mails = t.queue("mails")
    await mails.put("a", dedup_id="x")
    await mails.put("b", dedup_id="y", delay=5)
    await mails.put("c", dedup_id="z", priority=2)
    await mails.put("d", dedup_id="w", dedup="until-done")
    for name in ("x", "x", "y", "z", "w", "v", ""):
        await mails.forget(name)
    await t.reopen()
    for name in ("x", "y", "z", "w"):
        await mails.put("e", dedup_id=name)
    await t.work(mails, "anna", error=ValueError("no"), count=3)
    job = await mails.get("anna", 0)
    await job.fail("no")
    await t.dead(mails).purge()
    await mails.put("f", dedup_id="x", ttl=1)
    await t.wait(2)
    await t.work(mails, "anna")
    await mails.put("g", dedup_id="x")
    await mails.purge()
    await mails.put("h", dedup_id="x")
    await t.look(mails)


@script
async def pause(t: Tape) -> None:
    """A paused queue takes puts, delays and ticks, and delivers nothing, also after a restart. Twice each."""
    mails = t.queue("mails")
    await mails.put("a")
    job = await mails.get("anna", 0)
    await mails.put("b", priority=3)
    await mails.put("c", delay=2)
    for _ in range(2):
        await mails.pause()
    await mails.paused_at()
    await job.nack("no", 0)
    await t.wait(3)
    await mails.get("anna", 0)
    await t.reopen()
    await mails.get("anna", 0)
    await t.look(mails)
    for _ in range(2):
        await mails.resume()
    await mails.paused_at()
    await t.work(mails, "anna")


@script
async def remove(t: Tape) -> None:
    """A queue is removed once it holds nothing; before, each thing that it holds is in the way. It begins anew."""
    mails = t.queue("mails", max_deliveries=1, keep=5, rate="9/m")
    await mails.remove()
    await mails.put("a", dedup_id="x", dedup="until-done")
    await mails.put("b", priority=3)
    await mails.put("c", delay=60)
    await mails.pause()
    await mails.remove()
    await mails.resume()
    job = await mails.get("anna", 0)
    await mails.purge()
    await mails.remove()
    await job.nack("no", 0)
    await mails.remove()
    await t.dead(mails).purge()
    for _ in range(2):
        await mails.remove()
    await t.reopen()
    await t.look(mails)
    await mails.put("a", dedup_id="x", dedup="until-done")
    await t.work(mails, "anna")
    await mails.remove()


@script
async def job(t: Tape) -> None:
    """The status of a job in each state: delayed, waiting, running, paused, dead, redriven, done, and of none."""
    mails = t.queue("mails", max_deliveries=2, keep=5)
    first = await mails.put("a", headers={"n": "t"})
    later = await mails.put("b", delay=3, priority=2)
    for each in (first, later, "1-1", "x"):
        await mails.job(each)
    held = await mails.get("anna", 0)
    await mails.job(first)
    await held.nack("no", 5)
    await mails.job(first)
    await t.wait(6)
    await mails.job(later)
    await t.reopen()
    await t.work(mails, "anna", error=ValueError("bad"))
    await mails.job(first)
    await t.dead(mails).redrive()
    await mails.job(first)
    again = await mails.get("anna", 0)
    await again.ack(result="r")
    await mails.job(first)
    await mails.job(later)


@script
async def find(t: Tape) -> None:
    """Jobs by their facts, in each state, over a restart, and one by one."""
    mails = t.queue("mails", max_deliveries=2, keep=5)
    await mails.find()
    for value in "abc":
        await mails.put(value, key=value, headers={"n": value})
    await mails.put("later", delay=60, key="b")
    await t.wait(1)
    await mails.put("high", priority=4, key="a", headers={"n": "h"})
    await mails.find(key="b")
    await mails.find(header=("n", "a"))
    await mails.find(header="n=h", state="waiting")
    await mails.find(since=START + timedelta(seconds=1))
    held = await mails.get("anna", 0)
    await held.nack("no luck", 5)
    await (await mails.get("anna", 0)).fail("bad luck")
    await (await mails.get("anna", 0)).ack(result="r")
    kept = await mails.get("anna", 0)
    for state in ("delayed", "waiting", "running", "paused", "dead", "done"):
        await mails.find(state=state)
    await kept.ack()
    await t.reopen()
    await mails.find(error="luck")
    await mails.find(error="bad", key="a")
    first = await mails.find(limit=2)
    await mails.find(limit=2, after=first.until)
    await mails.find(after="x")
    await mails.find(state="gone")
    await mails.find(limit=0)


@script
async def find_2(t: Tape) -> None:
    """Jobs by a text in their values, keys, headers and errors."""
    mails = t.queue("mails", max_deliveries=2)
    await mails.put({"to": "Zoë"}, key="b", headers={"shop": "Tea"})
    await mails.put("later", delay=60, key="Ann")
    for text in ("zoë", "SHOP: t", "ann", "b", "nobody"):
        await mails.find(text=text)
    await t.work(mails, "anna", error=ValueError("no luck"))
    await mails.find(text="LUCK", state="paused")
    await t.reopen()
    await mails.find(text="valueerror")
    await mails.find(text="")


@script
async def workers(t: Tape) -> None:
    """The workers of a group: with jobs of two lanes, without, and after a restart."""
    mails = t.queue("mails")
    await mails.workers()
    for value, priority in (("a", 0), ("b", 3), ("c", 0)):
        await mails.put(value, priority=priority)
    jobs = [await mails.get(name, 0) for name in ("anna", "ben", "anna")]
    await mails.workers()
    await t.wait(2)
    await jobs[1].ack()
    await mails.workers()
    await t.reopen()
    await mails.workers()
    await t.work(mails, "anna")
    await mails.workers()


@script
async def put_headers(t: Tape) -> None:
    """Headers stay with a job through a retry, a death and a redrive."""
    mails = t.queue("mails", max_deliveries=2)
    await mails.put("a", headers={"trace": "t1", "é": ""})
    await mails.put("b", headers={})
    await mails.put("c", headers={"trace": 1})
    await mails.put("d", headers={"trace": "t2"}, delay=3)
    await mails.put("e", headers={"trace": "t3"}, priority=2)
    for _ in range(3):
        job = await mails.get("anna", 0)
        await job.nack("no", 0)
    await t.reopen()
    await t.look(mails)
    await t.work(mails, "anna", error=ValueError("broken"))
    await t.wait(4)
    await t.dead(mails).redrive()
    await t.work(mails, "anna")
    await t.look(mails)


@script
async def put_timeout(t: Tape) -> None:
    """A put into a queue with room ends at once whatever its timeout; one into a full queue does not wait with 0."""
    mails, plain = t.queue("mails", max_depth=1), t.queue("plain")
    await mails.put("a", timeout=5)
    await mails.put("b", timeout=0)
    await mails.put_many(["c", "d"], timeout=0)
    await plain.put("a", timeout=0)
    await plain.put("b", timeout=timedelta(seconds=1), headers={"x": "y"})
    await plain.put("c", timeout=-1)
    await t.reopen()
    await mails.put("e", timeout=0)
    await t.work(mails, "anna")
    await mails.put_many(["f", "g"], timeout=0)
    await t.look(mails)


@script
async def put_delay(t: Tape) -> None:
    """Delayed jobs come in the order of their times, keep their first ID as origin, and survive a restart."""
    mails = t.queue("mails")
    await mails.put("c", delay=30)
    await mails.put("a", delay=timedelta(seconds=10))
    await mails.put_many(["b1", "b2"], delay=20)
    await mails.put("now", delay=0)
    await mails.put("never", delay=-1)
    await mails.peek(2, scheduled=True)
    await mails.put("plain")
    await t.look(mails)
    await t.work(mails, "anna")
    await t.wait(11)
    await mails.peek()
    await t.work(mails, "anna", 1)
    await t.reopen()
    await t.look(mails)
    t.world.clock.jump(500)
    await t.wait(1)
    await mails.get("anna", 0)
    await t.wait(20)
    job = await mails.get("anna", 0)
    await job.done_and(mails.new("d", delay=5))
    await t.wait(100)
    await t.work(mails, "anna", batch=10)
    await t.look(mails)


@script
async def put_at(t: Tape) -> None:
    """A job that is due at a time of the wall clock follows that clock, forward too."""
    mails = t.queue("mails")
    await mails.put("a", at=START + timedelta(seconds=60))
    await mails.put("past", at=START - timedelta(seconds=60))
    await mails.put("both", at=START, delay=1)
    await mails.put("naive", at=START.replace(tzinfo=None))
    await mails.put_many(["b", "c"], at=START + timedelta(hours=2))
    await mails.put("far", at=START + timedelta(days=36_500))
    await t.work(mails, "anna")
    t.world.clock.jump(61)
    await t.wait(31)
    await t.work(mails, "anna")
    await t.reopen()
    t.world.clock.jump(-30)
    await mails.put("d", at=START + timedelta(seconds=100))
    await t.look(mails)
    await t.wait(7200)
    await t.work(mails, "anna")
    await t.look(mails)


@script
async def put_ttl(t: Tape) -> None:
    """A job that is too old becomes dead instead of being delivered: new, delayed, for a retry, in a batch."""
    mails = t.queue("mails", retry_after=2)
    await mails.put("a", ttl=10)
    await mails.put("b", ttl=timedelta(seconds=20))
    await mails.put_many(["c", "d"], ttl=5)
    await mails.put("e", ttl=5, delay=10)
    await mails.put("f", ttl=5, priority=2)
    await mails.put("wrong", ttl=0)
    await mails.put("plain")
    job = await mails.get("anna", 0)
    await job.nack("not now", 4)
    await t.wait(6)
    await t.work(mails, "anna", 2)
    await t.look(mails)
    await t.reopen()
    await t.wait(5)
    await t.work(mails, "anna", batch=10)
    await mails.put("g", ttl=1)
    held = await mails.get("ben", 0)
    await t.wait(20)
    await held.ack()
    await t.work(mails, "anna")
    await t.dead(mails).redrive()
    await t.look(mails)


@script
async def put_priority(t: Tape) -> None:
    """Jobs with a larger number come first, one fetch in ten is fair; retries, deaths and redrives keep the number."""
    mails = t.queue("mails", retry_after=3, max_deliveries=2)
    await mails.put_many(list(range(12)))
    await mails.put_many(["five", "six"], priority=5)
    await mails.put("nine", priority=9)
    await mails.put("ten", priority=10)
    await mails.put("delayed", priority=7, delay=2)
    await mails.put("plain", priority=0)
    await t.look(mails)
    await t.work(mails, "anna", 1)
    await t.work(mails, "anna", 2, batch=10)
    job = await mails.get("ben", 0)
    await job.done_and(mails.new("next", priority=4), mails.new("last", priority=4))
    await t.wait(3)
    job = await mails.get("ben", 0)
    await job.nack("not now", 1)
    held = await mails.get("carl", 0)
    await mails.put_many([f"n{n}" for n in range(12)], priority=1)
    await t.reopen()
    await t.look(mails)
    await t.wait(4)
    await t.work(mails, "ben", 14)
    job = await mails.get("ben", 0)
    await job.fail("no")
    await held.ack()
    await t.dead(mails).redrive()
    await mails.purge()
    await t.look(mails)


@script
async def put_key(t: Tape) -> None:
    """A key is stored and shown, and changes nothing for a queue without the limit."""
    mails = t.queue("mails")
    await mails.put("a", key="k")
    await mails.put("b", key="k", headers={"x": "y"}, priority=1)
    await mails.put_many(["c", "d"], key="k")
    await mails.put("e", key="l", delay=1, ttl=50)
    await mails.put("wrong", key="")
    await t.work(mails, "anna", 2)
    job = await mails.get("anna", 0)
    await job.fail("no")
    await t.reopen()
    await t.dead(mails).redrive()
    await t.wait(2)
    await t.look(mails)
    job = await mails.get("anna", 0)
    await job.done_and(mails.new("f", key="m"))
    await t.work(mails, "anna", batch=10)
    await t.look(mails)


@script
async def put_retry(t: Tape) -> None:
    """A job is tried again by a policy of its own: at once, delayed, with a priority, redriven, after a restart."""
    mails = t.queue("mails", retry_after=20, max_deliveries=2)
    policy = tidelog.RetryPolicy(max=3, base=1, cap=5, jitter=False, on=(OSError,))
    await mails.put("a", retry=policy)
    await mails.put("b", retry="max=1", key="k", priority=2, headers={"x": "y"})
    await mails.put_many(["c", "d"], retry="max=4 base=1 backoff=constant", delay=1)
    await mails.put("e")
    await mails.put("wrong", retry="max=0")
    await mails.put("wrong", retry=3)
    for _ in range(4):
        job = await mails.get("anna", 0)
        await job.nack("no")
        await t.look(mails)
        await t.wait(1)
    await t.reopen()
    await t.wait(5)
    for error in (LookupError("no"), TimeoutError("a"), tidelog.RetryJob("later", delay=1)):
        await t.work(mails, "anna", 2, error)
        await t.look(mails)
        await t.wait(2)
    await t.dead(mails).redrive()
    job = await mails.get("anna", 0)
    await job.done_and(mails.new("f", retry="max=1 on=OSError"))
    await t.work(mails, "anna", 1, tidelog.GiveUp("enough"), batch=10)
    await t.work(mails, "anna", 20, LookupError("no"))
    await t.look(mails)


@script
async def put_time_limit(t: Tape) -> None:
    """A job has a limit of time of its own: at once, delayed, with a priority, dead and redriven, as a successor."""
    mails = t.queue("mails", time_limit=60, max_deliveries=1)
    await mails.put("a", time_limit=2.5)
    await mails.put("b", time_limit=timedelta(minutes=2), key="k", priority=2, retry="max=1")
    await mails.put_many(["c", "d"], time_limit=0.0001, delay=1)
    await mails.put("wrong", time_limit=0)
    await mails.put_many(["wrong"], time_limit="5")
    await t.wait(2)
    await t.work(mails, "anna", 2, TimeoutError("late"))
    await t.look(mails)
    await t.reopen()
    await t.dead(mails).redrive()
    job = await mails.get("anna", 0)
    await job.extend(5)
    await job.done_and(mails.new("e", time_limit=3))
    await t.work(mails, "anna", 9)
    await t.look(mails)


@script
async def cancel_4(t: Tape) -> None:
    """A delayed job is cancelled, and its dedup ID free; one that came, one twice and one that never was are told."""
    mails = t.queue("mails")
    first = await mails.put("a", delay=10)
    second = await mails.put("b", delay=10, dedup_id="x")
    third = await mails.put("c", delay=10, priority=3)
    now = await mails.put("d")
    await mails.cancel(first)
    await mails.cancel(first)
    await mails.cancel(now)
    await mails.cancel("5-5")
    await mails.cancel("x")
    await t.reopen()
    await mails.cancel(second)
    await mails.put("e", dedup_id="x")
    await mails.result(second, 0)
    await t.wait(11)
    await t.work(mails, "anna", 1)
    await mails.cancel(third)
    await t.look(mails)


@script
async def cancel_running(t: Tape) -> None:
    """Jobs that wait, run, are paused or are done; for one group; with all that a worker says of them afterwards."""
    mails, audit = t.queue("mails", concurrency_per_key=1), t.queue("mails", group="audit")
    ids = [await mails.put(name, key="k", dedup_id=name) for name in "abc"]
    held = await mails.put("d", priority=2, dedup_id="d", dedup="until-done")
    await mails.cancel(ids[1])
    first, second = await mails.get("anna", 0), await mails.get("anna", 0)
    await audit.subscribe()
    await mails.cancel(ids[0])
    for end in (first.ack, first.nack, first.fail, first.release):
        await end()
    await mails.cancel(held, group="workers")
    await second.extend(5)
    third = await mails.get("anna", 0)
    await third.nack("no", 5)
    await mails.cancel(ids[2], group="audit")
    await mails.cancel(ids[2], group="workers")
    await t.reopen()
    for id in (*ids, held):
        await mails.job(id)
        await mails.cancel(id)
    await mails.find(state="cancelled", key="k")
    await audit.find(state="cancelled")
    await mails.put("e", dedup_id="d", dedup="until-done")
    await mails.put("f", dedup_id="a")
    await mails.put("g", dedup_id="b")
    await t.look(mails)
    await t.work(mails, "anna")


@script
async def progress(t: Tape) -> None:
    """One report of each job, which goes with the job: done, dead, cancelled; or stays with it: given back."""
    mails = t.queue("mails")
    ids = [await mails.put(name) for name in "abcde"]
    jobs = [await mails.get("anna", 0) for _ in ids]
    for number, job in enumerate(jobs):
        await job.progress(number / 4, f"page {number} of 4")
        await mails.job(ids[number])
    await jobs[0].progress(2)
    await jobs[0].ack()
    await jobs[1].fail("no")
    await mails.cancel(ids[2])
    await jobs[3].nack("no", 5)
    await jobs[4].release()
    for id in ids:
        await mails.job(id)
    await t.reopen()
    await mails.job(ids[3])
    await t.wait(6)
    await t.work(mails, "anna")
    await t.look(mails)


@script
async def move(t: Tape) -> None:
    """A delayed job gets another time, earlier, later or now, by a delay or a time, and keeps its ID."""
    mails = t.queue("mails")
    first, second = await mails.put("a", delay=10), await mails.put("b", delay=20)
    third = await mails.put("c", at=START + timedelta(seconds=30), ttl=40)
    await mails.move(first, delay=60)
    await mails.move(second, at=START - timedelta(seconds=1))
    await mails.move(third)
    await mails.move("5-5", delay=1)
    await t.work(mails, "anna")
    await mails.move(second, delay=1)
    await t.look(mails)
    await t.reopen()
    await mails.move(third, at=START + timedelta(seconds=50))
    await mails.move(first, delay=timedelta(seconds=5))
    await t.wait(6)
    t.world.clock.jump(45)
    await t.wait(31)
    await t.work(mails, "anna")
    await t.look(mails)


@script
async def purge(t: Tape) -> None:
    """All jobs that no worker has are deleted: new, paused, delayed and of every priority; then the queue goes on."""
    mails = t.queue("mails")
    await mails.put_many(list(range(5)))
    await mails.put("p", priority=3)
    await mails.put("d", delay=5)
    job = await mails.get("anna", 0)
    await job.nack("not now", 60)
    held = await mails.get("ben", 0)
    await mails.purge()
    await t.look(mails)
    await held.ack()
    await mails.put_many(["a", "b"], priority=3)
    await mails.put("c", delay=1)
    await t.reopen()
    await mails.purge()
    await mails.put("e")
    await t.wait(61)
    await t.work(mails, "anna")
    await mails.purge()
    await t.look(mails)
